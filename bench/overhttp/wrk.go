package overhttp

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/jatah-io/jatah/bench/internal/proc"
)

// wrkProgram is what has to be in PATH.
const wrkProgram = "wrk"

// connections are those that wrk keeps open, with one thread: it shares two cores with the server.
const connections = 32

// script is what wrk does: it makes the requests before the clock starts, so that it then only has to send them.
const script = `local bodies = {
%s}
local requests, at = {}, 0
function init()
  for i, body in ipairs(bodies) do
    requests[i] = wrk.format("POST", %q, {["Content-Type"] = "application/json"}, body)
  end
end
function request()
  at = at %% #requests + 1
  return requests[at]
end
`

// writeScript returns the file of a script that sends the bodies in turn.
func writeScript(dir, name, path string, bodies []string) (string, error) {
	var list strings.Builder
	for _, b := range bodies {
		fmt.Fprintf(&list, "[==[%s]==],\n", b)
	}
	file := filepath.Join(dir, name+".lua")
	if err := os.WriteFile(file, fmt.Appendf(nil, script, list.String(), path), 0o600); err != nil {
		return "", fmt.Errorf("overhttp: %w", err)
	}
	return file, nil
}

// measurement is one run.
type measurement struct {
	perSecond float64 // requests
	p50, p99  time.Duration
	cpu       time.Duration // of the server, for each request; says more than perSecond when the machine is busy
}

var (
	wrkPerSecond = regexp.MustCompile(`Requests/sec:\s+([0-9.]+)`)
	wrkP50       = regexp.MustCompile(`\n\s+50%\s+([0-9.]+[a-z]+)`)
	wrkP99       = regexp.MustCompile(`\n\s+99%\s+([0-9.]+[a-z]+)`)
	wrkRequests  = regexp.MustCompile(`(\d+) requests in`)
	wrkTrouble   = regexp.MustCompile(`(Non-2xx|Socket errors).*`)
)

// runWrk asks the server at an address for whole seconds.
func runWrk(ctx context.Context, file, addr string, of *proc.Process, length time.Duration) (measurement, error) {
	before, err := of.CPU()
	if err != nil {
		return measurement{}, err
	}
	cmd := exec.CommandContext(ctx, wrkProgram, "--latency", "-t", "1", "-c", strconv.Itoa(connections), "--timeout", "20s",
		"-d", strconv.Itoa(int(length.Seconds()))+"s", "-s", file, "http://"+addr)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return measurement{}, fmt.Errorf("overhttp: wrk: %w\n%s", errors.Join(ctx.Err(), err), out)
	}
	m, requests, err := parseWrk(string(out))
	if err != nil {
		return m, err
	}
	after, err := of.CPU()
	m.cpu = (after - before) / time.Duration(requests)
	return m, err
}

// parseWrk reads what wrk prints: a measurement but for the cpu, and how many requests were answered, at least one.
func parseWrk(out string) (m measurement, requests int64, err error) {
	if trouble := wrkTrouble.FindString(out); trouble != "" {
		return m, 0, fmt.Errorf("overhttp: not every request was answered with 200: %s", trouble)
	}
	field := func(re *regexp.Regexp) string {
		if found := re.FindStringSubmatch(out); found != nil {
			return found[1]
		}
		return ""
	}
	// wrk writes its times as Go does, but for minutes and hours, which no answer here takes.
	if m.perSecond, err = strconv.ParseFloat(field(wrkPerSecond), 64); err == nil {
		if m.p50, err = time.ParseDuration(field(wrkP50)); err == nil {
			if m.p99, err = time.ParseDuration(field(wrkP99)); err == nil {
				requests, err = strconv.ParseInt(field(wrkRequests), 10, 64)
			}
		}
	}
	if err == nil && requests == 0 {
		err = errors.New("no request was answered")
	}
	if err != nil {
		return m, 0, fmt.Errorf("overhttp: cannot read what wrk says: %w\n%s", err, out)
	}
	return m, requests, nil
}

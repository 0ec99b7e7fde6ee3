package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"time"
)

// takeScript makes the requests before the clock starts: wrk then only has to send them.
const takeScript = `local requests, at = {}, 0
function init()
  local head = {["Content-Type"] = "application/json"}
  for i = 1, %d do
    requests[i] = wrk.format("POST", "/v1/take", head, '{"limit":"api","key":"user:' .. (10000 + i) .. '","cost":1}')
  end
end
function request()
  at = at %% #requests + 1
  return requests[at]
end
`

// wrk runs the load generator of that name.
type wrk struct {
	options
	script string
}

// measurement is one run.
type measurement struct {
	perSecond float64
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

func (w wrk) measure(ctx context.Context, s *server, length time.Duration) (measurement, error) {
	before, err := s.processorTime()
	if err != nil {
		return measurement{}, err
	}
	cmd := exec.CommandContext(ctx, "wrk", "--latency",
		"-t", strconv.Itoa(w.threads), "-c", strconv.Itoa(w.connections),
		"-d", strconv.Itoa(int(length.Seconds()))+"s", "-s", w.script, "http://"+s.addr)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return measurement{}, fmt.Errorf("httpbench: wrk: %w\n%s", err, out)
	}
	m, requests, err := parseWrk(string(out))
	if err != nil {
		return m, err
	}
	after, err := s.processorTime()
	m.cpu = (after - before) / time.Duration(requests)
	return m, err
}

// parseWrk reads what wrk prints: a measurement but for the cpu, and how many requests were answered, at least one.
func parseWrk(out string) (m measurement, requests int64, err error) {
	if trouble := wrkTrouble.FindString(out); trouble != "" {
		return m, 0, fmt.Errorf("httpbench: not every request was answered with 200: %s", trouble)
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
		return m, 0, fmt.Errorf("httpbench: cannot read what wrk says: %w\n%s", err, out)
	}
	return m, requests, nil
}

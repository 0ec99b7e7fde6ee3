package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"strings"
	"unicode"

	"github.com/jatah-io/jatah/cmd/node/internal/config"
)

// errFindings makes doctor end with exitFailed; what there is to say has been said.
var errFindings = errors.New("problems were found")

// cannotRun makes doctor end with exitUsage: nothing is known.
type cannotRun struct{ error }

func (c cannotRun) Unwrap() error { return c.error }

// finding is one as the API has it. Level is problem or note.
type finding struct {
	Check   string   `json:"check"`
	Level   string   `json:"level"`
	Nodes   []string `json:"nodes"`
	Problem string   `json:"problem"`
	Advice  string   `json:"advice"`
}

func problemOf(check, advice, format string, args ...any) finding {
	return finding{check, "problem", []string{}, fmt.Sprintf(format, args...), advice}
}

func noteOf(check, advice, format string, args ...any) finding {
	return finding{check, "note", []string{}, fmt.Sprintf(format, args...), advice}
}

// visit is all that doctor has found.
type visit struct {
	Config   string    `json:"config,omitempty"` // the file that was looked at
	Addr     string    `json:"addr"`             // of the node that was asked
	Node     string    `json:"node,omitempty"`   // that answered; "": none did
	Answered []string  `json:"answered"`
	Missing  []string  `json:"missing"`
	Findings []finding `json:"findings"`
}

func doctor(ctx context.Context, c console, args []string) error {
	flags := newFlags("doctor", "Looks for what is wrong with a running cluster, and with --config at a file and this machine too, and says what to do.\n"+
		"Each member is asked whom its packets reach. Ends with 0 if there is no problem, 1 if there is one, 2 if it could not look.")
	var node api
	node.register(flags)
	path := flags.String("config", "", "also look at this configuration `file`, the environment and this machine, as before a start")
	raw := flags.Bool("json", false, "print what was found as JSON")
	if err := flags.parse(c, args, 0); err != nil {
		return err
	}
	given := false
	flags.Visit(func(f *flag.Flag) { given = given || f.Name == "addr" })
	given = given || node.base != defaultAddr
	v := visit{Config: *path, Answered: []string{}, Missing: []string{}, Findings: []finding{}}
	var cfg *config.Config
	if *path != "" {
		var err error
		if cfg, err = v.readConfig(*path, c.environ); err != nil {
			return err
		}
	}
	if cfg != nil && !given {
		if addr := localAddress(cfg.HTTP); addr != "" {
			node.base = "http://" + addr
			if cfg.TLS != nil {
				node.base = "https://" + addr
			}
		}
	}
	v.Addr = node.base
	var there answered
	switch err := v.ask(ctx, &node); {
	case err == nil:
	case *path == "" || given:
		return cannotRun{err}
	case errors.As(err, &there): // so its ports are in use, as they should be
		v.Findings = append(v.Findings, problemOf("members", "Say it by --token-file, --ca, --cert and --key, or --addr, and ask again.", "The node at %s is there and did not say how it is: %v.", node.base, err))
	default:
		v.Findings = append(v.Findings, noteOf("members", "Start it, and ask again.", "No node answers at %s, so only the file and this machine were looked at.", node.base))
		if cfg != nil {
			v.Findings = append(v.Findings, machineFindings(ctx, cfg)...)
		}
	}
	return v.tell(c.out, *raw)
}

// readConfig looks at the file. It returns nil for one that has mistakes, which are findings.
func (v *visit) readConfig(path string, environ []string) (*config.Config, error) {
	sources := config.Read(path, environ, nil)
	cfg, err := sources.Config()
	var missing *fs.PathError
	switch {
	case errors.As(err, &missing) && missing.Path == path:
		return nil, cannotRun{err}
	case err != nil:
		for line := range strings.Lines(err.Error()) {
			if line = strings.TrimSpace(line); line != "" {
				v.Findings = append(v.Findings, problemOf("config", "Correct it; jatah check says the same.", "%s", line))
			}
		}
		return nil, nil
	}
	v.Findings = append(v.Findings, configFindings(sources, &cfg)...)
	return &cfg, nil
}

// ask adds what the cluster says.
func (v *visit) ask(ctx context.Context, node *api) error {
	status, answer, err := node.call(ctx, http.MethodGet, "/v1/doctor", nil, http.StatusOK)
	switch {
	case status == http.StatusServiceUnavailable:
		v.Findings = append(v.Findings, problemOf("members", "Wait until /readyz says 200, and ask again.", "The node at %s cannot be asked yet, or no more: %v.", node.base, err))
		return nil
	case status == http.StatusNotFound:
		return answered{fmt.Errorf("the node at %s is of a version without a doctor: update it; or what answers there is no node", node.base)}
	case err != nil && status != 0:
		return answered{err}
	case err != nil:
		return err
	}
	var said visit
	if err := json.Unmarshal(answer, &said); err != nil || said.Node == "" {
		return answered{fmt.Errorf("the answer of %s is no diagnosis", node.base)}
	}
	v.Node, v.Answered, v.Missing = said.Node, append(v.Answered, said.Answered...), append(v.Missing, said.Missing...)
	v.Findings = append(v.Findings, said.Findings...)
	return nil
}

func (v *visit) tell(w io.Writer, raw bool) error {
	problems := 0
	for _, f := range v.Findings {
		if f.Level != "note" {
			problems++
		}
	}
	if raw {
		b, err := json.Marshal(v)
		if err != nil {
			return cannotRun{err}
		}
		fmt.Fprintln(w, string(b))
	} else {
		v.print(w, problems)
	}
	if problems > 0 {
		return errFindings
	}
	return nil
}

func (v *visit) print(w io.Writer, problems int) {
	if v.Config != "" {
		fmt.Fprintf(w, "looked at %s and this machine\n", v.Config)
	}
	if v.Node != "" {
		fmt.Fprintf(w, "asked %s at %s; %d of %d nodes answered", printable(v.Node), v.Addr, len(v.Answered), len(v.Answered)+len(v.Missing))
		if len(v.Missing) > 0 {
			fmt.Fprintf(w, ", not %s", printable(strings.Join(v.Missing, ", ")))
		}
		fmt.Fprintln(w)
	}
	for _, level := range []string{"problem", "note"} {
		for _, f := range v.Findings {
			if (f.Level == "note") == (level == "note") {
				fmt.Fprintf(w, "\n%s (%s): %s\n  %s\n", level, f.Check, printable(f.Problem), printable(f.Advice))
			}
		}
	}
	if len(v.Findings) > 0 {
		fmt.Fprintln(w)
	}
	switch notes := len(v.Findings) - problems; {
	case problems > 0:
		fmt.Fprintf(w, "%s, %s\n", count(problems, "problem"), count(notes, "note"))
	case notes > 0:
		fmt.Fprintf(w, "no problem, %s\n", count(notes, "note"))
	default:
		fmt.Fprintln(w, "all is well")
	}
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// printable keeps what other nodes say, such as their names, from commanding the terminal, which some do by control characters above ASCII too, and from
// turning a line around.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Cf, r) {
			return '?'
		}
		return r
	}, s)
}

// localAddress is where this machine reaches what listens on an address; "" if the port is not known.
func localAddress(listen string) string {
	host, port, err := net.SplitHostPort(listen)
	if err != nil || port == "0" || port == "" {
		return ""
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port)
}

func health(ctx context.Context, c console, args []string) error {
	flags := newFlags("health", "Asks a node whether it is ready to decide. Ends with 0 if it is, 1 if not: for containers, which have no other program to ask with.")
	var node api
	node.register(flags)
	live := flags.Bool("live", false, "ask only whether it runs")
	if err := flags.parse(c, args, 0); err != nil {
		return err
	}
	path, word := "/readyz", "ready"
	if *live {
		path, word = "/healthz", "alive"
	}
	if _, _, err := node.call(ctx, http.MethodGet, path, nil, http.StatusOK); err != nil {
		return err
	}
	fmt.Fprintln(c.out, word)
	return nil
}

// Command all runs the benchmarks and writes what they measured as a page with plots. Run it in the module bench:
//
//	go run ./cmd/all                       # everything; the better part of an hour, on a machine that does nothing else
//	go run ./cmd/all -only local,memory
//	go run ./cmd/all -short                # about a minute; see below
//
// The page is <o>/<date>-<commit>.md. Progress goes to standard error.
//
// A short run is for continuous integration: its numbers mean little, so it ends with code 1 only if a suite cannot run, or if a result is far
// off: allocations where there must be none, ratios that no noise explains. A long run says so too, but after it has written the page, and with code 0.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/jatah-io/jatah/bench/report"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], suites(), os.Stdout, os.Stderr)
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "all:", err)
		os.Exit(1)
	}
}

// errUsage is wrapped by errors about flags.
var errUsage = errors.New("bad flags")

// config is what the flags say.
type config struct {
	dir    string
	suites []report.Suite
	short  bool
	rounds int
}

func parse(args []string, all []report.Suite, stderr io.Writer) (config, error) {
	var c config
	var only string
	f := flag.NewFlagSet("all", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&c.dir, "o", "results", "write the page and its plots into this `directory`")
	f.StringVar(&only, "only", "", "run only these `suites`, separated by commas: "+strings.Join(names(all), ", "))
	f.BoolVar(&c.short, "short", false, "take a minute, and fail on allocations and on ratios that are far off")
	f.IntVar(&c.rounds, "rounds", 0, "how often each peer has its turn; 0: five times, or three in a short run")
	if err := f.Parse(args); err != nil {
		return c, err
	}
	if f.NArg() > 0 {
		return c, fmt.Errorf("%w: %q is no flag; name suites with -only", errUsage, f.Arg(0))
	}
	switch {
	case c.rounds < 0:
		return c, fmt.Errorf("%w: -rounds is %d, and must be at least 1, or 0 for the default", errUsage, c.rounds)
	case c.rounds == 0 && c.short:
		c.rounds = 3
	case c.rounds == 0:
		c.rounds = 5
	}
	c.suites = all
	if only != "" {
		wanted := strings.Split(only, ",")
		for _, name := range wanted {
			if !slices.Contains(names(all), name) {
				return c, fmt.Errorf("%w: there is no suite %q; there are: %s", errUsage, name, strings.Join(names(all), ", "))
			}
		}
		c.suites = slices.DeleteFunc(slices.Clone(all), func(s report.Suite) bool { return !slices.Contains(wanted, s.Name) })
	}
	return c, nil
}

func names(suites []report.Suite) []string {
	var out []string
	for _, s := range suites {
		out = append(out, s.Name)
	}
	return out
}

// run is the program. What was measured is written also if a suite failed.
func run(ctx context.Context, args []string, all []report.Suite, stdout, stderr io.Writer) error {
	c, err := parse(args, all, stderr)
	if err != nil {
		return err
	}
	scratch, err := os.MkdirTemp("", "jatah-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	start := time.Now()
	o := report.Options{Short: c.short, Rounds: c.rounds, Dir: scratch, Log: func(format string, a ...any) {
		fmt.Fprintf(stderr, "%7.1fs  %s\n", time.Since(start).Seconds(), fmt.Sprintf(format, a...))
	}}
	meta := report.Look(ctx, c.suites, o)
	samples, failed := report.RunSuites(ctx, c.suites, o)
	meta.Took, meta.LoadAfter = time.Since(start), report.Load()
	if len(samples) == 0 {
		return errors.Join(failed, errors.New("nothing was measured"))
	}
	name, err := report.Write(c.dir, meta, c.suites, samples)
	if err != nil {
		return errors.Join(failed, err)
	}
	fmt.Fprintln(stdout, name)
	off := check(c.suites, samples)
	if c.short {
		return errors.Join(failed, off)
	}
	if off != nil {
		fmt.Fprintf(stderr, "far off:\n%v\n", off)
	}
	return failed
}

// check asks each suite that was measured what it thinks of the results.
func check(suites []report.Suite, samples []report.Sample) error {
	set := report.Collect(samples)
	var off []error
	for _, s := range suites {
		if s.Check != nil && len(set.All(s.Name)) > 0 {
			off = append(off, s.Check(set)...)
		}
	}
	return errors.Join(off...)
}

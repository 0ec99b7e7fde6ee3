// Command chaos breaks a cluster of real processes at random, under load, and judges whether it kept its promises. Run it in the module bench, as
// root for faults of the network:
//
//	go run ./cmd/chaos -duration 30m -seed 42
//	go run ./cmd/chaos -duration 60s -quick
//	go run ./cmd/chaos -soak 60m
//
// The page is <o>/<date>-<commit>-chaos.md, or -soak.md, with plots beside it. It ends with code 1 when a promise was broken, and then keeps the logs of the nodes
// too. Progress goes to standard error. docs/reliability.md says what is judged.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/jatah-io/jatah/bench/chaos"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(1)
	}
}

func parse(args []string, stderr io.Writer) (chaos.Options, error) {
	o := chaos.Defaults()
	f := flag.NewFlagSet("chaos", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.DurationVar(&o.Duration, "duration", o.Duration, "how long faults are made")
	f.Uint64Var(&o.Seed, "seed", o.Seed, "draws the schedule")
	f.IntVar(&o.Nodes, "nodes", o.Nodes, "nodes of the cluster; one more comes and goes. A soak has 3 unless you say otherwise")
	f.DurationVar(&o.Quiet, "quiet-period", o.Quiet, "after each recovery")
	f.DurationVar(&o.Longest, "longest", o.Longest, "of a fault")
	f.Int64Var(&o.Rate, "rate", o.Rate, "of each limit that is judged, per second")
	f.BoolVar(&o.Race, "race", o.Race, "build the nodes with the race detector")
	f.StringVar(&o.Program, "program", o.Program, "a `file` to run as nodes, instead of building one from this module")
	f.StringVar(&o.Out, "o", o.Out, "write the page and its plots into this `directory`")
	f.DurationVar(&o.Soak, "soak", o.Soak, "run for so long with many keys, and with restarts and crashes only")
	f.IntVar(&o.Keys, "keys", o.Keys, "of a soak")
	f.BoolVar(&o.KeepLogs, "keep-logs", o.KeepLogs, "of the nodes, also when no promise was broken")
	quick := f.Bool("quick", false, "short faults and quiet periods, so that a minute has many of them")
	faults := f.String("faults", "", "only these `kinds`, separated by commas, instead of all: "+chaos.KindNames())
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if f.NArg() > 0 {
		return o, fmt.Errorf("%w: %q is no flag", chaos.ErrOptions, f.Arg(0))
	}
	given := make(map[string]bool)
	f.Visit(func(one *flag.Flag) { given[one.Name] = true })
	if *quick && !given["quiet-period"] {
		o.Quiet = 2 * time.Second
	}
	if *quick && !given["longest"] {
		o.Longest = 2 * time.Second
	}
	if o.Soak > 0 && !given["nodes"] {
		o.Nodes = 3
	}
	if *faults != "" {
		var err error
		if o.Faults, err = chaos.ParseKinds(*faults); err != nil {
			return o, err
		}
	}
	return o, nil
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	begin := time.Now()
	o.Log = func(format string, a ...any) {
		fmt.Fprintf(stderr, "%7.1fs  %s\n", time.Since(begin).Seconds(), fmt.Sprintf(format, a...))
	}
	page, err := chaos.Run(ctx, o)
	if page != "" {
		fmt.Fprintln(stdout, page)
	}
	return err
}

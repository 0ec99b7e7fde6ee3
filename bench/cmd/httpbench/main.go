package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

type options struct {
	rounds      int
	length      time.Duration
	connections int
	threads     int
	keys        int
	bare        string
	reply       string
}

func main() {
	var o options
	flag.IntVar(&o.rounds, "rounds", 5, "how often each is measured")
	flag.DurationVar(&o.length, "length", 4*time.Second, "length of one measurement, whole seconds")
	flag.IntVar(&o.connections, "connections", 32, "connections that wrk keeps open")
	flag.IntVar(&o.threads, "threads", 1, "threads of wrk")
	flag.IntVar(&o.keys, "keys", 1000, "keys that are asked for in turn")
	flag.StringVar(&o.bare, "bare", "", "used by the program itself: serve the bare handler on this `address`")
	flag.StringVar(&o.reply, "reply", "", "used by the program itself: `file` with the answer of the bare handler")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	err := errors.New("httpbench: takes no arguments but flags")
	switch {
	case flag.NArg() > 0:
	case o.bare != "":
		err = serveBare(o.bare, o.reply)
	default:
		err = run(ctx, o, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options, out io.Writer) (err error) {
	if o.rounds < 1 || o.length < time.Second || o.connections < o.threads || o.threads < 1 || o.keys < 1 {
		return errors.New("httpbench: needs at least one round, second, thread and key, and a connection for each thread")
	}
	if _, err := exec.LookPath("wrk"); err != nil {
		return fmt.Errorf("httpbench: %w; install it, on Debian with apt-get install wrk", err)
	}
	dir, err := os.MkdirTemp("", "httpbench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	node, err := startNode(ctx, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, node.stop()) }()
	bare, err := startBare(ctx, dir, node)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, bare.stop()) }()

	w := wrk{options: o, script: filepath.Join(dir, "take.lua")}
	if err := os.WriteFile(w.script, fmt.Appendf(nil, takeScript, o.keys), 0o600); err != nil {
		return err
	}
	fmt.Fprintln(out, machine(o))
	return compare(ctx, out, w, bare, node)
}

// row is a line of the table: for each of the two requests per second, median and 99th percentile, and the
// processor time of a request.
const row = "%-8v %10v %9v %9v %8v   %10v %9v %9v %8v\n"

// compare measures both in turn and prints the table.
func compare(ctx context.Context, out io.Writer, w wrk, bare, node *server) error {
	for _, s := range []*server{bare, node} { // connections, heap and the keys of the node
		if _, err := w.measure(ctx, s, time.Second); err != nil {
			return err
		}
	}
	fmt.Fprintf(out, row, "round", "bare req/s", "p50", "p99", "cpu", "node req/s", "p50", "p99", "cpu")
	var bares, nodes []measurement
	for i := range w.rounds {
		// Who goes first alternates, so that a trend favours neither.
		order := []*server{bare, node}
		if i%2 == 1 {
			slices.Reverse(order)
		}
		for _, s := range order {
			m, err := w.measure(ctx, s, w.length)
			if err != nil {
				return err
			}
			if s == bare {
				bares = append(bares, m)
			} else {
				nodes = append(nodes, m)
			}
		}
		fmt.Fprintf(out, row, slices.Concat([]any{i + 1}, bares[i].cells(), nodes[i].cells())...)
	}
	b, n := median(bares), median(nodes)
	fmt.Fprintf(out, row, slices.Concat([]any{"median"}, b.cells(), n.cells())...)
	fmt.Fprintf(out, "\nnode / bare, medians: %.2f of the requests per second, %.2f of the processor time of a request\n",
		n.perSecond/b.perSecond, float64(n.cpu)/float64(b.cpu))
	return nil
}

func (m measurement) cells() []any {
	return []any{fmt.Sprintf("%.0f", m.perSecond), m.p50, m.p99, m.cpu.Round(100 * time.Nanosecond)}
}

// median takes the median of each column.
func median(ms []measurement) measurement {
	col := func(f func(measurement) float64) float64 {
		var v []float64
		for _, m := range ms {
			v = append(v, f(m))
		}
		slices.Sort(v)
		return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
	}
	return measurement{
		perSecond: col(func(m measurement) float64 { return m.perSecond }),
		p50:       time.Duration(col(func(m measurement) float64 { return float64(m.p50) })),
		p99:       time.Duration(col(func(m measurement) float64 { return float64(m.p99) })),
		cpu:       time.Duration(col(func(m measurement) float64 { return float64(m.cpu) })),
	}
}

// machine is one line on where and how this runs.
func machine(o options) string {
	model := "unknown processor"
	if info, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range bytes.Lines(info) {
			if name, text, ok := strings.Cut(string(line), ":"); ok && strings.TrimSpace(name) == "model name" {
				model = strings.TrimSpace(text)
				break
			}
		}
	}
	load := "unknown"
	if text, err := os.ReadFile("/proc/loadavg"); err == nil {
		load = strings.Join(strings.Fields(string(text))[:3], " ")
	}
	return fmt.Sprintf("%s; %s, %d cores, %s; load before: %s; wrk: %d threads, %d connections, %v x %d, %d keys\n",
		time.Now().UTC().Format("2006-01-02 15:04 MST"), model, runtime.NumCPU(), runtime.Version(), load,
		o.threads, o.connections, o.length, o.rounds, o.keys)
}

package overhttp

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/jatah-io/jatah/bench/internal/proc"
	"github.com/jatah-io/jatah/bench/internal/servers"
	"github.com/jatah-io/jatah/bench/report"
)

const doc = `One decision in one request, and 100 decisions in one request, with one process as users run it. ` + "`bare net/http`" + ` is a handler that sends
what the node answered, byte for byte, without deciding anything: what net/http can do here. wrk asks with one thread and 32 connections, which takes processor time
from all servers alike; gRPC is asked by this program, with 32 callers on one connection, so its numbers are those of another client. 1000 keys in turn; the limit never
denies. "µs of processor time" is that of the server alone, for one request.`

// Suite is the suite of decisions over HTTP.
func Suite() report.Suite {
	return report.Suite{Name: "http", Doc: doc, Baseline: bareName, Modules: []string{"github.com/gubernator-io/gubernator/v2"}, Run: run, Check: check}
}

const (
	oursName = "jatah"
	bareName = "bare net/http"

	takeCase  = "take"
	batchCase = "batch of 100"
	timeCase  = ", processor time"
	batchSize = 100
	keys      = 1000
)

// check fails when a take costs the node far more processor time than a bare handler, which says more than requests per second where something
// else runs too. It aims at 0.7 of the bare handler's requests per second.
func check(s report.Set) []error {
	const most = 4
	ours, ok := s.Median("http", takeCase+timeCase, "µs", oursName)
	bare, have := s.Median("http", takeCase+timeCase, "µs", bareName)
	if !ok || !have {
		return []error{errors.New("http: not measured beside the bare handler")}
	}
	if ours > most*bare {
		return []error{fmt.Errorf("http: a take costs the node %.1f µs of processor time, more than %d times what it costs a bare handler, %.1f µs", ours, most, bare)}
	}
	return nil
}

// target is one way to ask one server.
type target struct {
	kase, name, note string
	decisions        int // of one request
	measure          func(ctx context.Context, length time.Duration) (measurement, error)
}

func run(ctx context.Context, o report.Options, emit func(report.Sample)) (err error) {
	if _, err := exec.LookPath(wrkProgram); err != nil {
		if o.Short {
			o.Log("left out, because wrk is not in PATH")
			return nil
		}
		return fmt.Errorf("overhttp: %w; install it, on Debian with apt-get install wrk", err)
	}
	rounds, length := max(o.Rounds, 1), 4*time.Second
	if o.Short {
		rounds, length = 1, time.Second
	}
	var running []*proc.Process
	defer func() { err = errors.Join(err, proc.StopAll(running)) }()
	ts, err := start(ctx, o, &running)
	if err != nil {
		return err
	}
	for _, t := range ts { // connections, heap and the keys of the server
		if _, err := t.measure(ctx, time.Second); err != nil {
			return err
		}
	}
	for round := range rounds {
		o.Log("round %d of %d", round+1, rounds)
		order := slices.Clone(ts)
		if round%2 == 1 {
			slices.Reverse(order) // so that a trend favours nobody
		}
		for _, t := range order {
			m, err := t.measure(ctx, length)
			if err != nil {
				return err
			}
			t.emit(m, emit)
		}
	}
	return nil
}

func (t target) emit(m measurement, emit func(report.Sample)) {
	micros := func(d time.Duration) []float64 { return []float64{float64(d) / float64(time.Microsecond)} }
	emit(report.Sample{Case: t.kase, Peer: t.name, Unit: "decisions/s", Values: []float64{m.perSecond * float64(t.decisions)}, Note: t.note})
	emit(report.Sample{Case: t.kase + ", p50", Peer: t.name, Unit: "µs", Values: micros(m.p50)})
	emit(report.Sample{Case: t.kase + ", p99", Peer: t.name, Unit: "µs", Values: micros(m.p99)})
	emit(report.Sample{Case: t.kase + timeCase, Peer: t.name, Unit: "µs", Values: micros(m.cpu)})
}

// start starts all servers, adds them to running and returns how to measure them.
func start(ctx context.Context, o report.Options, running *[]*proc.Process) ([]target, error) {
	o.Log("starting a node, gubernator and bare handlers")
	program, err := proc.BuildNode(ctx, o.Dir)
	if err != nil {
		return nil, err
	}
	node, err := servers.Nodes(ctx, o.Dir, program, 1, "api=1000000000/s,burst=1000000000")
	if err != nil {
		return nil, err
	}
	*running = append(*running, node.Procs...)
	var g *servers.Group
	if withGubernator {
		if program, err = proc.BuildHere(ctx, o.Dir, servers.GubernatorPackage); err != nil {
			return nil, err
		}
		if g, err = servers.Gubernator(ctx, o.Dir, program, 1); err != nil {
			return nil, err
		}
		*running = append(*running, g.Procs...)
	}
	if program, err = proc.BuildHere(ctx, o.Dir, "github.com/jatah-io/jatah/bench/cmd/bare"); err != nil {
		return nil, err
	}
	var ts []target
	for _, c := range []struct {
		name string
		size int
	}{{takeCase, 1}, {batchCase, batchSize}} {
		ours, theirs := questions(c.size, keys), gubernatorQuestions(c.size, keys)
		reply, err := ours.sample(ctx, node.HTTP[0])
		if err != nil {
			return nil, err
		}
		bare, addr, err := startBare(ctx, o.Dir, program, reply)
		if err != nil {
			return nil, err
		}
		*running = append(*running, bare)
		type wrked struct {
			name, note, addr string
			of               *proc.Process
			ask              asking
		}
		all := []wrked{
			{bareName, "the answer of the node", addr, bare, ours},
			{oursName, "jatah serve, alone; " + ours.path, node.HTTP[0], node.Procs[0], ours},
		}
		if g != nil {
			if _, err := theirs.sample(ctx, g.HTTP[0]); err != nil {
				return nil, err
			}
			all = append(all, wrked{"gubernator HTTP", "its gateway; " + g.Note, g.HTTP[0], g.Procs[0], theirs})
		}
		for _, one := range all {
			file, err := writeScript(o.Dir, fmt.Sprintf("%s-%d", filepath.Base(one.ask.path), c.size), one.ask.path, one.ask.bodies)
			if err != nil {
				return nil, err
			}
			ts = append(ts, target{c.name, one.name, one.note, c.size, func(ctx context.Context, length time.Duration) (measurement, error) {
				return runWrk(ctx, file, one.addr, one.of, length)
			}})
		}
		if g == nil {
			continue
		}
		rpc, err := newRPC(g.GRPC[0], g.Procs[0], c.size, keys)
		if err != nil {
			return nil, err
		}
		ts = append(ts, target{c.name, "gubernator gRPC", "asked by this program instead of wrk; " + g.Note, c.size, rpc.measure})
	}
	return ts, nil
}

// startBare runs the bare handler with a reply.
func startBare(ctx context.Context, dir, program string, reply []byte) (*proc.Process, string, error) {
	addrs, err := proc.Addresses(1)
	if err != nil {
		return nil, "", err
	}
	file := filepath.Join(dir, fmt.Sprintf("reply-%d", len(reply)))
	if err := os.WriteFile(file, reply, 0o600); err != nil {
		return nil, "", fmt.Errorf("overhttp: %w", err)
	}
	p, err := proc.Start(ctx, proc.Spec{
		Program: program, Args: []string{"-listen", addrs[0], "-reply", file}, Dir: dir, Ready: proc.HTTPReady("http://" + addrs[0]),
	})
	return p, addrs[0], err
}

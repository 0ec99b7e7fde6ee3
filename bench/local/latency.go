package local

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"time"

	"github.com/jatah-io/jatah"
	"github.com/jatah-io/jatah/bench/report"
	"github.com/jatah-io/jatah/cluster/simnet"
)

func latencySuite() report.Suite {
	return report.Suite{
		Name: "latency", Run: runLatency,
		Doc: "The distribution of our own decisions in mode hybrid, on a thousand hot keys of one node, each timed by itself, one after the other on one goroutine. quiet: only the ticks go on, which always do. " +
			"gc: a full collection every 100 ms. growth: another goroutine brings new keys, a million or as many as come in. join: a second node joins, to which half of the keys move, and leaves again. all: all of it at " +
			"once. A decision that waits in vain for the new owner, 50 ms by default, is denied for the moment, and counted. The times have a reading of the clock in them, as long as the row clock says: the same loop without a decision. What the machine does to others is in both.",
	}
}

const (
	hotKeys  = 1000
	newKeys  = 1_000_000
	gcEvery  = 100 * time.Millisecond
	joinLate = 200 * time.Millisecond // so that a phase begins without the other node
)

type phase struct {
	name             string
	gc, growth, join bool
}

func phases() []phase {
	return []phase{{name: "quiet"}, {name: "gc", gc: true}, {name: "growth", growth: true}, {name: "join", join: true}, {name: "all", gc: true, growth: true, join: true}}
}

func runLatency(ctx context.Context, o report.Options, emit func(report.Sample)) error {
	length := 5 * time.Second
	if o.Short {
		length = time.Second
	}
	for round := range o.Rounds {
		emitLatency("clock", timeEach(ctx, length/5, func(int) {}), emit)
		for _, p := range phases() {
			h, denied, err := p.run(ctx, length)
			if err != nil {
				return fmt.Errorf("%s: %w", p.name, err)
			}
			emitLatency(p.name, h, emit)
			emit(report.Sample{Case: "decisions", Peer: p.name, Unit: "count", Plain: true, Values: []float64{float64(h.Count())}})
			emit(report.Sample{Case: "denied", Peer: p.name, Unit: "count", Plain: true, Values: []float64{float64(denied)}})
		}
		o.Log("latency: round %d of %d", round+1, o.Rounds)
		if o.Short {
			break
		}
	}
	return nil
}

func emitLatency(name string, h *report.Histogram, emit func(report.Sample)) {
	us := func(d time.Duration) []float64 { return []float64{float64(d) / float64(time.Microsecond)} }
	for _, q := range []struct {
		name string
		d    time.Duration
	}{{"p50", h.Quantile(0.5)}, {"p99", h.Quantile(0.99)}, {"p99.9", h.Quantile(0.999)}, {"max", h.Max()}} {
		emit(report.Sample{Case: q.name, Peer: name, Unit: "µs", Values: us(q.d)})
	}
	emit(report.Sample{Case: "distribution", Peer: name, Unit: "µs", Points: h.Tail(time.Microsecond), X: report.XTail, LogX: true, LogY: true})
}

// timeEach calls do again and again for so long and times each call.
func timeEach(ctx context.Context, length time.Duration, do func(i int)) *report.Histogram {
	h := new(report.Histogram)
	end := time.Now().Add(length)
	for i := 0; ; i++ {
		start := time.Now()
		do(i)
		h.Add(time.Since(start))
		if i&0xff == 0 && (!start.Before(end) || ctx.Err() != nil) {
			return h
		}
	}
}

// run opens a node on a network of its own and times its decisions while the phase's disturbances go on.
func (p phase) run(ctx context.Context, length time.Duration) (h *report.Histogram, denied int, err error) {
	network := simnet.New(1)
	node, l, err := joinLatency(ctx, network, "n0", "10.0.0.1:7946")
	if err != nil {
		return nil, 0, err
	}
	defer node.Close()
	hot := make([]string, hotKeys)
	for i := range hot {
		hot[i] = fmt.Sprint("hot:", i)
		if err := obtainCredit(ctx, l, hot[i]); err != nil {
			return nil, 0, err
		}
	}
	quietHeap()
	ctx, stop := context.WithCancel(ctx)
	var others sync.WaitGroup
	var joined error
	if p.gc {
		others.Go(func() { collect(ctx) })
	}
	if p.growth {
		others.Go(func() { grow(ctx, l) })
	}
	if p.join {
		others.Go(func() { joined = comeAndGo(ctx, network, length) })
	}
	h = timeEach(ctx, length, func(i int) {
		if !l.Take(ctx, hot[i%hotKeys], 1).OK {
			denied++
		}
	})
	stop()
	others.Wait()
	return h, denied, joined
}

func joinLatency(ctx context.Context, network *simnet.Network, name, addr string, join ...string) (*jatah.Node, *jatah.Limiter, error) {
	transport, err := network.Transport(addr)
	if err != nil {
		return nil, nil, err
	}
	cfg := jatah.Config{Node: name, Transport: transport, Insecure: true, Join: join, Settle: settle, MaxKeys: 2 * newKeys, Logger: slog.New(slog.DiscardHandler)}
	node, err := jatah.Open(ctx, cfg)
	if err != nil {
		return nil, nil, err
	}
	// The limit comes before the share: once others see the node as an owner they ask it.
	l, err := node.Limit(jatah.Limit{Name: "bench", Rate: jatah.Per(ample.tokens, ample.per)})
	if err == nil {
		err = node.Wait(ctx)
	}
	if err != nil {
		_ = node.Close()
		return nil, nil, err
	}
	return node, l, nil
}

func collect(ctx context.Context) {
	t := time.NewTicker(gcEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			runtime.GC()
		}
	}
}

// grow brings new keys, until there are enough.
func grow(ctx context.Context, l *jatah.Limiter) {
	for i := 0; i < newKeys && ctx.Err() == nil; i++ {
		l.Take(ctx, keyOf(i), 1)
	}
}

// comeAndGo has a second node join, stay for half of the phase, and leave.
func comeAndGo(ctx context.Context, network *simnet.Network, length time.Duration) error {
	pause := func(d time.Duration) bool {
		select {
		case <-ctx.Done():
			return false
		case <-time.After(d):
			return true
		}
	}
	if !pause(joinLate) {
		return nil
	}
	node, _, err := joinLatency(ctx, network, "n1", "10.0.0.2:7946", "10.0.0.1:7946")
	if err != nil {
		if ctx.Err() != nil {
			return nil // the phase was over before the join was
		}
		return fmt.Errorf("joining: %w", err)
	}
	pause(length / 2)
	return node.Close()
}

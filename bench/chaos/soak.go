package chaos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jatah-io/jatah/httpapi/client"
)

const (
	roundTime = 250 * time.Second // in which all keys are asked for once; the first time in half of it
	restTime  = 30 * time.Second  // for which a plateau is sampled
)

// plateau is the whole cluster when all nodes have been up for a whole round of all keys: medians over restTime, summed over the nodes.
type plateau struct {
	from, to time.Duration
	after    string // the step before
	values   map[string]float64
}

// The flatness that is judged.
const (
	flat      = 0.05
	flatFloor = 15 // goroutines or files of all nodes: what the connections of clients make
)

// soaked are the metrics that must be flat, with their unit on the page.
func soaked() []struct {
	metric, name string
	unit, floor  float64
} {
	return []struct {
		metric, name string
		unit, floor  float64
	}{
		{mResident, "resident MiB", 1 << 20, 0},
		{mNextGC, "live heap MiB", 2 << 20, 0},
		{mRoutines, "goroutines", 1, flatFloor},
		{mFiles, "files", 1, flatFloor},
	}
}

// soak loads the cluster with many keys and restarts its nodes, one after the other, until the time is over.
func (r *run) soak(ctx context.Context) error {
	if err := r.c.start(ctx); err != nil {
		return err
	}
	loading, end := context.WithCancel(ctx)
	defer end()
	r.walk = &walk{load: r.load, nodes: r.c.regular(), took: make([]uint16, r.o.Keys)}
	var running sync.WaitGroup
	running.Go(func() { r.load.run(loading) })
	running.Go(func() { r.walk.run(loading, float64(r.o.Keys)/roundTime.Seconds()) })
	running.Go(func() { r.watch.run(loading, 5*time.Second) })
	running.Go(func() { r.lookOut(loading) })
	r.started = r.load.now()
	failed := r.restarts(ctx, r.started+r.o.Soak)
	r.ended = r.load.now()
	end()
	running.Wait()
	if failed == nil {
		r.lost = r.remembered(ctx)
	}
	r.endAll()
	if failed != nil && !errors.Is(failed, context.Canceled) {
		r.brokenf("%v", failed)
		return nil
	}
	return failed
}

// restarts lets all keys be known, samples, and restarts a node, again and again. Each node has its turn before one comes again.
func (r *run) restarts(ctx context.Context, end time.Duration) error {
	rng := rand.New(rand.NewPCG(r.o.Seed, 2))
	order := rng.Perm(r.o.Nodes)
	after := "the start"
	for n := 1; ; n++ {
		for all := r.walk.walked.Load() + int64(r.o.Keys); r.walk.walked.Load() < all; {
			if pause(ctx, time.Second); ctx.Err() != nil {
				return ctx.Err()
			}
			if r.load.now() > end {
				return nil
			}
		}
		from := r.load.now()
		if pause(ctx, restTime); ctx.Err() != nil {
			return ctx.Err()
		}
		r.rest(from, after)
		if r.load.now() > end {
			return nil
		}
		s := Step{Number: n, Nodes: order[(n-1)%r.o.Nodes:][:1], For: time.Duration(rng.IntN(5000)) * time.Millisecond}
		// The same for a node in each turn, or turns could not be compared: a node that leaves hands over what one that is killed takes along.
		if s.Kind = Kill; s.Nodes[0]%2 == 1 {
			s.Kind = Restart
		}
		if last := len(r.steps) - 1; last >= 0 {
			r.steps[last].until = from + restTime
		}
		if err := r.step(ctx, s); err != nil {
			return err
		}
		after = strings.Join(strings.Fields(s.String()), " ")
	}
}

// rest keeps what was sampled since a moment.
func (r *run) rest(from time.Duration, after string) {
	r.watch.mu.Lock()
	defer r.watch.mu.Unlock()
	p := plateau{from: from, to: r.load.now(), after: after, values: make(map[string]float64)}
	for _, n := range r.c.regular() {
		of := make(map[string][]float64)
		for _, s := range r.watch.samples {
			if s.node == n.index && s.at >= from {
				for k, v := range s.values {
					of[k] = append(of[k], v)
				}
			}
		}
		for k, v := range of {
			p.values[k] += median(v)
		}
	}
	r.plateaus = append(r.plateaus, p)
	r.o.Log("%7.1f s  %d rounds; resident %.0f MiB, live heap %.0f MiB, goroutines %.0f, files %.0f, accounts %.0f, ledgers %.0f", p.to.Seconds(), r.walk.passes.Load(),
		p.values[mResident]/(1<<20), p.values[mNextGC]/(2<<20), p.values[mRoutines], p.values[mFiles], p.values[mAccounts], p.values[mLedgers])
}

func median(v []float64) float64 {
	v = slices.Clone(v)
	slices.Sort(v)
	if len(v) == 0 {
		return 0
	}
	return v[len(v)/2]
}

func mean(v []float64) float64 {
	sum := 0.0
	for _, x := range v {
		sum += x
	}
	return sum / float64(len(v))
}

// memory is what keys remember at the end of a soak.
type memory struct {
	asked, unknown int
	less, more     int   // keys that have less, or more, tokens than what is known to have been taken leaves
	most           int64 // tokens that a key has too many
}

// remembered looks at some keys: what was admitted must have been taken from them.
func (r *run) remembered(ctx context.Context) (m memory) {
	rng := rand.New(rand.NewPCG(r.o.Seed, 3))
	pause(ctx, 3*time.Second) // credit comes back to the owner
	for range 2000 {
		i := rng.IntN(r.o.Keys)
		st, err := r.c.nodes[rng.IntN(r.o.Nodes)].ask.Peek(ctx, client.Request{Limit: keptLimit, Key: walkKey(i)})
		m.asked++
		if err != nil {
			m.unknown++
			continue
		}
		// 20 a day come back: one token or two within the run.
		back := int64(r.ended.Hours()*20/24) + 1
		have, want := st.Remaining, int64(keptBurst)-int64(r.walk.took[i])
		switch {
		case have > want+back:
			m.more++
			m.most = max(m.most, have-want-back)
		case have < want:
			m.less++
		}
	}
	return m
}

func (r *run) soakBody(w *strings.Builder, dir, stem string) error {
	r.judgeFlat(w)
	fmt.Fprintf(w, "\n%d keys were looked at in the end: %d had more tokens than their use leaves, by at most %d; %d had less; %d could not be told.\n",
		r.lost.asked, r.lost.more, r.lost.most, r.lost.less, r.lost.unknown)
	return r.body(w, dir, stem)
}

// judgeFlat compares the first plateaus after warm-up with the last.
func (r *run) judgeFlat(w io.Writer) {
	fmt.Fprintf(w, "\n%d nodes, %d keys, %d rounds of all keys, %d restarts and crashes, each node in its turn.\n", r.o.Nodes, r.o.Keys, r.walk.passes.Load(), len(r.steps))
	fmt.Fprintf(w, "\n## Memory\n\nA plateau is sampled when every key has been asked for since the last node came back, so that every node knows again what it is to know: medians over %v, summed over the "+
		"nodes. A turn is one restart of every node, in the same order and manner as the turn before. Warm-up is the first turn. Growth is from the mean of the second turn to the mean of the last; more than %.0f %% is a failure, "+
		"of goroutines and files only if it is also more than %d.\n\n", restTime, 100*flat, flatFloor)
	fmt.Fprint(w, "| plateau | after |")
	for _, m := range soaked() {
		fmt.Fprintf(w, " %s |", m.name)
	}
	fmt.Fprint(w, " accounts | ledgers |\n|---|---|---|---|---|---|---|---|\n")
	for i, p := range r.plateaus {
		warm := ""
		if i < r.o.Nodes {
			warm = " (warm-up)"
		}
		fmt.Fprintf(w, "| %.0f – %.0f s | %s%s |", p.from.Seconds(), p.to.Seconds(), p.after, warm)
		for _, m := range soaked() {
			fmt.Fprintf(w, " %.1f |", p.values[m.metric]/m.unit)
		}
		fmt.Fprintf(w, " %.0f | %.0f |\n", p.values[mAccounts], p.values[mLedgers])
	}
	warm := r.plateaus[min(r.o.Nodes, len(r.plateaus)):]
	fmt.Fprintln(w)
	n := r.o.Nodes
	if len(warm) < 2*n {
		fmt.Fprintf(w, "%d plateaus after warm-up are too few to judge growth; it takes two turns, %d.\n", len(warm), 2*n)
		return
	}
	for _, m := range soaked() {
		var values []float64
		for _, p := range warm {
			values = append(values, p.values[m.metric])
		}
		before, after := mean(values[:n]), mean(values[len(values)-n:])
		growth := after/before - 1
		fmt.Fprintf(w, "- %s: %.1f at first, %.1f in the end: %+.1f %%; least %.1f, most %.1f\n", m.name, before/m.unit, after/m.unit, 100*growth,
			slices.Min(values)/m.unit, slices.Max(values)/m.unit)
		if growth > flat && after-before > m.floor {
			r.brokenf("%s grew by %.1f %%", m.name, 100*growth)
		}
	}
}

package hybrid

import (
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jatah-io/jatah/bucket"
)

var printTable = flag.Bool("table", false, "TestWorkloads prints its table for every mode")

// workload is one limit under one kind of load, in virtual time.
type workload struct {
	name    string
	nodes   int
	rate    bucket.Rate
	burst   int64
	seconds int64
	loss    float64
	offered func(node int, at int64) float64 // requests per second of a node
	flash   int                              // requests of each node within 50 ms of second 1, instead
}

type outcome struct {
	utilization float64 // admitted over what one exact bucket would have admitted
	excess      float64 // tokens above burst + rate*t in the worst interval
	waited      float64 // part of the decisions that waited for the owner
	asks        float64 // messages with an ask, per decision
	messages    float64 // per second and node, ticks included
	local       float64 // part of the decisions made in local memory
}

func workloads() []workload {
	even := func(total float64, nodes int) func(int, int64) float64 {
		return func(int, int64) float64 { return total / float64(nodes) }
	}
	skewed := func(n int, _ int64) float64 {
		if n == 0 {
			return 2700
		}
		return 300. / 9
	}
	moving := func(n int, at int64) float64 {
		if int(at/sec)%10 == n {
			return 3000
		}
		return 0
	}
	second := bucket.Per(1000, time.Second)
	return []workload{
		{"3x overload, 10 nodes, r 1000 b 1000", 10, second, 1000, 20, 0, even(3000, 10), 0},
		{"the same, 90 % on one node, b 200", 10, second, 200, 20, 0, skewed, 0},
		{"the same, moving every second, b 200", 10, second, 200, 20, 0, moving, 0},
		{"flash: 100 nodes, 1000 each at once, b 1000", 100, second, 1000, 3, 0, nil, 1000},
		{"20 % of messages lost, 3x overload, b 100", 10, second, 100, 20, 0.2, even(3000, 10), 0},
		{"5 per minute, attacked at 20/s, 3 nodes", 3, bucket.Per(5, time.Minute), 5, 600, 0, even(20, 3), 0},
		{"70 % of r 1000 b 1000, 10 nodes", 10, second, 1000, 20, 0, even(700, 10), 0},
		{"10/s b 50 at 5/s over 10 nodes", 10, bucket.Per(10, time.Second), 50, 200, 0, even(5, 10), 0},
	}
}

// play runs the workload with the real engines, and the same arrivals through one exact bucket.
func (l workload) play(t testing.TB, mode Mode, phi float64) outcome {
	spec := Spec{Name: "api", Rate: l.rate, Burst: l.burst, Mode: mode, Overshoot: phi}
	w := newWorld(t, 7, l.nodes, 0, spec, 1)
	w.loss = l.loss
	params, err := bucket.NewParams(l.rate, l.burst)
	if err != nil {
		t.Fatal(err)
	}
	exact, best := bucket.New(params), 0
	take := func(n *simNode) {
		if exact.Take(w.now, 1).OK {
			best++
		}
		n.take(w.keys[0], 1)
	}
	w.start(l.nodes)
	for _, n := range w.nodes {
		if l.flash > 0 {
			for range l.flash {
				w.after(sec+w.uniform(50*ms), func() { take(n) })
			}
			continue
		}
		var f func()
		f = func() {
			rate := l.offered(n.id, w.now)
			if rate == 0 {
				w.after(50*ms, f)
				return
			}
			take(n)
			w.after(int64(w.rng.ExpFloat64()/rate*float64(sec)), f)
		}
		if l.offered(n.id, 0) > 0 || l.offered(n.id, sec*int64(n.id)) > 0 {
			w.after(int64(w.rng.ExpFloat64()*float64(100*ms)), f)
		}
	}
	w.run(l.seconds * sec)
	w.run(l.seconds*sec + 100*ms)
	var asks uint64
	for _, n := range w.nodes {
		asks += n.e.stats.asks.Load()
	}
	all := float64(w.offered)
	return outcome{utilization: float64(w.meter[w.keys[0]].n) / float64(best), excess: w.worst(), waited: float64(w.waited) / all, asks: float64(asks) / all,
		messages: float64(w.messages) / float64(l.seconds) / float64(l.nodes), local: float64(w.sources[SourceLocal]) / all}
}

func (l workload) saturated() bool {
	return strings.Contains(l.name, "overload") || strings.Contains(l.name, "the same")
}

// local is the part of the decisions that are to be made in local memory.
func (l workload) local() float64 {
	switch {
	case strings.HasPrefix(l.name, "70 %"):
		return 0.99
	case strings.HasPrefix(l.name, "10/s b 50"):
		return 0.90
	}
	return 0
}

func TestWorkloads(t *testing.T) {
	if testing.Short() {
		t.Skip("minutes under the race detector")
	}
	type column struct {
		name string
		mode Mode
		phi  float64
	}
	columns := []column{{"hybrid", Hybrid, 0}, {"hybrid phi 0.1", Hybrid, 0.1}}
	if *printTable {
		columns = []column{{"split", Split, 0}, {"hybrid", Hybrid, 0}, {"hybrid phi 0.1", Hybrid, 0.1}, {"strict", Strict, 0}}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\n%-46s %-15s %11s %8s %8s %8s %8s %10s\n", "", "", "utilization", "excess", "waited", "asks", "local", "msg/s/node")
	for _, l := range workloads() {
		for _, c := range columns {
			o := l.play(t, c.mode, c.phi)
			fmt.Fprintf(&b, "%-46s %-15s %11.3f %8.1f %8.4f %8.4f %8.4f %10.1f\n", l.name, c.name, o.utilization, o.excess, o.waited, o.asks, o.local, o.messages)
			// What is promised of a saturated limit, and of steady traffic within one.
			if l.saturated() && c.mode != Split && o.utilization < 0.99 {
				t.Errorf("%s, %s: utilization %.4f, at least 0.99 is promised", l.name, c.name, o.utilization)
			}
			if want := l.local(); c.mode == Hybrid && o.local < want {
				t.Errorf("%s, %s: %.4f of the decisions were local, want %v", l.name, c.name, o.local, want)
			}
			if o.excess > c.phi*float64(l.burst)+1e-6 {
				t.Errorf("%s, %s: excess %.2f tokens, at most %.2f are promised", l.name, c.name, o.excess, c.phi*float64(l.burst))
			}
		}
	}
	t.Log(b.String())
}

package hybrid

import (
	"fmt"
	"testing"
	"time"

	"github.com/jatah-io/jatah/bucket"
	"github.com/jatah-io/jatah/internal/budget"
)

// TestTheBudgetIsWhatIsStored: limits of several kinds, which are changed, removed and made anew, on nodes that come and go, are cut off and paused, under a bound on memory. At any
// moment the budget is what a recount finds, no request waits for longer than the ask timeout, and all is at zero once the limits are gone.
func TestTheBudgetIsWhatIsStored(t *testing.T) {
	for i := range max(3, *schedules) {
		seed := *firstSeed + uint64(i)
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { budgetWorld(t, seed) })
	}
}

func budgetWorld(t *testing.T, seed uint64) {
	specs := []Spec{
		{Name: "api", Rate: bucket.Per(1, time.Second), Burst: 8},
		{Name: "wait", Rate: bucket.Per(1, 2*time.Second), Burst: 5, Fallback: FallbackWait},
		{Name: "strict", Rate: bucket.Per(1, time.Second), Burst: 5, Mode: Strict},
		{Name: "split", Rate: bucket.Per(1, time.Second), Burst: 9, Mode: Split},
		{Name: "log", Rate: bucket.Per(20, 20*time.Second), Burst: 20, Rule: &bucket.Spec{Algorithm: "sliding_log", Rates: []bucket.Rate{bucket.Per(20, 20*time.Second)}}},
		{Name: "window", Rate: bucket.Per(6, 10*time.Second), Burst: 6, Mode: Split, Rule: &bucket.Spec{Algorithm: "sliding_window", Rates: []bucket.Rate{bucket.Per(6, 10*time.Second)}}},
	}
	nodes := 1 + int(seed%3)
	w := newWorld(t, seed, nodes, 1, specs[0], 1)
	policy := Overflow(w.rng.IntN(Overflows))
	bound := int64(64<<10 + w.rng.IntN(60<<10)) // tables that are empty take half of the least
	w.hook = func(e *Engine) {
		e.cfg.Overflow = policy
		e.budget = budget.New(int64(w.rng.IntN(2)*200), bound, reserveOf(bound, policy))
		e.permits.budget = e.budget
		for _, s := range specs[1:] {
			if _, err := e.Define(s); err != nil {
				t.Fatal(err)
			}
		}
	}
	w.loss = 0.01
	w.start(nodes)
	type waiting struct {
		n    *simNode
		life int
		l    *Limit
		key  string
		p    *Pending
		at   int64
	}
	var all []*waiting
	collect := func() {
		keep := all[:0]
		for _, x := range all {
			select {
			case <-x.p.done:
			default:
				if x.n.life == x.life && x.n.alive {
					keep = append(keep, x)
				}
			}
		}
		all = keep
	}
	on := true
	for _, n := range w.nodes {
		var next func()
		next = func() {
			w.after(int64(w.rng.ExpFloat64()*float64(6*ms)), next)
			if !on || !n.alive || n.paused {
				return
			}
			name := specs[w.rng.IntN(len(specs))].Name
			l, ok := n.e.Lookup(name)
			if !ok {
				return
			}
			key := fmt.Sprint("key-", w.rng.IntN(40)*w.rng.IntN(40))
			cost := int64(1 + w.rng.IntN(3))
			switch op := w.rng.IntN(20); {
			case op == 0 && l.def.Load().Mode != Split:
				_, _, _ = n.e.sync(n.clock(), l, key, cost, 0)
			case op == 1 && l.def.Load().Mode != Split:
				_, _, _ = n.e.sync(n.clock(), l, key, 0, cost)
			case op == 2:
				other, ok := n.e.Lookup(specs[w.rng.IntN(len(specs))].Name)
				if ok {
					x := n.e.BeginAll([]Take{{l, key, cost}, {other, key, 1}})
					w.after(w.uniform(20*ms), func() { x.end() })
				}
			default:
				_, p := l.start(l.def.Load(), key, cost)
				if p != nil {
					all = append(all, &waiting{n, n.life, l, key, p, w.now})
				}
			}
			n.settle()
		}
		w.after(w.uniform(100*ms), next)
	}
	check := func(when string) {
		collect()
		for _, x := range all {
			if !x.n.paused && w.now-x.at > 400*ms {
				t.Errorf("seed %d, %s: a request of %s at %s waits for %v", seed, when, x.key, x.n.name, time.Duration(w.now-x.at))
			}
		}
		for _, n := range w.nodes {
			if n.alive {
				for _, x := range recount(n.e) {
					t.Errorf("seed %d, %s, at %.3f s: %s: %s", seed, when, float64(w.now)/float64(sec), n.name, x)
				}
			}
		}
	}
	for i := range int64(6) {
		w.after(3*sec+i*5*sec+w.uniform(2*sec), func() {
			kinds := []rune("pascrjl")
			if nodes == 1 {
				kinds = []rune("jrs")
			}
			w.strike(kinds[w.rng.IntN(len(kinds))], nodes)
		})
		w.after(3*sec+i*5*sec+w.uniform(3*sec), func() {
			s := specs[1+w.rng.IntN(len(specs)-1)]
			remove := w.rng.IntN(2) == 0
			if !remove && s.Rule == nil {
				s.Burst += int64(w.rng.IntN(4))
			}
			for _, n := range w.nodes {
				w.after(w.uniform(sec), func() {
					if !n.alive || n.paused {
						return
					}
					if remove {
						n.e.Remove(s.Name)
					}
					w.after(w.uniform(sec), func() {
						if n.alive && !n.paused {
							if _, err := n.e.Define(s); err != nil {
								t.Error(err)
							}
						}
					})
				})
			}
		})
	}
	for w.now < 40*sec && !t.Failed() {
		w.sleep(130 * ms)
		check("under load")
	}
	on = false
	w.sleep(15 * sec) // the faults are over
	clear(w.cut)
	w.detect() // they overlap: who was away when another one died or came back has not heard of it
	for i, n := range w.nodes {
		if n.alive {
			w.meet(i)
		}
	}
	for _, n := range w.nodes { // who was away when a limit came back
		if !n.alive {
			continue
		}
		for _, s := range specs {
			if _, ok := n.e.Lookup(s.Name); !ok {
				if _, err := n.e.Define(s); err != nil {
					t.Error(err)
				}
			}
		}
	}
	w.sleep(300 * sec)
	check("at rest")
	for _, n := range w.nodes {
		if !n.alive {
			continue
		}
		if m := n.e.Memory(); m.Keys != 0 || n.e.nledgers != 0 || m.Parts["accounts"] != 0 || m.Parts["permits"] != 0 || m.Full {
			t.Errorf("seed %d: at rest %s has %d ledgers, %+v", seed, n.name, n.e.nledgers, m)
			n.e.accounts.each(func(a *account) {
				t.Logf("account %s %s live %v counters %+v left %d held %d fallback %+v", a.limit.spec.Name, a.key, a.live, a.counters(), a.left(), a.held, a.fallback)
			})
		}
	}
	for _, n := range w.nodes {
		if n.alive {
			for _, s := range specs {
				n.e.Remove(s.Name)
			}
		}
	}
	w.sleep(10 * sec)
	check("without limits")
	for _, n := range w.nodes {
		if !n.alive {
			continue
		}
		if m := n.e.Memory(); m.Keys != 0 || m.Used != 0 || len(n.e.byGen) > 0 || len(n.e.active) > 0 || len(n.e.asks) > 0 || len(n.e.telling) > 0 || len(n.e.recalling) > 0 || len(n.e.removed) > 0 {
			t.Errorf("seed %d: without limits %s has %d generations, %d active, %d asks, %d telling, %d recalling, %+v", seed, n.name, len(n.e.byGen), len(n.e.active), len(n.e.asks), len(n.e.telling), len(n.e.recalling), m)
		}
	}
}

package hybrid

import (
	"testing"
	"time"

	"github.com/jatah-io/jatah/bucket"
)

// windowed is a limit of so many tokens in each window.
func windowed(n int64, per time.Duration, m Mode) Spec {
	return ruledBy(bucket.Spec{Algorithm: "fixed_window", Rates: []bucket.Rate{bucket.Per(n, per)}}, m)
}

// ruledBy is a limit with a rule.
func ruledBy(rule bucket.Spec, m Mode) Spec {
	alg, err := bucket.Compile(rule)
	if err != nil {
		panic(err)
	}
	return Spec{Name: "api", Rate: rule.Rates[0], Burst: alg.Limit(), Rule: &rule, Mode: m}
}

// peek looks at a key as Limit.Peek does.
func (n *simNode) peek(key string) State {
	now := n.clock()
	a, p, err := n.e.sync(now, n.limit, key, 0, 0)
	if err != nil {
		n.w.t.Fatal(err)
	}
	n.settle()
	if p != nil {
		n.w.await(p)
	}
	st := State{}
	a.describe(a.limit, &st, n.clock())
	return st
}

// Three nodes, of which one has a clock that is 5 s ahead and another one owns the key: windows are the owner's, whoever asks.
func TestWindowsAreTheOwnersWhateverTheAskersClockSays(t *testing.T) {
	modes(t, func(t *testing.T, m Mode) {
		w := quiet(t, 3, 0, windowed(10, time.Minute, m))
		owner, asker := w.owner("k"), w.others("k")[0]
		asker.e.anchor.Add(5 * sec)
		passed := 0
		ask := func() Decision {
			d := asker.ask("k", 1)
			if d.OK {
				passed++
			}
			if d.RetryAfter < 0 || d.ResetAfter < 0 || d.Remaining < 0 {
				t.Errorf("%+v", d)
			}
			return d
		}
		about := func(what string, d time.Duration, want int64) {
			t.Helper()
			if d > time.Duration(want+roundTrip) || d < time.Duration(want-10*ms) {
				t.Errorf("%s after %v, want about %v", what, d, time.Duration(want))
			}
		}
		if m == Hybrid {
			w.run(56*sec + 500*ms)
			ask()
		}
		w.run(57 * sec)
		for range 10 {
			ask()
		}
		if passed != 10 {
			t.Fatalf("%d passed, want 10", passed)
		}
		w.run(58 * sec)
		if d := ask(); d.OK {
			t.Error("an eleventh passes")
		} else {
			about("retry", d.RetryAfter, 2*sec)
			about("reset", d.ResetAfter, 2*sec)
		}
		w.run(58*sec + 500*ms)
		for _, n := range w.nodes {
			st := n.peek("k")
			if st.Remaining != 0 {
				t.Errorf("%s: %+v", n.name, st)
			}
			about(n.name+": reset", st.ResetAfter, 60*sec-w.now)
			about(n.name+": retry", st.RetryAfter, 60*sec-w.now)
		}
		for ; w.now < 60*sec-10*ms; w.sleep(50 * ms) {
			ask()
		}
		if passed != 10 {
			t.Errorf("%d passed before the window ended", passed)
		}
		w.run(60*sec + roundTrip) // what was said to the asker was under way for a moment
		if d := ask(); !d.OK || passed != 11 {
			t.Errorf("in the next window: %+v", d)
		}
		w.sleep(2 * tick)
		if pool, out := owner.balance("k"); pool+out != 9 {
			t.Errorf("the owner has %v, and %v are out", pool, out)
		}
	})
}

// A window whose tokens are all out as credit ends for those who were refused, too.
func TestRefusedNodeIsToldTheWindowsEndWhileAllIsOut(t *testing.T) {
	w := quiet(t, 3, 0, windowed(4, 10*time.Second, Hybrid))
	n, o := w.others("k")[0], w.owner("k")
	n.ask("k", 1)
	w.sleep(2 * tick)
	if pool, out := o.balance("k"); pool != 2 || out != 1 {
		t.Fatalf("the pool has %v, %v are out", pool, out)
	}
	p := o.e.parts[o.e.partOf(o.e.hash(o.limit, "k"))]
	x := p.ledgers[ledgerKey{o.limit, "k"}]
	p.refill(x, o.clock())
	if w, left := p.waits(x, 4, o.clock()), 10*sec-w.now; w.refused != left || w.next != left {
		t.Errorf("4 tokens must wait for %v, 3 for %v; the window ends in %v", wait(w.refused), wait(w.next), wait(left))
	}
}

// How often a node was refused over a long time does not count as demand of the moment in which it says so: a window that begins is
// there for all.
func TestLongRefusedNodeDoesNotTakeTheWholeNextWindow(t *testing.T) {
	w := quiet(t, 3, 0, windowed(1000, 10*time.Second, Hybrid))
	w.load(600, 3, func() bool { return true })
	w.run(9500 * ms)
	if n := w.meter[w.keys[0]].n; n != 1000 {
		t.Fatalf("%d passed in the first window", n)
	}
	before := map[*simNode]int{}
	w.onDecision = func(n *simNode, _ string, d Decision) {
		if d.OK {
			before[n]++
		}
	}
	w.run(11 * sec)
	for _, n := range w.nodes {
		if before[n] < 120 {
			t.Errorf("%s let %d through in the first second of the next window, which offers 200 to each", n.name, before[n])
		}
	}
}

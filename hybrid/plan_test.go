package hybrid

import (
	"errors"
	"testing"
	"time"

	"github.com/jatah-io/jatah/bucket"
)

// planned is a limit of 20, 100 in plan pro, that gains next to nothing in a test. The keys vip and all that begin with in: are pro, in:x
// is not.
func planned(rule string, m Mode) Spec {
	amounts := func(n int64) Amounts {
		a := Amounts{Rate: bucket.Per(n, 100*24*time.Hour), Burst: n}
		if rule != "" {
			a.Rule = &bucket.Spec{Algorithm: rule, Rates: []bucket.Rate{a.Rate}}
		}
		return a
	}
	s := Spec{Name: "api", Mode: m}.with(amounts(20))
	s.Plans = map[string]Amounts{"pro": amounts(100)}
	s.Overrides = []Override{{Key: "vip", Plan: "pro"}, {Key: "in:", Prefix: true, Plan: "pro"}, {Key: "in:x"}}
	return s
}

// askAs takes under a plan and waits for the decision.
func (n *simNode) askAs(plan, key string, cost int64) Decision {
	l, ok := n.limit.Plan(plan)
	if !ok {
		n.w.t.Fatalf("no plan %q", plan)
	}
	d, p := l.Begin(key, cost)
	n.settle()
	if p != nil {
		d = n.w.await(p)
	}
	return d
}

// TestAChangeOfPlanKeepsWhatWasUsed: up gives the difference at once, down leaves a debt if more was used than the plan has, and to
// and fro gives nothing, on any node and while others still hold credit under the old plan.
func TestAChangeOfPlanKeepsWhatWasUsed(t *testing.T) {
	for _, rule := range []string{"", "fixed_window", "sliding_log", "leaky_bucket"} {
		for _, m := range []Mode{Hybrid, Strict} {
			t.Run(rule+"/"+m.String(), func(t *testing.T) {
				w := quiet(t, 3, 1, planned(rule, m))
				a, b := w.others("k")[0], w.others("k")[1]
				for range 15 {
					if !a.askAs("", "k", 1).OK {
						t.Fatal("15 of 20 did not pass")
					}
				}
				w.sleep(sec)
				passed := 0
				for passed < 200 && b.askAs("pro", "k", 1).OK {
					passed++
				}
				if passed < 80 || passed > 85 { // a may hold a few
					t.Errorf("of 100 with 15 used %d passed, want nearly 85", passed)
				}
				total := 15 + passed
				for range 20 {
					w.sleep(tick)
					for _, plan := range []string{"", "pro"} {
						for _, n := range []*simNode{a, b} {
							if n.askAs(plan, "k", 1).OK {
								total++
							}
						}
					}
				}
				if w.rest(); a.askAs("", "k", 1).OK {
					t.Error("passed in the small plan with more used than it has")
				}
				for total < 200 && b.askAs("pro", "k", 1).OK {
					total++
				}
				if total != 100 {
					t.Errorf("%d passed in all, want 100", total)
				}
				// The same after the key has moved.
				w.leave(w.owner("k"), nil)
				w.sleep(5 * sec)
				for _, n := range w.nodes {
					if n.alive && (n.askAs("pro", "k", 1).OK || n.askAs("", "k", 1).OK) {
						t.Errorf("%s lets one pass with another owner", n.name)
					}
					if n.alive && n.askAs("pro", "fresh", 90).OK != (n.name == w.alive()[0].name) {
						t.Errorf("%s: 90 of 100 of a fresh key", n.name)
					}
				}
			})
		}
	}
}

func (w *world) alive() (up []*simNode) {
	for _, n := range w.nodes {
		if n.alive {
			up = append(up, n)
		}
	}
	return up
}

// TestOverridesByKey: the whole key first, then the longest prefix, whatever plan is named.
func TestOverridesByKey(t *testing.T) {
	for _, rule := range []string{"", "fixed_window"} {
		w := quiet(t, 3, 0, planned(rule, Hybrid))
		for key, want := range map[string]int64{"vip": 100, "in:a": 100, "in:": 100, "in:x": 20, "k": 20, "VIP": 20} {
			d := w.nodes[0].ask(key, want)
			if e := w.nodes[1].ask(key, 1); !d.OK || e.OK {
				t.Errorf("%q: %d pass %v, one more %v", key, want, d.OK, e.OK)
			}
		}
		if d := w.nodes[2].askAs("pro", "in:x2", 21); !d.OK {
			t.Errorf("in:x2 has the prefix in: %+v", d)
		}
		if d := w.nodes[2].askAs("pro", "in:x", 21); d.OK || d.RetryAfter != bucket.Never {
			t.Errorf("in:x is never pro: %+v", d)
		}
	}
}

// TestPlansOfWhoDecidesAlone: one node, and split shares.
func TestPlansOfWhoDecidesAlone(t *testing.T) {
	for _, rule := range []string{"", "fixed_window", "sliding_log", "leaky_bucket"} {
		e := New(Config{Node: "n"})
		l, err := e.Define(planned(rule, Hybrid))
		if err != nil {
			t.Fatal(err)
		}
		pro, _ := l.Plan("pro")
		take := func(l *Limit, key string, n int64) bool { d, _ := l.Begin(key, n); return d.OK }
		switch {
		case !take(l, "k", 15), take(l, "k", 6), !take(pro, "k", 85), take(pro, "k", 1), take(l, "k", 1), take(pro, "k", 1):
			t.Errorf("%q: 15 of 20, then 85 more as pro, then none", rule)
		case !take(l, "vip", 100), take(l, "vip", 1):
			t.Errorf("%q: vip has 100", rule)
		}
		w := quiet(t, 2, 0, planned(rule, Split))
		n := w.nodes[0]
		switch {
		case !n.askAs("", "k", 7).OK, n.askAs("", "k", 4).OK, !n.askAs("pro", "k", 43).OK, n.askAs("pro", "k", 1).OK, n.askAs("", "k", 1).OK:
			t.Errorf("%q: 7 of 10, then 43 more as pro, then none", rule)
		}
	}
}

func TestPlansAreChecked(t *testing.T) {
	e := New(Config{Node: "n"})
	s := planned("", Hybrid)
	s.Overrides = append(s.Overrides, Override{Key: "a", Plan: "gold"})
	if _, err := e.Define(s); !errors.Is(err, ErrSpec) {
		t.Errorf("an override with a plan that is not there: %v", err)
	}
	s = planned("", Hybrid)
	s.Plans["pro"] = Amounts{Rate: bucket.Per(1, time.Second), Burst: -1}
	if _, err := e.Define(s); !errors.Is(err, ErrSpec) {
		t.Errorf("a plan with a negative burst: %v", err)
	}
}

// TestPlansChangeLive: amounts of a plan change, a plan goes, and handles on it go on with the limit's own amounts.
func TestPlansChangeLive(t *testing.T) {
	w := quiet(t, 3, 0, planned("", Hybrid))
	n := w.nodes[0]
	if !n.askAs("pro", "k", 90).OK {
		t.Fatal("90 of 100")
	}
	pro, _ := n.limit.Plan("pro")
	s := planned("", Hybrid)
	s.Plans = map[string]Amounts{"pro": {Rate: s.Rate, Burst: 50}}
	w.define(s)
	w.sleep(sec)
	if n.askAs("pro", "k", 11).OK {
		t.Error("a lower plan leaves what there is, 10")
	}
	s.Plans, s.Overrides = nil, nil
	w.define(s)
	w.sleep(sec)
	d, p := pro.Begin("other", 21)
	if p != nil {
		d = w.await(p)
	}
	if d.OK || d.RetryAfter != bucket.Never {
		t.Errorf("21 of 20 under a plan that is gone: %+v", d)
	}
}

// TestPlansOfWhatIsNotKnown: with fallback wait, an owner that begins without knowing counts a key as used up, in every plan that it
// may have; and a reset of such a key lasts.
func TestPlansOfWhatIsNotKnown(t *testing.T) {
	for _, rule := range []string{"", "fixed_window", "sliding_log"} {
		modes(t, func(t *testing.T, m Mode) {
			s := planned(rule, m)
			s.Fallback = FallbackWait
			w := newWorld(t, *firstSeed, 3, 0, s, 1)
			w.hook = func(e *Engine) { e.established = true } // to a cluster that was there before, and told it nothing
			for _, n := range w.nodes {
				w.revive(n)
			}
			for _, n := range w.nodes {
				w.tickLoop(n)
			}
			w.sleep(8 * sec)
			n := w.nodes[0]
			for _, plan := range []string{"", "pro", "", "pro"} {
				if d := n.askAs(plan, "k", 1); d.OK {
					t.Errorf("%q: one passed as %q of a key of which nothing is known: %+v", rule, plan, d)
				}
				w.sleep(sec)
			}
			if l, _ := n.limit.Plan("pro"); !n.askAs("pro", "k", 1).OK {
				_, pend, err := n.e.sync(n.clock(), l, "k", 100, 0)
				if err != nil {
					t.Fatal(err)
				}
				if pend != nil {
					w.await(pend)
				}
			}
			w.sleep(20 * sec)
			if d := n.askAs("pro", "k", 90); !d.OK {
				t.Errorf("%q: 90 of 100, 20 s after all was given back: %+v", rule, d)
			}
		})
	}
}

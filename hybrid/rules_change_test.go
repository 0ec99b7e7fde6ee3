package hybrid

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jatah-io/jatah/bucket"
	"github.com/jatah-io/jatah/ring"
)

// hundred are rules of 100 tokens each, of which none comes back during a test; rule nil is the token bucket.
func hundred(m Mode) (all []Spec) {
	const long = 100 * 24 * time.Hour
	for _, rule := range []bucket.Spec{
		{Algorithm: "fixed_window", Rates: []bucket.Rate{bucket.Per(100, long)}},
		{Algorithm: "sliding_window", Rates: []bucket.Rate{bucket.Per(100, long)}},
		{Algorithm: "sliding_log", Rates: []bucket.Rate{bucket.Per(100, long)}},
		{Algorithm: "leaky_bucket", Rates: []bucket.Rate{bucket.Per(1, long)}, Burst: 100},
		{Algorithm: "fixed_window", Rates: []bucket.Rate{bucket.Per(100, long), bucket.Per(200, 2*long)}},
	} {
		all = append(all, ruledBy(rule, m))
	}
	s := slow(100)
	s.Mode = m
	return append(all, s)
}

func ruleOf(s Spec) string {
	if s.Rule == nil {
		return "token_bucket"
	}
	return fmt.Sprintf("%s of %d rates", s.Rule.Algorithm, len(s.Rule.Rates))
}

// alone is an engine without a network.
func alone(t *testing.T, s Spec, now *int64) (*Engine, *Limit) {
	e := New(Config{Node: "n", Ring: ring.Config{Partitions: 5}})
	e.clock = func() int64 { return *now }
	e.anchor.Store(worldEpoch)
	l, err := e.Define(s)
	if err != nil {
		t.Fatal(err)
	}
	return e, l
}

// What was used stays used when a limit gets another algorithm, in every mode, and alone.
func TestAnotherAlgorithmKeepsWhatWasUsed(t *testing.T) {
	for _, m := range []Mode{Hybrid, Strict} {
		for i, from := range hundred(m) {
			for j, to := range hundred(m) {
				if i == j {
					continue
				}
				t.Run(fmt.Sprintf("%v/%s to %s", m, ruleOf(from), ruleOf(to)), func(t *testing.T) {
					w := quiet(t, 3, 0, from)
					w.others("k")[0].ask("k", 30)
					w.sleep(tick)
					w.define(to)
					w.rest()
					if pool, out := w.balance("k"); !near(pool+out, 70) {
						t.Errorf("30 of 100 were used, %v are left", pool+out)
					}
					w.define(from)
					w.rest()
					if pool, out := w.balance("k"); !near(pool+out, 70) {
						t.Errorf("changed back: 30 of 100 were used, %v are left", pool+out)
					}
				})
			}
		}
	}
}

func TestAnotherAlgorithmKeepsWhatWasUsedAloneAndInSplit(t *testing.T) {
	for i, from := range hundred(Hybrid) {
		for j, to := range hundred(Hybrid) {
			if i == j {
				continue
			}
			t.Run(fmt.Sprintf("%s to %s", ruleOf(from), ruleOf(to)), func(t *testing.T) {
				now, ctx := sec, context.Background()
				e, l := alone(t, from, &now)
				check := func(when string, want map[string]int64) {
					for k, n := range want {
						if st, err := l.Peek(ctx, k); err != nil || st.Remaining != n || st.ResetAfter < 0 || st.RetryAfter < 0 {
							t.Errorf("alone, %s: %s has %+v, %v, want %d", when, k, st, err, n)
						}
					}
				}
				l.Take(ctx, "k", 30)
				l.Take(ctx, "all", 100)
				for _, s := range []Spec{to, from, to} {
					if _, err := e.Define(s); err != nil {
						t.Fatal(err)
					}
					check(ruleOf(s), map[string]int64{"k": 70, "all": 0, "new": 100})
					now += sec
				}
				from, to := from, to
				from.Mode, to.Mode = Split, Split
				w := quiet(t, 3, 0, from)
				n := w.nodes[0]
				if d := n.ask("k", 20); !d.OK {
					t.Fatalf("%+v", d)
				}
				w.define(to)
				if d := n.ask("k", 0); d.Remaining != 13 && d.Remaining != 14 {
					t.Errorf("split: 20 of 33 or 34 were used: %+v", d)
				}
			})
		}
	}
}

// A raised or lowered count keeps what was used in the window.
func TestCountOfAWindowChangesLive(t *testing.T) {
	modes(t, func(t *testing.T, m Mode) {
		for _, name := range []string{"fixed_window", "sliding_window", "sliding_log"} {
			of := func(n int64) Spec {
				return ruledBy(bucket.Spec{Algorithm: name, Rates: []bucket.Rate{bucket.Per(n, 100*24*time.Hour)}}, m)
			}
			w := quiet(t, 3, 0, of(100))
			w.others("k")[0].ask("k", 50)
			w.sleep(tick)
			for _, c := range []struct {
				n    int64
				want float64
			}{{200, 150}, {20, -30}, {60, 10}, {100, 50}} {
				w.define(of(c.n))
				w.rest()
				if pool, out := w.balance("k"); !near(pool+out, c.want) {
					t.Errorf("%s: 50 were used, the limit is %d: %v are left", name, c.n, pool+out)
				}
			}
			now := sec
			e, l := alone(t, of(100), &now)
			l.Take(context.Background(), "k", 50)
			for _, c := range []struct{ n, want int64 }{{200, 150}, {20, 0}, {60, 10}, {100, 50}} {
				if _, err := e.Define(of(c.n)); err != nil {
					t.Fatal(err)
				}
				if st, err := l.Peek(context.Background(), "k"); err != nil || st.Remaining != c.want {
					t.Errorf("%s, alone: 50 were used, the limit is %d: %+v, %v", name, c.n, st, err)
				}
			}
		}
	})
}

// A reset makes a key new: of all its rates, and what still counts of the window before.
func TestResetForgetsAllThatARuleRemembers(t *testing.T) {
	for _, rule := range []bucket.Spec{
		{Algorithm: "fixed_window", Rates: []bucket.Rate{bucket.Per(60, 1*time.Second), bucket.Per(100, 1000*time.Second)}},
		{Algorithm: "token_bucket", Rates: []bucket.Rate{bucket.Per(60, 1*time.Second), bucket.Per(100, 1000*time.Second)}},
		{Algorithm: "sliding_window", Rates: []bucket.Rate{bucket.Per(100, 8*time.Second)}},
		{Algorithm: "sliding_log", Rates: []bucket.Rate{bucket.Per(100, 100*time.Second)}},
		{Algorithm: "leaky_bucket", Rates: []bucket.Rate{bucket.Per(1, 100*time.Second)}, Queue: 99},
	} {
		modes(t, func(t *testing.T, m Mode) {
			w := quiet(t, 3, 0, ruledBy(rule, m))
			n, o := w.others("k")[0], w.owner("k")
			w.run(9 * sec)
			w.owner("k").ask("k", 55)
			w.run(13 * sec)
			n.ask("k", 40)
			n.charge("k", 20)
			w.run(19 * sec)
			if err := o.limit.Reset(context.Background(), "k"); err != nil {
				t.Fatal(err)
			}
			x := o.e.parts[o.e.partOf(o.e.hash(o.limit, "k"))].ledgers[ledgerKey{o.limit, "k"}]
			if x != nil && !x.m.Fresh() {
				t.Errorf("%s of %d rates: used is %v, %v are free", rule.Algorithm, len(rule.Rates), bucket.Taken(x.m), x.m.Free())
			}
		})
	}
}

// A node that has been refused in a long window does not forget that before the window ends, and so does not overshoot again.
func TestOvershootIsOnceInAWindow(t *testing.T) {
	s := windowed(100, 10*time.Minute, Hybrid)
	s.Overshoot, s.Fallback = 0.3, FallbackDeny
	w := quiet(t, 3, 0, s)
	passed := 0
	for range 2 {
		for _, n := range w.nodes {
			passed += n.takes("k", 120)
		}
		w.sleep(450 * sec)
	}
	if passed > 130 {
		t.Errorf("%d passed in a window of 100 with an overshoot of 0.3", passed)
	}
}

// Requests and definitions from many goroutines at once, from buckets to windows and back.
func TestRulesAreRedefinedUnderLoad(t *testing.T) {
	for _, m := range []Mode{Hybrid, Split} {
		all := hundred(m)
		e := New(Config{Node: "n", Ring: ring.Config{Partitions: 5}})
		l, err := e.Define(all[0])
		if err != nil {
			t.Fatal(err)
		}
		e.Run()
		var wg sync.WaitGroup
		ctx := context.Background()
		for g := range 4 {
			wg.Go(func() {
				for i := range 2000 {
					k := fmt.Sprint("k", (i+g)%7)
					d := l.Take(ctx, k, 1)
					if d.Err != nil || d.RetryAfter < 0 || d.ResetAfter < 0 || d.Remaining < 0 || d.Remaining > 100 {
						t.Errorf("%+v", d)
					}
					switch i % 50 {
					case 0:
						l.Refund(ctx, k, 2)
					case 1:
						l.Charge(ctx, k, 2)
					case 2:
						if st, err := l.Peek(ctx, k); err != nil || st.Remaining < 0 || st.ResetAfter < 0 {
							t.Errorf("%+v, %v", st, err)
						}
					case 3:
						if err := l.Reset(ctx, k); err != nil {
							t.Error(err)
						}
					}
				}
			})
		}
		wg.Go(func() {
			for i := range 100 {
				if _, err := e.Define(all[i%len(all)]); err != nil {
					t.Error(err)
				}
				e.reanchor(e.now())
			}
		})
		wg.Wait()
		e.Close()
	}
}

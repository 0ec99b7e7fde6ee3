package jatah_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/jatah-io/jatah"
)

// planned is a limit of 10 at once and 10 a second, twice that in plan pro, and 4 at once in plan free.
func planned() jatah.Limit {
	return jatah.Limit{Name: "api", Rate: jatah.PerSecond(10), Burst: 10, Algorithm: jatah.TokenBucket, Costs: map[string]int64{"/export": 15},
		Plans:     map[string]jatah.Plan{"pro": {Rate: jatah.PerSecond(20), Burst: 20}, "free": {Rate: jatah.PerSecond(1), Burst: 4}},
		Overrides: []jatah.Override{{Key: "vip", Plan: "pro"}, {Prefix: "in:", Rate: jatah.PerSecond(100), Burst: 50}, {Key: "in:x"}}}
}

func plan(t *testing.T, l *jatah.Limiter, name string) *jatah.Limiter {
	t.Helper()
	p, err := l.Plan(name)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestForIsWhatHoldsForAKey(t *testing.T) {
	alone(t, planned(), func(t *testing.T, n *jatah.Node, api *jatah.Limiter) {
		for _, c := range []struct {
			named, key, plan string
			burst            int64
		}{
			{"", "u", "", 10}, {"pro", "u", "pro", 20}, {"free", "u", "free", 4},
			{"", "vip", "pro", 20}, {"free", "vip", "pro", 20}, {"pro", "in:a", "", 50}, {"pro", "in:x", "", 10},
		} {
			l := plan(t, api, c.named)
			got, name := l.For(c.key)
			if name != c.plan || got.Burst != c.burst || got.Plans != nil || got.Overrides != nil || got.Name != "api" || got.Costs["/export"] != 15 {
				t.Errorf("%+v: %q, %+v", c, name, got)
			}
			if d := l.Take(t.Context(), c.key, c.burst+1); d.OK || d.RetryAfter != jatah.Never || d.Remaining != c.burst {
				t.Errorf("%+v: one more than For says: %+v", c, d)
			}
			if st, err := l.Peek(t.Context(), c.key); err != nil || st.Plan != c.plan || st.Burst != c.burst {
				t.Errorf("%+v: peek %+v, %v", c, st, err)
			}
		}
		if same := plan(t, plan(t, api, "pro"), ""); same != api {
			t.Error("no plan of a plan is not the limit")
		}
		if plan(t, plan(t, api, "pro"), "free") != plan(t, api, "free") {
			t.Error("a plan asked for by another is another")
		}
		less := planned()
		delete(less.Plans, "free")
		pro, free := plan(t, api, "pro"), plan(t, api, "free")
		if _, err := n.Limit(less); err != nil {
			t.Fatal(err)
		}
		if _, err := api.Plan("free"); !errors.Is(err, jatah.ErrUnknownPlan) {
			t.Errorf("a plan that was removed: %v", err)
		}
		if ds := n.Batch(t.Context(), []jatah.Request{{Limit: "api", Key: "z", Cost: 1, Plan: "free"}}); !errors.Is(ds[0].Err, jatah.ErrUnknownPlan) {
			t.Errorf("a batch under a plan that was removed: %+v", ds)
		}
		if d := free.Take(t.Context(), "z", 10); !d.OK {
			t.Errorf("a handle on a plan that was removed has the limit's amounts: %+v", d)
		}
		if plan(t, api, "pro") != pro {
			t.Error("a new definition gives a new handle")
		}
	})
}

func TestCostsHoldForPlans(t *testing.T) {
	alone(t, planned(), func(t *testing.T, n *jatah.Node, api *jatah.Limiter) {
		pro := plan(t, api, "pro")
		if c := pro.Cost("/export"); c != 15 || api.Cost("/export") != 15 {
			t.Fatalf("costs %d", c)
		}
		if d := api.Take(t.Context(), "u", api.Cost("/export")); d.OK || d.RetryAfter != jatah.Never {
			t.Errorf("15 of 10: %+v", d)
		}
		if d := pro.Take(t.Context(), "u", pro.Cost("/export")); !d.OK || d.Remaining != 5 {
			t.Errorf("15 of 20: %+v", d)
		}
		more := planned()
		more.Costs = map[string]int64{"/export": 18}
		if _, err := n.Limit(more); err != nil || pro.Cost("/export") != 18 {
			t.Errorf("a cost that changed: %d, %v", pro.Cost("/export"), err)
		}
		more.Costs = map[string]int64{"/export": 51} // above the override's 50 too
		if _, err := n.Limit(more); !errors.Is(err, jatah.ErrLimit) {
			t.Errorf("a cost that no plan lets pass: %v", err)
		}
	})
	several := jatah.Limit{Name: "api", Rates: []jatah.Rate{jatah.PerSecond(5), jatah.PerHour(90)}, Costs: map[string]int64{"/a": 6}}
	if err := several.Validate(); !errors.Is(err, jatah.ErrLimit) {
		t.Errorf("a cost above the least of several rates: %v", err)
	}
}

// Waiters of a plan pass at its rate, in their order, and those without it at the limit's; a deadline is judged by the plan.
func TestWaitsUnderAPlan(t *testing.T) {
	alone(t, planned(), func(t *testing.T, n *jatah.Node, api *jatah.Limiter) {
		pro, free := plan(t, api, "pro"), plan(t, api, "free")
		begin := time.Now()
		for range 60 {
			if _, err := pro.Wait(t.Context(), "u", 1); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(begin).Round(ms(1)); took != 2*time.Second {
			t.Errorf("60 of 20 and 20 a second took %v, want 2 s", took)
		}
		// The plan of the last request holds: of the 4 of free more is used.
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := free.Wait(ctx, "u", 1); !errors.Is(err, jatah.ErrDeadline) {
			t.Errorf("after a downgrade: %v, want the deadline", err)
		}
		if _, err := free.Wait(t.Context(), "u", 5); !errors.Is(err, jatah.ErrImpossible) {
			t.Errorf("5 of 4: %v", err)
		}
		if _, err := free.Wait(t.Context(), "vip", 20); err != nil {
			t.Errorf("20 of 20, by override: %v", err)
		}
		begin = time.Now()
		if _, err := free.Wait(t.Context(), "vip", 5); err != nil || time.Since(begin).Round(ms(1)) != ms(250) {
			t.Errorf("5 more: after %v, %v", time.Since(begin), err)
		}
	})
}

// What is given back by a handle on the limit wakes who waits under a plan, and closing the limit ends their waits.
func TestWaitersUnderAPlanAreWoken(t *testing.T) {
	l := planned()
	l.Plans["pro"] = jatah.Plan{Rate: jatah.PerDay(1), Burst: 20}
	alone(t, l, func(t *testing.T, n *jatah.Node, api *jatah.Limiter) {
		pro := plan(t, api, "pro")
		if d := pro.Take(t.Context(), "u", 20); !d.OK {
			t.Fatalf("%+v", d)
		}
		var all sync.WaitGroup
		begin := time.Now()
		all.Go(func() {
			if _, err := pro.Wait(t.Context(), "u", 2); err != nil || time.Since(begin) > ms(301) {
				t.Errorf("%v after %v", err, time.Since(begin))
			}
		})
		time.Sleep(ms(300)) // its next try would be at 1 s
		api.Refund(t.Context(), "u", 2)
		all.Wait()
		all.Go(func() {
			if _, err := pro.Wait(t.Context(), "u", 2); !errors.Is(err, jatah.ErrClosed) {
				t.Errorf("%v, want ErrClosed", err)
			}
		})
		time.Sleep(ms(300))
		n.RemoveLimit("api")
		all.Wait()
		if q := jatah.Queues(pro); q != 0 {
			t.Errorf("%d queues are left", q)
		}
	})
}

func TestReservationsUnderAPlan(t *testing.T) {
	alone(t, planned(), func(t *testing.T, n *jatah.Node, api *jatah.Limiter) {
		pro := plan(t, api, "pro")
		r, d := pro.Reserve(t.Context(), "u", 18)
		if r == nil || d.Remaining != 2 {
			t.Fatalf("%+v", d)
		}
		if none, d := api.Reserve(t.Context(), "u", 1); none != nil || d.OK {
			t.Errorf("18 of 10 are used: %+v", d)
		}
		if d := r.Commit(t.Context(), 5); !d.OK || d.Remaining != 15 {
			t.Errorf("13 of 18 come back: %+v", d)
		}
		if r, d := api.Reserve(t.Context(), "u", 5); r == nil || d.Remaining != 0 {
			t.Errorf("5 of 10 are used: %+v", d)
		}
	})
}

// A take under a plan of a limit with a parent is charged to both, and refused by either.
func TestPlansUnderAParent(t *testing.T) {
	alone(t, jatah.Limit{Name: "total", Rate: jatah.PerDay(1), Burst: 30}, func(t *testing.T, n *jatah.Node, total *jatah.Limiter) {
		l := planned()
		l.Parent = "total"
		api, err := n.Limit(l)
		if err != nil {
			t.Fatal(err)
		}
		ctx, pro := t.Context(), plan(t, api, "pro")
		if d := api.Take(ctx, "u", 10); !d.OK || d.Remaining != 0 {
			t.Errorf("10 of 10: %+v", d)
		}
		if d := pro.Take(ctx, "u", 10); !d.OK || d.Remaining != 0 {
			t.Errorf("10 more of 20: %+v", d)
		}
		if d := pro.Take(ctx, "v", 11); d.OK || d.Remaining != 10 {
			t.Errorf("11 of 20 under 10 of 30: %+v", d)
		}
		if r := n.TakeAll(ctx, []jatah.Request{{Limit: "api", Key: "w", Cost: 5, Plan: "free"}, {Limit: "api", Key: "v", Cost: 1, Plan: "pro"}}); r.OK || len(r.Violated) != 1 || r.Violated[0] != "api" {
			t.Errorf("5 of 4 in a take-all: %+v", r)
		}
		if r := n.TakeAll(ctx, []jatah.Request{{Limit: "api", Key: "w", Cost: 4, Plan: "free"}, {Limit: "api", Key: "v", Cost: 6, Plan: "pro"}}); !r.OK {
			t.Errorf("4 of 4 and 6 of 20 under 10: %+v", r)
		}
		if d := pro.Refund(ctx, "v", 6); !d.OK || d.Remaining != 6 {
			t.Errorf("a refund goes to both: %+v", d)
		}
		short, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		if _, err := pro.Wait(short, "v", 7); err == nil {
			t.Error("waited for 7 of the 6 that the parent has left today")
		}
		if d, err := pro.Wait(short, "v", 6); err != nil || d.Remaining != 0 {
			t.Errorf("6 of 6: %+v, %v", d, err)
		}
		if st, err := total.Peek(ctx, "total"); err != nil || st.Remaining != 0 {
			t.Errorf("%+v, %v", st, err)
		}
	})
}

// In a cluster a look at any node tells of the plan that the key has by its last request at any other, and a reset fills it by that plan.
func TestALookTellsThePlanOfAKeyOnEveryNode(t *testing.T) {
	for _, rule := range []string{jatah.TokenBucket, jatah.FixedWindow} {
		for _, mode := range []jatah.Mode{jatah.Hybrid, jatah.Strict} {
			t.Run(rule+"/"+mode.String(), func(t *testing.T) {
				limit := jatah.Limit{Name: "api", Rate: jatah.Per(20, 365*24*time.Hour), Algorithm: rule, Mode: mode,
					Plans:     map[string]jatah.Plan{"pro": {Rate: jatah.Per(100, 365*24*time.Hour)}},
					Overrides: []jatah.Override{{Key: "vip", Rate: jatah.Per(7, 365*24*time.Hour)}}}
				inBubble(t, *firstSeed, limit, 3, func(b *bubble) {
					b.limit.Burst = 0
					b.start(3)
					ctx, key := b.t.Context(), b.keys[0]
					at := func(i int) *jatah.Limiter { return b.hosts[i].life.Load().lim }
					look := func(key, plan string, burst, remaining int64) {
						t.Helper()
						time.Sleep(time.Second)
						for i := range b.hosts {
							if st, err := at(i).Peek(ctx, key); err != nil || st.Plan != plan || st.Burst != burst || st.Remaining != remaining {
								b.problem("%s: %+v, %v; want plan %q, %d of %d", b.hosts[i].name, st, err, plan, remaining, burst)
							}
						}
					}
					take := func(i int, plan, key string, cost int64, ok bool) {
						t.Helper()
						l, err := at(i).Plan(plan)
						if err != nil {
							t.Fatal(err)
						}
						if d := l.Take(ctx, key, cost); d.OK != ok || d.Err != nil {
							b.problem("%s: %d of %q as %q: %+v", b.hosts[i].name, cost, key, plan, d)
						}
					}
					look(key, "", 20, 20)
					take(0, "", key, 15, true)
					look(key, "", 20, 5)
					take(1, "pro", key, 50, true)
					look(key, "pro", 100, 35)
					take(2, "", key, 1, false)
					look(key, "", 20, 0)
					take(0, "pro", key, 35, true)
					look(key, "pro", 100, 0)
					if err := at(2).Reset(ctx, key); err != nil {
						b.problem("reset: %v", err)
					}
					look(key, "pro", 100, 100)
					take(1, "pro", "vip", 5, true)
					look("vip", "", 7, 2)
				})
			})
		}
	}
}

// The numbers of docs/configuration.md: one rate for some, several for others, on the same usage, to and fro.
func TestPlansOfOneRateAndOfSeveral(t *testing.T) {
	l := jatah.Limit{Name: "api", Rate: jatah.PerMinute(10), Plans: map[string]jatah.Plan{
		"free": {Rate: jatah.PerDay(100), Burst: 20}, "pro": {Rates: []jatah.Rate{jatah.PerSecond(10), jatah.PerDay(100000)}, Burst: 50}}}
	alone(t, l, func(t *testing.T, n *jatah.Node, api *jatah.Limiter) {
		ctx, free, pro := t.Context(), plan(t, api, "free"), plan(t, api, "pro")
		if d := free.Take(ctx, "up", 20); !d.OK || d.Remaining != 0 {
			t.Errorf("20 of 20: %+v", d)
		}
		if d := pro.Take(ctx, "up", 0); d.Remaining != 30 {
			t.Errorf("an upgrade leaves %d of 50, want 30", d.Remaining)
		}
		if d := pro.Take(ctx, "down", 45); !d.OK {
			t.Errorf("45 of 50: %+v", d)
		}
		if d := free.Take(ctx, "down", 1); d.OK || d.RetryAfter != 26*24*time.Hour/100 {
			t.Errorf("a downgrade waits %v, want the time of 26 at 100 a day, %v", d.RetryAfter, 26*24*time.Hour/100)
		}
		if d := pro.Take(ctx, "down", 6); d.OK {
			t.Errorf("to and fro gives something: %+v", d)
		}
		if d := pro.Take(ctx, "down", 5); !d.OK || d.Remaining != 0 {
			t.Errorf("5 of the 5 that are left: %+v", d)
		}
	})
}

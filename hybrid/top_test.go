package hybrid

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/jatah-io/jatah/bucket"
	"github.com/jatah-io/jatah/internal/topk"
)

// usedOf is what an engine's node counts as used of a key, and refused, with what the next tick would see.
func usedOf(l *Limit, key string) (used, refused int64) {
	u, r := l.Top()
	used, refused = u.Find(key).Count, r.Find(key).Count
	if a, ok := l.lookup(key); ok {
		used += a.counters().c - a.usedC
	}
	return used, refused
}

// TestTopCountsAllThatWasUsed: while links are cut, nodes are paused, join and leave, credit is voided and generations begin, the nodes
// together have counted every token that was admitted, and every request that was refused, once.
func TestTopCountsAllThatWasUsed(t *testing.T) {
	fallbacks := []Fallback{FallbackShare, FallbackWait, FallbackAllow, FallbackDeny}
	if testing.Short() {
		fallbacks = fallbacks[:1]
	}
	for _, mode := range []Mode{Hybrid, Strict} {
		for _, fallback := range fallbacks {
			t.Run(fmt.Sprint(mode, "/", fallback), func(t *testing.T) {
				t.Parallel()
				for i := range uint64(min(*schedules, 3)) {
					s := schedule{seed: *firstSeed + i, rate: 60, burst: 30, loss: 0.05, mode: mode, fallback: fallback, faults: "pasjl"}
					if mode == Hybrid {
						s.overshoot = 0.2
					}
					spec := testSpec(s.rate, s.burst)
					spec.Mode, spec.Fallback, spec.Overshoot = s.mode, s.fallback, s.overshoot
					w := newWorld(t, s.seed, 8, 0, spec, 3)
					refused := map[string]int64{}
					w.onDecision = func(_ *simNode, key string, d Decision) {
						if !d.OK {
							refused[key]++
						}
					}
					s.run(w, 3+w.rng.IntN(3), nil)
					for _, key := range w.keys {
						var used, denied int64
						for _, n := range w.nodes {
							if n.limit == nil {
								continue
							}
							n.settle()
							u, d := usedOf(n.limit, key)
							used, denied = used+u, denied+d
						}
						if admitted := int64(w.meter[key].n); used != admitted || admitted == 0 {
							t.Errorf("%v: %s: %d tokens were admitted, %d are counted as used", s, key, admitted, used)
						}
						if denied != refused[key] || denied == 0 {
							t.Errorf("%v: %s: %d requests were refused, %d are counted", s, key, refused[key], denied)
						}
					}
				}
			})
		}
	}
}

// TestTopOutlivesAccounts: what was used just before an account is forgotten, or its limit redefined, stays counted.
func TestTopOutlivesAccounts(t *testing.T) {
	b := newBare(t, 2, testSpec(1000, 1000), 0)
	for range 30 {
		b.tick()
	}
	const keys = 50
	e := b.engines[b.names[0]]
	l, _ := e.Lookup("api")
	for i := range keys {
		for range i + 1 {
			if d := b.take(e, fmt.Sprint("key-", i)); !d.OK {
				t.Fatal(d)
			}
		}
	}
	for range 300 {
		b.tick()
	}
	if n := e.accounts.n; n != 0 {
		t.Fatalf("%d accounts are left", n)
	}
	used, _ := l.Top()
	for i := range keys {
		if x := used.Items[i]; x.Key != fmt.Sprint("key-", keys-1-i) || x.Count != int64(keys-i) || x.Error != 0 {
			t.Errorf("place %d: %+v", i, x)
		}
	}
}

// bareEngine is an engine without a network.
func bareEngine(t *testing.T, spec Spec) (*Engine, *Limit) {
	t.Helper()
	e := New(Config{Node: "n1"})
	now := int64(1)
	e.clock = func() int64 { return now }
	l, err := e.Define(spec)
	if err != nil {
		t.Fatal(err)
	}
	return e, l
}

// TestTopOfBareBuckets: alone and in mode split there are no accounts; all kinds of requests are counted all the same.
func TestTopOfBareBuckets(t *testing.T) {
	ctx := context.Background()
	want := func(t *testing.T, l *Limit, key string, used, refused int64) {
		t.Helper()
		if u, r := usedOf(l, key); u != used || r != refused {
			t.Errorf("%s: %d used, %d refused; want %d and %d", key, u, r, used, refused)
		}
	}
	slow := Spec{Name: "api", Rate: bucket.Per(10, time.Hour), Burst: 10}
	all := func(t *testing.T, e *Engine, l *Limit) {
		l.Take(ctx, "a", 4)
		l.Take(ctx, "a", 7) // refused
		l.Take(ctx, "a", 0) // a look
		l.Take(ctx, "a", -1)
		l.Peek(ctx, "a")
		want(t, l, "a", 4, 1)
		l.Charge(ctx, "a", 3)
		l.Refund(ctx, "a", 2) // it was used
		want(t, l, "a", 7, 1)
		if d := e.TakeAll(ctx, []Take{{l, "b", 6}, {l, "c", 1}, {l, "b", 1}}); !d.OK {
			t.Fatal(d)
		}
		if d := e.TakeAll(ctx, []Take{{l, "b", 6}, {l, "c", 1}}); d.OK {
			t.Fatal(d)
		}
		want(t, l, "b", 7, 1)
		want(t, l, "c", 1, 0)
		l.Take(ctx, "d", 11) // never possible
		want(t, l, "d", 0, 1)
	}
	t.Run("alone", func(t *testing.T) {
		e, l := bareEngine(t, slow)
		all(t, e, l)
	})
	t.Run("window", func(t *testing.T) {
		s := slow
		s.Rule = &bucket.Spec{Algorithm: "fixed_window", Rates: []bucket.Rate{s.Rate}}
		e, l := bareEngine(t, s)
		all(t, e, l)
	})
	t.Run("split", func(t *testing.T) {
		s := slow
		s.Mode, s.Rate, s.Burst = Split, bucket.Per(20, time.Hour), 20 // two nodes
		b := newBare(t, 2, s, 0)
		e := b.engines[b.names[0]]
		l, _ := e.Lookup("api")
		all(t, e, l)
	})
	t.Run("dry run", func(t *testing.T) {
		s := slow
		s.DryRun = true
		_, l := bareEngine(t, s)
		for range 12 {
			if d := l.Take(ctx, "a", 1); !d.OK {
				t.Fatal(d)
			}
		}
		want(t, l, "a", 10, 2)
	})
	t.Run("rate 0", func(t *testing.T) {
		_, l := bareEngine(t, Spec{Name: "api", Rate: bucket.Per(0, time.Second)})
		l.Take(ctx, "a", 1)
		want(t, l, "a", 0, 1)
	})
	t.Run("plans", func(t *testing.T) {
		s := slow
		s.Plans = map[string]Amounts{"pro": {Rate: bucket.Per(20, time.Hour), Burst: 20}}
		_, l := bareEngine(t, s)
		pro, _ := l.Plan("pro")
		l.Take(ctx, "a", 1)
		pro.Take(ctx, "a", 15)
		pro.Take(ctx, "a", 15)
		want(t, l, "a", 16, 1)
	})
	t.Run("permits", func(t *testing.T) {
		_, l := bareEngine(t, permitSpec(2, time.Minute))
		for range 2 {
			p, _ := l.Acquire(ctx, "a", 0)
			_ = p.Release(ctx)
		}
		l.Acquire(ctx, "a", 0)
		l.Acquire(ctx, "a", 0)
		l.Acquire(ctx, "a", 0)
		want(t, l, "a", 4, 1)
	})
}

// TestTopOfPermits: each permit that was taken counts once, also over changes of generation, which begin with what is held.
func TestTopOfPermits(t *testing.T) {
	b := newBare(t, 2, permitSpec(5, time.Minute), 0)
	for range 30 {
		b.tick()
	}
	e := b.engines[b.names[0]]
	l, _ := e.Lookup("api")
	for _, key := range []string{"a", "b", "c"} {
		held := 0
		for range 7 {
			d, w := l.start(l.def.Load(), key, 1)
			if b.flush(); w != nil {
				d = l.Finish(context.Background(), w)
			}
			if d.OK {
				held++
			}
			a, _ := l.lookup(key)
			e.mu.Lock()
			e.renew(a)
			e.unlock()
			b.tick()
			b.tick()
		}
		if held != 5 {
			t.Fatalf("%d permits of 5", held)
		}
		if u, r := usedOf(l, key); u != 5 || r != 2 {
			t.Errorf("%s: %d used, %d refused", key, u, r)
		}
	}
}

// TestTopOfFloods: a node that refuses a million keys keeps a bounded number of them, and finds the one that is refused most.
func TestTopOfFloods(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 2))
	e, l := bareEngine(t, Spec{Name: "api", Rate: bucket.Per(1, time.Hour), Burst: 1})
	ctx, n := context.Background(), 1_000_000
	if testing.Short() {
		n = 100_000
	}
	for i := range n {
		l.Take(ctx, fmt.Sprint("key-", rng.Uint64()), 2)
		if i%20 == 0 {
			l.Take(ctx, "attacker", 1)
		}
		if i%10_000 == 0 {
			e.Tick(e.now(), 0)
		}
	}
	_, refused := l.Top()
	if x := refused.Items[0]; x.Key != "attacker" || len(refused.Items) > topk.Keys {
		t.Errorf("%d keys are kept, the first is %+v", len(refused.Items), x)
	}
	if least := int64(n / 20 / 2); refused.Items[0].Count < least {
		t.Errorf("the attacker counts %d, want at least %d", refused.Items[0].Count, least)
	}
}

// TestTopAllocatesNothing: of keys that are kept.
func TestTopAllocatesNothing(t *testing.T) {
	_, l := bareEngine(t, Spec{Name: "api", Rate: bucket.Per(10, time.Hour), Burst: 10})
	ctx := context.Background()
	l.Take(ctx, "a", 9)
	l.Take(ctx, "a", 9)
	if n := testing.AllocsPerRun(1000, func() { l.Take(ctx, "a", 9) }); n != 0 {
		t.Errorf("a refusal allocates %v times", n)
	}
}

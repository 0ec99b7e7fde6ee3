package hybrid

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jatah-io/jatah/bucket"
)

// aloneEngine is an engine without a network whose clock the caller sets.
func aloneEngine(t *testing.T, cfg Config, specs ...Spec) (*Engine, *atomic.Int64, []*Limit) {
	t.Helper()
	cfg.Node = "n1"
	e := New(cfg)
	now := new(atomic.Int64)
	now.Store(1)
	e.clock = now.Load
	var limits []*Limit
	for _, s := range specs {
		l, err := e.Define(s)
		if err != nil {
			t.Fatal(err)
		}
		limits = append(limits, l)
	}
	return e, now, limits
}

// TestMaxMemoryHoldsUnderAFlood of new keys of any length, on two limits of different rules, from eight goroutines: never is more taken than the bound. Keys that are
// used up, or in debt, are as they were after it; and when all are full again memory is near to what it was, and there is room.
func TestMaxMemoryHoldsUnderAFlood(t *testing.T) {
	const bound = 8 << 20
	for _, rule := range []*bucket.Spec{nil, {Algorithm: "sliding_log", Rates: []bucket.Rate{bucket.Per(3, time.Hour)}}} {
		other := Spec{Name: "other", Rate: bucket.Per(3, time.Hour), Burst: 3, Rule: rule}
		e, now, limits := aloneEngine(t, Config{MaxMemory: bound}, Spec{Name: "api", Rate: bucket.Per(3, time.Hour), Burst: 3}, other)
		ctx := context.Background()
		for _, l := range limits {
			for range 3 {
				l.Take(ctx, "used up", 1)
			}
			l.Charge(ctx, "in debt", 5)
		}
		var flood sync.WaitGroup
		var refused, admitted atomic.Int64
		const each = 12_000
		pad := strings.Repeat("x", 1000)
		for g := range 8 {
			rng := rand.New(rand.NewPCG(uint64(g), *firstSeed))
			flood.Go(func() {
				for i := range each {
					d := limits[i%2].Take(ctx, fmt.Sprintf("%d/%d%s", g, i, pad[:rng.IntN(300)]), 1)
					switch {
					case d.OK:
						admitted.Add(1)
					case errors.Is(d.Err, ErrOverflow) && d.RetryAfter > 0:
						refused.Add(1)
					default:
						t.Errorf("a new key got %+v", d)
						return
					}
					if i%100 == 0 {
						now.Add(int64(10 * time.Microsecond))
						if m := e.Memory(); m.Used > bound {
							t.Errorf("%d bytes are used of %d: %v", m.Used, bound, m.Parts)
							return
						}
					}
				}
			})
		}
		flood.Wait()
		m := e.Memory()
		if refused.Load() == 0 || m.Used < bound/2 || m.Overflowed[OverflowDeny] != uint64(refused.Load()) || !m.Full {
			t.Errorf("%d admitted, %d refused: %+v", admitted.Load(), refused.Load(), m)
		}
		for _, l := range limits {
			for _, k := range []string{"used up", "in debt"} {
				if d := l.Take(ctx, k, 1); d.OK || d.Err != nil {
					t.Errorf("%s after the flood: %+v", k, d)
				}
			}
		}
		for range 2000 { // the sweep looks at 1000 keys of a limit in a tick
			now.Add(int64(10 * time.Second))
			e.Tick(now.Load(), 0)
		}
		if m := e.Memory(); m.Keys != 0 || m.Used > 5<<20 || m.Full {
			t.Errorf("after the flood: %+v", m)
		}
		if d := limits[0].Take(ctx, "new", 1); !d.OK {
			t.Errorf("there is no room after the flood: %+v", d)
		}
	}
}

// TestFullGoesFirst: a twin knows which keys are full. In any order of takes, waits and new keys in a table with room for few, none that is not full is forgotten, and
// a new key finds room whenever some has been full for a tick.
func TestFullGoesFirst(t *testing.T) {
	rng := rand.New(rand.NewPCG(*firstSeed, 1))
	t.Logf("seed %d", *firstSeed)
	e, now, limits := aloneEngine(t, Config{MaxKeys: 40}, Spec{Name: "api", Rate: bucket.Per(1, time.Second), Burst: 10})
	l, ctx := limits[0], context.Background()
	fullAt := map[string]int64{} // of the twin
	level := func(k string) int64 { return max(0, fullAt[k]-now.Load()) }
	refused, evicted := 0, 0
	for i := range 20_000 {
		k := fmt.Sprint("k", rng.IntN(120))
		cost := 1 + rng.Int64N(10)
		d := l.Take(ctx, k, cost)
		fits := level(k)+cost*int64(time.Second) <= 10*int64(time.Second)
		busy := 0
		for other := range fullAt {
			if level(other) > 0 {
				busy++
			}
		}
		switch {
		case d.OK:
			if !fits {
				t.Fatalf("step %d: %s passed with a cost of %d, and was full only in %v", i, k, cost, time.Duration(level(k)))
			}
			if level(k) == 0 && busy >= 40 {
				t.Fatalf("step %d: %d keys are not full, and there was room for %s", i, busy, k)
			}
			if level(k) == 0 && fullAt[k] == 0 {
				evicted++
			}
			fullAt[k] = max(fullAt[k], now.Load()) + cost*int64(time.Second)
		case d.Err == ErrOverflow:
			if refused++; busy < 40 || level(k) > 0 {
				t.Fatalf("step %d: no room for %s, with %d keys that are not full", i, k, busy)
			}
		case fits:
			t.Fatalf("step %d: %s was refused: %+v", i, k, d)
		}
		now.Add(rng.Int64N(int64(150 * time.Millisecond)))
		if i%10 == 0 {
			e.Tick(now.Load(), 0)
		}
	}
	if refused < 100 || evicted < 50 {
		t.Errorf("%d were refused and %d keys came", refused, evicted)
	}
}

// TestOverflowPolicies alone: what new keys get in a full table.
func TestOverflowPolicies(t *testing.T) {
	for _, rule := range []*bucket.Spec{nil, {Algorithm: "fixed_window", Rates: []bucket.Rate{bucket.Per(10, time.Hour)}}} {
		s := Spec{Name: "api", Rate: bucket.Per(10, time.Hour), Burst: 10, Rule: rule}
		for policy := range Overflow(numOverflows) {
			e, _, limits := aloneEngine(t, Config{MaxKeys: 20, Overflow: policy}, s)
			l, ctx := limits[0], context.Background()
			for i := range 20 {
				l.Take(ctx, fmt.Sprint("known", i), 1)
			}
			shared, asked := map[string]int{}, map[string]int{}
			passed, n := 0, 30_000
			for i := range n {
				k := fmt.Sprint("new", i)
				asked[l.sharedKey(k)]++
				d := l.Take(ctx, k, 1)
				switch {
				case policy == OverflowDeny && (d.Err != ErrOverflow || d.OK || d.RetryAfter <= 0),
					policy == OverflowAllow && (!d.OK || d.Source != SourceAllow),
					policy == OverflowShared && d.Err != nil:
					t.Fatalf("%v: %+v", policy, d)
				}
				if d.OK {
					passed++
					shared[l.sharedKey(k)]++
				}
			}
			if m := e.Memory(); m.Overflowed[policy] != uint64(n) {
				t.Errorf("%v: %v overflows are counted of %d", policy, m.Overflowed, n)
			}
			if d := l.Take(ctx, "known0", 9); !d.OK {
				t.Errorf("%v: a known key lost something: %+v", policy, d)
			}
			if policy != OverflowShared {
				continue
			}
			if passed < 10*sharedKeys*99/100 {
				t.Errorf("%d new keys passed on %d shared keys of 10 each", passed, sharedKeys)
			}
			// Which keys share one differs from engine to engine, and once in a while fewer than 10 do.
			for k, n := range asked {
				if want := min(10, n); shared[k] != want {
					t.Fatalf("%d of %d passed on %q, not %d", shared[k], n, k, want)
				}
			}
			spent := "new0"
			for i := 0; asked[l.sharedKey(spent)] < 10; i++ {
				spent = fmt.Sprint("new", i)
			}
			if d := l.Refund(ctx, spent, 1); !d.OK {
				t.Errorf("refund: %+v", d)
			}
			if d := l.Take(ctx, spent, 1); !d.OK {
				t.Errorf("what was refunded is not there: %+v", d)
			}
			if st, err := l.Peek(ctx, spent); err != nil || st.Remaining != 0 {
				t.Errorf("peek: %+v %v", st, err)
			}
		}
	}
}

// TestOverflowInACluster of three nodes: a flood of new keys from all of them on full tables. Nobody gets an error with allow and shared, and with shared all new
// keys together get no more than the shared keys have.
func TestOverflowInACluster(t *testing.T) {
	for policy := range Overflow(numOverflows) {
		s := slow(5)
		w := newWorld(t, *firstSeed, 3, 0, s, 0)
		w.hook = func(e *Engine) { e.cfg.Overflow = policy; e.budget.SetMaxKeys(30) }
		w.start(3)
		w.sleep(sec)
		n := w.nodes[0]
		n.charge("debt", 20)
		passed := map[string]int{}
		failed, allowed := 0, 0
		for i := range 3000 {
			k := fmt.Sprint("new-", i)
			o := w.nodes[i%3]
			d := o.ask(k, 1)
			if d.Err == ErrOverflow && policy != OverflowDeny { // the owner had no room: as Limit.Finish does, without waiting for wall time
				var p *Pending
				if d, p = o.limit.overflow(o.limit.def.Load(), k, 1, d); p != nil {
					o.settle()
					d = w.await(p)
				}
				o.settle()
			}
			if d.Err != nil {
				failed++
			} else if d.OK && d.Source == SourceAllow {
				allowed++
			} else if a := o.e.accountOf(o.limit, k); d.OK && (a == nil || a.counters().c == 0) {
				passed[o.limit.sharedKey(k)]++
			}
			if i%10 == 0 {
				w.sleep(ms)
			}
		}
		over := 0
		for _, n := range passed {
			if n > 5 {
				over++
			}
		}
		switch {
		case policy == OverflowDeny && (failed == 0 || allowed > 0), policy != OverflowDeny && failed > 0, policy == OverflowAllow && allowed == 0, over > 0:
			t.Errorf("%v: %d errors, %d allowed, %d shared keys with too much", policy, failed, allowed, over)
		}
		if d := n.ask("debt", 1); d.OK && d.Source != SourceAllow {
			t.Errorf("%v: the debt is forgotten: %+v", policy, d)
		}
		if policy == OverflowShared {
			if len(passed) < sharedKeys/2 {
				t.Errorf("only %d shared keys were used", len(passed))
			}
			for _, o := range w.nodes {
				if o.e.accounts.n > 30+sharedKeys || o.e.nledgers > 30+sharedKeys {
					t.Errorf("%s has %d accounts and %d ledgers", o.name, o.e.accounts.n, o.e.nledgers)
				}
			}
		}
	}
}

// TestFullIsSaidOnce, and that there is room again; not more often than once a minute.
func TestFullIsSaidOnce(t *testing.T) {
	var log strings.Builder
	cfg := Config{MaxKeys: 5, Logger: slog.New(slog.NewTextHandler(&log, nil))}
	e, now, limits := aloneEngine(t, cfg, Spec{Name: "api", Rate: bucket.Per(1, time.Second), Burst: 5})
	said := func(text string) int { return strings.Count(log.String(), text) }
	wave := func() {
		for i := range 20 {
			limits[0].Take(context.Background(), fmt.Sprint(now.Load(), "-", i), 5)
		}
		for range 200 {
			now.Add(int64(100 * time.Millisecond))
			e.Tick(now.Load(), 0)
		}
	}
	wave()
	if full, free := said("no room for new keys"), said("there is room"); full != 1 || free != 1 {
		t.Errorf("after one flood it was said %d times, and %d times that it is over:\n%s", full, free, log.String())
	}
	wave()
	if full, free := said("no room for new keys"), said("there is room"); full != 1 || free != 1 {
		t.Errorf("after two within a minute it was said %d times, and %d times that it is over", full, free)
	}
	now.Add(int64(time.Minute))
	wave()
	if full, free := said("no room for new keys"), said("there is room"); full != 2 || free != 2 {
		t.Errorf("a minute later it was said %d times, and %d times that it is over", full, free)
	}
}

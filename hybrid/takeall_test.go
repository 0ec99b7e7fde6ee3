package hybrid

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jatah-io/jatah/bucket"
)

// want is one take of a take-all in a world, by names.
type want struct {
	limit, key string
	cost       int64
}

// takeAll asks at a node and hands the answer to done once it is there, unless the process has died by then.
func (n *simNode) takeAll(done func(AllDecision), wants ...want) {
	if !n.alive || n.paused {
		return
	}
	takes := make([]Take, len(wants))
	for i, x := range wants {
		l, ok := n.e.Lookup(x.limit)
		if !ok {
			n.w.t.Fatalf("no limit %q", x.limit)
		}
		takes[i] = Take{l, x.key, x.cost}
	}
	x, life := n.e.BeginAll(takes), n.life
	var poll func()
	poll = func() {
		switch {
		case !n.alive || n.life != life:
			return
		case n.paused || !x.ready():
			n.w.after(ms, poll)
			return
		}
		done(x.Finish(context.Background()))
		n.settle()
	}
	n.settle()
	poll()
}

// askAll runs the world until the answer to a take-all is there.
func (n *simNode) askAll(wants ...want) (r AllDecision) {
	n.w.t.Helper()
	there := false
	n.takeAll(func(d AllDecision) { r, there = d, true }, wants...)
	for until := n.w.now + sec; !there && n.w.now < until; {
		n.w.run(n.w.now + ms)
	}
	if !there {
		n.w.t.Fatal("no answer within a second")
	}
	return r
}

// tokens is what the owner of a key has for it: its pool, and credit that is out.
func (w *world) tokens(limit, key string) float64 {
	w.t.Helper()
	for _, n := range w.nodes {
		if !n.alive {
			continue
		}
		l, _ := n.e.Lookup(limit)
		hash := n.e.hash(l, key)
		if p := n.e.parts[n.e.partOf(hash)]; p.owned {
			n.e.settleShares(p, n.clock())
			x := n.e.peekLedger(p, l, key, hash, n.clock())
			return p.level(x, n.clock()) + x.outstanding()
		}
	}
	w.t.Fatalf("nobody owns %s/%s", limit, key)
	return 0
}

// ownerFor is the node that owns a key.
func (w *world) ownerFor(limit, key string) *simNode {
	for _, n := range w.nodes {
		if l, ok := n.e.Lookup(limit); ok && n.alive && n.e.parts[n.e.partOf(n.e.hash(l, key))].owned {
			return n
		}
	}
	return nil
}

// otherOwner is a key of the same limit whose owner is another than that of key.
func (w *world) otherOwner(limit, key string) string {
	for i := range 1000 {
		if k := fmt.Sprint("other-", i); w.ownerFor(limit, k) != w.ownerFor(limit, key) {
			return k
		}
	}
	w.t.Fatal("one node owns everything")
	return ""
}

// idle checks that no account holds anything for a take-all.
func (w *world) idle() {
	w.t.Helper()
	for _, n := range w.nodes {
		if !n.alive {
			continue
		}
		n.e.accounts.each(func(a *account) {
			if a.held != 0 || a.ask != nil {
				w.t.Errorf("%s still holds %d of %s", n.name, a.held, a.key)
			}
		})
	}
}

// slowly is a limit of which next to nothing comes back during a test.
func slowly(name string, burst int64, mode Mode) Spec {
	return Spec{Name: name, Rate: bucket.Per(1, 24*time.Hour), Burst: burst, Mode: mode}
}

// twoLimits is a world of three nodes with limits a and b beside the first.
func twoLimits(t *testing.T, seed uint64, a, b Spec) *world {
	w := newWorld(t, seed, 3, 0, slowly("api", 100, Hybrid), 1)
	w.hook = func(e *Engine) {
		for _, s := range []Spec{a, b} {
			if _, err := e.Define(s); err != nil {
				t.Fatal(err)
			}
		}
	}
	w.start(3)
	w.run(2 * sec)
	return w
}

// One limit has room for 5, the other for 3: four of both is refused, and costs neither anything.
func TestTakeAllChargesAllOrNothing(t *testing.T) {
	for _, m := range [][2]Mode{{Hybrid, Hybrid}, {Strict, Strict}, {Hybrid, Strict}, {Strict, Hybrid}} {
		for id := range 3 {
			t.Run(fmt.Sprint(m, id), func(t *testing.T) {
				w := twoLimits(t, 1, slowly("a", 5, m[0]), slowly("b", 3, m[1]))
				n := w.nodes[id]
				for i := range 3 { // at first by asking the owners, then from what they said
					r := n.askAll(want{"a", "u", 4}, want{"b", "u", 4})
					if r.OK || r.Err != nil || !slices.Equal(r.Violated, []string{"b"}) || r.RetryAfter != bucket.Never {
						t.Errorf("call %d: %+v", i, r)
					}
					if a, b := r.Decisions[0], r.Decisions[1]; !a.OK || a.Remaining != 5 || a.RetryAfter != 0 || b.OK || b.Remaining != 3 {
						t.Errorf("call %d: a %+v, b %+v", i, a, b)
					}
				}
				w.run(w.now + 12*sec)
				if a, b := w.tokens("a", "u"), w.tokens("b", "u"); math.Abs(a-5) > 0.001 || math.Abs(b-3) > 0.001 {
					t.Errorf("left are %v and %v, want 5 and 3", a, b)
				}
				if r := n.askAll(want{"a", "u", 3}, want{"b", "u", 3}); !r.OK || r.RetryAfter != 0 || len(r.Violated) != 0 || r.Decisions[0].Remaining != 2 || r.Decisions[1].Remaining != 0 {
					t.Errorf("three of both: %+v", r)
				}
				// Now b refuses for long: a is charged nothing, and the wait is b's.
				r := n.askAll(want{"a", "u", 2}, want{"b", "u", 1})
				if r.OK || !slices.Equal(r.Violated, []string{"b"}) || r.RetryAfter < 23*time.Hour || r.RetryAfter > 24*time.Hour {
					t.Errorf("b is empty: %+v", r)
				}
				w.run(w.now + sec) // until the owner has it back, or may call it back
				if r := w.nodes[(id+1)%3].askAll(want{"a", "u", 2}); !r.OK {
					t.Errorf("another node is refused what was held in vain: %+v", r)
				}
				w.run(w.now + 12*sec)
				if a, b := w.tokens("a", "u"), w.tokens("b", "u"); math.Abs(a) > 0.001 || math.Abs(b) > 0.001 {
					t.Errorf("left are %v and %v, want nothing", a, b)
				}
				w.idle()
			})
		}
	}
}

// What is refused in memory asks nobody, whatever else the request wants.
func TestTakeAllRefusedInMemoryAsksNobody(t *testing.T) {
	w := twoLimits(t, 1, slowly("a", 50, Strict), slowly("b", 3, Strict))
	n := w.nodes[0]
	if r := n.askAll(want{"b", "u", 3}); !r.OK {
		t.Fatal(r)
	}
	n.askAll(want{"a", "u", 1}, want{"b", "u", 1})
	asks := n.e.stats.asks.Load()
	for range 1000 {
		if r := n.askAll(want{"a", "u", 1}, want{"b", "u", 1}); r.OK || !slices.Equal(r.Violated, []string{"b"}) || !r.Decisions[0].OK {
			t.Fatal(r)
		}
	}
	if d := n.e.stats.asks.Load() - asks; d != 0 {
		t.Errorf("%d asks", d)
	}
}

func TestTakeAllSumsRepeatsAndLooksForNothing(t *testing.T) {
	w := twoLimits(t, 1, slowly("a", 5, Hybrid), slowly("b", 3, Split))
	n := w.nodes[0]
	if r := n.askAll(want{"a", "u", 3}, want{"a", "u", 3}); r.OK || !slices.Equal(r.Violated, []string{"a"}) || r.Decisions[1].OK || r.RetryAfter != bucket.Never {
		t.Errorf("3 and 3 of 5: %+v", r)
	}
	if r := n.askAll(want{"a", "u", 2}, want{"a", "v", 5}, want{"a", "u", 3}, want{"b", "u", 0}); !r.OK || len(r.Decisions) != 4 || r.Decisions[0] != r.Decisions[2] {
		t.Errorf("2 and 3 of 5: %+v", r)
	}
	w.run(w.now + sec)
	if r := n.askAll(want{"a", "u", 0}, want{"a", "w", 0}); !r.OK {
		t.Errorf("looks: %+v", r)
	}
	if a := w.tokens("a", "u"); math.Abs(a) > 0.001 {
		t.Errorf("%v left", a)
	}
	many := make([]want, 20)
	for i := range many {
		many[i] = want{"a", fmt.Sprint("many", i%10), 2}
	}
	if r := n.askAll(many...); !r.OK {
		t.Errorf("twice each of ten keys: %+v", r)
	}
	w.run(w.now + sec)
	for i := range 10 {
		if a := w.tokens("a", fmt.Sprint("many", i)); math.Abs(a-1) > 0.001 {
			t.Errorf("key %d has %v left, want 1", i, a)
		}
	}
}

func TestTakeAllWithBadInputTakesNothing(t *testing.T) {
	w := twoLimits(t, 1, slowly("a", 5, Strict), slowly("b", 3, Split))
	n := w.nodes[0]
	r := n.askAll(want{"a", "u", 1}, want{"b", "u", 1}, want{"a", "u", -1})
	if r.OK || !errors.Is(r.Err, ErrNegativeCost) || !errors.Is(r.Decisions[2].Err, ErrNegativeCost) {
		t.Errorf("%+v", r)
	}
	b, _ := n.e.Lookup("b")
	if a, b := w.tokens("a", "u"), b.Take(context.Background(), "u", 1); math.Abs(a-5) > 0.001 || !b.OK {
		t.Errorf("left %v; %+v", a, b)
	}
}

// With the network come buckets of the node's own: all are charged, or none.
func TestTakeAllMixesSplitAndOwned(t *testing.T) {
	w := twoLimits(t, 1, slowly("a", 4, Strict), slowly("b", 9, Split)) // 3 of b are this node's
	n := w.nodes[0]
	if r := n.askAll(want{"b", "u", 3}, want{"a", "u", 5}); r.OK || !slices.Equal(r.Violated, []string{"a"}) || r.Decisions[0].Remaining != 3 {
		t.Errorf("a is too small: %+v", r)
	}
	if r := n.askAll(want{"a", "u", 2}, want{"b", "u", 2}); !r.OK {
		t.Errorf("%+v", r)
	}
	if r := n.askAll(want{"a", "u", 2}, want{"b", "u", 2}); r.OK || !slices.Equal(r.Violated, []string{"b"}) || !r.Decisions[0].OK {
		t.Errorf("b has one left: %+v", r)
	}
	if r := n.askAll(want{"a", "u", 2}, want{"b", "u", 1}); !r.OK {
		t.Errorf("what is left of both: %+v", r)
	}
	w.idle()
}

func TestTakeAllAlone(t *testing.T) {
	e := New(Config{Node: "n"})
	now := sec
	e.clock = func() int64 { return now }
	def := func(name string, burst int64, dry bool) *Limit {
		s := slowly(name, burst, Hybrid)
		s.DryRun = dry
		l, err := e.Define(s)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	a, b, dry := def("a", 5, false), def("b", 3, false), def("dry", 1, true)
	ctx := context.Background()
	if r := e.TakeAll(ctx, []Take{{a, "u", 4}, {b, "u", 4}}); r.OK || !slices.Equal(r.Violated, []string{"b"}) || r.Decisions[0].Remaining != 5 {
		t.Errorf("%+v", r)
	}
	if r := e.TakeAll(ctx, []Take{{a, "u", 3}, {dry, "u", 3}, {b, "u", 3}}); !r.OK || !r.Decisions[1].DryRun || r.Decisions[0].Remaining != 2 {
		t.Errorf("a dry run refuses: %+v", r)
	}
	if r := e.TakeAll(ctx, []Take{{a, "u", 2}, {b, "u", 1}}); r.OK || r.Decisions[0].Remaining != 2 || r.RetryAfter < 23*time.Hour {
		t.Errorf("%+v", r)
	}
	if r := e.TakeAll(ctx, []Take{{a, "u", 2}}); !r.OK {
		t.Errorf("%+v", r)
	}
	if r := e.TakeAll(ctx, nil); !r.OK || len(r.Decisions) != 0 {
		t.Errorf("nothing is asked for: %+v", r)
	}
	if a.counts[1][SourceLocal].Value() != 2 || a.counts[0][SourceLocal].Value() != 0 || b.counts[0][SourceLocal].Value() != 2 || dry.dryRun.Value() != 1 {
		t.Error("refused as a whole counts for those who refused only")
	}
}

// A hold lasts as long as the credit it came from: not beyond its lease, and not beyond the owner.
func TestHoldIsVoidWithItsCredit(t *testing.T) {
	for name, end := range map[string]func(w *world, n *simNode, key string){
		"lease": func(w *world, n *simNode, key string) { w.run(w.now + 700*ms) },
		"owner restarted": func(w *world, n *simNode, key string) {
			o := w.ownerFor("api", key)
			clear(w.cut)
			o.kill()
			w.revive(o)
			w.run(w.now + 300*ms)
		},
		"paused": func(w *world, n *simNode, key string) {
			n.paused = true
			w.run(w.now + sec)
			n.paused = false
			n.e.Tick(n.clock(), 0)
		},
		"limit removed": func(w *world, n *simNode, key string) { n.e.Remove("api") },
		"closed":        func(w *world, n *simNode, key string) { n.e.closed.Store(true) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1, 3, 0, slowly("api", 30, Strict), 1)
			w.start(3)
			w.run(2 * sec)
			key := w.otherOwner("api", w.keys[0])
			var n *simNode
			for _, x := range w.nodes {
				if x != w.ownerFor("api", key) {
					n = x
				}
			}
			x := n.e.BeginAll([]Take{{n.limit, key, 4}})
			w.run(w.now + 10*ms)
			a, _ := n.limit.lookup(key)
			if !x.ready() || a.held != 4 || a.counters().c != 0 {
				t.Fatalf("ready %v, held %d, %+v", x.ready(), a.held, a.counters())
			}
			o := w.ownerFor("api", key)
			w.cut[[2]int{n.id, o.id}], w.cut[[2]int{o.id, n.id}] = true, true
			end(w, n, key)
			if r := x.Finish(context.Background()); r.OK {
				t.Errorf("spent: %+v", r)
			}
			clear(w.cut)
			if a.held != 0 {
				t.Errorf("%d are held still", a.held)
			}
		})
	}
}

// A caller that waits no more leaves nothing behind: what the owner then grants is returned.
func TestTakeAllGivenUp(t *testing.T) {
	w := newWorld(t, 1, 3, 0, slowly("api", 30, Strict), 1)
	w.start(3)
	w.run(2 * sec)
	key := w.otherOwner("api", w.keys[0])
	n := w.ownerFor("api", w.keys[0])
	x := n.e.BeginAll([]Take{{n.limit, key, 4}, {n.limit, w.keys[0], 5}})
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if r := x.Finish(ctx); r.OK || !errors.Is(r.Err, context.Canceled) {
		t.Errorf("%+v", r)
	}
	w.run(w.now + sec)
	w.idle()
	for _, k := range []string{key, w.keys[0]} {
		if v := w.tokens("api", k); math.Abs(v-30) > 0.001 {
			t.Errorf("%s has %v left", k, v)
		}
	}
}

// While an owner is silent a node holds out of its own share, and ahead of it, and gives that back too.
func TestTakeAllFallsBack(t *testing.T) {
	s := slowly("api", 30, Strict)
	s.Fallback = FallbackShare
	w := newWorld(t, 1, 3, 0, s, 1)
	w.hook = func(e *Engine) {
		if _, err := e.Define(slowly("b", 3, Split)); err != nil { // one of it is the node's
			t.Fatal(err)
		}
	}
	w.start(3)
	w.run(2 * sec)
	key := w.keys[0]
	o := w.ownerFor("api", key)
	n := w.nodes[(o.id+1)%3]
	n.take(key, 1)
	w.run(w.now + sec)
	for i := range 3 {
		w.cut[[2]int{o.id, i}], w.cut[[2]int{i, o.id}] = true, true
	}
	w.run(w.now + sec)
	if r := n.askAll(want{"api", key, 9}, want{"b", "u", 2}); r.OK || !slices.Equal(r.Violated, []string{"b"}) {
		t.Errorf("%+v", r)
	}
	if r := n.askAll(want{"api", key, 9}, want{"b", "u", 1}); !r.OK || r.Decisions[0].Source != SourceAhead {
		t.Errorf("what was given back is not there: %+v", r)
	}
	if r := n.askAll(want{"api", key, 5}); r.OK {
		t.Errorf("more than the share: %+v", r)
	}
	clear(w.cut)
	w.run(w.now + 5*sec)
	if v := w.tokens("api", key); math.Abs(v-20) > 0.001 {
		t.Errorf("%v left, want 20: 1 and 9 are owed", v)
	}
	w.idle()
}

// storm makes all nodes ask for random sets of keys at once while on() says so. It gives back how much of each key passed.
func (w *world) storm(limit string, keys []string, perSecond float64, on func() bool) map[string]float64 {
	used := map[string]float64{}
	for _, n := range w.nodes {
		var f func()
		f = func() {
			if on() {
				var wants []want
				for _, i := range w.rng.Perm(len(keys))[:2+w.rng.IntN(2)] {
					wants = append(wants, want{limit, keys[i], 1 + int64(w.rng.IntN(3))})
				}
				n.takeAll(func(r AllDecision) {
					if r.Err != nil {
						w.t.Errorf("decision: %v", r.Err)
					}
					for _, x := range wants {
						if r.OK {
							used[x.key] += float64(x.cost)
							w.meter[x.key].admit(w.now, x.cost)
						}
					}
				}, wants...)
			}
			w.after(int64(w.rng.ExpFloat64()*float64(sec)*float64(len(w.nodes))/perSecond), f)
		}
		w.after(w.uniform(10*ms), f)
	}
	return used
}

// Whatever contends for the same keys, and whatever messages are lost: each key is charged what the admitted take-alls
// wanted of it, and nothing else.
func TestTakeAllIsNeverChargedInPart(t *testing.T) {
	exact := 0
	for i := range uint64(*schedules) * 3 {
		seed := *firstSeed + i
		mode := []Mode{Hybrid, Strict}[seed%2]
		w := newWorld(t, seed, 3, 0, slowly("api", 200, mode), 5)
		w.loss = []float64{0, 0.05, 0.2}[seed%3]
		w.start(3)
		w.run(2 * sec)
		for k := range w.meter {
			w.meter[k].last = w.now
		}
		begin := w.now
		used := w.storm("api", w.keys, 400, func() bool { return w.now < begin+2*sec })
		w.run(begin + 15*sec)
		w.idle()
		passed := 0.0
		for _, k := range w.keys {
			passed += used[k]
			v := w.tokens("api", k)
			burnt := 0.0 // a lease that ran out because its renewals were lost takes idle credit along, as without take-alls
			for _, n := range w.nodes {
				if a, ok := n.limit.lookup(k); ok && w.loss > 0 && a.gen > uint64(n.e.accounts.n) {
					burnt = 200
				}
			}
			if burnt == 0 {
				exact++
			}
			if v > 200-used[k]+0.01 || v < 200-used[k]-burnt-0.01 {
				t.Errorf("seed %d, %v, loss %v: %s has %v left, want %v", seed, mode, w.loss, k, v, 200-used[k])
			}
		}
		if passed < 500 {
			t.Errorf("seed %d: only %v tokens of 1000 were used", seed, passed)
		}
	}
	if all := *schedules * 3 * 5; exact < all*3/4 {
		t.Errorf("only %d keys of %d were compared exactly", exact, all)
	}
}

// Under faults of members take-alls keep the promise that takes have, and leave nothing behind.
func TestTakeAllUnderFaults(t *testing.T) {
	for _, fb := range []Fallback{FallbackWait, FallbackShare} {
		kinds, n := []string{"c", "r", "p", "s", "pascrjl"}, uint64(*schedules)
		if testing.Short() {
			kinds, n = kinds[4:], 1
		}
		for i, faults := range kinds {
			for j := range n {
				seed := *firstSeed + uint64(i) + 10*j
				mode := []Mode{Hybrid, Strict}[(seed+j)%2]
				spec := Spec{Name: "api", Rate: bucket.Per(20, time.Second), Burst: 40, Mode: mode, Fallback: fb}
				name := fmt.Sprintf("seed %d %v %v faults %q", seed, mode, fb, faults)
				w := newWorld(t, seed, 4, 1, spec, 4)
				w.loss = 0.02
				w.start(4)
				w.storm("api", w.keys, 300, func() bool { return w.now < 50*sec })
				kinds := []rune(faults)
				for k := range int64(3) {
					kind := kinds[w.rng.IntN(len(kinds))]
					w.after(3*sec+k*15*sec+w.uniform(sec), func() { w.strike(kind, 4) })
				}
				for at := int64(0); at < 50*sec; at += 37 * ms {
					w.after(at, func() { w.check(schedule{seed: seed, rate: 20, burst: 40, mode: mode, fallback: fb, faults: faults}) })
				}
				w.run(75 * sec)
				most := 1e-6
				if fb == FallbackShare {
					most += 40
				}
				if x := w.worst(); x > most {
					t.Errorf("%s: excess %v, at most %v is promised", name, x, most)
				}
				w.idle()
				for _, k := range w.keys {
					if o := w.ownerFor("api", k); o == nil || w.tokens("api", k) < 39.9 && strings.Trim(faults, "c") != "" {
						t.Errorf("%s: %s has %v left after 25 s of quiet", name, k, w.tokens("api", k))
					}
				}
			}
		}
	}
}

// ready says that Finish will not wait.
func (x *All) ready() bool {
	return !x.any(func(p *part) bool { return p.w != nil && !p.decided && len(p.w.done) == 0 })
}

package hybrid

import (
	"flag"
	"fmt"
	"math"
	"strings"
	"testing"
)

var (
	schedules = flag.Int("schedules", 2, "random fault schedules per row of the property tests")
	firstSeed = flag.Uint64("seed", 1, "first seed of the property tests")
)

// kinds are the rows of the property tests: each fault by itself, and all of them. The short form has the last.
func kinds() []string {
	if testing.Short() {
		return []string{"pascrjlR"}
	}
	return []string{"", "p", "a", "s", "c", "r", "j", "l", "R", "pascrjlR"}
}

// worlds runs one schedule per seed and hands the finished world to done.
func worlds(t *testing.T, s schedule, done func(*world, schedule)) {
	n := *schedules
	if testing.Short() {
		n = min(n, 1)
	}
	for i := range n {
		s.seed = *firstSeed + uint64(i)
		spec := testSpec(s.rate, s.burst)
		if s.rule != nil {
			spec.Rule, spec.Rate = s.rule, s.rule.Rates[0]
		}
		spec.Mode, spec.Fallback, spec.Overshoot = s.mode, s.fallback, s.overshoot
		w := newWorld(t, s.seed, 8, 0, spec, 2)
		n := 3 + w.rng.IntN(5)
		s.run(w, n, func() { w.check(s) })
		done(w, s)
	}
}

// loads are a small burst, so that slack hides nothing, and a large one with more loss; saturating, and quiet with a
// flash just after each fault.
func loads(f func(s schedule)) {
	for _, flash := range []bool{false, true} {
		f(schedule{rate: 200, burst: 10, loss: 0.02, flash: flash})
		f(schedule{rate: 30, burst: 100, loss: 0.2, flash: flash})
	}
}

// TestNothingAboveTheLimit is the claim: with fallback wait no fault lets anything through beyond burst + rate*t.
func TestNothingAboveTheLimit(t *testing.T) {
	for _, mode := range []Mode{Hybrid, Strict} {
		for _, faults := range kinds() {
			t.Run(fmt.Sprintf("%v/%s", mode, faults), func(t *testing.T) {
				t.Parallel()
				loads(func(s schedule) {
					s.mode, s.fallback, s.faults = mode, FallbackWait, faults
					worlds(t, s, func(w *world, s schedule) {
						if x := w.worst(); x > 1e-6 {
							t.Errorf("%v: excess %.2f tokens", s, x)
						}
					})
				})
			})
		}
	}
}

// TestExcessOfShare: with fallback share, what cut-off nodes spend ahead of their share adds at most burst, once per
// event; what is planned, and a crash with a heir that is there, add nothing but what the last sync did not tell.
func TestExcessOfShare(t *testing.T) {
	for _, mode := range []Mode{Hybrid, Strict} {
		for _, faults := range kinds() {
			t.Run(fmt.Sprintf("%v/%s", mode, faults), func(t *testing.T) {
				t.Parallel()
				loads(func(s schedule) {
					s.mode, s.fallback, s.faults = mode, FallbackShare, faults
					worlds(t, s, func(w *world, s schedule) {
						most := float64(s.burst)
						switch {
						case strings.Trim(faults, "jlR") == "":
							most = 1e-6
						case strings.Trim(faults, "cr") == "":
							// What was granted in the last tick before a crash, or two when a record was lost.
							most = math.Min(most, 4*float64(s.rate)*float64(3*100*ms)/float64(sec)) + 1
						}
						if x := w.worst(); x > most {
							t.Errorf("%v: excess %.2f tokens, at most %.2f are promised", s, x, most)
						}
					})
				})
			})
		}
	}
}

// TestExcessOfOvershoot: the allowance adds at most phi of the burst.
func TestExcessOfOvershoot(t *testing.T) {
	for _, faults := range []string{"", "a", "jl"} {
		t.Run(faults, func(t *testing.T) {
			t.Parallel()
			loads(func(s schedule) {
				s.fallback, s.faults, s.overshoot = FallbackWait, faults, 0.3
				worlds(t, s, func(w *world, s schedule) {
					if x := w.worst(); x > s.overshoot*float64(s.burst)+1e-6 {
						t.Errorf("%v: excess %.2f tokens", s, x)
					}
				})
			})
		})
	}
}

// TestLongPartition: until grace has passed nothing is let through beyond the limit. From then on each side enforces the whole
// of it: that many times the limit, and one burst each. Grace for ever keeps to the one limit.
func TestLongPartition(t *testing.T) {
	if testing.Short() {
		t.Skip("three partitions of half a minute each take long under the race detector")
	}
	for _, forever := range []bool{false, true} {
		loads(func(s schedule) {
			s.fallback, s.faults = FallbackWait, string(faultLong)
			if forever {
				s.hook = func(e *Engine) { e.cfg.Grace = -1 }
			}
			worlds(t, s, func(w *world, s schedule) {
				most := 1e-6
				if !forever {
					// Three partitions of grace + 15 s, noticed after 4 s at least: 11 s each in which two sides give the whole.
					most = 3*11*float64(s.rate) + float64(s.burst)
				}
				if x := w.worst(); x > most {
					t.Errorf("%v, for ever %v: excess %.2f tokens, at most %.2f are promised", s, forever, x, most)
				}
			})
		})
	}
}

// TestTheTestsBite: without any one of the rules of safety, the schedules find excess.
func TestTheTestsBite(t *testing.T) {
	if testing.Short() {
		t.Skip("takes some seconds, and minutes under the race detector")
	}
	for name, off := range map[string]rules{"former owners": ruleFormer, "settle": ruleSettle, "the wait for the loan": ruleWait, "generation": ruleGeneration} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var worst float64
			for seed := uint64(1); seed <= 60 && worst < 0.5; seed++ {
				s := schedule{seed: seed, rate: 200, burst: 10, loss: 0.02, fallback: FallbackWait, faults: "pascrjl", flash: seed%2 == 0}
				s.hook = func(e *Engine) {
					e.off = off
					for _, p := range e.parts {
						p.off = off
					}
				}
				spec := testSpec(s.rate, s.burst)
				spec.Fallback = s.fallback
				w := newWorld(t, seed, 8, 0, spec, 2)
				s.run(w, 3+w.rng.IntN(5), nil)
				if worst = w.worst(); worst >= 0.5 {
					t.Logf("%v: excess %.2f tokens", s, worst)
				}
			}
			if worst < 0.5 {
				t.Errorf("no schedule noticed that the rule is missing")
			}
		})
	}
}

// check holds the invariants that must be true at every moment.
func (w *world) check(s schedule) {
	for _, n := range w.nodes {
		if n.alive {
			w.checkOwner(n, s)
		}
	}
	if s.faults != string(faultLong) || s.hook != nil { // after grace each side has the whole limit
		w.checkShares(s)
	}
	w.checkCounters(s)
}

// checkOwner: pool + outstanding <= cap, for every ledger.
func (w *world) checkOwner(n *simNode, s schedule) {
	now := n.clock()
	for _, p := range n.e.parts {
		if !p.owned {
			continue
		}
		n.e.settleShares(p, now)
		for _, x := range p.ledgers {
			p.refill(x, now)
			level, out := p.level(x, now), x.outstanding()
			if x.m != nil {
				if level > 0 && level+out > float64(s.burst)+1e-6 {
					w.t.Errorf("%v: at %.3f s %s has %.3f free and %.0f out of %s, above %d", s, float64(w.now)/float64(sec), n.name, level, out, x.key, s.burst)
				}
				continue
			}
			if level > 0 && level+out > x.cap+1e-6 || x.cap > float64(s.burst)+1e-6 {
				w.t.Errorf("%v: at %.3f s %s has pool %.3f and %.0f out of %s, above the cap %.3f", s, float64(w.now)/float64(sec), n.name, level, out, x.key, x.cap)
			}
		}
	}
}

// checkShares: the shares in use, over all owners and all lenders that have theirs to themselves, add up to at most one.
func (w *world) checkShares(s schedule) {
	for i := range w.nodes[0].e.partsOrNil() {
		var sum float64
		var who []string
		for _, n := range w.nodes {
			if !n.alive || n.paused {
				continue // what a paused node would do is seen when it wakes up: its first tick starts anew
			}
			now := n.clock()
			if now-n.e.lastTick > n.e.ttl/2 {
				continue
			}
			if p := n.e.parts[i]; p.owned {
				for _, sh := range p.shares {
					if p.usable(sh, now) {
						sum += 1 / float64(sh.k)
						who = append(who, fmt.Sprintf("%s uses the share 1/%d of %s", n.name, sh.k, sh.lender))
					}
				}
			}
			o := n.e.ownerOf(i)
			if k := n.e.weight(now); k > 0 && o != nil && n.e.silent(o, now) && n.e.lentUntil(i) < now {
				sum += 1 / float64(k)
				who = append(who, fmt.Sprintf("%s uses its own share 1/%d", n.name, k))
			}
		}
		if sum > 1+1e-9 {
			w.t.Errorf("%v: at %.3f s the shares of partition %d in use add up to %.3f: %v", s, float64(w.now)/float64(sec), i, sum, who)
		}
	}
}

func (e *Engine) partsOrNil() []*partition {
	if e == nil {
		return nil
	}
	return e.parts
}

// checkCounters: in one generation the owner knows of no more consumption than there was, and the node of no more
// credit than was granted.
func (w *world) checkCounters(s schedule) {
	for _, o := range w.nodes {
		if !o.alive {
			continue
		}
		for _, p := range o.e.parts {
			for _, x := range p.ledgers {
				for _, y := range x.entries {
					w.checkEntry(s, o, x, y)
				}
			}
		}
	}
}

func (w *world) checkEntry(s schedule, o *simNode, x *ledger, y *entry) {
	for _, n := range w.nodes {
		if n.name != y.lender || !n.alive || n.e.inc != y.inc {
			continue
		}
		a := n.e.byGen[y.gen]
		if a == nil || y.void || a.owner == nil || a.owner.name != o.name || a.ownerInc != o.e.inc {
			continue
		}
		k := a.counters()
		if y.c > k.c || y.r > k.r || y.u > k.u || a.g > y.g {
			w.t.Errorf("%v: at %.3f s %s knows G %d C %d R %d U %d of %s at %s, which has G %d C %d R %d U %d", s, float64(w.now)/float64(sec),
				o.name, y.g, y.c, y.r, y.u, x.key, n.name, a.g, k.c, k.r, k.u)
		}
	}
}

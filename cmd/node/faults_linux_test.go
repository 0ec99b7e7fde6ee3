package main

import (
	"fmt"
	"syscall"
	"testing"
	"time"
)

func TestALossOfThirtyPercentLetsNothingThrough(t *testing.T) {
	besideOthers(t)
	r := newRig(t, 3, []rule{{"strict", 50, 100, "strict", "wait"}, {"hybrid", 50, 100, "hybrid", "wait"}})
	var keys []string
	for _, l := range r.rules {
		keys = append(keys, r.fullKey(l, r.rng.IntN(3)))
	}
	r.lab.apply(r.lab.everywhere(0.3)...)
	var streams []*stream
	for i, l := range r.rules {
		streams = append(streams, r.load(l, keys[i], pressure{2, 15 * time.Millisecond}, r.every()...))
	}
	sleep(5 * time.Second)
	for _, s := range streams {
		s.judge("loss of 30 %", 0)
	}
	dropped := r.lab.apply()
	t.Logf("%d packets dropped", dropped)
	if dropped == 0 {
		t.Error("no packet was dropped: there was no fault")
	}
}

// A cut in one direction between owner and lender, then in the other; then the
// owner apart from the others until they count it as failed.
func TestCutsShorterThanGrace(t *testing.T) {
	besideOthers(t)
	r := newRig(t, 3, kinds())
	owner := r.rng.IntN(3)
	lender := r.except(owner)[r.rng.IntN(2)]
	busy := r.everyKind(owner)
	for _, s := range busy {
		s.waitUsed()
	}
	cut := func(name string, faults []fault, lasts func()) {
		idle := r.idleKeys(owner)
		r.lab.apply(faults...)
		flashes := r.flash(idle, sudden, r.every()...)
		lasts()
		if dropped := r.lab.apply(); dropped == 0 {
			t.Errorf("%s: no packet was dropped", name)
		}
		for _, s := range flashes {
			s.judge(name+", full bucket", 1)
		}
		r.waitWhole()
		for _, s := range busy {
			s.waitUsed()
		}
	}
	short := func() { sleep(1500 * time.Millisecond) }
	cut("lender does not reach owner", []fault{{lender + 1, owner + 1, 1}}, short)
	cut("owner does not reach lender", []fault{{owner + 1, lender + 1, 1}}, short)
	cut("owner apart from two lenders", between(labNumbers(owner), labNumbers(r.except(owner)...), 1), func() {
		for _, i := range r.except(owner) {
			r.waitAlive(r.nodes[i], 2)
		}
		r.waitAlive(r.nodes[owner], 1)
	})
	for _, s := range busy {
		s.judge("three cuts, saturated", 3)
	}
}

func TestPausesOfOwnerAndLender(t *testing.T) {
	besideOthers(t)
	r := newRig(t, 3, kinds())
	owner := r.rng.IntN(3)
	lender := r.except(owner)[r.rng.IntN(2)]
	busy := r.everyKind(owner)
	for _, s := range busy {
		s.waitUsed()
	}
	// stop halts a node. The flashes come from the nodes that run, at once, and
	// from all of them, on other keys, when it wakes up: what is sent to it just
	// before may be decided before it knows that it slept.
	stop := func(name string, victim int, lasts func()) {
		atFault, atEnd := r.idleKeys(owner), r.idleKeys(owner)
		for _, k := range atEnd {
			// So that the victim holds credit when it halts.
			for range 15 {
				if _, err := r.nodes[victim].server().ask(r.web, k.rule.name, k.key); err != nil {
					t.Fatal(err)
				}
			}
		}
		s := r.nodes[victim].server()
		before := paused([]*server{s})
		s.signal(syscall.SIGSTOP)
		flashes := r.flash(atFault, sudden, r.except(victim)...)
		lasts()
		last := r.flash(atEnd, salvo, victim)
		sleep(50 * time.Millisecond)
		s.signal(syscall.SIGCONT)
		last = append(last, r.flash(atEnd, sudden, r.except(victim)...)...)
		wait(t, "the woken node saying so", func() bool { return paused([]*server{s}) > before })
		r.meant++
		sleep(700 * time.Millisecond)
		for _, s := range flashes {
			s.judge(name+", full bucket", 1)
		}
		// Each of these keys has two streams: one at the victim, one at the others.
		for i := range atEnd {
			last[i].stop()
			joined := last[i+len(atEnd)]
			joined.stop()
			joined.take(last[i])
			joined.judge(name+", full bucket on waking", 1)
		}
		r.waitWhole()
		for _, s := range busy {
			s.waitUsed()
		}
	}
	short := func() { sleep(1500 * time.Millisecond) }
	stop("owner pauses", owner, short)
	stop("lender pauses", lender, short)
	stop("owner pauses beyond being declared dead", owner, func() {
		for _, i := range r.except(owner) {
			r.waitAlive(r.nodes[i], 2)
		}
	})
	for _, s := range busy {
		s.judge("three pauses, saturated", 3)
	}
}

// take adds what came of another stream of the same key.
func (s *stream) take(o *stream) {
	s.admitted = append(s.admitted, o.admitted...)
	s.errors = append(s.errors, o.errors...)
	s.refused += o.refused
	s.first, s.last = min(s.first, o.first), max(s.last, o.last)
	s.slowest = max(s.slowest, o.slowest)
	for source, n := range o.sources {
		s.sources[source] += n
	}
}

// The owner is killed and comes back under its name: after it was declared dead,
// at another address; and before anybody has noticed, where it was.
func TestAKilledOwnerComesBackUnderItsName(t *testing.T) {
	besideOthers(t)
	r := newRig(t, 3, kinds())
	owner := r.rng.IntN(3)
	busy := r.everyKind(owner)
	for _, s := range busy {
		s.waitUsed()
	}
	crash := func(name string, which int, meanwhile func()) {
		idle := r.idleKeys(owner)
		victim := r.nodes[owner]
		victim.setDown(true)
		victim.server().kill()
		flashes := r.flash(idle, sudden, r.except(owner)...)
		meanwhile()
		r.launch(owner, which)
		victim.server().waitReady()
		victim.setDown(false)
		for _, s := range flashes {
			s.judge(name+", full bucket", 1)
		}
		r.waitWhole()
		for _, s := range busy {
			s.waitUsed()
		}
	}
	crash("owner is killed, declared dead, back at another address", 2, func() {
		for _, i := range r.except(owner) {
			r.waitAlive(r.nodes[i], 2)
		}
	})
	crash("owner is killed and back at once", 2, func() {})
	for _, s := range busy {
		s.judge("two crashes, saturated", 2)
	}
}

// Beyond grace each side has the whole limit; when the network is whole again
// there is one.
func TestASplitLongerThanGrace(t *testing.T) {
	besideOthers(t)
	const grace = 5 * time.Second
	// The burst is small, so that one limit and two are told apart within seconds.
	rules := []rule{{"strict-wait", 30, 15, "strict", "wait"}, {"hybrid-wait", 30, 15, "hybrid", "wait"}, {"hybrid-share", 30, 15, "hybrid", "share"}}
	// A node that is told of others, by expect or as seeds, never divides by fewer
	// than it was told of. These know one seed; so the one that is cut off has to be
	// the seed itself, or it would divide by two.
	const loner = 0
	r := startRig(t, 3, 1, rules, "--grace", grace.String())
	sides := [][]int{{loner}, r.except(loner)}
	var streams [][]*stream // by limit and side
	for _, l := range rules {
		key := r.keyOf(l, r.rng.IntN(3))
		streams = append(streams, []*stream{r.load(l, key, steady, sides[0]...), r.load(l, key, steady, sides[1]...)})
	}
	r.lab.apply(between(labNumbers(sides[0]...), labNumbers(sides[1]...), 1)...)
	for _, side := range sides {
		for _, i := range side {
			r.waitAlive(r.nodes[i], len(side))
			wait(t, "the other side no longer counting", func() bool { return r.nodes[i].server().parts() == len(side) })
		}
	}
	for _, both := range streams {
		for _, s := range both {
			s.waitUsed()
		}
	}
	if dropped := r.lab.apply(); dropped == 0 {
		t.Error("no packet was dropped")
	}
	r.waitWhole()
	for _, m := range r.nodes {
		wait(t, "all three counting again", func() bool { return m.server().parts() == 3 })
	}
	healed := time.Since(r.begin)
	sleep(3 * time.Second)
	for k, both := range streams {
		wait(t, "the limit being used as one", func() bool {
			return both[0].admittedInLast(2*time.Second)+both[1].admittedInLast(2*time.Second) >= 2*rules[k].rate*9/10
		})
	}
	for k, both := range streams {
		for side, s := range both {
			s.judge(fmt.Sprintf("split beyond grace, side of %d", len(sides[side])), 2)
		}
		after := admittedFrom(both, healed)
		seconds := (max(both[0].last, both[1].last) - healed).Seconds()
		worst := excess(t, "after a split beyond grace, both sides", rules[k], after, seconds, "")
		if bound := 1 + float64(r.unmeant()*rules[k].burst); worst.Tokens > bound {
			t.Errorf("%s: excess of %.2f tokens after all see each other again", rules[k].name, worst.Tokens)
		}
	}
}

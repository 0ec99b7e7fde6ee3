package hybrid

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/jatah-io/jatah/bucket"
)

// TestDebtIsRepaidByRefill: a charge after the fact takes the balance below zero; requests are refused until it is repaid, on
// every node, and no longer.
func TestDebtIsRepaidByRefill(t *testing.T) {
	modes(t, func(t *testing.T, m Mode) {
		for _, by := range []string{"owner", "another"} {
			s := testSpec(10, 10)
			s.Mode = m
			w := quiet(t, 3, 0, s)
			n, other := w.owner("k"), w.others("k")[1]
			if by == "another" {
				n = w.others("k")[0]
			}
			n.ask("k", 10)
			w.sleep(2 * tick) // 2 tokens, less what waited for the report
			start := w.now
			if d := n.charge("k", 20); !d.OK || d.Remaining != 0 || d.RetryAfter != 0 {
				t.Errorf("charge: %+v", d)
			}
			pool, out := w.balance("k")
			if pool+out > -17.5 || pool+out < -20 {
				t.Fatalf("the pool has %.3f, %.0f are out", pool, out)
			}
			whole := int64((1 - pool - out) / 10 * float64(sec)) // until there is one token
			for w.now < start+whole-10*ms {
				if d := other.ask("k", 1); d.OK {
					t.Fatalf("%v after the charge a request passed: %+v", time.Duration(w.now-start), d)
				}
				w.sleep(5 * ms)
			}
			w.sleep(tick + 10*ms) // the denial of an overload stands for a tick
			if d := other.ask("k", 1); !d.OK {
				t.Errorf("the debt is repaid: %+v", d)
			}
		}
	})
}

// TestDebtOfAnySizeIsTold: a debt beyond what a message can say does not make the message unreadable.
func TestDebtOfAnySizeIsTold(t *testing.T) {
	w := quiet(t, 3, 0, slow(10))
	n := w.others("k")[0]
	for range 12 {
		n.charge("k", maxBurst)
	}
	w.sleep(sec)
	for _, o := range w.nodes {
		if x := o.e.stats.malformed.Load(); x != 0 {
			t.Errorf("%s could not read %d messages", o.name, x)
		}
	}
	if d := n.ask("k", 1); d.OK || d.Err != nil {
		t.Errorf("a key in debt: %+v", d)
	}
}

// TestAllowanceIsSpentOnceUntilCharged: floor(phi*b/K) tokens beyond credit, without waiting for the owner; again when it
// has charged them; and not at all when the balance seen last was low.
func TestAllowanceIsSpentOnceUntilCharged(t *testing.T) {
	s := slow(12)
	s.Overshoot = 0.5
	w := quiet(t, 3, 0, s)
	n := w.others("k")[0]
	at := w.now
	for i := range 2 { // floor(0.5 * 12 / 3)
		if d, p := n.limit.Begin("k", 1); p != nil || !d.OK || d.Source != SourceLocal || d.MaxExcess != 6 {
			t.Fatalf("token %d of the allowance: %+v", i+1, d)
		}
	}
	d, p := n.limit.Begin("k", 1)
	if p == nil {
		t.Fatalf("the allowance is spent, this must ask: %+v", d)
	}
	if d = w.await(p); !d.OK || d.Source != SourceOwner || w.now == at {
		t.Errorf("the owner has tokens: %+v", d)
	}
	w.sleep(3 * tick)
	if pool, out := w.balance("k"); !near(pool+out, 9) || n.credit("k") < 0 {
		t.Errorf("3 of 12 were used: the pool has %.3f, %.0f are out; the node has %d", pool, out, n.credit("k"))
	}
	// Down to half of the burst and below nothing is spent ahead.
	for _, o := range w.nodes {
		o.takes("k", 12)
	}
	w.sleep(3 * tick)
	used := n.e.stats.debt.Load()
	for range 10 {
		if d := n.ask("k", 1); d.OK {
			t.Errorf("nothing is left: %+v", d)
		}
	}
	if n.credit("k") < 0 || n.e.stats.debt.Load() != used {
		t.Errorf("spent ahead at a low balance: %d", n.credit("k"))
	}
}

// TestFlashOfAllowances: all nodes at once spend what is theirs and no more: phi of the burst above it.
func TestFlashOfAllowances(t *testing.T) {
	s := slow(30)
	s.Overshoot = 0.2
	w := quiet(t, 3, 0, s)
	passed := 0
	for round := range 20 {
		for _, n := range w.nodes {
			for range 50 {
				if d, p := n.limit.Begin("k", 1); p != nil {
					n.pending = append(n.pending, &pendingTake{"k", p, w.now, 1})
				} else if d.OK {
					passed++
				}
			}
		}
		w.meter["k"] = &meter{burst: 30}
		w.sleep(20 * ms)
		passed += w.meter["k"].n
		if round == 0 && passed < 30 {
			t.Errorf("only %d passed at once", passed)
		}
	}
	if passed > 36 || passed < 30 {
		t.Errorf("%d passed, at most 30 + 6 are promised", passed)
	}
}

// TestSilentOwner: each fallback, to the token. The limit has a burst of 5: shares of three nodes are 2, 2 and 1.
func TestSilentOwner(t *testing.T) {
	silent := func(t *testing.T, m Mode, f Fallback, before func(w *world)) *world {
		s := slow(5)
		s.Mode, s.Fallback = m, f
		w := quiet(t, 3, 0, s)
		if before != nil {
			before(w)
		}
		w.isolate(w.owner("k"))
		w.sleep(4 * tick)
		return w
	}
	for _, m := range []Mode{Hybrid, Strict} {
		t.Run(m.String(), func(t *testing.T) {
			w := silent(t, m, FallbackDeny, nil)
			for _, n := range w.others("k") {
				if d := n.ask("k", 1); d.OK || d.Source != SourceDeny || d.RetryAfter <= 0 {
					t.Errorf("deny: %+v", d)
				}
			}
			w = silent(t, m, FallbackAllow, nil)
			for _, n := range w.others("k") {
				for range 20 {
					if d := n.ask("k", 1); !d.OK || d.Source != SourceAllow {
						t.Fatalf("allow: %+v", d)
					}
				}
			}
			w = silent(t, m, FallbackWait, nil)
			for range 10 {
				for _, n := range w.others("k") {
					if d := n.ask("k", 1); d.OK || d.Source != SourceShare || d.RetryAfter <= 0 {
						t.Errorf("wait: a share starts empty: %+v", d)
					}
				}
				w.sleep(tick)
			}
			// A key that nobody has used: the shares, at once. Those of the two nodes that are left, and the odd one with the owner.
			w = silent(t, m, FallbackShare, nil)
			sum := 0
			for _, n := range w.others("k") {
				d := n.ask("k", 1)
				if !d.OK || d.Source != SourceAhead {
					t.Errorf("share: %+v", d)
				}
				own := 1 + n.takes("k", 10)
				if want := int(wholeShare(5, 3, rankOf(n.e.counted.names, n.name, n.e.hash(n.limit, "k"), true))); own != want {
					t.Errorf("%s spends %d ahead, its share is %d", n.name, own, want)
				}
				sum += own
			}
			if sum != 3 && sum != 4 {
				t.Errorf("two of three nodes spent %d of shares 2, 2 and 1", sum)
			}
			// Heard again, it is charged with all of it, and no more.
			w.heal()
			w.sleep(2 * sec)
			if pool, out := w.balance("k"); !near(pool+out, float64(5-sum)) {
				t.Errorf("%d were spent ahead: the pool has %.3f, %.0f are out", sum, pool, out)
			}
			for _, n := range w.others("k") {
				if c := n.credit("k"); c < 0 {
					t.Errorf("%s still owes %d", n.name, -c)
				}
			}
		})
	}
}

// TestSpentAheadIsTheLastBalanceTimesTheWeight, and never twice before it was charged, whoever owns the key meanwhile.
func TestSpentAheadIsTheLastBalanceTimesTheWeight(t *testing.T) {
	s := slow(90)
	s.Mode = Strict // no credit that hides it
	w := quiet(t, 3, 0, s)
	k := w.keys[0]
	n, o := w.others(k)[0], w.owner(k)
	n.ask(k, 30) // n saw a balance of 60
	w.isolate(o)
	w.sleep(4 * tick)
	if ahead := n.takes(k, 100); ahead != 20 {
		t.Errorf("%d spent ahead of a balance of 60 over three nodes", ahead)
	}
	w.sleep(3 * sec) // the loan has run out: the share is its own, and empty
	if d := n.ask(k, 1); d.OK {
		t.Errorf("more than that: %+v", d)
	}
	// The owner is declared dead and n deals with the next, which is silent as well: what is owed is owed.
	w.isolate(n)
	w.detect()
	w.sleep(10 * sec)
	next := n.e.ownerOf(n.e.partOf(n.e.hash(n.limit, k)))
	if next == nil || next.name == o.name {
		t.Fatalf("%v still owns the key in the view of %s", next, n.name)
	}
	before := n.credit(k)
	if next != n.e.self {
		if d := n.ask(k, 1); d.OK {
			t.Errorf("ahead a second time before the first was charged: %+v", d)
		}
		if before != -20 {
			t.Errorf("%d are owed", -before)
		}
	}
}

// TestShareRefillsAlone: with fallback wait, a node that is cut off for long gets its share of the rate once its loan has run
// out, and its share of the burst at most.
func TestShareRefillsAlone(t *testing.T) {
	s := testSpec(30, 30)
	s.Fallback = FallbackWait
	w := quiet(t, 3, 0, s)
	k := w.keys[0]
	n := w.others(k)[0]
	w.isolate(n)
	w.sleep(3 * tick)
	cut := w.now
	var first int64
	for first == 0 && w.now < cut+3*sec {
		if n.ask(k, 1).OK {
			first = w.now
		}
		w.sleep(5 * ms)
	}
	if since := first - cut; since < 2*tick || since > 10*tick {
		t.Errorf("the first token after %v: the loan runs out within 5 ticks, and a token takes another", time.Duration(since))
	}
	passed := 0
	for end := w.now + 2*sec; w.now < end; w.sleep(10 * ms) {
		passed += n.takes(k, 5)
	}
	if passed < 19 || passed > 20 {
		t.Errorf("%d passed in 2 s at a third of 30/s", passed)
	}
	w.sleep(3 * sec)
	if full := n.takes(k, 30); full != 10 {
		t.Errorf("a third of 30 is %d", full)
	}
	if d := n.ask(k, 11); d.OK || d.RetryAfter != time.Duration(w.grace) {
		t.Errorf("more than the share can ever cover: %+v", d)
	}
}

// TestWholeSharesAddUp: floor and ceil of b/k by rank, whatever the key.
func TestWholeSharesAddUp(t *testing.T) {
	var names []string
	for k := 1; k <= 9; k++ {
		names = append(names, fmt.Sprint("node-", k))
		for _, b := range []int64{0, 1, 2, 5, 7, 9, 100, 1<<50 - 1} {
			for h := range uint64(50) {
				var sum int64
				for _, n := range names {
					x := wholeShare(b, k, rankOf(names, n, h*0x9e3779b97f4a7c15, true))
					if x != b/int64(k) && x != b/int64(k)+1 {
						t.Fatalf("a share of %d over %d is %d", b, k, x)
					}
					sum += x
				}
				if sum != b {
					t.Fatalf("shares of %d over %d add up to %d", b, k, sum)
				}
			}
		}
	}
	if rankOf(names, "stranger", 1, true) != math.MaxInt {
		t.Error("a stranger has a rank")
	}
}

// TestSplitFollowsTheMembers: one node alone of three admits a third, all together the whole, and shares follow
// K once everybody has heard of the change.
func TestSplitFollowsTheMembers(t *testing.T) {
	for nodes := 1; nodes <= 7; nodes++ {
		for _, b := range []int64{1, 5, 7, 100} {
			s := slow(b)
			s.Mode = Split
			w := newWorld(t, *firstSeed, nodes, 0, s, 1)
			w.start(nodes)
			before := w.messages
			for i := range 10 {
				k, sum := fmt.Sprint("k", i), 0
				for _, n := range w.nodes {
					own := n.takes(k, 200)
					if int64(own) != b/int64(nodes) && int64(own) != b/int64(nodes)+1 {
						t.Errorf("%s of %d admits %d of %d", n.name, nodes, own, b)
					}
					sum += own
				}
				if int64(sum) != b {
					t.Errorf("%d nodes admit %d of %d", nodes, sum, b)
				}
			}
			if w.messages != before {
				t.Errorf("split mode sent %d messages", w.messages-before)
			}
		}
	}
	s := Spec{Name: "api", Rate: bucket.Per(60, time.Second), Burst: 60, Mode: Split}
	w := quiet(t, 3, 0, s)
	k := w.keys[0]
	n := w.nodes[0]
	if x := n.takes(k, 100); x != 20 {
		t.Errorf("one of three admits %d of 60", x)
	}
	w.nodes[1].kill()
	w.nodes[2].kill()
	w.detect()
	w.sleep(10 * sec)
	if x := n.takes(k, 100); x != 20 {
		t.Errorf("one that is left of three, within grace, admits %d of 60", x)
	}
	w.sleep(w.grace + 3*sec)
	if x := n.takes(k, 100); x < 20 || x > 60 {
		t.Errorf("after grace it admits %d at once", x)
	}
	w.sleep(2 * sec)
	if x := n.takes(k, 100); x != 60 {
		t.Errorf("alone for good it admits %d of 60", x)
	}
	w.revive(w.nodes[1])
	w.sleep(4 * sec)
	a, b := n.takes(k, 100), w.nodes[1].takes(k, 100)
	if a != 30 || b != 30 {
		t.Errorf("two nodes admit %d and %d of 60", a, b)
	}
	if x := w.worst(); x > 1e-6 {
		t.Errorf("excess %.3f", x)
	}
}

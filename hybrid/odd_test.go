package hybrid

import (
	"context"
	"math"
	"sync"
	"testing"
)

// TestResetRepaysAnyDebtAtOnce: the deepest debt of the smallest burst, in one step rather than one for each burst.
func TestResetRepaysAnyDebtAtOnce(t *testing.T) {
	w := quiet(t, 3, 0, slow(1))
	o := w.owner("k")
	o.charge("k", math.MaxInt64)
	if err := o.limit.Reset(context.Background(), "k"); err != nil {
		t.Fatal(err)
	}
	if pool, out := w.balance("k"); !near(pool+out, 1) {
		t.Errorf("a key that was reset has %.3f and %.0f out", pool, out)
	}
}

// TestRefundRepaysDebt: as on a bare bucket, what was charged too much can be given back, above the burst or not.
func TestRefundRepaysDebt(t *testing.T) {
	modes(t, func(t *testing.T, m Mode) {
		s := slow(20)
		s.Mode = m
		w := quiet(t, 3, 0, s)
		for _, n := range []*simNode{w.owner("k"), w.others("k")[0]} {
			n.charge("k", 100)
			n.refund("k", 90)
			if pool, out := w.balance("k"); !near(pool+out, 10) {
				t.Errorf("%s: charged 100 of 20, refunded 90: %.3f and %.0f out", n.name, pool, out)
			}
			n.refund("k", 1000)
			if pool, out := w.balance("k"); !near(pool+out, 20) {
				t.Errorf("%s: a refund above the burst leaves %.3f and %.0f out", n.name, pool, out)
			}
		}
	})
}

// TestLookAtAKeyInDebt is refused, at the owner and where the debt is known.
func TestLookAtAKeyInDebt(t *testing.T) {
	modes(t, func(t *testing.T, m Mode) {
		s := testSpec(10, 20)
		s.Mode = m
		w := quiet(t, 3, 0, s)
		n := w.others("k")[0]
		n.charge("k", 40)
		for _, x := range []*simNode{n, w.owner("k")} {
			if d := x.ask("k", 0); d.OK || d.RetryAfter <= 0 || d.RetryAfter > 2100*1e6 {
				t.Errorf("%s: a look at a debt of 20 at 10/s: %+v", x.name, d)
			}
		}
		w.sleep(3 * sec)
		for _, x := range []*simNode{n, w.owner("k")} {
			if d := x.ask("k", 0); !d.OK || d.RetryAfter != 0 {
				t.Errorf("%s: a look when the debt is repaid: %+v", x.name, d)
			}
		}
	})
}

// TestRateZeroStopsWhatCreditCovers: whoever sets a rate to 0 wants nothing to pass any more.
func TestRateZeroStopsWhatCreditCovers(t *testing.T) {
	w := quiet(t, 3, 0, testSpec(100, 90))
	n := w.others("k")[0]
	n.ask("k", 1)
	if n.credit("k") == 0 {
		t.Fatal("no credit to spend")
	}
	s := w.spec
	s.Rate.Count = 0
	w.define(s)
	if d := n.limit.Take(context.Background(), "k", 1); d.OK {
		t.Errorf("take: %+v", d)
	}
	if d, p := n.limit.Begin("k", 1); p != nil || d.OK {
		t.Errorf("begin: %+v", d)
	}
}

// TestDescriptionsAreReadUnderTheLock has something to say only with the race detector: what is read of a key and of
// a limit without the lock, while it is changed.
func TestDescriptionsAreReadUnderTheLock(t *testing.T) {
	w := quiet(t, 3, 0, slow(9))
	n := w.others("k")[0]
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	var wg sync.WaitGroup
	wg.Go(func() {
		for range 200 {
			_, _ = n.limit.Peek(gone, "k")
			n.e.hash(n.limit, "k")
		}
	})
	n.e.mu.Lock()
	a, err := n.e.account(n.limit, "k")
	n.e.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	s := w.spec
	for i := range 200 {
		s.Burst = 9 + int64(i%2)
		if _, err := n.e.Define(s); err != nil {
			t.Fatal(err)
		}
		n.e.mu.Lock()
		n.e.apply(a, &grant{bal: float64(i)}, 0, n.clock())
		n.e.mu.Unlock()
	}
	wg.Wait()
}

// TestManyTokensAreHandedOver: a key through which more tokens went than a float64 counts takes nobody else's ledgers along.
func TestManyTokensAreHandedOver(t *testing.T) {
	s := testSpec(3e9, maxBurst)
	w := quiet(t, 3, 0, s)
	n := w.owner("k")
	for range 20 {
		n.charge("k", maxBurst)
		n.refund("k", maxBurst)
	}
	w.sleep(sec)
	if err := n.e.Leave(n.clock()); err != nil {
		t.Fatal(err)
	}
	n.settle()
	w.sleep(2 * sec)
	if left := n.e.Handing(); left != 0 {
		t.Errorf("%d hand-offs were not taken in", left)
	}
	for _, o := range w.nodes {
		if x := o.e.stats.malformed.Load(); x != 0 {
			t.Errorf("%s could not read %d messages", o.name, x)
		}
	}
	if _, err := decode(encode(newWriter(), &message{reports: []report{{was: generation{number: 1, g: math.MaxInt64}}}})); err == nil {
		t.Error("a credit beyond what a float64 counts was read")
	}
}

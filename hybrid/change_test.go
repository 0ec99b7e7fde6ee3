package hybrid

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jatah-io/jatah/bucket"
)

// TestLiveChangeKeepsWhatWasUsed: a lower burst cuts what is left, a higher one gives nothing, and a debt stays, on a key that
// all nodes use.
func TestLiveChangeKeepsWhatWasUsed(t *testing.T) {
	modes(t, func(t *testing.T, m Mode) {
		s := Spec{Name: "api", Rate: bucket.Per(1, 30*24*time.Hour), Burst: 100, Mode: m}
		w := quiet(t, 3, 0, s)
		rest := func() float64 {
			w.rest() // all credit is back
			pool, out := w.balance("k")
			if out != 0 {
				t.Errorf("%.0f are out", out)
			}
			return pool
		}
		change := func(burst int64) {
			s.Burst = burst
			w.define(s)
		}
		n := w.others("k")[0]
		n.ask("k", 1)
		if x := rest(); !near(x, 99) {
			t.Errorf("1 of 100 was used, %.3f are left", x)
		}
		change(10)
		if d := n.ask("k", 1); !d.OK || d.Remaining != 9 {
			t.Errorf("1 of the 10 that are left: %+v", d)
		}
		if x := rest(); !near(x, 9) {
			t.Errorf("a burst of 10 leaves %.3f", x)
		}
		change(1000)
		if d := n.ask("k", 1); !d.OK || d.Remaining != 8 {
			t.Errorf("a raised burst gives nothing: %+v", d)
		}
		if x := rest(); !near(x, 8) {
			t.Errorf("a burst of 1000 leaves %.3f", x)
		}
		n.charge("k", 20)
		change(5)
		change(500)
		if x := rest(); !near(x, -12) {
			t.Errorf("a debt of 12 is %.3f", x)
		}
		s.Rate = bucket.Per(100, time.Second)
		w.define(s)
		w.sleep(sec)
		if pool, out := w.balance("k"); pool+out < 87 || pool+out > 89 {
			t.Errorf("after a second at the new rate: %.3f and %.0f out", pool, out)
		}
	})
}

// TestLowerBurstWhileCreditIsOut: credit above the new burst counts, and the pool is below zero rather than the limit above.
func TestLowerBurstWhileCreditIsOut(t *testing.T) {
	w := quiet(t, 3, 0, slow(100))
	n := w.others("k")[0]
	n.ask("k", 1)
	held := n.credit("k")
	if held < 3 {
		t.Fatalf("only %d out", held)
	}
	s := w.spec
	s.Burst = 2
	w.define(s)
	if pool, out := w.balance("k"); !near(pool+out, 2) {
		t.Errorf("the pool has %.3f, %.0f are out", pool, out)
	}
	passed := 0
	for _, n := range w.nodes {
		passed += n.takes("k", 100)
	}
	if int64(passed) > held {
		t.Errorf("%d passed, %d were out", passed, held)
	}
}

// TestRemove: an old handle refuses, the keys are forgotten on every node, and a limit defined anew under the name starts full.
func TestRemove(t *testing.T) {
	for _, m := range []Mode{Hybrid, Strict, Split} {
		t.Run(m.String(), func(t *testing.T) {
			s := slow(90)
			s.Mode = m
			w := quiet(t, 3, 0, s)
			for _, n := range w.nodes {
				n.ask("k", 20)
				if m != Split {
					n.charge("debt", 5)
				}
			}
			w.sleep(tick)
			for _, n := range w.nodes {
				if !n.e.Remove("api") || n.e.Remove("api") {
					t.Errorf("%s: Remove should say whether there was a limit", n.name)
				}
				if d := n.ask("k", 1); d.OK || !errors.Is(d.Err, ErrClosed) {
					t.Errorf("%s: a removed limit: %+v", n.name, d)
				}
				if _, ok := n.e.Lookup("api"); ok {
					t.Errorf("%s still knows the limit", n.name)
				}
			}
			w.sleep(20 * sec)
			for _, n := range w.nodes {
				st := n.e.Stats()
				if st.Accounts != 0 || st.Active != 0 || st.Ledgers != 0 || len(n.e.byGen) != 0 {
					t.Errorf("%s keeps %d accounts, %d of them active, and %d ledgers of a limit that is gone", n.name, st.Accounts, st.Active, st.Ledgers)
				}
				l, err := n.e.Define(s)
				if err != nil {
					t.Fatal(err)
				}
				n.limit = l
			}
			sum := 0
			for _, n := range w.nodes {
				sum += n.takes("k", 100)
			}
			if sum != 90 {
				t.Errorf("defined anew: %d of 90 passed", sum)
			}
		})
	}
}

// TestLimitThatTheOwnerDoesNotKnow: decided by fallback after the ask timeout, and at the owner as soon as it knows it.
func TestLimitThatTheOwnerDoesNotKnow(t *testing.T) {
	w := quiet(t, 3, 0, slow(9))
	o, n := w.owner("k"), w.others("k")[0]
	o.e.Remove("api")
	if d := n.ask("k", 1); d.OK {
		t.Errorf("%+v", d)
	}
	l, err := o.e.Define(w.spec)
	if err != nil {
		t.Fatal(err)
	}
	o.limit = l
	w.sleep(2 * tick)
	if d := n.ask("k", 9); !d.OK || d.Source != SourceOwner {
		t.Errorf("the owner knows the limit now: %+v", d)
	}
}

// TestCloseEndsWhatWaits: nobody waits for a node that is closed, and nothing is admitted any more, on credit neither.
func TestCloseEndsWhatWaits(t *testing.T) {
	w := quiet(t, 3, 0, slow(30))
	n := w.others("k")[0]
	n.ask("k", 1)
	if n.credit("k") == 0 {
		t.Fatal("no credit to spend")
	}
	var waiting []*Pending
	for range 5 {
		if _, p := n.limit.Begin("other", 1); p != nil {
			waiting = append(waiting, p)
		}
	}
	if len(waiting) != 5 {
		t.Fatalf("%d of 5 requests wait", len(waiting))
	}
	n.e.Close()
	n.e.Close()
	for _, p := range waiting {
		if d := n.limit.Finish(context.Background(), p); d.OK || !errors.Is(d.Err, ErrClosed) {
			t.Errorf("a request that waited: %+v", d)
		}
	}
	for _, k := range []string{"k", "other", "new"} {
		for _, cost := range []int64{0, 1} {
			if d := n.limit.Take(context.Background(), k, cost); d.OK || !errors.Is(d.Err, ErrClosed) {
				t.Errorf("%q, cost %d: %+v", k, cost, d)
			}
		}
	}
	if _, err := n.limit.Peek(context.Background(), "k"); !errors.Is(err, ErrClosed) {
		t.Errorf("peek: %v", err)
	}
	if err := n.limit.Reset(context.Background(), "k"); !errors.Is(err, ErrClosed) {
		t.Errorf("reset: %v", err)
	}
	w.sleep(10 * ms)
	if d := n.limit.Take(context.Background(), "k", 1); d.OK {
		t.Errorf("an answer that came late gave credit to a closed node: %+v", d)
	}
}

// TestCanceledRequestLosesNothing: what was granted to a request whose caller went away is used by the next.
func TestCanceledRequestLosesNothing(t *testing.T) {
	w := quiet(t, 3, 0, slow(9))
	n := w.others("k")[0]
	ctx, cancel := context.WithCancel(context.Background())
	_, p := n.limit.Begin("k", 1)
	cancel()
	if d := n.limit.Finish(ctx, p); d.OK || !errors.Is(d.Err, context.Canceled) {
		t.Errorf("%+v", d)
	}
	w.sleep(sec)
	if d := n.ask("k", 1); !d.OK {
		t.Errorf("%+v", d)
	}
	w.rest()
	if pool, out := w.balance("k"); out != 0 || pool < 7-1e-3 {
		t.Errorf("2 requests of 9: %.3f are left, %.0f out", pool, out)
	}
}

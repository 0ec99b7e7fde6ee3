package bucket

import (
	"fmt"
	"math"
	"testing"
	"time"
)

// TestHoldKeepsWhatWasUsed: a part falls and rises again, and what counts as used is the same to the token, of the whole limit as of a part.
func TestHoldKeepsWhatWasUsed(t *testing.T) {
	day := 24 * time.Hour
	for _, s := range []Spec{
		{Algorithm: "token_bucket", Rates: []Rate{Per(90, day)}},
		{Algorithm: "fixed_window", Rates: []Rate{Per(90, day)}},
		{Algorithm: "sliding_window", Rates: []Rate{Per(90, day)}},
		{Algorithm: "sliding_log", Rates: []Rate{Per(90, day)}},
		{Algorithm: "leaky_bucket", Rates: []Rate{Per(90, day)}, Queue: 89},
		{Algorithm: "fixed_window", Rates: []Rate{Per(90, day), Per(300, 7*day)}},
	} {
		m := mustCompile(t, s).New()
		m.Advance(t0, 1, 0)
		m.Use(50, 10) // of which 10 are out: they count as spent
		for _, c := range []struct{ part, free float64 }{{0, -50}, {1.0 / 3, -20}, {2.0 / 3, 10}, {1, 40}} {
			Hold(m, c.part)
			if got := m.Free(); math.Abs(got-c.free) > 1e-6 {
				t.Errorf("%s: with %.2f of the limit %v are free, want %v", s.Algorithm, c.part, got, c.free)
			}
		}
		if got := Taken(m); math.Abs(got-50) > 1e-6 {
			t.Errorf("%s: %v count as used", s.Algorithm, got)
		}
		n := mustCompile(t, s).New()
		n.Advance(t0, 1, 0)
		n.Use(5, 0)
		if UseOf(n, m, 20, 0); math.Abs(n.Free()-55) > 1e-6 {
			t.Errorf("%s: %v free after 5 and all of 50 beyond 20, want 55", s.Algorithm, n.Free())
		}
	}
}

// TestTableOfMetersIsTakenToAnother: what Each tells and Restore takes in decides the same; what is as new, known or too much is not taken in.
func TestTableOfMetersIsTakenToAnother(t *testing.T) {
	a := mustCompile(t, Spec{Algorithm: "sliding_log", Rates: []Rate{Per(10, time.Hour)}})
	share, err := a.Share(3, 1)
	if err != nil {
		t.Fatal(err)
	}
	if k, rank := share.Held(); k != 3 || rank != 1 {
		t.Errorf("the share is %d of %d", rank, k)
	}
	if k, _ := a.Held(); k != 0 {
		t.Errorf("the whole is one of %d", k)
	}
	from, to := NewMeterTable(a, 0), NewMeterTable(a, 101)
	for i := range 100 {
		from.Take(fmt.Sprint("k", i), t0+int64(i)*second, int64(1+i%10))
	}
	from.TakeWith("own", share, t0, 2)
	from.Take("gone", t0-int64(2*time.Hour), 3)
	now := t0 + 100*second
	from.Each(now, func(key string, b *Algorithm, own bool, m Meter) bool {
		n := b.New()
		if err := n.Load(m.State(nil), now); err != nil {
			t.Fatal(err)
		}
		if own != (b == share) || key == "gone" {
			t.Errorf("%s: own %v", key, own)
		}
		if !own {
			b = nil
		}
		if !to.Restore(key, b, n, now) || to.Restore(key, b, Clone(n), now) {
			t.Errorf("%s: not restored once", key)
		}
		return true
	})
	if from.Len()-1 != to.Len() {
		t.Errorf("%d keys became %d", from.Len()-1, to.Len())
	}
	m := a.New()
	m.Advance(now, 1, 0)
	if to.Restore("new", nil, m, now) {
		t.Error("a meter as new was taken in")
	}
	if m.Use(1, 0); to.Restore("new", nil, m, now) {
		t.Error("one more than there is room for was taken in")
	}
	for i := range 3000 {
		at := now + int64(i)*second
		key := fmt.Sprint("k", i%100)
		if x, y := from.Take(key, at, int64(i%3)), to.Take(key, at, int64(i%3)); x != y {
			t.Fatalf("step %d: %+v became %+v", i, x, y)
		}
	}
	if x, y := from.TakeWith("own", share, now, 2), to.TakeWith("own", share, now, 2); x != y {
		t.Errorf("%+v became %+v", x, y)
	}
	calls := 0
	from.Each(now, func(string, *Algorithm, bool, Meter) bool { calls++; return false })
	if calls != 1 {
		t.Errorf("called %d times after it was told to stop", calls)
	}
}

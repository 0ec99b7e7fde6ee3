package bucket

import (
	"testing"
	"time"
)

// TestMoveKeepsWhatWasUsed: between plans of one and of several rates, to and fro, buckets and windows.
func TestMoveKeepsWhatWasUsed(t *testing.T) {
	day := func(n int64) Rate { return Per(n, 24*time.Hour) }
	alg := func(name string, burst int64, rates ...Rate) *Algorithm {
		a, err := Compile(Spec{Algorithm: name, Rates: rates, Burst: burst})
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	for _, c := range []struct {
		what       string
		small, big *Algorithm
		used       float64
		free       [3]float64 // as small, then as big, then as small with 10 more used
	}{
		{"buckets", alg("token_bucket", 20, day(20)), alg("token_bucket", 50, day(50)), 15, [3]float64{5, 35, -5}},
		{"one rate and two", alg("token_bucket", 20, day(20)), alg("token_bucket", 50, day(100), day(40)), 15, [3]float64{5, 25, -5}},
		{"windows", alg("fixed_window", 0, day(20)), alg("fixed_window", 0, day(50)), 15, [3]float64{5, 35, -5}},
		{"one window and two", alg("fixed_window", 0, day(20)), alg("fixed_window", 0, day(50), Per(40, time.Hour)), 15, [3]float64{5, 25, -5}},
		{"nothing used", alg("token_bucket", 20, day(20)), alg("token_bucket", 50, day(50)), 0, [3]float64{20, 50, 10}},
	} {
		m := c.small.New()
		m.Advance(0, 1, 0)
		m.Use(c.used, 0)
		for i := range 3 {
			if got := m.Free(); got != c.free[i] {
				t.Errorf("%s, step %d: %v are free, want %v", c.what, i, got, c.free[i])
			}
			switch i {
			case 0:
				m = Move(m, c.big)
			case 1:
				m.Use(10, 0)
				m = Move(m, c.small)
			}
		}
	}
	fresh := Move(alg("token_bucket", 20, day(20)).New(), alg("token_bucket", 50, day(50)))
	if fresh.Advance(0, 1, 0); fresh.Free() != 50 {
		t.Errorf("a meter that never began: %v are free, want 50", fresh.Free())
	}
}

package bucket

import (
	"math"
	"testing"
	"time"
)

func TestTheMathsOfBursts(t *testing.T) {
	r, arrivals := Per(10, time.Second), Per(50, time.Second)
	if d := BurstDuration(100, r, arrivals); d != 2500*time.Millisecond {
		t.Errorf("a burst of 100 lasts %v", d)
	}
	if n := BurstRequests(100, r, arrivals); n != 125 {
		t.Errorf("it serves %d", n)
	}
	if d := Recovery(100, r); d != 10*time.Second {
		t.Errorf("it recovers in %v", d)
	}
	if d := Recovery(1, Per(3, time.Second)); d != 333333334 {
		t.Errorf("a third of a second is %d ns, rounded up", d)
	}
	if d := RetryAfter(5, 2, r); d != 300*time.Millisecond {
		t.Errorf("3 more tokens take %v", d)
	}
	if d := RetryAfter(5, -5, Per(1, time.Minute)); d != 10*time.Minute {
		t.Errorf("out of debt in %v", d)
	}
	for _, c := range []struct {
		n    int64
		d    time.Duration
		want int64
	}{{0, 0, 0}, {-3, time.Second, 0}, {50, 0, 50}, {50, time.Second, 40}, {50, 5 * time.Second, 1}, {50, time.Hour, 1}, {51, 1050 * time.Millisecond, 41}} {
		if got := BurstNeeded(c.n, c.d, r); got != c.want {
			t.Errorf("%d in %v need a burst of %d, want %d", c.n, c.d, got, c.want)
		}
	}
}

func TestTheMathsAtTheEdges(t *testing.T) {
	r := Per(10, time.Second)
	if BurstDuration(100, r, r) != Never || BurstDuration(0, r, Per(1, time.Second)) != Never {
		t.Error("arrivals no faster than the rate are served for ever")
	}
	if BurstRequests(100, r, r) != math.MaxInt64 {
		t.Error("and are all served")
	}
	if BurstDuration(100, Rate{}, r) != 10*time.Second || BurstRequests(100, Rate{}, r) != 100 {
		t.Error("without refill the burst is all there is")
	}
	if Recovery(1, Rate{}) != Never || Recovery(0, Rate{}) != 0 || Recovery(math.MaxInt64, Per(1, year)) != Never {
		t.Error("recovery at the edges")
	}
	if RetryAfter(1, 5, r) != 0 || RetryAfter(math.MaxInt64, math.MinInt64, Per(1, time.Second)) != Never {
		t.Error("retry after at the edges")
	}
	if BurstDuration(-5, r, Per(20, time.Second)) != 0 {
		t.Error("a negative burst is none")
	}
	if AverageBurst(Per(1, time.Second), Rate{}, time.Second) != Never || AverageBurst(Rate{}, r, time.Second) != 0 {
		t.Error("burst by average at the edges")
	}
}

// TestBurstNeededIsTheLeast sends the requests to real buckets.
func TestBurstNeededIsTheLeast(t *testing.T) {
	rnd := source(t)
	for range 300 {
		r := Per(1+rnd.Int64N(20), time.Second)
		n := 2 + rnd.Int64N(40)
		gap := rnd.Int64N(second / 5)
		serves := func(burst int64) bool {
			m := mustCompile(t, Spec{Rates: []Rate{r}, Burst: burst}).New()
			for i := range n {
				if !spend(m, t0+i*gap, 1) {
					return false
				}
			}
			return true
		}
		need := BurstNeeded(n, time.Duration((n-1)*gap), r)
		if !serves(need) || need > 1 && serves(need-1) {
			t.Fatalf("%d requests, each %d ns, at %s: a burst of %d is not the least", n, gap, r, need)
		}
	}
}

package jatah_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/jatah-io/jatah"
)

func ExampleBurstDuration() {
	rate, arrivals := jatah.PerSecond(10), jatah.PerSecond(50)
	fmt.Println(jatah.BurstDuration(100, rate, arrivals))
	fmt.Println(jatah.BurstRequests(100, rate, arrivals))
	fmt.Println(jatah.Recovery(100, rate))
	// Output:
	// 2.5s
	// 125
	// 10s
}

func ExampleBurstNeeded() {
	fmt.Println(jatah.BurstNeeded(50, time.Second, jatah.PerSecond(10)))
	// Output: 40
}

func ExampleAverageBurst() {
	fmt.Println(jatah.AverageBurst(jatah.PerSecond(1), jatah.PerSecond(8), 16*time.Second))
	// Output: 2s
}

func TestMathSaysNeverAndForEver(t *testing.T) {
	r := jatah.PerSecond(10)
	if d := jatah.BurstDuration(100, r, r); d != jatah.Never {
		t.Errorf("a burst that does not end lasts %v", d)
	}
	if n := jatah.BurstRequests(100, r, r); n != math.MaxInt64 {
		t.Errorf("a burst that does not end serves %d", n)
	}
	if d := jatah.Recovery(100, jatah.Rate{}); d != jatah.Never {
		t.Errorf("without refill a bucket is full after %v", d)
	}
	if d := jatah.RetryAfter(5, -5, r); d != time.Second {
		t.Errorf("a cost of 5 at a debt of 5 passes after %v, want 1s", d)
	}
	if d := jatah.RetryAfter(5, 5, r); d != 0 {
		t.Errorf("a cost that is covered passes after %v", d)
	}
}

// The formulas must hold for the buckets that limits are made of. A node that is alone decides on the bare
// bucket, so one token per hour is no refill that a test could see.
func TestABurstIsWhatAFullKeyServes(t *testing.T) {
	node, err := jatah.Start(t.Context(), jatah.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer node.Close()
	rate := jatah.PerHour(1)
	need := jatah.BurstNeeded(30, 0, rate)
	limit, err := node.Limit(jatah.Limit{Name: "api", Rate: rate, Burst: need})
	if err != nil {
		t.Fatal(err)
	}
	served := int64(0)
	for limit.Take(t.Context(), "k", 1).OK {
		served++
	}
	if served != 30 {
		t.Errorf("a burst of %d serves %d at once, want 30", need, served)
	}
	d := limit.Take(t.Context(), "k", 7)
	if want := jatah.RetryAfter(7, 0, rate); d.RetryAfter > want || d.RetryAfter < want-time.Minute {
		t.Errorf("a cost of 7 may come back in %v, the formula says %v", d.RetryAfter, want)
	}
}

package jatah_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/jatah-io/jatah"
)

// onePerAlgorithm are definitions of every kind, with the largest cost that passes.
func onePerAlgorithm() map[string]struct {
	limit    jatah.Limit
	capacity int64
} {
	type row = struct {
		limit    jatah.Limit
		capacity int64
	}
	second := time.Second
	average := jatah.Limit{Algorithm: jatah.BurstAverage, Rate: jatah.PerSecond(2), BurstRate: jatah.PerSecond(8), BurstThreshold: jatah.PerSecond(1), BurstTime: 16 * second}
	wide := average
	wide.Burst = 5
	return map[string]row{
		"bucket":             {jatah.Limit{Rate: jatah.PerMinute(100)}, 100},
		"bucket with burst":  {jatah.Limit{Rate: jatah.PerMinute(100), Burst: 20}, 20},
		"one of rates":       {jatah.Limit{Rates: []jatah.Rate{jatah.PerMinute(100)}, Burst: 20}, 20},
		"two rates":          {jatah.Limit{Rates: []jatah.Rate{jatah.PerSecond(10), jatah.PerHour(500)}, Burst: 30}, 30},
		"the second is less": {jatah.Limit{Rates: []jatah.Rate{jatah.PerSecond(10), jatah.PerHour(7)}, Burst: 30}, 7},
		"nothing":            {jatah.Limit{Rate: jatah.PerSecond(0)}, 0},
		"nothing of two":     {jatah.Limit{Rates: []jatah.Rate{jatah.PerSecond(10), jatah.PerHour(0)}}, 0},
		"fixed":              {jatah.Limit{Algorithm: jatah.FixedWindow, Rate: jatah.PerMinute(100)}, 100},
		"fixed, two":         {jatah.Limit{Algorithm: jatah.FixedWindow, Rates: []jatah.Rate{jatah.PerMinute(100), jatah.PerHour(60)}}, 60},
		"calendar":           {jatah.Limit{Algorithm: jatah.FixedWindow, Rate: jatah.PerDay(9), Calendar: "day"}, 9},
		"sliding":            {jatah.Limit{Algorithm: jatah.SlidingWindow, Rate: jatah.PerMinute(100)}, 100},
		"log":                {jatah.Limit{Algorithm: jatah.SlidingLog, Rate: jatah.PerMinute(100), MaxLog: 50}, 100},
		"leaky meter":        {jatah.Limit{Algorithm: jatah.LeakyBucket, Rate: jatah.PerMinute(100), Burst: 4}, 4},
		"queue":              {jatah.Limit{Algorithm: jatah.LeakyBucket, Rate: jatah.PerMinute(5), Queue: 5}, 6},
		"queue by time":      {jatah.Limit{Algorithm: jatah.LeakyBucket, Rate: jatah.PerSecond(3), MaxWait: 2500 * time.Millisecond}, 8},
		"queue by both":      {jatah.Limit{Algorithm: jatah.LeakyBucket, Rate: jatah.PerSecond(1), Queue: 10, MaxWait: 4 * second}, 5},
		"queue of nothing":   {jatah.Limit{Algorithm: jatah.LeakyBucket, Rate: jatah.PerSecond(0), Queue: 10}, 0},
		"average":            {average, 1},
		"average with burst": {wide, 5},
	}
}

func TestCapacityIsWhatCanPassAtOnce(t *testing.T) {
	inAlone(t, func(node *jatah.Node) {
		for name, row := range onePerAlgorithm() {
			row.limit.Name = "x"
			api, err := node.Limit(row.limit)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			now := api.Limit()
			if row.limit.Capacity() != row.capacity || now.Capacity() != row.capacity {
				t.Errorf("%s: capacity %d, in use %d; want %d", name, row.limit.Capacity(), now.Capacity(), row.capacity)
			}
			if d := api.Take(t.Context(), name, row.capacity+1); d.OK || d.RetryAfter != jatah.Never {
				t.Errorf("%s: one more than its capacity: %+v", name, d)
			}
			if d := api.Take(t.Context(), name, row.capacity); row.capacity > 0 && (!d.OK || (d.Delay > 0) != (row.limit.Queued())) {
				t.Errorf("%s: its capacity: %+v", name, d)
			}
			if again := api.Limit(); !again.Equal(now) || again.Validate() != nil {
				t.Errorf("%s: the definition in use, %+v, is not valid: %v", name, again, again.Validate())
			}
			node.RemoveLimit("x")
		}
	})
	endless := jatah.Limit{Name: "x", Algorithm: jatah.LeakyBucket, Rate: jatah.PerSecond(jatah.MaxPerSecond), MaxWait: math.MaxInt64}
	if n := endless.Capacity(); n < 1<<50 {
		t.Errorf("capacity %d of a queue that is all but endless", n)
	}
}

func ExampleLimit_Capacity() {
	sms := jatah.Limit{Name: "sms", Rates: []jatah.Rate{jatah.PerMinute(2), jatah.PerDay(20)}}
	fmt.Println(sms.Capacity())
	// Output: 2
}

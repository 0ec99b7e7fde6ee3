package main

import (
	"time"

	"github.com/jatah-io/jatah/bucket"
)

// phase is a stretch of time with requests that come evenly.
type phase struct {
	name      string
	from, to  time.Duration
	perSecond int
}

// load is what every algorithm gets: 20 seconds of one key.
func load() []phase {
	return []phase{
		{"steady", 0, 3 * time.Second, 8},
		{"burst", 3 * time.Second, 4 * time.Second, 60},
		{"pause", 4 * time.Second, 8500 * time.Millisecond, 0},
		{"overload", 8500 * time.Millisecond, 20 * time.Second, 40},
	}
}

// arrivals are the times of all requests, in nanoseconds.
func arrivals(phases []phase) []int64 {
	var at []int64
	for _, p := range phases {
		n := int64(p.perSecond) * int64(p.to-p.from) / int64(time.Second)
		for i := range n {
			at = append(at, int64(p.from)+i*int64(time.Second)/int64(p.perSecond))
		}
	}
	return at
}

// contender is an algorithm with settings; all of the same load have the speed of 10/s in the long run.
type contender struct {
	name string
	text string // the settings, as in a configuration
	spec bucket.Spec
}

const speed = 10 // tokens per second

func contenders() []contender {
	per := func(n, seconds int64) bucket.Rate { return bucket.Per(n, time.Duration(seconds)*time.Second) }
	one, five := []bucket.Rate{per(speed, 1)}, []bucket.Rate{per(5*speed, 5)}
	return []contender{
		{"token_bucket", "10/s, burst 50", bucket.Spec{Algorithm: "token_bucket", Rates: one, Burst: 50}},
		{"fixed_window", "50/5s", bucket.Spec{Algorithm: "fixed_window", Rates: five}},
		{"sliding_window", "50/5s", bucket.Spec{Algorithm: "sliding_window", Rates: five}},
		{"sliding_log", "50/5s", bucket.Spec{Algorithm: "sliding_log", Rates: five}},
		{"leaky_bucket (meter)", "10/s, burst 10", bucket.Spec{Algorithm: "leaky_bucket", Rates: one, Burst: 10}},
		{"leaky_bucket (queue)", "10/s, queue 50", bucket.Spec{Algorithm: "leaky_bucket", Rates: one, Queue: 50}},
		{"burst_average", "10/s, burst 5, to 30/s below 7/s in 8s", bucket.Spec{Algorithm: "burst_average", Rates: one, Burst: 5,
			BurstRate: per(30, 1), BurstThreshold: per(7, 1), BurstTime: 8 * time.Second}},
		{"several rates", "20/s and 50/5s", bucket.Spec{Algorithm: "token_bucket", Rates: []bucket.Rate{per(20, 1), per(50, 5)}}},
	}
}

// averageExample is the one of the formula T = threshold * time / burst_rate: 2 s.
func averageExample() contender {
	return contender{"burst_average", "2/s, to 8/s while the average of 16 s is below 1/s", bucket.Spec{
		Algorithm: "burst_average", Rates: []bucket.Rate{bucket.Per(2, time.Second)},
		BurstRate: bucket.Per(8, time.Second), BurstThreshold: bucket.Per(1, time.Second), BurstTime: 16 * time.Second,
	}}
}

// averageLoad is more than passes, three times: the second time some of the first is still in the average, the third
// time nothing.
func averageLoad() []phase {
	return []phase{
		{"full load", 0, 12 * time.Second, 16},
		{"pause", 12 * time.Second, 21 * time.Second, 0},
		{"full load", 21 * time.Second, 30 * time.Second, 16},
		{"pause", 30 * time.Second, 48 * time.Second, 0},
		{"full load", 48 * time.Second, 54 * time.Second, 16},
	}
}

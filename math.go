package jatah

import (
	"time"

	"github.com/jatah-io/jatah/bucket"
)

// The functions of this file answer what people ask of a token bucket before they choose its numbers. They see it as a
// fluid: requests that come evenly, b the burst, r the rate, R the rate of arrivals. Tokens are whole, durations are rounded up to the
// nanosecond unless they say otherwise, and nothing overflows: what takes longer than 292 years is Never. Rates must be
// valid (Rate.Validate); one with a Per of 0 or less counts as 0. All are pure, and safe for any number of goroutines.

// BurstDuration is how long a full bucket of burst tokens serves requests that arrive faster than it refills:
// T = b / (R - r), rounded down. It is Never if they are not faster: then all are served. A burst of 100 at 10/s serves
// requests at 50/s for 2.5 s.
func BurstDuration(burst int64, rate, arrivals Rate) time.Duration {
	return bucket.BurstDuration(burst, rate, arrivals)
}

// BurstRequests is how many requests of one token are served in that time: n = b * R / (R - r), rounded down. In the example
// 125: 100 from the bucket, and 25 that came in meanwhile. It is math.MaxInt64 if all are served for ever.
func BurstRequests(burst int64, rate, arrivals Rate) int64 {
	return bucket.BurstRequests(burst, rate, arrivals)
}

// Recovery is how long an empty bucket takes to be full if nothing comes: b / r. It is Never if the rate is 0 and the burst is
// not.
func Recovery(burst int64, rate Rate) time.Duration { return bucket.Recovery(burst, rate) }

// RetryAfter is how long a bucket that holds so many tokens (below 0: debt) takes until it covers a cost:
// (cost - held) / r, and 0 if it does now. It knows no burst: a cost above the burst never passes, whatever this says.
func RetryAfter(cost, held int64, rate Rate) time.Duration {
	return bucket.RetryAfter(cost, held, rate)
}

// BurstNeeded is the least burst with which a full bucket serves n requests of one token, evenly, the first at once and the last
// after d; with d = 0 all at once: n - r * d rounded up, at least 1. It is 0 if n is 0 or less.
func BurstNeeded(n int64, d time.Duration, rate Rate) int64 { return bucket.BurstNeeded(n, d, rate) }

// AverageBurst is how long a burst of the algorithm burst_average lasts from idle under full load:
// T = threshold * time / burst_rate. A limit measures in slices of burstTime/16, so that there it may last up to one more. It is Never
// for a burst rate of 0, and means nothing for one that is not above the threshold.
func AverageBurst(threshold, burstRate Rate, burstTime time.Duration) time.Duration {
	return bucket.AverageBurst(threshold, burstRate, burstTime)
}

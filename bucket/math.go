package bucket

import (
	"math"
	"math/big"
	"time"
)

// These functions answer the questions people ask of a token bucket before they choose its numbers. They look at
// it as a fluid: requests that come evenly. Tokens are whole, durations are rounded up to the nanosecond unless they
// say otherwise, and nothing overflows: what takes longer than 292 years is Never. A rate
// must be valid (Rate.Validate); one with a Per of 0 or less counts as 0.

// BurstDuration is how long a full bucket of burst tokens serves requests that arrive faster than it refills:
// T = b / (R - r), rounded down. If they are not faster, for ever: Never. For a burst of 100 at 10/s, requests at
// 50/s are all served for 2.5 s.
func BurstDuration(burst int64, rate, arrivals Rate) time.Duration {
	gap := new(big.Rat).Sub(perNano(arrivals), perNano(rate))
	if gap.Sign() <= 0 {
		return Never
	}
	return duration(gap.Quo(tokens(burst), gap), false)
}

// BurstRequests is how many requests of one token are served in that time, n = b * R / (R - r),
// rounded down: 125 in the example, 100 from the bucket and 25 that came in meanwhile. It is math.MaxInt64 if all are
// served for ever.
func BurstRequests(burst int64, rate, arrivals Rate) int64 {
	r := perNano(arrivals)
	gap := new(big.Rat).Sub(r, perNano(rate))
	if gap.Sign() <= 0 {
		return math.MaxInt64
	}
	n := r.Mul(r, tokens(burst))
	return whole(n.Quo(n, gap), false)
}

// Recovery is how long an empty bucket takes to be full if nothing comes: b / r. Never if the rate is 0 and the
// burst is not.
func Recovery(burst int64, rate Rate) time.Duration { return RetryAfter(burst, 0, rate) }

// RetryAfter is how long a bucket that holds so many tokens (below 0: debt) takes until a cost is
// covered: (cost - tokens) / r, 0 if it is. It knows no burst: a cost above that never passes.
func RetryAfter(cost, held int64, rate Rate) time.Duration {
	gap := new(big.Rat).SetInt(new(big.Int).Sub(big.NewInt(cost), big.NewInt(held)))
	r := perNano(rate)
	switch {
	case gap.Sign() <= 0:
		return 0
	case r.Sign() <= 0:
		return Never
	}
	return duration(gap.Quo(gap, r), true)
}

// BurstNeeded is the least burst with which a full bucket serves n tokens one by one, evenly, the first at once and the
// last after d; all at once for d = 0: n - r*d rounded up, at least 1. It is 0 if n is 0 or less.
func BurstNeeded(n int64, d time.Duration, rate Rate) int64 {
	if n <= 0 {
		return 0
	}
	need := perNano(rate)
	need.Mul(need, big.NewRat(int64(max(d, 0)), 1))
	need.Sub(tokens(n), need)
	return max(whole(need, true), 1)
}

// AverageBurst is how long a burst of burst_average lasts from idle under full load: T = threshold * time / burst_rate,
// before it is rounded up to slices of time/16. Never for a burst rate of 0.
func AverageBurst(threshold, burstRate Rate, burstTime time.Duration) time.Duration {
	r := perNano(burstRate)
	if r.Sign() <= 0 {
		return Never
	}
	t := perNano(threshold)
	t.Mul(t, big.NewRat(int64(max(burstTime, 0)), 1))
	return duration(t.Quo(t, r), true)
}

func perNano(r Rate) *big.Rat {
	if r.Per <= 0 || r.Count <= 0 {
		return new(big.Rat)
	}
	return big.NewRat(r.Count, int64(r.Per))
}

func tokens(n int64) *big.Rat { return big.NewRat(max(n, 0), 1) }

func duration(ns *big.Rat, up bool) time.Duration { return time.Duration(whole(ns, up)) }

// whole rounds and saturates.
func whole(r *big.Rat, up bool) int64 {
	n := ceil(r)
	if !up {
		n.Div(r.Num(), r.Denom())
	}
	switch {
	case n.IsInt64():
		return n.Int64()
	case n.Sign() < 0:
		return math.MinInt64
	}
	return math.MaxInt64
}

package bucket

import (
	"time"
)

// A leaky bucket comes in two forms.
//
// As a meter (no queue, no max_wait) what is used fills a bucket of the size burst that leaks at the
// rate, and what would overflow is refused. Its level is burst minus that of a token bucket, so it is
// one: the same code.
//
// As a queue (queue or max_wait) it delays: tokens depart one each T = 1/rate. A request of n
// is n tokens that arrive together, and departs with the last of them. With B tokens not yet gone
// (one that departs now is gone T later) it departs after (B + n - 1)*T, and is refused, at once and without
// taking a place, if that is above max_wait or if more than `queue` tokens would wait. Both say
// B + n <= 1 + min(queue, max_wait/T): a bucket of that size, whose level also tells the delay.

// queueMeter is a leaky bucket as a queue.
type queueMeter struct{ bucketMeter }

// Delay is the time until all but one token have left the bucket: then the last one departs.
func (m *queueMeter) Delay() time.Duration {
	need := m.rule.amount(m.part) - 1
	c := m.bucketMeter
	c.out = 0
	return c.Wait(need)
}

func (m *queueMeter) clone() Meter {
	c := *m
	return &c
}

func compileLeaky(s Spec, r Rate, burst int64, a *Algorithm) (rule, error) {
	if s.Queue == 0 && s.MaxWait == 0 {
		return compileTokenBucket(s, r, burst, a)
	}
	switch {
	case s.Burst != 0:
		return nil, specError("burst and queue exclude each other: with a queue one token passes at once and the others wait")
	case s.Queue < 0 || s.Queue >= maxTokens:
		return nil, specError("queue is %d; it must be between 1 and %d", s.Queue, int64(maxTokens-1))
	case s.MaxWait < 0:
		return nil, specError("max_wait %v is negative", s.MaxWait)
	case len(s.Rates) > 1:
		return nil, specError("a queue has one rate; use leaky_bucket without queue and max_wait for several")
	}
	q := newBucketRule(s, r, 1)
	q.queue = true
	if r.Count == 0 {
		return q, nil
	}
	wait := float64(maxTokens)
	if s.MaxWait > 0 {
		whole, frac := q.refill(int64(s.MaxWait))
		wait = min(wait, whole+frac)
	}
	if s.Queue > 0 {
		wait = min(wait, float64(s.Queue))
	}
	q.burst = 1 + wait
	return q, nil
}

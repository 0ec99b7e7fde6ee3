package jatah

import (
	"math"
	"math/bits"
)

// Capacity is the largest cost that can ever pass, in tokens: the burst of a bucket, the count of a window, and with a queue one more
// than may wait. The least of several rates counts. 0: everything is denied. The definition must be valid.
func (l Limit) Capacity() int64 {
	if l.Algorithm == Concurrency {
		return l.Max
	}
	if len(l.Rates) == 0 {
		return l.capacity(0, l.Rate)
	}
	least := int64(math.MaxInt64)
	for i, r := range l.Rates {
		least = min(least, l.capacity(i, r))
	}
	return least
}

// capacity is that of one rate: the burst is one of the first.
func (l *Limit) capacity(i int, r Rate) int64 {
	switch {
	case r.Count == 0:
		return 0
	case i == 0 && l.Burst > 0:
		return l.Burst
	case l.queued():
		return 1 + l.places(r)
	case l.Algorithm == BurstAverage:
		return 1
	}
	return r.Count
}

// Queued says whether requests wait for their turn, in place of being refused: their decisions can have a Delay.
func (l Limit) Queued() bool { return l.queued() }

func (l *Limit) queued() bool {
	return l.Algorithm == LeakyBucket && (l.Queue > 0 || l.MaxWait > 0)
}

// places are the whole tokens that may wait.
func (l *Limit) places(r Rate) int64 {
	n := int64(math.MaxInt64 - 1)
	if l.Queue > 0 {
		n = l.Queue
	}
	if hi, lo := bits.Mul64(uint64(l.MaxWait), uint64(r.Count)); l.MaxWait > 0 && r.Per > 0 && hi < uint64(r.Per) {
		if q, _ := bits.Div64(hi, lo, uint64(r.Per)); q < uint64(n) {
			n = int64(q)
		}
	}
	return n
}

package bucket

import (
	"math"
	"time"
)

// The word of a Bucket, its theoretical arrival time or TAT, may also be kept elsewhere: beside other things, or in a message. These methods are the
// arithmetic of Bucket on such a word. It is in units of the Params that it was made with and means nothing under others; 0 is a full bucket, at any
// time. All take a now as Bucket does; that time does not go back is for the caller to see to. None allocates.

// Used returns the TAT after n >= 0 tokens were used at now, whether they were there or not. Debt beyond the room of the word is forgotten: see the
// guarantees of the package. It is never math.MaxUint64, and never less than tat.
func (p *Params) Used(tat uint64, now, n int64) uint64 {
	return min(add(max(tat, p.clock(max(now, 0))), p.units(max(n, 0))), lastTAT)
}

// lacks is how many units there are less than in a full bucket.
func (p *Params) lacks(tat uint64, now int64) uint64 {
	clock := p.clock(max(now, 0))
	return max(tat, clock) - clock
}

// Level returns the whole tokens that are there at now, rounded down: below zero for every debt.
func (p *Params) Level(tat uint64, now int64) int64 {
	missing := p.lacks(tat, now)
	switch {
	case p.unit == 1 && missing <= math.MaxInt64:
		return p.burst - int64(missing)
	case missing <= p.full:
		return int64((p.full - missing) / p.unit)
	}
	return p.level(missing).Whole
}

// Tokens returns what is there at now with its fraction, negative in debt, rounded to a float64.
func (p *Params) Tokens(tat uint64, now int64) float64 {
	missing := p.lacks(tat, now)
	if missing <= p.full {
		return float64(p.full-missing) / float64(p.unit)
	}
	return -(float64(missing-p.full) / float64(p.unit))
}

// TATOf returns the TAT of a bucket that holds so many tokens at now: at most the burst counts, and below zero is debt. A fraction is rounded to less
// tokens, by two units at most, which is what refills in a nanosecond. NaN is all the debt that fits.
func (p *Params) TATOf(tokens float64, now int64) uint64 {
	var missing uint64
	if tokens >= 0 {
		missing = p.full - min(p.full, p.fraction(tokens, false))
	} else {
		missing = add(p.full, p.fraction(-tokens, true))
	}
	return min(add(p.clock(max(now, 0)), missing), lastTAT)
}

// fraction returns tokens (not negative) in units, rounded up or down, saturated; NaN counts as beyond all.
func (p *Params) fraction(tokens float64, up bool) uint64 {
	if !(tokens < 1<<63) {
		return math.MaxUint64
	}
	whole := math.Floor(tokens)
	u := p.units(int64(whole))
	if tokens == whole {
		return u
	}
	const one = 1 << 62
	part := (tokens - whole) * one
	if up {
		part = math.Ceil(part)
	}
	q, rem := scale(uint64(part), p.unit, one)
	if up && rem > 0 {
		q++
	}
	return add(u, q)
}

// WaitFor returns the shortest time after now until n tokens are there if nothing else comes: 0 if they are, Never if that never is.
// n may be negative: until a debt is no more than that.
func (p *Params) WaitFor(tat uint64, now, n int64) time.Duration {
	var may uint64 // be missing
	switch {
	case n > p.burst:
		return Never
	case n >= 0:
		may = p.full - uint64(n)*p.unit
	default:
		may = add(p.full, p.debt(n))
	}
	if p.lacks(tat, now) <= may {
		return 0
	}
	return wait(p.when(tat-may), now)
}

// FullIn returns the shortest time after now until the bucket is full if nothing else comes: 0 if it is, Never if that never is.
func (p *Params) FullIn(tat uint64, now int64) time.Duration {
	if p.IsFull(tat, now) {
		return 0
	}
	return wait(p.when(tat), now)
}

// IsFull says that the bucket is full at now.
func (p *Params) IsFull(tat uint64, now int64) bool { return tat <= p.clock(max(now, 0)) }

package bucket

import (
	"math/big"
	"sync/atomic"
)

// Bucket is the token bucket of one key. It starts full and is safe for any number of goroutines;
// no method but Convert allocates, and none blocks. Do not copy it. Make it with New: the zero
// value is unusable.
//
// What decides is one word, the theoretical arrival time (TAT): the time, in units of the Params, at
// which the bucket will be full. What is missing now is TAT - clock(now), or nothing if that is
// negative. A take of n is allowed if what is missing afterwards is at most a burst, and moves TAT
// by n tokens.
//
// now is in nanoseconds on one clock for all calls, a negative one counts as 0. Negative n is a
// mistake of the caller: it is denied with Never and changes nothing.
type Bucket struct {
	cell
	p *Params
}

// cell is what changes of a bucket. Where a Table keeps it a salt is added to TAT, modulo 2^64: see record.
type cell struct {
	// newest is the latest `now` of a change. It makes time stand still for goroutines whose
	// clock reading is older, because it was set back or because they were
	// preempted since. It is raised before TAT and loaded after it, so whoever sees a take
	// decides at the time of that take or later.
	newest atomic.Int64

	tat atomic.Uint64 // last: see record
}

// New returns a full bucket.
func New(p *Params) *Bucket { return &Bucket{p: p} }

// NewAt returns a bucket that holds so many tokens at the time now: at most the burst counts, and
// below zero is debt.
func NewAt(p *Params, now, tokens int64) *Bucket {
	b := &Bucket{p: p}
	now = max(now, 0)
	missing := uint64(0)
	if tokens < p.burst {
		missing = p.units(p.burst)
		if tokens >= 0 {
			missing -= p.units(tokens)
		} else {
			missing = add(missing, p.debt(tokens))
		}
	}
	b.tat.Store(min(add(p.clock(now), missing), lastTAT))
	b.newest.Store(now)
	return b
}

// debt returns -n tokens in units; -n would overflow for the least n.
func (p *Params) debt(n int64) uint64 {
	return add(p.units(-(n + 1)), p.unit)
}

// Params returns what the bucket was made with.
func (b *Bucket) Params() *Params { return b.p }

// Take takes n tokens if they are there. Taking 0 is a look: it changes nothing, and is OK unless
// the bucket is in debt or denies all. More than the burst is never possible.
func (b *Bucket) Take(now, n int64) Result {
	for {
		tat := b.tat.Load()
		if tat == sealed {
			return Result{Sealed: true}
		}
		if r, ok := b.tryTake(b.p, tat, 0, now, n); ok {
			return r
		}
	}
}

// Peek looks: Take of 0.
func (b *Bucket) Peek(now int64) Result { return b.Take(now, 0) }

// Refund gives n tokens back, never above the burst.
func (b *Bucket) Refund(now, n int64) Result { return b.move(now, n, false) }

// Charge takes n tokens whether they are there or not. Below zero is debt, which refills first.
func (b *Bucket) Charge(now, n int64) Result { return b.move(now, n, true) }

func (b *Bucket) move(now, n int64, charge bool) Result {
	for {
		tat := b.tat.Load()
		if tat == sealed {
			return Result{Sealed: true}
		}
		if r, ok := b.tryMove(b.p, tat, 0, now, n, charge); ok {
			return r
		}
	}
}

// tryTake is a Take that was told TAT, and the salt that is added to it in the word. It fails if the word is another one in the end: then
// it changed nothing, and its result is void.
func (c *cell) tryTake(p *Params, tat, salt uint64, now, n int64) (r Result, ok bool) {
	if n < 0 || n > p.burst || p.mul == 0 {
		return c.never(p, tat, now), c.tat.Load() == tat+salt
	}
	cost := uint64(n) * p.unit
	at := c.at(now)
	clock := p.clock(at)
	missing := uint64(0)
	if tat > clock {
		missing = tat - clock
	}
	if missing > p.full-cost {
		r = p.result(clock, missing, now)
		// The clock must show u or more; u > clock, so never 0.
		r.RetryAfter = wait(p.when(clock+(missing-(p.full-cost))), now)
		return r, c.tat.Load() == tat+salt
	}
	if n > 0 {
		missing += cost
		c.advance(at)
		if !c.tat.CompareAndSwap(tat+salt, clock+missing+salt) {
			return r, false
		}
	} else if c.tat.Load() != tat+salt {
		return r, false
	}
	r = p.result(clock, missing, now)
	r.OK = true
	return r, true
}

// tryMove is a Refund or Charge as tryTake is a Take.
func (c *cell) tryMove(p *Params, tat, salt uint64, now, n int64, charge bool) (r Result, ok bool) {
	if n < 0 {
		return c.never(p, tat, now), c.tat.Load() == tat+salt
	}
	amount := p.units(n)
	at := c.at(now)
	clock := p.clock(at)
	was := max(tat, clock)
	next := was
	if charge {
		next = min(add(was, amount), lastTAT)
	} else {
		next -= min(amount, was-clock)
	}
	if next != was {
		c.advance(at)
		if !c.tat.CompareAndSwap(tat+salt, next+salt) {
			return r, false
		}
	} else if c.tat.Load() != tat+salt {
		return r, false
	}
	r = p.result(clock, next-clock, now)
	r.OK = true
	if p.mul == 0 {
		r.RetryAfter = Never
	} else if next-clock > p.full {
		r.RetryAfter = wait(p.when(next-p.full), now)
	}
	return r, true
}

// never answers what cannot pass: costs that are negative or above the burst, and rate 0.
func (c *cell) never(p *Params, tat uint64, now int64) Result {
	clock := p.clock(c.at(now))
	r := p.result(clock, max(tat, clock)-clock, now)
	r.RetryAfter = Never
	return r
}

// result fills in what is left and when the bucket is full. The time of that is seen from the
// caller's own clock, so that the answer holds for it even if that is behind.
func (p *Params) result(clock, missing uint64, now int64) (r Result) {
	if p.mul == 0 {
		return r
	}
	if missing < p.full {
		if left := p.full - missing; p.unit == 1 {
			r.Remaining = int64(left)
		} else {
			r.Remaining = int64(left / p.unit)
		}
	}
	if missing > 0 {
		r.ResetAfter = wait(p.when(clock+missing), now)
	}
	return r
}

// Full tells whether the bucket is full, so that a new one could stand for it. A sealed bucket is
// not.
func (b *Bucket) Full(now int64) bool {
	tat := b.tat.Load()
	return b.fullAs(tat, now)
}

func (b *Bucket) fullAs(tat uint64, now int64) bool {
	return tat != sealed && tat <= b.p.clock(b.at(now))
}

// Tokens returns the exact level, negative when in debt: for tests and tools, since it allocates.
// ok is false if the bucket is sealed. Unlike Remaining it also tells the frozen level of a bucket
// that denies all.
func (b *Bucket) Tokens(now int64) (level *big.Rat, ok bool) {
	tat := b.tat.Load()
	if tat == sealed {
		return nil, false
	}
	clock := b.p.clock(b.at(now))
	missing := new(big.Int).SetUint64(max(tat, clock) - clock)
	units := new(big.Int).Sub(new(big.Int).SetUint64(b.p.full), missing)
	return new(big.Rat).SetFrac(units, new(big.Int).SetUint64(b.p.unit)), true
}

// Convert replaces the bucket by one with other Params that holds the same tokens, cut to the new
// burst. Of several concurrent calls one succeeds; the others return false.
//
// The race that matters is a take during the change:
//
//	taker: loads TAT, finds a token        converter: reads the level
//	taker: stores TAT + cost               converter: publishes the successor
//
// If the level were read before the take and published after it, the take would be lost and its
// tokens would be there twice. So the converter swaps TAT for `sealed`, once. A take that came
// before is in the value that the swap returned. One that comes after fails in its
// compare-and-swap, answers Sealed, and has changed nothing: its caller loads the successor and
// asks again. TAT never has the value `sealed` otherwise, and no word changes once it is sealed.
// The Params are not changed in place because a taker could load the old ones with the new TAT.
func (b *Bucket) Convert(p *Params, now int64) (*Bucket, bool) {
	next := new(Bucket)
	if !b.convertTo(next, p, now) {
		return nil, false
	}
	return next, true
}

func (b *Bucket) convertTo(next *Bucket, p *Params, now int64) bool {
	tat := b.tat.Swap(sealed)
	if tat == sealed {
		return false
	}
	// newest was raised before any TAT that the swap could see.
	at := b.at(now)
	next.p = p
	next.newest.Store(at)
	next.tat.Store(p.from(b.p, tat, at))
	return true
}

// from converts a TAT of other Params, as of the time at.
func (p *Params) from(old *Params, tat uint64, at int64) uint64 {
	clock := old.clock(at)
	return min(add(p.clock(at), p.adopt(max(tat, clock)-clock, old)), lastTAT)
}

// seal ends the bucket if it is full. It fails if it is not, or if a take comes between.
func (b *Bucket) seal(now int64) bool {
	tat := b.tat.Load()
	return b.fullAs(tat, now) && b.tat.CompareAndSwap(tat, sealed)
}

// at returns the time that counts for a caller whose clock shows now.
func (c *cell) at(now int64) int64 { return max(now, c.newest.Load()) }

func (c *cell) advance(now int64) { raise(&c.newest, now) }

// raise sets v to x unless it is there or beyond.
func raise(v *atomic.Int64, x int64) {
	for old := v.Load(); old < x; old = v.Load() {
		if v.CompareAndSwap(old, x) {
			return
		}
	}
}

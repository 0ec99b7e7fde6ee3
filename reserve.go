package jatah

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
)

// Reservation is what Limiter.Reserve has taken for a request whose cost is known only when it is over. Settle it once, with
// Commit or Cancel. One that is never settled stays charged with its estimate: a caller that crashes gets nothing back, and the
// key nothing for free. It holds no resources, and it does not end by itself. Safe for any number of goroutines; must not be copied.
type Reservation struct {
	l        *Limiter
	key      string
	estimate int64
	d        Decision // by which it was made
	settled  atomic.Bool
}

// Reserve takes an estimate, in tokens, like Take: without waiting. If that is denied or fails the Reservation is nil, and the Decision says
// why. Estimate high rather than low: what was taken too much comes back with Commit, while a request that turns out to cost more
// leaves the key in debt, which those after it repay by waiting.
func (l *Limiter) Reserve(ctx context.Context, key string, estimate int64) (*Reservation, Decision) {
	d := l.Take(ctx, key, estimate)
	if !d.OK || d.Err != nil {
		return nil, d
	}
	return &Reservation{l: l, key: key, estimate: estimate, d: d}, d
}

// Key is the key that was charged.
func (r *Reservation) Key() string { return r.key }

// Estimate is what was asked for, in tokens.
func (r *Reservation) Estimate() int64 { return r.estimate }

// Commit settles the reservation at what the request really cost, in tokens: less than the estimate gives the rest back, as
// Refund does; more is charged on top, as Charge does, whether it is there or not. It counts also when ctx has ended: it takes
// at most Config.AskTimeout. The Decision describes the key afterwards, and is OK if the reservation is settled; where the
// estimate was right nothing had to be done, and it is the one of Reserve.
//
// Decision.Err is ErrSettled if the reservation was settled before, and ErrNegativeCost if actual is below zero; both change nothing. With ErrOverflow or
// ErrClosed nothing was changed either, and it may be settled again.
//
// What took nothing has nothing to give back: a request that only passed because the limit is in dry run changes nothing here, and
// one that fallback allow let pass is charged only for what it cost beyond its estimate.
func (r *Reservation) Commit(ctx context.Context, actual int64) Decision {
	if actual < 0 {
		return r.l.bad(fmt.Errorf("%w: %d", ErrNegativeCost, actual))
	}
	if !r.settled.CompareAndSwap(false, true) {
		return r.l.bad(ErrSettled)
	}
	d := r.d
	ctx = context.WithoutCancel(ctx) // who gives up on a request still owes for it, or is owed
	switch {
	case r.d.DryRun:
	case actual > r.estimate:
		d = r.l.Charge(ctx, r.key, actual-r.estimate)
	case actual < r.estimate && r.d.Source != SourceAllow:
		d = r.l.Refund(ctx, r.key, r.estimate-actual)
	}
	if errors.Is(d.Err, ErrOverflow) || errors.Is(d.Err, ErrClosed) {
		r.settled.Store(false)
	}
	return d
}

// Cancel gives all back: Commit with an actual cost of 0. After Commit it changes nothing and returns ErrSettled, so that it can be deferred.
func (r *Reservation) Cancel(ctx context.Context) Decision { return r.Commit(ctx, 0) }

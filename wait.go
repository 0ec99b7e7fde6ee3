package jatah

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/jatah-io/jatah/bucket"
	"github.com/jatah-io/jatah/hybrid"
)

const (
	// minPause is the shortest time between two tries for one key, however early the limiter says to come back.
	minPause = 200 * time.Microsecond
	// maxPause is the longest: what frees tokens early may happen on a node that cannot tell this one.
	maxPause = time.Second
)

// Wait decides a request like Take, and where that would deny it waits until it passes. Requests of one key wait in the order
// of their arrival at this node, whatever they cost; requests that do not wait, Take, and those of other nodes are not held back by
// them. The error is nil exactly if the request passed.
//
// A request whose context is known to end too early fails at once with ErrDeadline: it takes no place in the queue, takes no
// tokens and delays nobody. What is known is the soonest moment at which the limit could admit the request after all that wait before
// it, if nothing else takes tokens and none are given back. Where others take them it may turn out later that the deadline
// cannot be met; then Wait returns at that time, and otherwise when the context ends, with its error. A request that was not granted has
// taken nothing.
//
// Other errors come at once as well: ErrImpossible, ErrNegativeCost, ErrKeyEmpty, ErrKeyTooLong, ErrOverflow. When the limit is removed or the
// node is closed, all who wait get ErrClosed. Decision.Err is the same error; a Decision with ErrDeadline says in RetryAfter how long the
// request would have to wait at least.
//
// Each try of the request that is first in its queue counts as a decision of the limit, in Stats too. A limit in dry run never makes
// anybody wait.
func (l *Limiter) Wait(ctx context.Context, key string, cost int64) (Decision, error) {
	d, err := l.admit(ctx, key, cost)
	if err != nil {
		d.OK, d.Err = false, err
		return d, err
	}
	if err := l.delay(ctx, key, cost, d.Delay); err != nil {
		d.OK, d.Err, d.RetryAfter = false, err, d.Delay
		return d, err
	}
	return d, nil
}

// delay waits until a request that has its place in a queue may depart. One that cannot, or no longer wants to, gives the place back.
func (l *Limiter) delay(ctx context.Context, key string, cost int64, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	err := error(nil)
	if end, ends := ctx.Deadline(); ends && time.Until(end) < d {
		err = &tooLateError{d, max(0, time.Until(end))}
	} else {
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-t.C:
			return nil
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	l.Refund(context.WithoutCancel(ctx), key, cost)
	return err
}

// admit waits for the limiter to admit the request.
func (l *Limiter) admit(ctx context.Context, key string, cost int64) (Decision, error) {
	if err := checkKey(key); err != nil {
		return l.bad(err), err
	}
	if err := ctx.Err(); err != nil {
		return l.bad(err), err
	}
	end, ends := ctx.Deadline()
	var first try
	if _, busy := l.queues.Load(key); busy {
		if d, err := l.possible(key, cost); err != nil {
			return d, err
		}
		return l.queueUp(ctx, key, cost, l.until(end, ends), first)
	}
	if ends { // the clock is read only for those who need it
		first.at = l.now()
	}
	if first.d, first.pending = l.begin(ctx, key, cost); first.pending != nil {
		if !ends { // early enough: it is decided when the owner answers
			first.at = l.now()
		}
		return l.queueUp(ctx, key, cost, l.until(end, ends), first)
	}
	if final, err := verdict(first.d); final {
		return first.d, err
	}
	until := l.until(end, ends)
	if !ends { // when it was denied is not known well enough for those behind: they would be refused by it
		first = try{}
	} else if first.soonest() > until {
		return first.d, tooLate(first.d, until-first.at)
	}
	return l.queueUp(ctx, key, cost, until, first)
}

// begin asks the limiter without waiting for another node.
func (l *Limiter) begin(ctx context.Context, key string, cost int64) (Decision, *hybrid.Pending) {
	if l.l.Parent() != nil {
		return l.Take(ctx, key, cost), nil
	}
	if l.slack == 0 { // alone: there is nobody to wait for, and Take is the shorter way
		return l.l.Take(ctx, key, cost), nil
	}
	return l.l.Begin(key, cost)
}

// until is when a context ends, by the engine's clock; not too early.
func (l *Limiter) until(end time.Time, ends bool) int64 {
	if !ends {
		return math.MaxInt64
	}
	left := time.Until(end)
	return saturating(l.now(), int64(left))
}

// try is one request to the limiter: decided, or pending, or not made yet.
type try struct {
	at      int64 // the engine's clock, before; 0: no try
	d       Decision
	pending *hybrid.Pending
}

// verdict says whether a decision ends the wait, and with which error.
func verdict(d Decision) (final bool, err error) {
	switch {
	case d.Err != nil:
		return true, d.Err
	case d.OK:
		return true, nil
	case d.RetryAfter == bucket.Never && sure(d):
		return true, ErrImpossible
	}
	return false, nil
}

// sure says that a denial rests on the limit's tokens, and not on a fallback, which ends as soon as the owner answers.
func sure(d Decision) bool { return d.Source == SourceLocal || d.Source == SourceOwner }

// soonest is when a denied request can pass at the soonest.
func (t *try) soonest() int64 {
	if !sure(t.d) {
		return t.at
	}
	return saturating(t.at, int64(t.d.RetryAfter))
}

// possible refuses what the limiter would refuse whenever it is asked.
func (l *Limiter) possible(key string, cost int64) (Decision, error) {
	switch s := l.l.For(key).Spec(); {
	case cost < 0:
		err := fmt.Errorf("%w: %d", ErrNegativeCost, cost)
		return l.bad(err), err
	case (cost > s.Burst || s.Rate.Count == 0) && !s.DryRun:
		return l.bad(ErrImpossible), ErrImpossible
	}
	return Decision{}, nil
}

// tooLateError is ErrDeadline with its numbers. A flood of such requests must cost next to nothing, so the text is made only
// for who reads it.
type tooLateError struct{ needs, left time.Duration }

func (e *tooLateError) Error() string {
	return fmt.Sprintf("%v: it needs at least %v, there are %v", ErrDeadline, e.needs, e.left)
}

func (e *tooLateError) Unwrap() error { return ErrDeadline }

func tooLate(d Decision, left int64) error {
	return &tooLateError{d.RetryAfter, time.Duration(max(0, left))}
}

// queueUp waits at the end of the key's queue until the request is the first, and then for the limiter.
func (l *Limiter) queueUp(ctx context.Context, key string, cost, until int64, first try) (Decision, error) {
	w := &waiter{cost: cost, until: until}
	q, leads, err := l.join(key, w)
	if err != nil {
		return l.refused(w, err)
	}
	if first.pending != nil { // asked for before anybody else came, so it may pass before its turn
		first.d, first.pending = l.l.Finish(ctx, first.pending), nil
		if final, err := verdict(first.d); final {
			q.leave(w)
			return first.d, err
		}
	}
	if !leads {
		select {
		case <-w.wake:
		case <-ctx.Done():
			q.leave(w)
			return l.bad(ctx.Err()), ctx.Err()
		}
		first = try{} // what it was told on arrival is old
		if d, err := l.ended(q, w); err != nil {
			return d, err
		}
	}
	return l.lead(ctx, key, q, w, first)
}

// ended says why a waiter is in the queue no more, or nil.
func (l *Limiter) ended(q *queue, w *waiter) (Decision, error) {
	if err := q.fate(w); err != nil {
		return l.refused(w, err)
	}
	return Decision{}, nil
}

// refused describes a request that the queue has not let in, or has put out.
func (l *Limiter) refused(w *waiter, err error) (Decision, error) {
	d := l.bad(err)
	if w.late > 0 {
		d.RetryAfter = w.late
		err = tooLate(d, w.until-l.now())
	}
	return d, err
}

// lead asks the limiter for the first of a queue, again and again, until it passes or gives up. It leaves the queue.
func (l *Limiter) lead(ctx context.Context, key string, q *queue, w *waiter, t try) (Decision, error) {
	defer q.leave(w)
	var timer *time.Timer
	for {
		if t.at == 0 {
			if err := ctx.Err(); err != nil {
				return l.bad(err), err
			}
			t.at = l.now()
			if t.d, t.pending = l.begin(ctx, key, w.cost); t.pending != nil {
				t.d = l.l.Finish(ctx, t.pending)
			}
			if final, err := verdict(t.d); final {
				return t.d, err
			}
		}
		if t.soonest() > w.until {
			return t.d, tooLate(t.d, w.until-t.at)
		}
		q.denied(w, l.pace(), max(1, t.soonest()-l.slack), sure(t.d))
		pause := min(max(t.d.RetryAfter, minPause), maxPause)
		if timer == nil {
			timer = time.NewTimer(pause)
			defer timer.Stop()
		} else {
			timer.Reset(pause)
		}
		select {
		case <-timer.C:
		case <-w.wake:
			if d, err := l.ended(q, w); err != nil {
				return d, err
			}
			timer.Reset(minPause) // whoever wakes often must not make it spin
			select {
			case <-timer.C:
			case <-ctx.Done():
			}
		case <-ctx.Done():
			return t.d, ctx.Err()
		}
		t = try{}
	}
}

func saturating(a, b int64) int64 {
	if b > math.MaxInt64-a {
		return math.MaxInt64
	}
	return a + b
}

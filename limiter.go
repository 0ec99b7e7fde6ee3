package jatah

import (
	"context"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/puzpuzpuz/xsync/v4"

	"github.com/jatah-io/jatah/bucket"
	"github.com/jatah-io/jatah/hybrid"
)

// Limiter is one limit of a node. It stays valid while the limit's definition changes: Node.Limit and Node.Lookup return the same
// one until the limit is removed. Safe for any number of goroutines; must not be copied.
type Limiter struct {
	l      *hybrid.Limit
	root   *Limiter // of a plan: that of the limit
	plans  *xsync.Map[string, *Limiter]
	now    func() int64 // the engine's clock
	costs  atomic.Pointer[costTable]
	queues *xsync.Map[string, *queue] // of the keys that somebody waits for
	shut   atomic.Bool                // nobody may wait any more
	slack  int64                      // ns: how much sooner those behind a denied request may pass than it says, see slackOf
	cache  termsCache
}

func newLimiter(h *hybrid.Limit, now func() int64, slack time.Duration) *Limiter {
	return &Limiter{l: h, now: now, slack: int64(slack), queues: xsync.NewMap[string, *queue](), plans: xsync.NewMap[string, *Limiter]()}
}

// slackOf is how much more a key may hold than a denial says, in the time that it takes to gain it. A node alone says exactly when a
// request passes. In a cluster a denial may stand for up to one sync interval though tokens are there already, so that an overload is
// refused in memory; and it may have stood that long.
func (c Config) slackOf() time.Duration {
	switch {
	case c.alone():
		return 0
	case c.SyncInterval == 0:
		return 2 * defaultSync
	}
	return 2 * c.SyncInterval
}

// defaultSync is the sync interval where the configuration has none.
const defaultSync = 100 * time.Millisecond

// State is what is known of one key: at its owner where that can be reached. Amounts are in tokens. For the fields: go doc
// github.com/jatah-io/jatah/hybrid.State
type State = hybrid.State

// Limit is the present definition.
func (l *Limiter) Limit() Limit {
	d := limitOf(l.l.Spec())
	d.Costs = l.costs.Load().costs
	return d
}

// Take decides a request of the given cost in tokens for a key. Cost 0 is a look. It never blocks longer than
// Config.AskTimeout, nor beyond the end of ctx. Under a limit with a Parent it is the same take on both. Bad input is told in Decision.Err: ErrKeyEmpty, ErrKeyTooLong,
// ErrNegativeCost; so are ErrClosed, ErrOverflow, ErrParent and the context's error.
func (l *Limiter) Take(ctx context.Context, key string, cost int64) (d Decision) {
	if err := checkKey(key); err != nil {
		return l.bad(err)
	}
	if l.l.OnCredit(&d, key, cost) {
		return d
	}
	if l.l.Parent() != nil {
		return l.l.BeginUnder(key, cost).Finish(ctx).Decisions[0]
	}
	return l.l.NotOnCredit(ctx, key, cost)
}

// TakeBytes is Take for a key that lies in a buffer, which the caller must not change until it returns. It is not kept.
func (l *Limiter) TakeBytes(ctx context.Context, key []byte, cost int64) Decision {
	return l.Take(ctx, unsafe.String(unsafe.SliceData(key), len(key)), cost) // whoever keeps a key copies it
}

func (l *Limiter) bad(err error) Decision { return badDecision(l.l, err) }

func badDecision(l *hybrid.Limit, err error) Decision {
	return Decision{Mode: l.Spec().Mode, RetryAfter: bucket.Never, Err: err}
}

// Peek looks at a key without changing it, at its owner. The error is ErrUnreachable if that does not answer in
// time; the State then says what this node knew last, and how old that is.
// State.Plan is the plan that the key has there, "" also if that is an override's own amounts.
func (l *Limiter) Peek(ctx context.Context, key string) (State, error) {
	if err := checkKey(key); err != nil {
		return State{Limit: l.l.Spec().Name, Key: key}, err
	}
	st, err := l.l.Peek(ctx, key)
	st.Plan = namedPlan(st.Plan)
	return st, err
}

// Refund gives n tokens back, never above the burst. If the owner of the key does not answer now it is told later.
// The Decision describes the key afterwards; OK means that the refund counts. It goes to a Parent's key too; Peek and Reset do not.
func (l *Limiter) Refund(ctx context.Context, key string, n int64) Decision {
	if err := checkKey(key); err != nil {
		return l.bad(err)
	}
	d := l.refund(ctx, key, n)
	l.wake(key)
	return d
}

func (l *Limiter) refund(ctx context.Context, key string, n int64) Decision {
	if l.l.Parent() != nil {
		return l.throughParents(key, func(l *hybrid.Limit, key string) Decision { return l.Refund(ctx, key, n) })
	}
	return l.l.Refund(ctx, key, n)
}

// Charge takes n tokens after the fact, whether they are there or not: the key may go into debt. Otherwise as Refund.
func (l *Limiter) Charge(ctx context.Context, key string, n int64) Decision {
	if err := checkKey(key); err != nil {
		return l.bad(err)
	}
	if l.l.Parent() != nil {
		return l.throughParents(key, func(l *hybrid.Limit, key string) Decision { return l.Charge(ctx, key, n) })
	}
	return l.l.Charge(ctx, key, n)
}

// Reset makes a key full again. Credit that nodes hold for it stays with them.
func (l *Limiter) Reset(ctx context.Context, key string) error {
	if err := checkKey(key); err != nil {
		return err
	}
	err := l.l.Reset(ctx, key)
	l.wake(key)
	return err
}

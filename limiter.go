package jatah

import (
	"context"
	"fmt"

	"github.com/jatah-io/jatah/bucket"
	"github.com/jatah-io/jatah/hybrid"
)

// Limiter is a handle on one limit of a node. It stays valid while the limit's definition changes. Safe for
// any number of goroutines.
type Limiter struct{ l *hybrid.Limit }

// State is what is known of one key: at its owner where that can be reached. Amounts are in tokens. For the fields: go doc
// github.com/jatah-io/jatah/hybrid.State
type State = hybrid.State

// Limit is the present definition.
func (l *Limiter) Limit() Limit { return limitOf(l.l.Spec()) }

// Take decides a request of the given cost in tokens for a key. Cost 0 is a look. It never blocks longer than
// Config.AskTimeout, nor beyond the end of ctx. Under a limit with a Parent it is the same take on both. Bad input is told in Decision.Err: ErrKeyEmpty, ErrKeyTooLong,
// ErrNegativeCost; so are ErrClosed, ErrOverflow, ErrParent and the context's error.
func (l *Limiter) Take(ctx context.Context, key string, cost int64) Decision {
	if err := checkKey(key); err != nil {
		return l.bad(err)
	}
	if l.l.Parent() != nil {
		return l.l.BeginUnder(key, cost).Finish(ctx).Decisions[0]
	}
	return l.l.Take(ctx, key, cost)
}

// Plan is the limit as it is for those who have one of its Plans; "" is the limit itself. It stays valid while the definition changes: of a
// plan that no longer exists it has the limit's own amounts. The error wraps ErrUnknownPlan.
func (l *Limiter) Plan(name string) (*Limiter, error) {
	if p, ok := l.l.Plan(name); ok && (name == "" || planName.MatchString(name)) {
		return &Limiter{p}, nil
	}
	return nil, fmt.Errorf("%w: limit %q has no plan %.80q", ErrUnknownPlan, l.l.Spec().Name, name)
}

func (l *Limiter) bad(err error) Decision {
	return Decision{Mode: l.l.Spec().Mode, RetryAfter: bucket.Never, Err: err}
}

// Peek looks at a key without changing it, at its owner. The error is ErrUnreachable if that does not answer in
// time; the State then says what this node knew last, and how old that is.
func (l *Limiter) Peek(ctx context.Context, key string) (State, error) {
	if err := checkKey(key); err != nil {
		return State{Limit: l.l.Spec().Name, Key: key}, err
	}
	return l.l.Peek(ctx, key)
}

// Refund gives n tokens back, never above the burst. If the owner of the key does not answer now it is told later.
// The Decision describes the key afterwards; OK means that the refund counts. It goes to a Parent's key too; Peek and Reset do not.
func (l *Limiter) Refund(ctx context.Context, key string, n int64) Decision {
	if err := checkKey(key); err != nil {
		return l.bad(err)
	}
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
	return l.l.Reset(ctx, key)
}

// Request is one of many decisions that are asked for together.
type Request struct {
	Limit, Key string
	Cost       int64
	Plan       string // "": none is named
}

// Batch decides independent requests, in their order, and waits for all owners at once. An unknown limit is told
// in that Decision's Err.
func (n *Node) Batch(ctx context.Context, reqs []Request) []Decision {
	ds := make([]Decision, len(reqs))
	type wait struct {
		i int
		l *hybrid.Limit
		p *hybrid.Pending
		x *hybrid.All // of a limit with a parent
	}
	var waits []wait
	for i, r := range reqs {
		l, ok := n.e.Lookup(r.Limit)
		if !ok {
			ds[i] = Decision{RetryAfter: bucket.Never, Err: ErrUnknownLimit}
			continue
		}
		h, err := (&Limiter{l}).Plan(r.Plan)
		if err == nil {
			err = checkKey(r.Key)
		}
		if err != nil {
			ds[i] = (&Limiter{l}).bad(err)
			continue
		}
		l = h.l
		if l.Parent() != nil {
			waits = append(waits, wait{i, l, nil, l.BeginUnder(r.Key, r.Cost)})
			continue
		}
		d, p := l.Begin(r.Key, r.Cost)
		if p == nil {
			ds[i] = d
			continue
		}
		waits = append(waits, wait{i, l, p, nil})
	}
	for _, w := range waits {
		if w.x != nil {
			ds[w.i] = w.x.Finish(ctx).Decisions[0]
			continue
		}
		ds[w.i] = w.l.Finish(ctx, w.p)
	}
	return ds
}

package jatah

import (
	"context"

	"github.com/jatah-io/jatah/bucket"
	"github.com/jatah-io/jatah/hybrid"
)

// Request is one of many decisions that are asked for together.
type Request struct {
	Limit, Key string
	Cost       int64
	Plan       string // "": none is named
}

// Ask is a request by a handle, on which nothing is looked up any more. The Limiter must be of this process, and not nil.
type Ask struct {
	Limiter *Limiter
	Key     string
	Cost    int64
}

// Batch decides independent requests, in their order, and waits for all owners at once. An unknown limit is told
// in that Decision's Err.
func (n *Node) Batch(ctx context.Context, reqs []Request) []Decision {
	ds := make([]Decision, 0, len(reqs))
	var waits []begun
	for _, r := range reqs {
		l, ok := n.e.Lookup(r.Limit)
		if !ok {
			ds = append(ds, Decision{RetryAfter: bucket.Never, Err: ErrUnknownLimit})
			continue
		}
		l, err := planOf(l, r.Plan)
		if err != nil {
			ds = append(ds, badDecision(l, err))
			continue
		}
		ds, waits = start(ds, waits, l, r.Key, r.Cost)
	}
	finish(ctx, ds, waits)
	return ds
}

// AppendBatch is Batch for those who have handles and memory: it appends the decisions to ds, in the order of the asks, and allocates nothing
// for keys that are known where ds has room, no owner has to be waited for and no limit has a Parent. A plan is asked for by its own handle: see
// Limiter.Plan.
func (n *Node) AppendBatch(ctx context.Context, ds []Decision, asks []Ask) []Decision {
	var waits []begun
	for i := range asks {
		a := &asks[i]
		ds, waits = start(ds, waits, a.Limiter.l, a.Key, a.Cost)
	}
	finish(ctx, ds, waits)
	return ds
}

// begun is a decision that waits for an owner.
type begun struct {
	i int // of the decision
	l *hybrid.Limit
	p *hybrid.Pending
	x *hybrid.All // of a limit with a parent
}

// start appends a decision, or its place and who is waited for.
func start(ds []Decision, waits []begun, l *hybrid.Limit, key string, cost int64) ([]Decision, []begun) {
	if err := checkKey(key); err != nil {
		return append(ds, badDecision(l, err)), waits
	}
	ds = append(ds, Decision{})
	last := len(ds) - 1
	if l.OnCredit(&ds[last], key, cost) {
		return ds, waits
	}
	if l.Parent() != nil {
		return ds, append(waits, begun{last, l, nil, l.BeginUnder(key, cost)})
	}
	d, p := l.BeginNotOnCredit(key, cost)
	if ds[last] = d; p != nil {
		waits = append(waits, begun{last, l, p, nil})
	}
	return ds, waits
}

func finish(ctx context.Context, ds []Decision, waits []begun) {
	for _, w := range waits {
		if w.x != nil {
			ds[w.i] = w.x.Finish(ctx).Decisions[0]
			continue
		}
		ds[w.i] = w.l.Finish(ctx, w.p)
	}
}

package jatah

import (
	"context"
	"fmt"
	"sync"

	"github.com/jatah-io/jatah/bucket"
	"github.com/jatah-io/jatah/hybrid"
)

// Result is the answer to several requests that were decided together: OK; Violated, the names of the limits known to refuse;
// RetryAfter, the longest wait that one of them asks for (Never: no wait helps); Decisions, one per request; Err, with which nothing was
// taken. For the fields: go doc github.com/jatah-io/jatah/hybrid.AllDecision
type Result = hybrid.AllDecision

// TakeAll decides several requests together: all are charged or none, also when their keys have different owners. The same
// limit and key twice counts as the sum of the costs; cost 0 is a look, which refuses where the key is in debt. A limit in dry run
// refuses nothing; the parents of a limit are part of it. It never blocks longer than Config.AskTimeout, nor beyond the end of ctx.
//
// Where the whole is refused, Violated has the limits known to refuse it: while one refuses by what this node knows, the owners of other keys are
// not asked. The Decisions of what would have passed are OK, and as if nothing had been taken. Without reqs the Result is OK.
//
// While it waits for owners, tokens are held that others are refused. Two that want the last tokens of the same keys at the same
// moment may both be refused. Bad input is told in Err and in the Decision of its request: ErrUnknownLimit, ErrKeyEmpty, ErrKeyTooLong,
// ErrNegativeCost; so are ErrClosed, ErrOverflow, ErrParent and the context's error.
func (n *Node) TakeAll(ctx context.Context, reqs []Request) Result {
	takes := make([]hybrid.Take, len(reqs))
	var bad *Result
	for i, r := range reqs {
		d := Decision{RetryAfter: bucket.Never}
		l, ok := n.e.Lookup(r.Limit)
		var unknown error
		if ok {
			l, unknown = planOf(l, r.Plan)
		}
		switch err := checkKey(r.Key); {
		case !ok:
			d.Err = fmt.Errorf("%w: %q", ErrUnknownLimit, r.Limit)
		case unknown != nil:
			d = badDecision(l, unknown)
		case err != nil:
			d = badDecision(l, err)
		case r.Cost < 0:
			d = badDecision(l, fmt.Errorf("%w: %d", ErrNegativeCost, r.Cost))
		default:
			takes[i] = hybrid.Take{Limit: l, Key: r.Key, Cost: r.Cost}
			continue
		}
		if bad == nil {
			bad = &Result{Err: d.Err, RetryAfter: bucket.Never, Decisions: make([]Decision, len(reqs))}
		}
		bad.Decisions[i] = d
	}
	if bad != nil {
		return *bad
	}
	return n.e.TakeAll(ctx, takes)
}

// throughParents does op on the key and on the parents' keys, at the same time.
func (l *Limiter) throughParents(key string, op func(l *hybrid.Limit, key string) Decision) Decision {
	var above []*hybrid.Limit
	for p := l.l.Parent(); p != nil && len(above) < hybrid.MaxParents; p = p.Parent() {
		above = append(above, p)
	}
	ds := make([]Decision, len(above))
	var wait sync.WaitGroup
	for i, p := range above {
		wait.Go(func() { ds[i] = op(p, p.Spec().Name) })
	}
	d := op(l.l, key)
	wait.Wait()
	for _, up := range ds {
		d.Under(up)
	}
	return d
}

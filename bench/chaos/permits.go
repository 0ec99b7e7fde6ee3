package chaos

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/jatah-io/jatah/httpapi/client"
)

// holding is when a permit was certainly held: from the answer that gave it until before it was asked to be released.
type holding struct {
	from, to time.Duration
	node     int
	start    int // which process of the node
}

// permitKey is one for all.
const permitKey = "hot"

// hold takes permits from one node and gives them back, one at a time.
func (l *load) hold(ctx context.Context, n *node) {
	for ctx.Err() == nil {
		if n.running() == nil || !l.holdOne(ctx, n) {
			pause(ctx, 100*time.Millisecond)
		}
	}
}

// holdOne is false if there was none to have.
func (l *load) holdOne(ctx context.Context, n *node) bool {
	troubled, start, sent := n.troubled.Load() > 0, n.started(), l.now()
	p, d, err := n.ask.Acquire(ctx, permits, client.Key{permitKey}, permitTTL)
	done := l.now()
	if err != nil {
		l.failed(ctx, n, troubled, err)
		return false
	}
	l.took("acquire", done-sent)
	l.decisions.Add(1)
	if !d.Allowed {
		l.mu.Lock()
		l.denied++
		l.mu.Unlock()
		return false
	}
	pause(ctx, time.Duration(50+rand.IntN(400))*time.Millisecond)
	h := holding{from: done, to: min(l.now(), time.Until(p.Expires())+l.now()), node: n.index, start: start}
	for try := 0; ; try++ {
		// The load may end before the permit is given back; then it expires.
		if err = p.Release(ctx); err == nil || try > 5 || ctx.Err() != nil || n.started() != start {
			break
		}
		pause(ctx, time.Second)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held++
	l.permits = append(l.permits, h)
	return true
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// most is the greatest number of permits that were certainly held at once, and when; of intervals that meet no moment in which more may be.
func most(held []holding, excused func(time.Duration) bool) (n int, at time.Duration) {
	type edge struct {
		at time.Duration
		by int
	}
	var edges []edge
	for _, h := range held {
		if h.to > h.from {
			edges = append(edges, edge{h.from, 1}, edge{h.to, -1})
		}
	}
	slices.SortFunc(edges, func(a, b edge) int { return cmp.Or(cmp.Compare(a.at, b.at), a.by-b.by) })
	now := 0
	for _, e := range edges {
		if now += e.by; now > n && !excused(e.at) {
			n, at = now, e.at
		}
	}
	return n, at
}

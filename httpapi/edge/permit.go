package edge

import (
	"context"
	"sync"
	"time"

	"github.com/jatah-io/jatah"
)

// held is a permit that is renewed as long as the handler runs, however long that is.
type held struct {
	mu     sync.Mutex
	permit *jatah.Permit // nil: given back
	timer  *time.Timer
}

// hold keeps a permit whose limit gives it ttl.
func hold(p *jatah.Permit, ttl time.Duration) *held {
	h := &held{permit: p}
	h.mu.Lock()
	defer h.mu.Unlock()
	// Two more tries are left where one fails.
	h.timer = time.AfterFunc(ttl/3, func() { h.renew(ttl) })
	return h
}

func (h *held) renew(ttl time.Duration) {
	h.mu.Lock()
	p := h.permit
	h.mu.Unlock()
	if p == nil {
		return
	}
	// An error leaves it as it was. A permit that is given back meanwhile is not held again by this.
	_, _ = p.Renew(context.Background(), ttl)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.permit != nil {
		h.timer.Reset(ttl / 3)
	}
}

func (h *held) release(ctx context.Context) {
	h.mu.Lock()
	p := h.permit
	h.permit = nil
	h.timer.Stop()
	h.mu.Unlock()
	_ = p.Release(ctx) // an error says that it has expired; a nil permit holds nothing
}

// acquire takes the permit of a use. A limit that lets pass without one, in dry run, gives none.
func (v *Verdict) acquire(ctx context.Context, i int) bool {
	t := &v.Takes[i]
	p, d := t.limiter.Acquire(ctx, t.Key, 0)
	t.Decision = d
	if p != nil {
		t.permit = hold(p, t.limiter.Limit().TTL)
	}
	return v.passed(t)
}

// giveBack releases the permits that are held.
func (v *Verdict) giveBack(ctx context.Context) {
	for _, i := range v.rule.permits {
		if t := &v.Takes[i]; t.permit != nil {
			t.permit.release(ctx)
			t.permit = nil
		}
	}
}

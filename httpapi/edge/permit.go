package edge

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jatah-io/jatah"
)

// held is a permit that is renewed as long as the handler runs, however long that is.
type held struct {
	limiter *jatah.Limiter

	mu     sync.Mutex
	permit *jatah.Permit // nil: given back
	timer  *time.Timer
}

// hold keeps a permit of a limit.
func hold(p *jatah.Permit, l *jatah.Limiter) *held {
	h := &held{limiter: l, permit: p}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.timer = time.AfterFunc(h.pause(), h.renew)
	return h
}

// pause is the time to the next renewal, by what the limit gives now: it may be defined anew while the handler runs. Two more tries are left
// where one fails.
func (h *held) pause() time.Duration {
	if ttl := h.limiter.Limit().TTL; ttl > 0 {
		return max(ttl/3, time.Millisecond)
	}
	return time.Second // it counts tokens at present, and may count permits again
}

func (h *held) renew() {
	h.mu.Lock()
	p := h.permit
	h.mu.Unlock()
	if p == nil {
		return
	}
	// A permit that is given back meanwhile is not held again by this.
	if _, err := p.Renew(context.Background(), 0); errors.Is(err, jatah.ErrPermit) {
		return // nothing brings it back
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.permit != nil {
		h.timer.Reset(h.pause())
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
		t.permit = hold(p, t.limiter)
	}
	return v.passed(t)
}

// giveBack releases the permits that are held. It leaves Takes as they are, which a handler that http.TimeoutHandler did not wait for may be reading.
func (v *Verdict) giveBack(ctx context.Context) {
	for _, i := range v.rule.permits {
		if t := &v.Takes[i]; t.permit != nil {
			t.permit.release(ctx)
		}
	}
}

package client

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// maxPause is after what time a remote is asked again whatever it said: a mistake of it should not outlast this process.
const maxPause = 24 * time.Hour

// pauses remembers which keys are told to stay away, and until when.
type pauses struct {
	retry *Retry
	max   int

	mu   sync.Mutex
	keys map[string]*pause
}

// pause is what is known of a key that was refused. It is kept after its end, until a request passes or others need the room, for the refusals in a row.
type pause struct {
	begin, until time.Time
	strikes      int // refusals in a row, those of requests that were under way together as one
}

func newPauses(retry *Retry, most int) *pauses {
	return &pauses{retry: retry, max: most, keys: make(map[string]*pause)}
}

// longest is the longest pause that is waited for: the backoff on top of Retry-After may not make it too long.
func (p *pauses) longest() time.Duration { return saturate(p.retry.MaxRetryAfter, p.retry.Max) }

// refused pauses a key, and returns for how long. A request that was sent before the pause began says nothing new of how bad it is, but it may
// know better how long it lasts.
func (p *pauses) refused(key string, sent, now time.Time, after time.Duration) time.Duration {
	after = min(after, maxPause)
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.keys[key]
	if e == nil {
		p.makeRoom(now)
		e = &pause{}
		p.keys[key] = e
	}
	if e.strikes == 0 || !sent.Before(e.begin) {
		e.strikes++
		e.begin = now
		after = saturate(after, p.retry.backoff(e.strikes-1))
	}
	if until := now.Add(after); until.After(e.until) {
		e.until = until
	}
	return e.until.Sub(now)
}

// passed says that the remote took a request. One that was sent before the last refusal proves nothing.
func (p *pauses) passed(key string, sent time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if e := p.keys[key]; e != nil && !sent.Before(e.until) {
		delete(p.keys, key)
	}
}

// makeRoom forgets the pause that ends first when there are too many.
func (p *pauses) makeRoom(now time.Time) {
	if len(p.keys) < p.max {
		return
	}
	var first string
	var until time.Time
	for key, e := range p.keys {
		if !e.until.After(now) {
			delete(p.keys, key)
		} else if until.IsZero() || e.until.Before(until) {
			first, until = key, e.until
		}
	}
	if len(p.keys) >= p.max {
		delete(p.keys, first)
	}
}

// left is how long a key is paused.
func (p *pauses) left(key string) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.keys[key]
	if e == nil {
		return 0
	}
	return time.Until(e.until)
}

// wait waits until a key is not paused, or fails at once if that would take too long. Those who wait together come apart a little.
func (p *pauses) wait(ctx context.Context, key string) error {
	for {
		left := p.left(key)
		if left <= 0 {
			return nil
		}
		if most := p.longest(); left > most {
			return fmt.Errorf("%w: %q for %v, which is more than is waited for", ErrPaused, key, left)
		}
		if end, ends := ctx.Deadline(); ends && time.Until(end) <= left {
			return fmt.Errorf("%w: the remote paused %q for %v, there are %v", ErrDeadline, key, left, max(0, time.Until(end)))
		} else if ends {
			left += min(random(p.retry.Base), (time.Until(end)-left)/2)
		} else {
			left += random(p.retry.Base)
		}
		if err := sleep(ctx, left); err != nil {
			return fmt.Errorf("client: waiting while %q is paused: %w", key, err)
		}
	}
}

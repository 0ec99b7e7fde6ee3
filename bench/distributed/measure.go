package distributed

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// tally is what callers saw in one measurement.
type tally struct {
	calls  int64
	failed int64 // calls without an answer
	answer
	err error // the first failure
}

func (s *tally) add(a answer, err error) {
	s.calls++
	if err != nil {
		s.failed++
		if s.err == nil {
			s.err = err
		}
		return
	}
	s.allowed, s.denied, s.odd = s.allowed+a.allowed, s.denied+a.denied, s.odd+a.odd
}

func (s *tally) merge(o tally) {
	s.calls, s.failed = s.calls+o.calls, s.failed+o.failed
	s.allowed, s.denied, s.odd = s.allowed+o.allowed, s.denied+o.denied, s.odd+o.odd
	if s.err == nil {
		s.err = o.err
	}
}

// decisions are those that were made as the peer means to: not those by a fallback.
func (s *tally) decisions() int { return s.allowed + s.denied - s.odd }

// check refuses a measurement in which hardly anything was decided, or in which an ample limit denied.
func (s *tally) check(t *target) error {
	switch {
	case s.decisions() == 0 && s.err != nil:
		return fmt.Errorf("distributed: %s decided nothing: %w", t.name, s.err)
	case s.decisions() == 0:
		return fmt.Errorf("distributed: %s decided nothing but %d by fallback", t.name, s.odd)
	case s.denied > 0:
		return fmt.Errorf("distributed: %s denied %d of %d although the limit is ample", t.name, s.denied, s.allowed+s.denied)
	}
	return nil
}

// spoilt says which part of the calls failed or was decided by a fallback, "" if none.
func (s *tally) spoilt() string {
	if s.failed == 0 && s.odd == 0 {
		return ""
	}
	asked := float64(s.failed) + float64(s.allowed+s.denied)
	text := fmt.Sprintf("%.2g%% of the calls failed and %.2g%% were decided by a fallback", 100*float64(s.failed)/asked, 100*float64(s.odd)/asked)
	if s.err != nil {
		text += fmt.Sprintf(" (%v)", s.err)
	}
	return text
}

// timed has one caller ask for a while and counts how long each call took.
func timed(ctx context.Context, t *target, length time.Duration) (*histogram, tally, error) {
	c := callersOf(t, 1)[0]
	h := new(histogram)
	var s tally
	for start := time.Now(); ctx.Err() == nil; {
		before := time.Now()
		a, err := c.call(ctx)
		h.add(time.Since(before))
		s.add(a, err)
		if before.Sub(start) > length {
			return h, s, s.check(t)
		}
	}
	return nil, s, ctx.Err()
}

// speed is what callers got in a while.
type speed struct {
	perSecond float64       // decisions
	cpu       time.Duration // of all processes, for each decision
	tally
}

// together has callers ask at once for a while.
func together(ctx context.Context, t *target, callers int, length time.Duration) (speed, error) {
	var stop atomic.Bool
	var wg sync.WaitGroup
	cs, seen := callersOf(t, callers), make([]tally, callers)
	before, err := t.cpu()
	if err != nil {
		return speed{}, err
	}
	start := time.Now()
	for i, c := range cs {
		wg.Go(func() {
			var s tally // of its own, so that callers share no cache line
			for !stop.Load() {
				a, err := c.call(ctx)
				s.add(a, err)
				if s.failed > 100 && s.decisions() == 0 {
					break
				}
			}
			seen[i] = s
		})
	}
	sleep(ctx, length)
	stop.Store(true)
	wg.Wait()
	took := time.Since(start)
	after, err := t.cpu()
	var sum speed
	for _, s := range seen {
		sum.merge(s)
	}
	if err := errors.Join(ctx.Err(), err); err != nil {
		return sum, err
	}
	if err := sum.check(t); err != nil {
		return sum, err
	}
	sum.perSecond = float64(sum.decisions()) / took.Seconds()
	sum.cpu = (after - before) / time.Duration(sum.decisions())
	return sum, nil
}

func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

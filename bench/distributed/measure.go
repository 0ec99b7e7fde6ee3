package distributed

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jatah-io/jatah/bench/report"
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
	s.answer = s.plus(a)
}

func (s *tally) merge(o tally) {
	s.calls, s.failed = s.calls+o.calls, s.failed+o.failed
	s.answer = s.plus(o.answer)
	if s.err == nil {
		s.err = o.err
	}
}

// decisions are those that were made as the peer means to: not those by a fallback, and not those that an ample limit denied.
func (s *tally) decisions() int { return s.allowed }

// check refuses a measurement in which nothing was decided.
func (s *tally) check(t *target) error {
	switch {
	case s.decisions() > 0:
		return nil
	case s.err != nil:
		return fmt.Errorf("distributed: %s decided nothing: %w", t.name, s.err)
	}
	return fmt.Errorf("distributed: %s allowed nothing, but denied %d although the limit is ample, and %d were decided by a fallback", t.name, s.denied, s.oddAllowed+s.oddDenied)
}

// spoilt says which part did not count, "" if all did. Where the limit is ample, denials do not.
func (s *tally) spoilt(ample bool) string {
	all := float64(s.failed) + float64(s.allowed+s.denied+s.oddAllowed+s.oddDenied)
	var parts []string
	add := func(n int, what string) {
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%.2g%% %s", 100*float64(n)/all, what))
		}
	}
	add(int(s.failed), "failed")
	add(s.oddAllowed+s.oddDenied, "were decided by a fallback")
	if ample {
		add(s.denied, "were denied although the limit is ample")
	}
	text := strings.Join(parts, ", ")
	if s.err != nil {
		text += fmt.Sprintf(" (%v)", s.err)
	}
	return text
}

// patience is how long a measurement goes on for a caller that got no decision yet, because the machine is busy with something else.
const patience = 20 * time.Second

// timed has one caller ask for a while and counts how long each call took.
func timed(ctx context.Context, t *target, length time.Duration) (*report.Histogram, tally, error) {
	c := callersOf(t, 1)[0]
	h := new(report.Histogram)
	var s tally
	for start := time.Now(); ctx.Err() == nil; {
		before := time.Now()
		a, err := c.call(ctx)
		h.Add(time.Since(before))
		s.add(a, err)
		if at := before.Sub(start); at > length && s.decisions() > 0 || at > length+patience {
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

// together has callers ask at once for a while, and each until it got a decision.
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
			for !stop.Load() || s.decisions() == 0 && ctx.Err() == nil && time.Since(start) < length+patience {
				s.add(c.call(ctx))
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

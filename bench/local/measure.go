package local

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// ErrWrongAnswers: a peer denied what its limit allows, or the other way round, so what was measured is not what was meant.
var ErrWrongAnswers = errors.New("local: a peer answered other than its limit says")

// known opens the peer and makes the first n keys known to it: each a string of its own, as it would come from a request. If the limit is spent, so
// are the keys.
func (p peer) known(ctx context.Context, q quota, n int) (*subject, error) {
	s, err := p.open(ctx, q, n)
	if err != nil {
		return nil, fmt.Errorf("opening %s: %w", p.name, err)
	}
	for i := range n {
		if i&0xfff == 0 && ctx.Err() != nil {
			s.close()
			return nil, ctx.Err()
		}
		if err := s.know(keyOf(i)); err != nil {
			s.close()
			return nil, fmt.Errorf("%s: %w", p.name, err)
		}
		if q == spent {
			s.take(keyOf(i))
		}
	}
	if s.notLocal != nil {
		s.notLocal()
	}
	return s, nil
}

func (s *subject) know(key string) error {
	if s.learn != nil {
		return s.learn(key)
	}
	if !s.take(key) {
		return fmt.Errorf("%w: the first request of %q was denied", ErrWrongAnswers, key)
	}
	return nil
}

// cost is what one turn of a peer took.
type cost struct {
	ops     int64
	allowed int64
	asked   int64 // not decided in memory
	clock   time.Duration
	cpu     time.Duration // of the whole process, with what the peer does in the background
	mallocs uint64
}

// between two looks at the clock.
const chunk = 1024

// turn takes drawn keys for so long, on so many goroutines at once.
func (s *subject) turn(d *draws, goroutines int, length time.Duration) (cost, error) {
	var c cost
	var before, after runtime.MemStats
	results := make([]cost, goroutines)
	var ready, done sync.WaitGroup
	begin := make(chan time.Time)
	for g := range goroutines {
		ready.Add(1)
		done.Go(func() {
			// Each starts elsewhere, or all would touch the same keys at the same time.
			at := g * (d.mask + 1) / goroutines
			ready.Done()
			end := (<-begin).Add(length)
			for time.Now().Before(end) {
				results[g].allowed += s.some(d, at)
				results[g].ops += chunk
				at += chunk
			}
		})
	}
	ready.Wait()
	runtime.ReadMemStats(&before)
	cpu, err := processorTime()
	if err != nil {
		return c, err
	}
	start := time.Now()
	for range goroutines {
		begin <- start
	}
	done.Wait()
	c.clock = time.Since(start)
	used, err := processorTime()
	if err != nil {
		return c, err
	}
	runtime.ReadMemStats(&after)
	c.cpu, c.mallocs = used-cpu, after.Mallocs-before.Mallocs
	for _, r := range results {
		c.ops, c.allowed = c.ops+r.ops, c.allowed+r.allowed
	}
	if s.notLocal != nil {
		c.asked = s.notLocal()
	}
	return c, nil
}

const (
	// mostWarm bounds the time for going through the draws before a turn; only what takes microseconds for each needs more.
	mostWarm = 3 * time.Second
	// warmEnough is the part of decisions made in memory with which ours is warm.
	warmEnough = 0.999
)

// warm goes through the draws once, so that a turn does not begin with the processor's caches as opening left them. Ours goes on until it has credit
// for what is drawn: a node returns what it has not used for some seconds, and making many keys known takes longer.
func (s *subject) warm(ctx context.Context, d *draws) error {
	end := time.Now().Add(mostWarm)
	for {
		done := 0
		for ; done <= d.mask && time.Now().Before(end); done += chunk {
			s.some(d, done)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if s.notLocal == nil || float64(s.notLocal()) <= (1-warmEnough)*float64(done) || !time.Now().Before(end) {
			return nil
		}
	}
}

// some takes a chunk of drawn keys and counts those allowed. It is the loop that is measured.
//
//go:noinline
func (s *subject) some(d *draws, at int) (allowed int64) {
	take := s.take
	for i := at; i < at+chunk; i++ {
		if take(d.at(i)) {
			allowed++
		}
	}
	return allowed
}

// expect says whether all or none were allowed, as the limit says.
func (c cost) expect(q quota) error {
	if q == ample && c.allowed != c.ops || q == spent && c.allowed != 0 {
		return fmt.Errorf("%w: %d of %d allowed, limit %d per %v", ErrWrongAnswers, c.allowed, c.ops, q.tokens, q.per)
	}
	return nil
}

// inMemory is the part of the operations that were decided in memory.
func (c cost) inMemory() float64 { return 1 - float64(c.asked)/float64(c.ops) }

// per is the time for each operation, in nanoseconds.
func (c cost) per(d time.Duration) float64 { return float64(d) / float64(c.ops) }

// processorTime is what this process has used so far, on all processors.
func processorTime() (time.Duration, error) {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0, fmt.Errorf("local: %w", err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), nil
}

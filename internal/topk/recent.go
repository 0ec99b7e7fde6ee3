package topk

import (
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// Keys is how many keys a sketch keeps: what counts more than 1/256 of all is found for certain.
	Keys = 256
	// Window is what counts are of: the last minute.
	Window = time.Minute
	// Budget is how many notes between two ticks are taken in before only one in N is: at 100 ns each, 0.2 ms.
	Budget = 2048

	maxEvery = 1 << 40
)

// Recent counts what keys had in the last minute. Make it with NewRecent; it must not be copied. Safe for any number of goroutines.
//
// Times are nanoseconds of a clock of the caller's choice. Memory: nothing until something is noted, then two sketches: 50 KB and 512 keys, of
// 1 KiB at most.
type Recent struct {
	every atomic.Int64 // a power of two: one note in so many is taken in, or those that are as large

	mu        sync.Mutex
	left      int // of the budget
	sampled   [2]int64
	this, was *Sketch // this window and the one before
	start     int64   // of this window
	born      int64
}

// NewRecent returns one that has counted nothing up to now.
func NewRecent(now int64) *Recent {
	r := &Recent{left: Budget, start: now, born: now}
	r.every.Store(1)
	return r
}

// Note counts n for a key; n below 1 is nothing. While there are at most Budget notes between two ticks every one is
// taken in; beyond, one of n less than N is taken in as N, with the chance n/N, so that on average nothing is missing. Then it
// takes a few nanoseconds.
func (r *Recent) Note(key string, n int64) {
	if n = r.Sample(n); n > 0 {
		r.Add(key, n)
	}
}

// Sample says as how much a note of n is taken in: 0 if not at all. Add does it then. So the key need not be at hand before.
func (r *Recent) Sample(n int64) int64 {
	if every := r.every.Load(); n < every {
		if n <= 0 || int64(rand.Uint64()&uint64(every-1)) >= n {
			return 0
		}
		return every
	}
	return n
}

// Add is for what Sample has let in.
func (r *Recent) Add(key string, n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.window().Add(key, n)
	r.spend()
}

// AddBytes is Add for a key that lies in a buffer.
func (r *Recent) AddBytes(key []byte, n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.window().AddBytes(key, n)
	r.spend()
}

func (r *Recent) window() *Sketch {
	if r.this == nil {
		r.this = NewSketch(Keys)
	}
	return r.this
}

// spend takes one note off the budget.
func (r *Recent) spend() {
	if r.left--; r.left <= 0 {
		r.left = Budget / 2
		r.setEvery(min(2*r.every.Load(), maxEvery))
	}
}

func (r *Recent) setEvery(n int64) {
	r.every.Store(n)
	r.sampled[0] = max(r.sampled[0], n)
}

// Tick begins the next window when it is time, and lets more notes in again when there were few since the last tick.
func (r *Recent) Tick(now int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.turn(now)
	if every := r.every.Load(); every > 1 && r.left > Budget/2 {
		r.every.Store(every / 2) // at the higher rate about half of the budget would have been used
	}
	r.left = Budget
}

// turn begins new windows up to now.
func (r *Recent) turn(now int64) {
	if now-r.start < int64(Window) {
		return
	}
	far := now-r.start >= 2*int64(Window)
	r.this, r.was = r.was, r.this
	r.sampled = [2]int64{r.every.Load(), r.sampled[0]}
	if r.this != nil {
		r.this.Clear()
	}
	if r.start += int64(Window); far { // nobody ticked for long
		if r.start = now; r.was != nil {
			r.was.Clear()
		}
	}
}

// Summary says what the keys had in the last minute: all of this window, and of the one before the part that is not over for a
// minute, as if it had been even.
func (r *Recent) Summary(now int64) Summary {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.turn(now)
	part := min(max(1-float64(now-r.start)/float64(Window), 0), 1)
	s := Summary{
		Span:   min(max(time.Duration(now-r.born), time.Second), Window),
		Sample: max(r.sampled[0], r.every.Load(), 1),
		Floor:  add(r.this.Floor(), ceil(part, r.was.Floor())),
	}
	if r.was != nil && len(r.was.slots) > 0 {
		s.Sample = max(s.Sample, r.sampled[1])
	}
	one := func(key string) {
		least, most := r.this.bounds(key)
		before, atMost := r.was.bounds(key)
		least, most = add(least, int64(part*float64(before))), add(most, ceil(part, atMost))
		s.Items = append(s.Items, Item{Key: key, Count: least, Error: max(most-least, 0)})
	}
	if r.this != nil {
		for i := range r.this.slots {
			one(r.this.slots[i].key)
		}
	}
	if r.was != nil && part > 0 {
		for i := range r.was.slots {
			if key := r.was.slots[i].key; r.this == nil || !r.this.has(key) {
				one(key)
			}
		}
	}
	s.rate()
	s.sort()
	return s
}

func (s *Sketch) has(key string) bool {
	_, ok := s.index[key]
	return ok
}

// ceil is a part of a count, rounded up.
func ceil(part float64, n int64) int64 {
	if f := math.Ceil(part * float64(n)); f < math.MaxInt64 {
		return int64(f)
	}
	return math.MaxInt64
}

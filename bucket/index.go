package bucket

import (
	"math"
	"sync"
	"sync/atomic"
)

// index orders the entries of a table by a time before which they surely are not full, so that what
// can be forgotten is found without a scan. It is a binary heap with a lock, which a request of a
// known key does not touch: takes only move the moment of being full away, so the recorded one
// remains a lower bound, and is corrected when it comes up. What brings the moment nearer (a
// refund, a change of the limit) calls lower.
//
// An entry is corrected at most once for the takes since it was recorded, so the work is O(log n)
// per take at the very most, paid by the sweeper or by requests of new keys.
type index struct {
	mu       sync.Mutex
	heap     []slot
	earliest atomic.Int64 // heap[0].due, or MaxInt64: read without the lock
}

// slot repeats the entry's due, because following 20 pointers on the way through the heap would
// cost 20 cache misses.
type slot struct {
	due int64
	e   *entry
}

func (x *index) init() { x.earliest.Store(math.MaxInt64) }

// push records a new entry, unless it was sealed meanwhile: whoever sealed it has
// looked for it here already, or will once we unlock.
func (x *index) push(e *entry, due int64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if e.tat.Load() == sealed {
		return
	}
	x.insert(e, due)
	x.publish()
}

// replace puts an entry in the place of a sealed one of the same key.
func (x *index) replace(old, e *entry, due int64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.take(old)
	if e.tat.Load() != sealed {
		x.insert(e, due)
	}
	x.publish()
}

// remove forgets a sealed entry.
func (x *index) remove(e *entry) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.take(e)
	x.publish()
}

// lower tells that e may be full at due, earlier than recorded. Without the lock if it is recorded
// as early already.
//
// A concurrent record stores its later time first and then looks at the bucket again; the caller
// has changed the bucket first and then looks at the stored time. So one of the two sees the other.
func (x *index) lower(e *entry, due int64) {
	if e.due.Load() <= due {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if e.pos > 0 && e.due.Load() > due {
		e.due.Store(due)
		x.move(int(e.pos-1), slot{due, e})
		x.publish()
	}
}

// next takes the first entry that is due and full out of the heap, and corrects what is before it,
// looking at up to *budget entries. It returns nil if there is none.
func (x *index) next(now int64, budget *int) *entry {
	if now < x.earliest.Load() {
		return nil
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	defer x.publish()
	now = min(now, math.MaxInt64-1) // MaxInt64 is never
	for ; *budget > 0 && len(x.heap) > 0 && x.heap[0].due <= now; *budget-- {
		e := x.heap[0].e
		due, ok := e.fullTime()
		if !ok {
			x.take(e) // sealed: its successor is on its way here
			continue
		}
		if due <= now {
			x.take(e)
			*budget--
			return e
		}
		x.move(int(e.pos-1), slot{e.record(due), e})
	}
	return nil
}

// fullTime returns when the entry will be full if nothing else comes.
func (e *entry) fullTime() (int64, bool) {
	tat := e.tat.Load()
	if tat == sealed {
		return 0, false
	}
	return max(e.p.when(tat), e.newest.Load()), true
}

// record stores due, or the time at which the bucket will be full if that has become earlier: see
// lower.
func (e *entry) record(due int64) int64 {
	for {
		e.due.Store(due)
		full, ok := e.fullTime()
		if !ok || full >= due {
			return due
		}
		due = full
	}
}

func (x *index) publish() {
	if len(x.heap) == 0 {
		x.earliest.Store(math.MaxInt64)
		return
	}
	x.earliest.Store(x.heap[0].due)
}

// The heap itself. Positions count from 1, so that the zero entry is nowhere.

func (x *index) insert(e *entry, due int64) {
	if e.pos > 0 {
		return
	}
	x.heap = append(x.heap, slot{})
	x.up(len(x.heap)-1, slot{e.record(due), e})
}

func (x *index) take(e *entry) {
	if e.pos == 0 {
		return
	}
	i, n := int(e.pos-1), len(x.heap)-1
	last := x.heap[n]
	x.heap[n] = slot{}
	x.heap = x.heap[:n]
	if n > 1024 && n < cap(x.heap)/4 {
		x.heap = append(make([]slot, 0, 2*n), x.heap...) // a flood has gone
	}
	e.pos = 0
	if i < n {
		x.move(i, last)
	}
}

// move places s at i or where the order wants it.
func (x *index) move(i int, s slot) {
	if i > 0 && x.heap[(i-1)/2].due > s.due {
		x.up(i, s)
		return
	}
	for n := len(x.heap); ; {
		child := 2*i + 1
		if child >= n {
			break
		}
		if child+1 < n && x.heap[child+1].due < x.heap[child].due {
			child++
		}
		if x.heap[child].due >= s.due {
			break
		}
		x.place(i, x.heap[child])
		i = child
	}
	x.place(i, s)
}

func (x *index) up(i int, s slot) {
	for i > 0 && x.heap[(i-1)/2].due > s.due {
		x.place(i, x.heap[(i-1)/2])
		i = (i - 1) / 2
	}
	x.place(i, s)
}

func (x *index) place(i int, s slot) {
	x.heap[i] = s
	s.e.pos = uint32(i + 1)
}

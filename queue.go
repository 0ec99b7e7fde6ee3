package jatah

import (
	"math"
	"math/bits"
	"sync"
	"time"
)

// queue holds those who wait for one key, in the order of their arrival. It exists while there is one, and has no goroutine: the
// first in it asks the limiter, and who leaves wakes the one that is first then.
//
// since is the soonest moment at which the first can pass, by its last denial. It is what makes a deadline that cannot be met
// known to those behind: the limit must gain what they cost after that moment. Until the first has been denied nothing is
// known and everybody is let in; its denial then ends those who cannot make it.
type queue struct {
	of  *Limiter
	key string

	mu     sync.Mutex
	gone   bool // taken off the map; who finds it so looks again
	head   *waiter
	tail   *waiter
	behind uint64 // weights of all but the head
	known  bool   // since is
	since  int64  // the engine's clock
	// A walk through all behind the head is needed only when they must wait longer than they were told.
	blind bool  // somebody came while nothing was known, or the rate has changed
	due   int64 // when the head should have been able to pass, from what the one before it was told
	slip  int64 // how much later it was, over all heads since the last walk
}

// waiter is one who waits.
type waiter struct {
	cost       int64
	until      int64         // when its context ends, by the engine's clock
	wake       chan struct{} // capacity 1: it is the first now, or should try again, or is out
	prev, next *waiter
	in         bool
	err        error         // why it is out
	late       time.Duration // with ErrDeadline: how long it would have had to wait
}

// heaviest is the most that one waiter counts for those behind it, so that no sum of them overflows. Who waits behind a larger cost
// may wait longer than is known.
const heaviest = 1 << 40

func (w *waiter) weight() uint64 { return uint64(min(w.cost, heaviest)) }

func (w *waiter) signal() {
	select {
	case w.wake <- struct{}{}:
	default: // it has not looked at the last one yet
	}
}

// pace is what must be known of a limit to say how long others have to wait behind one who waits.
type pace struct {
	count, per uint64 // rate
	burst      uint64
	algorithm  string
}

func (l *Limiter) pace() pace {
	s := l.l.Spec()
	if s.Rule != nil && len(s.Rule.Rates) > 1 || s.Plans != nil || s.Overrides != nil || l.root != nil || s.Parent != "" {
		return pace{algorithm: "several"} // of which nothing is claimed
	}
	return pace{uint64(s.Rate.Count), uint64(s.Rate.Per), uint64(s.Burst), limitOf(s).Algorithm}
}

// soonest is a lower bound for the moment at which a request can pass behind a head that passes at since or later: behind is what
// all after the head cost, up to and with this one.
func (p pace) soonest(since int64, head, behind uint64) int64 {
	var part uint64 = 10 // tenths of the time in which the rate gains what is missing
	switch p.algorithm {
	case TokenBucket: // has nothing left when the head passes, and gains at its rate
	case "sliding_window", "sliding_log", "fixed_window": // may be empty then, and so let a burst pass
		if p.algorithm == "fixed_window" {
			part = 9 // calendar months are shorter than thirty days, and some days have 23 hours
		}
		if behind += head; behind <= p.burst {
			return since
		}
		behind -= p.burst
	default: // nothing is known but the order
		return since
	}
	if p.count == 0 {
		return math.MaxInt64
	}
	hi, lo := bits.Mul64(behind, p.per)
	if hi >= p.count {
		return math.MaxInt64
	}
	ns, _ := bits.Div64(hi, lo, p.count)
	if ns >= math.MaxInt64 {
		return math.MaxInt64
	}
	ns -= ns / 10 * (10 - part)
	return max(since, saturating(since, int64(ns))-1) // since is rounded up to a whole nanosecond
}

// join puts a waiter at the end of the key's queue, unless its deadline cannot be met or nobody may wait any more. leads says that it
// is the first.
func (l *Limiter) join(key string, w *waiter) (q *queue, leads bool, err error) {
	for {
		if q, _ = l.queues.Load(key); q == nil {
			q, _ = l.queues.LoadOrStore(key, &queue{of: l, key: key})
		}
		q.mu.Lock()
		if !q.gone {
			break
		}
		q.mu.Unlock() // it was the last one's, who has taken it off the map meanwhile
	}
	defer q.mu.Unlock()
	if l.shut.Load() { // after the queue can be found: either shutdown finds it, or it is seen here
		q.dropIfEmpty()
		return q, false, ErrClosed
	}
	if q.head == nil {
		w.wake = make(chan struct{}, 1)
		q.head, q.tail, w.in = w, w, true
		return q, true, nil
	}
	if q.known && w.until < math.MaxInt64 {
		if at := l.pace().soonest(q.since, q.head.weight(), q.behind+w.weight()); at > w.until {
			w.late = time.Duration(max(0, at-l.now()))
			return q, false, ErrDeadline
		}
	}
	q.blind = q.blind || !q.known && w.until < math.MaxInt64
	w.wake = make(chan struct{}, 1)
	w.prev, q.tail.next = q.tail, w
	q.tail, w.in = w, true
	q.behind += w.weight()
	return q, false, nil
}

// leave takes a waiter out, if it is still in, and wakes the next if it was the first.
func (q *queue) leave(w *waiter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !w.in {
		return
	}
	if w != q.head {
		q.unlink(w)
		return
	}
	next := w.next
	q.head, w.next, w.in = next, nil, false
	if next == nil {
		q.tail = nil
		q.dropIfEmpty()
		return
	}
	next.prev = nil
	q.behind -= next.weight()
	if q.known {
		q.due = q.since
	}
	if q.due > 0 {
		q.due = q.of.pace().soonest(q.due, w.weight(), next.weight())
	}
	q.known = false
	next.signal()
}

// unlink takes out one that is not the first.
func (q *queue) unlink(w *waiter) {
	w.prev.next = w.next
	if w.next != nil {
		w.next.prev = w.prev
	} else {
		q.tail = w.prev
	}
	q.behind -= w.weight()
	w.prev, w.next, w.in = nil, nil, false
}

func (q *queue) dropIfEmpty() {
	if q.head == nil {
		q.gone = true
		q.of.queues.Delete(q.key)
	}
}

// slipOf is how much later than they were told those behind may have to wait before they are looked through.
const slipOf = int64(100 * time.Microsecond)

// denied notes when the first can pass at the soonest, if that is known. Those behind it who cannot make their deadline any more are out.
func (q *queue) denied(w *waiter, p pace, since int64, known bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.head != w {
		return
	}
	if q.known = known; !known {
		q.due = 0
		return
	}
	if q.due > 0 && since > q.due {
		q.slip = saturating(q.slip, since-q.due)
	}
	q.since, q.due = since, since
	if !q.blind && q.slip <= slipOf {
		return
	}
	q.blind, q.slip = false, 0
	behind := uint64(0)
	now := q.of.now()
	for x := w.next; x != nil; {
		next := x.next
		if at := p.soonest(since, w.weight(), behind+x.weight()); at > x.until {
			q.unlink(x)
			x.err, x.late = ErrDeadline, time.Duration(max(0, at-now))
			x.signal()
		} else {
			behind += x.weight()
		}
		x = next
	}
}

// fate is why a waiter is out; nil: it is in.
func (q *queue) fate(w *waiter) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return w.err
}

// wake makes the first of a key's queue try again now, under each plan: something has freed tokens.
func (l *Limiter) wake(key string) {
	if l.root != nil {
		l = l.root
	}
	l.each(func(x *Limiter) {
		if q, ok := x.queues.Load(key); ok {
			q.retry(false)
		}
	})
}

// redefined makes all try again: what they were told may be wrong by the new definition.
func (l *Limiter) redefined() {
	l.queues.Range(func(_ string, q *queue) bool {
		q.retry(true)
		return true
	})
}

func (q *queue) retry(blind bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if blind {
		q.blind, q.known, q.due = true, false, 0
	}
	if q.head != nil {
		q.head.signal()
	}
}

// shutdown ends all waits, and lets nobody wait any more.
func (l *Limiter) shutdown() {
	l.shut.Store(true)
	l.queues.Range(func(_ string, q *queue) bool {
		q.mu.Lock()
		defer q.mu.Unlock()
		for x := q.head; x != nil; {
			next := x.next
			x.prev, x.next, x.in, x.err = nil, nil, false, ErrClosed
			x.signal()
			x = next
		}
		q.head, q.tail, q.behind = nil, nil, 0
		q.dropIfEmpty()
		return true
	})
}

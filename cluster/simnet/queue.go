package simnet

import (
	"math"
	"time"
)

// idle is a moment that never comes.
const idle = time.Duration(math.MaxInt64)

// event is a packet that arrives, or a stream that has something to move.
type event struct {
	at   time.Duration // since the network's epoch
	seq  uint64        // order among equals: first in, first out
	link *link
	buf  []byte // of a packet
	pipe *pipe  // of a stream, else nil
}

// queue is a binary heap of events, the earliest first. One queue with one timer, in place
// of a timer for each packet, makes the order of arrivals exact: timers due at the
// same moment fire in any order.
type queue struct {
	heap []event
	seq  uint64
}

func (e *event) before(o *event) bool { return e.at < o.at || e.at == o.at && e.seq < o.seq }

func (q *queue) push(e event) {
	q.seq++
	e.seq = q.seq
	h := append(q.heap, e)
	for i := len(h) - 1; i > 0; {
		up := (i - 1) / 2
		if !h[i].before(&h[up]) {
			break
		}
		h[i], h[up] = h[up], h[i]
		i = up
	}
	q.heap = h
}

func (q *queue) pop() event {
	h := q.heap
	first, last := h[0], len(h)-1
	h[0], h[last] = h[last], event{} // let go of the buffer
	h = h[:last]
	for i := 0; ; {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < last; child++ {
			if h[child].before(&h[least]) {
				least = child
			}
		}
		if least == i {
			break
		}
		h[i], h[least] = h[least], h[i]
		i = least
	}
	q.heap = h
	return first
}

func (n *Network) now() time.Duration { return time.Since(n.epoch) }

// schedule puts an event on the queue and sees to it that the timer fires for it.
func (n *Network) schedule(e event) {
	n.queue.push(e)
	n.arm()
}

// arm sets the timer to the earliest event.
func (n *Network) arm() {
	next := idle
	if len(n.queue.heap) > 0 {
		next = n.queue.heap[0].at
	}
	if next == n.timerAt {
		return
	}
	n.timerAt = next
	switch {
	case next == idle:
		n.timer.Stop()
	case n.timer == nil:
		n.timer = time.AfterFunc(max(0, next-n.now()), n.run)
	default:
		n.timer.Reset(max(0, next-n.now()))
	}
}

// run, called by the timer, delivers all that is due.
func (n *Network) run() {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := n.now()
	for len(n.queue.heap) > 0 && n.queue.heap[0].at <= now {
		if e := n.queue.pop(); e.pipe != nil {
			n.pump(e.pipe)
		} else {
			e.link.stats.InFlight--
			n.arrive(e.link, e.buf)
		}
	}
	n.timerAt = -1 // it has fired: set it again even for the same moment
	n.arm()
}

// arrive ends a packet's way. Cuts and hosts are as they are now, not as they were when
// it was sent.
func (n *Network) arrive(l *link, buf []byte) {
	t := n.hosts[l.To]
	switch {
	case l.From != l.To && !n.open(l):
		l.stats.Cut++
	case t == nil:
		l.stats.Nobody++
	case t.receive(n.hosts[l.From], l.From, buf):
		l.stats.Delivered++
	default:
		l.stats.Overflow++
	}
}

// drain forgets what is in flight when there is nobody left to receive it, so that an
// abandoned network holds neither timer nor memory.
func (n *Network) drain() {
	for len(n.queue.heap) > 0 {
		if e := n.queue.pop(); e.pipe == nil {
			e.link.stats.InFlight--
			e.link.stats.Nobody++
		}
	}
	clear(n.pipes)
	n.arm()
}

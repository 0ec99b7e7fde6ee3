package cluster

import (
	"errors"
	"sync"
)

// ErrBusy: more is waiting to be sent to a member than the network takes; the message was dropped.
var ErrBusy = errors.New("cluster: too much waiting to be sent")

const (
	// maxQueued is how many bytes may wait for one member: some milliseconds of a fast network.
	// What waits longer is of no use to a protocol that repeats itself every 100 ms.
	maxQueued = 1 << 20
	// maxTurns is how many packets a caller sends on behalf of others before a goroutine of its
	// own takes over, so that nobody's call lasts as long as the load does.
	maxTurns = 4
)

// batcher packs frames to one member into packets. Whoever finds it idle sends at once, in
// its own call; frames that come meanwhile wait and leave together in the next packet. So there is
// no delay at rest and no packet more than needed under load. Safe for concurrent use.
type batcher struct {
	space int                              // bytes of frames that fit a packet, > frameOverhead
	write func(frames int, encoded []byte) // sends one packet; encoded is only valid during the call
	spawn func(func())                     // runs a function on another goroutine
	drop  func(frames int)                 // counts what did not fit the queue

	mu      sync.Mutex
	sending bool
	queue   []byte // encoded frames
	ends    []int  // where each ends
	spare   []byte // the queue's other buffer, while sending
	cuts    []int
}

// add queues one frame and sends if nobody is. The body is copied.
func (b *batcher) add(k kind, id uint64, body []byte) error {
	b.mu.Lock()
	if len(b.queue)+len(body)+frameOverhead > maxQueued && len(b.queue) > 0 {
		b.mu.Unlock()
		b.drop(1)
		return ErrBusy
	}
	b.queue = appendFrame(b.queue, k, id, body)
	b.ends = append(b.ends, len(b.queue))
	if b.sending {
		b.mu.Unlock()
		return nil
	}
	b.sending = true
	b.mu.Unlock()
	if !b.flush(maxTurns) {
		b.spawn(func() { b.flush(-1) })
	}
	return nil
}

// flush sends what is queued until nothing is, or until turns packets were sent (-1: no limit).
// It says whether nothing is left. Only the one that set sending may call it.
func (b *batcher) flush(turns int) bool {
	for {
		b.mu.Lock()
		if len(b.ends) == 0 {
			b.sending = false
			b.mu.Unlock()
			return true
		}
		if turns == 0 {
			b.mu.Unlock()
			return false
		}
		queue, ends := b.queue, b.ends
		b.queue, b.ends = b.spare[:0], b.cuts[:0]
		b.mu.Unlock()

		turns -= b.send(queue, ends, turns)

		b.mu.Lock()
		b.spare, b.cuts = keep(queue), ends[:0]
		b.mu.Unlock()
	}
}

// send writes the frames in as few packets as their order allows. It gives the number of turns
// used up, at most those left, since what was taken off the queue has to be sent.
func (b *batcher) send(queue []byte, ends []int, left int) int {
	packets, start, first := 0, 0, 0
	for i, end := range ends {
		last := i == len(ends)-1
		if !last && ends[i+1]-start <= b.space && i-first+1 < maxFrames {
			continue
		}
		b.write(i-first+1, queue[start:end])
		packets++
		start, first = end, i+1
	}
	if left < 0 {
		return 0
	}
	return min(packets, left)
}

// keep gives a buffer for the next round, but lets go of one that a burst has blown up.
func keep(b []byte) []byte {
	if cap(b) > 64<<10 {
		return nil
	}
	return b[:0]
}

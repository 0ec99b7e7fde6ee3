package cluster

import (
	"bytes"
	"sync"
	"time"
)

const (
	// relieveAfter is how long one datagram may be in its handler before another goroutine reads on. The kernel's buffer holds some
	// hundred small datagrams by default, 25 ms of 20 000 a second.
	relieveAfter = 5 * time.Millisecond
	// maxTaken is how many bytes of datagrams wait then. What comes beyond is dropped: it is old by the time it would be read.
	maxTaken = 4 << 20
)

// intake gives datagrams to a handler, one at a time and in order, on the goroutine that has read them: no hand-off and no copy. The
// handler may be held up, as by the lock of an engine that is in its tick. Then a second goroutine begins to read and what it
// reads waits here, so that the kernel's buffer does not overflow. The first one goes when it has handled all of that.
type intake struct {
	handle func([]byte)
	drop   func()
	read   func() // starts a goroutine that reads; called while one that reads is in take

	mu       sync.Mutex
	busy     bool     // a goroutine is in handle, or between two of its calls
	relieved bool     // and another one reads
	queue    [][]byte // what came meanwhile
	bytes    int
	turn     uint64 // of handle

	watch    *time.Timer
	watching bool
	seen     uint64 // turn when the timer went off last
	closed   bool
}

// take hands over one datagram, which it keeps only during the call. It is false if another goroutine reads by now: the caller must stop.
func (in *intake) take(b []byte) bool {
	in.mu.Lock()
	if in.busy {
		in.push(b)
		in.mu.Unlock()
		return true
	}
	in.busy = true
	for {
		in.turn++
		if !in.watching && !in.closed {
			in.lookAgain()
		}
		in.mu.Unlock()
		in.handle(b)
		in.mu.Lock()
		if len(in.queue) == 0 {
			break
		}
		b, in.queue[0], in.queue = in.queue[0], nil, in.queue[1:]
		in.bytes -= len(b)
	}
	stays := !in.relieved
	in.busy, in.relieved = false, false
	in.mu.Unlock()
	return stays
}

// push is called with mu held.
func (in *intake) push(b []byte) {
	if in.bytes+len(b) > maxTaken {
		in.drop()
		return
	}
	in.queue = append(in.queue, bytes.Clone(b))
	in.bytes += len(b)
}

// lookAgain sets the timer. Called with mu held.
func (in *intake) lookAgain() {
	in.watching, in.seen = true, in.turn
	if in.watch == nil {
		in.watch = time.AfterFunc(relieveAfter, in.look)
		return
	}
	in.watch.Reset(relieveAfter)
}

// look is what the timer runs, for as long as there is traffic: it finds a handler that is held up.
func (in *intake) look() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.watching = false
	if !in.busy || in.closed || in.relieved {
		return
	}
	if in.turn == in.seen {
		in.relieved = true
		in.read()
	}
	in.lookAgain()
}

func (in *intake) close() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.closed = true
	if in.watch != nil {
		in.watch.Stop()
	}
}

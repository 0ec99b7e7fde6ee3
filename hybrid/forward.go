package hybrid

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// A permit is released and renewed at the node that holds it. What is asked elsewhere, behind a load balancer, is forwarded: reliably, again
// until it is answered, and done once.

// forwarded is a request about a permit of another node, or the answer to one.
type forwarded struct {
	id     uint64 // with inc: of the request
	inc    uint64 // of the engine that asks
	op     uint64
	limit  string
	key    string
	permit string
	ttl    int64  // ns; in an answer what is left
	status uint64 // of an answer
}

const (
	opRelease = 1
	opRenew   = 2

	statusDone    = 0
	statusUnknown = 1 // no such permit
	statusTTL     = 2

	kindForward = 5 // of a transfer; 1 to 4 are in handoff.go and save.go
	kindAnswer  = 6

	forwardEvery   = 500 * time.Millisecond // until it is answered
	forwardTimeout = 3 * time.Second
	answersFor     = 2 * int64(forwardTimeout) // how long an answer is kept for who asks again
)

// forwards is what was asked of others, and what others were answered.
type forwards struct {
	mu       sync.Mutex
	last     uint64
	waiting  map[uint64]chan forwarded
	answered map[[2]uint64]*answered
}

type answered struct {
	done   bool
	answer forwarded
	until  int64
}

func encodeForwarded(kind uint64, f *forwarded) []byte {
	w := newWriter()
	for _, v := range [...]uint64{version, kind, f.id, f.inc, f.op} {
		w.u(v)
	}
	w.s(f.limit)
	w.s(f.key)
	w.s(f.permit)
	w.i(f.ttl)
	w.u(f.status)
	return w.buf
}

// decodeForwarded reads what encodeForwarded wrote; kind 0: it is another kind of transfer.
func decodeForwarded(b []byte) (kind uint64, f forwarded, err error) {
	r := newReader(b)
	if v := r.u(); r.err != nil || v != version {
		return 0, f, nil
	}
	if kind = r.u(); r.err != nil || kind != kindForward && kind != kindAnswer {
		return 0, f, nil
	}
	f = forwarded{id: r.u(), inc: r.u(), op: r.u(), limit: r.s(), key: r.s(), permit: r.s(), ttl: r.i(), status: r.u()} // a newer version may say more after it
	if r.err != nil {
		return kind, f, fmt.Errorf("%w: %w", errMessage, r.err)
	}
	return kind, f, nil
}

// forward asks the node that holds a permit, and waits for its answer.
func (e *Engine) forward(ctx context.Context, to string, f forwarded) (time.Duration, error) {
	e.mu.Lock()
	p := e.byName[to]
	there := p != nil && p.present && p != e.self && !e.alone()
	f.inc = e.inc
	e.mu.Unlock()
	switch {
	case e.closed.Load():
		return 0, ErrClosed
	case !there:
		return 0, ErrPermit
	}
	fw := &e.forwards
	answer := make(chan forwarded, 1)
	fw.mu.Lock()
	if fw.waiting == nil {
		fw.waiting = map[uint64]chan forwarded{}
	}
	fw.last++
	f.id = fw.last
	fw.waiting[f.id] = answer
	fw.mu.Unlock()
	defer func() {
		fw.mu.Lock()
		delete(fw.waiting, f.id)
		fw.mu.Unlock()
	}()
	msg := encodeForwarded(kindForward, &f)
	over := time.NewTimer(forwardTimeout)
	defer over.Stop()
	again := time.NewTicker(forwardEvery)
	defer again.Stop()
	for {
		e.spawn(func() { e.transfer(outgoing{to: to, msg: msg}) })
		select {
		case x := <-answer:
			switch x.status {
			case statusDone:
				return time.Duration(x.ttl), nil
			case statusTTL:
				return 0, fmt.Errorf("%w at the node that holds the permit", ErrTTL)
			}
			return 0, ErrPermit
		case <-again.C:
		case <-over.C:
			return 0, fmt.Errorf("%w: the permit is held by %q", ErrUnreachable, to)
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-e.done:
			return 0, ErrClosed
		}
	}
}

// receiveForwarded takes in a request or an answer; false: the message is something else.
func (e *Engine) receiveForwarded(now int64, from string, msg []byte) bool {
	kind, f, err := decodeForwarded(msg)
	switch {
	case err != nil:
		e.stats.malformed.Add(1)
	case kind == kindAnswer:
		e.forwards.mu.Lock()
		if c := e.forwards.waiting[f.id]; c != nil {
			select {
			case c <- f:
			default: // answered already
			}
		}
		e.forwards.mu.Unlock()
	case kind == kindForward:
		if a, ok := e.serveForwarded(now, &f); ok {
			e.spawn(func() { e.transfer(outgoing{to: from, msg: encodeForwarded(kindAnswer, &a)}) })
		}
	}
	return kind != 0
}

// serveForwarded does what is asked, once, and gives the answer; false: it is being done.
func (e *Engine) serveForwarded(now int64, f *forwarded) (forwarded, bool) {
	fw, k := &e.forwards, [2]uint64{f.inc, f.id}
	fw.mu.Lock()
	for key, a := range fw.answered {
		if a.done && a.until < now {
			delete(fw.answered, key)
		}
	}
	if a := fw.answered[k]; a != nil {
		answer, done := a.answer, a.done
		fw.mu.Unlock()
		return answer, done
	}
	if fw.answered == nil {
		fw.answered = map[[2]uint64]*answered{}
	}
	kept := &answered{}
	fw.answered[k] = kept
	fw.mu.Unlock()
	a := forwarded{id: f.id, inc: f.inc, op: f.op, status: statusUnknown}
	if l, ok := e.limits.Load(f.limit); ok {
		var left time.Duration
		var err error
		if f.op == opRenew {
			left, err = e.renewHere(l, f.key, f.permit, time.Duration(f.ttl))
		} else {
			err = e.releaseHere(l, f.key, f.permit)
		}
		switch {
		case err == nil:
			a.status, a.ttl = statusDone, int64(left)
		case errors.Is(err, ErrTTL):
			a.status = statusTTL
		}
	}
	fw.mu.Lock()
	kept.done, kept.answer, kept.until = true, a, now+answersFor
	fw.mu.Unlock()
	return a, true
}

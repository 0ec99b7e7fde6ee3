package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Errors of sending; match with errors.Is.
var (
	// ErrUnknownMember: the view has no such member (any more), or it is this node itself.
	ErrUnknownMember = errors.New("cluster: no such member")
	// ErrTooLarge: the message is above MaxMessage (Send) or MaxTransfer.
	ErrTooLarge = errors.New("cluster: message is too large")
	// ErrClosed: the node has left or was closed.
	ErrClosed = errors.New("cluster: closed")
	// ErrRemote: the other side's handler gave an error; its text follows.
	ErrRemote = errors.New("cluster: remote error")
)

// MaxTransfer is the largest message of Transfer and Call, and the largest answer, in bytes.
const MaxTransfer = 16 << 20

const (
	// minResend and maxResend bound the time before a call is sent again.
	minResend = 5 * time.Millisecond
	maxResend = time.Second
	// streamResend is the same for what went over a stream, which loses nothing unless it breaks.
	streamResend = 2 * time.Second
	// streamRetry follows a stream that could not be opened or broke.
	streamRetry = 100 * time.Millisecond
)

type answer struct {
	body   []byte
	remote bool // body is the text of an error
}

// waiters are the calls in progress, in shards so that callers seldom meet.
type waiters [16]struct {
	mu sync.Mutex
	m  map[uint64]waiter
}

type waiter struct {
	from *peer
	ch   chan answer
}

func (w *waiters) add(id uint64, from *peer) chan answer {
	ch := make(chan answer, 1)
	s := &w[id%uint64(len(w))]
	s.mu.Lock()
	if s.m == nil {
		s.m = make(map[uint64]waiter)
	}
	s.m[id] = waiter{from, ch}
	s.mu.Unlock()
	return ch
}

func (w *waiters) remove(id uint64) {
	s := &w[id%uint64(len(w))]
	s.mu.Lock()
	delete(s.m, id)
	s.mu.Unlock()
}

// answer hands an answer to whoever waits for it. The first one counts.
func (w *waiters) answer(id uint64, from *peer, a answer) bool {
	s := &w[id%uint64(len(w))]
	s.mu.Lock()
	defer s.mu.Unlock()
	got, ok := s.m[id]
	if !ok || got.from.proc != from.proc {
		return false
	}
	delete(s.m, id)
	got.ch <- a // room for the one that takes the waiter away
	return true
}

// Call asks a member and waits for its answer, until ctx ends: the request is sent again after a
// few round trips, less and less often. The member's handler runs at most once for
// it. An error of that handler comes back as ErrRemote. Other errors leave open whether it
// ran: ctx's, ErrUnknownMember when the member's process is gone, ErrClosed. req is not kept.
//
// Let ctx end within ten seconds: a member whose answers were lost for longer has forgotten them, and answers a repeat no more.
func (c *Cluster) Call(ctx context.Context, to string, req []byte) ([]byte, error) {
	p, err := c.peer(to)
	if err != nil {
		return nil, err
	}
	return c.ask(ctx, p, kindCall, req)
}

// Transfer hands a message of up to MaxTransfer bytes to a member and waits until its
// handler has returned, with the guarantees and errors of Call.
func (c *Cluster) Transfer(ctx context.Context, to string, msg []byte) error {
	p, err := c.peer(to)
	if err != nil {
		return err
	}
	_, err = c.ask(ctx, p, kindTransfer, msg)
	return err
}

// ask sends a request until it is answered.
func (c *Cluster) ask(ctx context.Context, p *peer, k kind, body []byte) ([]byte, error) {
	if len(body) > MaxTransfer {
		return nil, fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, len(body), MaxTransfer)
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("cluster: call to %s: %w", p.name, err)
	}
	c.n.calls.Add(1)
	id := c.lastID.Add(1)
	ch := c.waiting.add(id, p)
	defer c.waiting.remove(id)

	a := attempt{c: c, p: p, kind: k, id: id, body: body, wait: p.resendAfter(), sent: make(chan error, 1)}
	begin := time.Now()
	a.send()
	timer := time.NewTimer(a.wait)
	defer timer.Stop()
	for {
		select {
		case got := <-ch:
			if a.sends == 1 && !a.big() {
				p.sample(time.Since(begin)) // only then is it clear which packet was answered (Karn)
			}
			if got.remote {
				return nil, fmt.Errorf("%w: %s: %s", ErrRemote, p.name, got.body)
			}
			return got.body, nil
		case err := <-a.sent:
			a.streamed(err)
			timer.Reset(a.wait)
		case <-timer.C:
			if c.snap.Load().byProc[p.proc] != p {
				return nil, fmt.Errorf("%w: %s went away during the call", ErrUnknownMember, p.name)
			}
			c.n.resends.Add(1)
			a.send()
			timer.Reset(a.wait)
		case <-ctx.Done():
			c.n.timeouts.Add(1)
			return nil, fmt.Errorf("cluster: call to %s: %w", p.name, ctx.Err())
		case <-c.ctx.Done():
			return nil, ErrClosed
		}
	}
}

// attempt is the sending side of one request.
type attempt struct {
	c         *Cluster
	p         *peer
	kind      kind
	id        uint64
	body      []byte
	sends     int
	wait      time.Duration // until the next send
	streaming bool
	sent      chan error // a stream has ended
}

func (a *attempt) big() bool { return !a.p.fits(a.body) }

// send sends the request as a packet, or over a stream on a goroutine of its own if it is too big.
func (a *attempt) send() {
	a.sends++
	if !a.big() {
		if a.sends > 1 {
			a.wait = min(2*a.wait, maxResend)
		}
		_ = a.p.out.add(a.kind, a.id, a.body) // busy: the next try may get through
		return
	}
	if a.streaming {
		return
	}
	a.streaming = true
	a.wait = streamTimeout // until the stream has ended one way or the other
	// The caller may return, and use its buffer again, while the stream is being written.
	b := a.c.streamPacket(a.p, a.kind, a.id, a.body)
	if !a.c.spawn(func() { a.sent <- a.c.stream(a.p, b) }) {
		a.sent <- ErrClosed
	}
}

func (a *attempt) streamed(err error) {
	a.streaming = false
	a.wait = streamResend
	if err != nil {
		a.wait = min(streamRetry<<min(a.sends, 5), streamResend)
	}
}

// Resending: the round trip is averaged as in TCP (Jacobson, 1988), without its variance: a
// packet too many costs little here.

// resendAfter is the time after which a call to this member is sent again.
func (p *peer) resendAfter() time.Duration {
	rtt := time.Duration(p.rtt.Load())
	if rtt == 0 {
		return p.firstResend
	}
	return min(max(4*rtt, minResend), maxResend)
}

func (p *peer) sample(rtt time.Duration) {
	old := p.rtt.Load()
	if old == 0 {
		p.rtt.Store(int64(rtt))
		return
	}
	p.rtt.Store(old + (int64(rtt)-old)/8) // a lost update of two at once does not matter
}

// request runs the handler of a request that was not seen before, and answers one that was.
func (c *Cluster) request(from *peer, f frame) {
	switch was, a := from.seen.begin(f.id, time.Now()); was {
	case seenAnswered:
		c.n.duplicates.Add(1)
		c.reply(from, f.id, a)
		return
	case seenRunning:
		c.n.duplicates.Add(1)
		return
	case seenTooOld:
		c.n.dropStale.Add(1)
		return
	}
	select {
	case c.slots <- struct{}{}:
	default:
		from.seen.cancel(f.id) // it will come again
		c.n.dropBusy.Add(1)
		return
	}
	body := bytes.Clone(f.body) // the packet's buffer is used again
	ok := c.spawn(func() {
		defer func() { <-c.slots }()
		a := c.handle(from, f.kind, body)
		from.seen.finish(f.id, a)
		c.reply(from, f.id, a)
	})
	if !ok {
		<-c.slots
	}
}

func (c *Cluster) handle(from *peer, k kind, body []byte) answer {
	var out []byte
	var err error
	switch k {
	case kindCall:
		if c.ev.Call == nil {
			err = errors.New("calls are not answered here")
			break
		}
		out, err = c.ev.Call(c.ctx, from.name, body)
	case kindTransfer:
		if c.ev.Transfer == nil {
			err = errors.New("transfers are not taken here")
			break
		}
		c.ev.Transfer(from.name, body)
	case kindControl:
		out, err = c.control(from, body)
	}
	if err == nil && len(out) > MaxTransfer {
		err = fmt.Errorf("%w: answer of %d bytes", ErrTooLarge, len(out))
	}
	if err != nil {
		return answer{body: []byte(err.Error()), remote: true}
	}
	return answer{body: out}
}

// reply sends an answer, again if need be. Called on the packet path for repeated requests, so a
// big answer goes over its stream elsewhere.
func (c *Cluster) reply(to *peer, id uint64, a answer) {
	k := kindAnswer
	if a.remote {
		k = kindError
	}
	if to.fits(a.body) {
		_ = to.out.add(k, id, a.body)
		return
	}
	b := c.streamPacket(to, k, id, a.body)
	c.spawn(func() { _ = c.stream(to, b) })
}

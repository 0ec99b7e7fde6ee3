package simnet

import (
	"io"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"
)

const (
	// window is how many bytes of one direction may be in flight or unread before a write waits.
	window = 64 << 10
	// minRTO and maxRTO bound the time until TCP sends a lost piece again.
	minRTO = 200 * time.Millisecond
	maxRTO = 2 * time.Minute
)

// pipe is one direction of a stream: bytes in flight, then bytes ready to read. It is
// guarded by the network's mutex. net.Pipe would hold a mutex of its own while it waits for
// the other end, and in a bubble a second writer that waits for that mutex stops the clock.
type pipe struct {
	net      *Network
	from, to string
	back     *pipe // the other direction
	flight   []segment
	ready    []byte
	size     int           // bytes in flight and ready
	eof      bool          // the writer closed and all has arrived
	reset    bool          // the writer's end is gone without closing
	deaf     bool          // the reader's end is gone
	dead     bool          // a reset that the reader cannot hear while the path is cut
	changed  chan struct{} // closed and replaced at each change; nil while nobody waits
}

type segment struct {
	at   time.Duration
	data []byte
	fin  bool
}

func (p *pipe) wake() {
	if p.changed != nil {
		close(p.changed)
		p.changed = nil
	}
}

// wait unlocks the network until the pipe changes or the deadline passes.
func (p *pipe) wait(deadline time.Time) {
	if p.changed == nil {
		p.changed = make(chan struct{})
	}
	changed := p.changed
	p.net.mu.Unlock()
	defer p.net.mu.Lock()
	if deadline.IsZero() {
		<-changed
		return
	}
	timer := time.NewTimer(time.Until(deadline))
	defer timer.Stop()
	select {
	case <-changed:
	case <-timer.C:
	}
}

// put sends a segment. Its delay may be shorter than that of one before: pump keeps the order.
func (p *pipe) put(s segment) {
	n := p.net
	s.at = n.now()
	if p.from != p.to {
		l := n.link(p.from, p.to)
		l.stats.StreamBytes += uint64(len(s.data))
		s.at += l.streamDelay(n.conditions(l))
	}
	p.size += len(s.data)
	p.flight = append(p.flight, s)
	n.schedule(event{at: s.at, pipe: p})
}

// pump moves what has arrived to where it can be read, unless the path is cut: then it
// stays in flight until pumpAll finds the path open.
func (n *Network) pump(p *pipe) {
	if !n.path(p.from, p.to) {
		return
	}
	if p.dead {
		p.reset = true
		p.flight = nil
		p.wake()
		p.back.wake() // its writer learns of the reset too
		delete(n.pipes, p)
		return
	}
	now, moved := n.now(), 0
	for _, s := range p.flight {
		if s.at > now {
			break // also those after it wait: bytes do not overtake each other
		}
		p.ready = append(p.ready, s.data...)
		p.eof = p.eof || s.fin
		moved++
	}
	if moved == 0 {
		return
	}
	p.flight = p.flight[moved:]
	p.wake()
	if p.eof && p.deaf {
		delete(n.pipes, p)
	}
}

// pumpAll lets all streams go on after a change of the network.
func (n *Network) pumpAll() {
	for p := range n.pipes {
		n.pump(p)
		p.wake() // what a writer may do depends on the path as well
	}
}

// conn is one end of a stream.
type conn struct {
	host          *Transport
	local, remote *net.TCPAddr
	in, out       *pipe
	closed        bool
	readBy        time.Time
	writeBy       time.Time
}

func newStream(a, b *Transport, from, to netip.AddrPort) (near, far *conn) {
	n := a.net
	ab := &pipe{net: n, from: a.addr, to: b.addr}
	ba := &pipe{net: n, from: b.addr, to: a.addr}
	ab.back, ba.back = ba, ab
	n.pipes[ab], n.pipes[ba] = struct{}{}, struct{}{}
	fromAddr, toAddr := net.TCPAddrFromAddrPort(from), net.TCPAddrFromAddrPort(to)
	near = &conn{host: a, local: fromAddr, remote: toAddr, in: ba, out: ab}
	far = &conn{host: b, local: toAddr, remote: fromAddr, in: ab, out: ba}
	a.conns[near], b.conns[far] = struct{}{}, struct{}{}
	return near, far
}

func (c *conn) fail(op string, err error) error {
	return &net.OpError{Op: op, Net: "tcp", Source: c.local, Addr: c.remote, Err: err}
}

// broken is why an operation cannot go on, or nil.
func (c *conn) broken(deadline time.Time) error {
	switch {
	case c.closed:
		return net.ErrClosed
	case !deadline.IsZero() && !time.Now().Before(deadline):
		return os.ErrDeadlineExceeded
	}
	return nil
}

func (c *conn) Read(b []byte) (int, error) {
	n, p := c.host.net, c.in
	n.mu.Lock()
	defer n.mu.Unlock()
	for {
		if err := c.broken(c.readBy); err != nil {
			return 0, c.fail("read", err)
		}
		switch {
		case c.host.paused:
		case p.reset:
			return 0, c.fail("read", syscall.ECONNRESET)
		case len(b) == 0:
			return 0, nil
		case len(p.ready) > 0:
			k := copy(b, p.ready)
			p.ready = p.ready[k:]
			p.size -= k
			p.wake()
			return k, nil
		case p.eof:
			return 0, io.EOF
		}
		p.wait(c.readBy)
	}
}

func (c *conn) Write(b []byte) (int, error) {
	n, p := c.host.net, c.out
	n.mu.Lock()
	defer n.mu.Unlock()
	for written := 0; ; {
		if err := c.broken(c.writeBy); err != nil {
			return written, c.fail("write", err)
		}
		switch {
		case c.host.paused:
		case c.in.reset:
			return written, c.fail("write", syscall.ECONNRESET)
		case p.deaf && n.path(p.from, p.to):
			return written, c.fail("write", syscall.EPIPE)
		case written == len(b):
			return written, nil
		case p.size < window:
			k := min(window-p.size, len(b)-written)
			p.put(segment{data: append([]byte(nil), b[written:written+k]...)})
			written += k
			continue
		}
		p.wait(c.writeBy)
	}
}

// Close ends the stream: what was written still arrives, then the other end reads io.EOF.
func (c *conn) Close() error {
	n := c.host.net
	n.mu.Lock()
	defer n.mu.Unlock()
	if c.closed {
		return c.fail("close", net.ErrClosed)
	}
	c.closed = true
	c.out.put(segment{fin: true})
	c.gone()
	return nil
}

// abort ends the stream without a good-bye: the other end reads ECONNRESET, once the path lets it.
func (c *conn) abort() {
	c.closed = true
	c.out.dead = true
	c.gone()
	c.host.net.pump(c.out)
	delete(c.host.net.pipes, c.in)
}

// gone lets the other end and waiting calls of this one see that this end is no more.
func (c *conn) gone() {
	delete(c.host.conns, c)
	c.in.deaf = true
	c.in.size -= len(c.in.ready)
	c.in.ready = nil
	c.in.wake()
	c.out.wake()
	if c.in.eof {
		delete(c.host.net.pipes, c.in)
	}
}

func (c *conn) LocalAddr() net.Addr  { return c.local }
func (c *conn) RemoteAddr() net.Addr { return c.remote }

func (c *conn) SetDeadline(t time.Time) error      { return c.setDeadlines(&t, &t) }
func (c *conn) SetReadDeadline(t time.Time) error  { return c.setDeadlines(&t, nil) }
func (c *conn) SetWriteDeadline(t time.Time) error { return c.setDeadlines(nil, &t) }

// setDeadlines wakes the calls that wait, so that they wait for the new deadline.
func (c *conn) setDeadlines(read, write *time.Time) error {
	n := c.host.net
	n.mu.Lock()
	defer n.mu.Unlock()
	if c.closed {
		return c.fail("set", net.ErrClosed)
	}
	if read != nil {
		c.readBy = *read
		c.in.wake()
	}
	if write != nil {
		c.writeBy = *write
		c.out.wake()
	}
	return nil
}

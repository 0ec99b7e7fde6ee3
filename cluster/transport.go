package cluster

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
)

// streamTimeout bounds the life of a stream we dialled. memberlist sets no deadline when it
// sends a message over one, and a peer that stops reading would hold the sender for ever.
const streamTimeout = 30 * time.Second

// transport is the one that carries the traffic, plus a way for our own datagrams around memberlist, an address to
// advertise that is decided here, and a Shutdown that does not wait for dials and writes in progress.
type transport struct {
	memberlist.Transport
	aware     memberlist.NodeAwareTransport // the same, if it wants names of nodes
	sockets   *sockets                      // the same, if it is ours
	packets   chan *memberlist.Packet       // those for memberlist, if it is not
	sifting   sync.WaitGroup
	advertise netip.AddrPort

	ctx    context.Context // ended by Shutdown
	cancel context.CancelFunc
	once   sync.Once
	mu     sync.Mutex
	conns  map[*trackedConn]struct{}
}

// wrapTransport is for a transport that was given: our datagrams are taken out of what it brings, before memberlist's queue.
func wrapTransport(t memberlist.Transport, advertise netip.AddrPort, handle func([]byte)) *transport {
	w := newTransport(t, advertise)
	w.aware, _ = t.(memberlist.NodeAwareTransport)
	w.packets = make(chan *memberlist.Packet)
	w.sifting.Go(func() { w.sift(handle) })
	return w
}

func wrapSockets(t *sockets, advertise netip.AddrPort) *transport {
	w := newTransport(t, advertise)
	w.sockets = t
	return w
}

func newTransport(t memberlist.Transport, advertise netip.AddrPort) *transport {
	w := &transport{Transport: t, advertise: advertise, conns: make(map[*trackedConn]struct{})}
	w.ctx, w.cancel = context.WithCancel(context.Background())
	return w
}

func (t *transport) sift(handle func([]byte)) {
	for {
		select {
		case p := <-t.Transport.PacketCh():
			if ours(p.Buf) {
				handle(p.Buf)
				continue
			}
			select {
			case t.packets <- p:
			case <-t.ctx.Done():
				return
			}
		case <-t.ctx.Done():
			return
		}
	}
}

// PacketCh is memberlist's.
func (t *transport) PacketCh() <-chan *memberlist.Packet {
	if t.packets == nil {
		return t.Transport.PacketCh()
	}
	return t.packets
}

// post sends one of our datagrams.
func (t *transport) post(b []byte, to netip.AddrPort, node memberlist.Address) error {
	if t.sockets != nil {
		return t.sockets.write(b, to)
	}
	_, err := t.WriteToAddress(b, node)
	return err
}

// keeps says whether post may keep what it sends, as a transport that was given may.
func (t *transport) keeps() bool { return t.sockets == nil }

func (t *transport) FinalAdvertiseAddr(string, int) (net.IP, int, error) {
	return t.advertise.Addr().AsSlice(), int(t.advertise.Port()), nil
}

func (t *transport) WriteToAddress(b []byte, to memberlist.Address) (time.Time, error) {
	if t.aware != nil {
		return t.aware.WriteToAddress(b, to)
	}
	return t.Transport.WriteTo(b, to.Addr)
}

func (t *transport) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	return t.DialAddressTimeout(memberlist.Address{Addr: addr}, timeout)
}

func (t *transport) DialAddressTimeout(to memberlist.Address, timeout time.Duration) (net.Conn, error) {
	var conn net.Conn
	var err error
	switch {
	case t.sockets != nil:
		d := net.Dialer{Timeout: timeout}
		conn, err = d.DialContext(t.ctx, "tcp", to.Addr)
	case t.aware != nil:
		conn, err = t.aware.DialAddressTimeout(to, timeout)
	default:
		conn, err = t.Transport.DialTimeout(to.Addr, timeout)
	}
	if err != nil {
		return nil, err
	}
	_ = conn.SetDeadline(time.Now().Add(streamTimeout))
	c := &trackedConn{Conn: conn, t: t}
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.ctx.Err(); err != nil {
		_ = conn.Close()
		return nil, err
	}
	t.conns[c] = struct{}{}
	return c, nil
}

// Shutdown may be called again: memberlist does so when it fails to start, and so do we.
func (t *transport) Shutdown() error {
	var err error
	t.once.Do(func() {
		t.cancel()
		t.mu.Lock()
		for c := range t.conns {
			_ = c.Conn.Close()
		}
		clear(t.conns)
		t.mu.Unlock()
		err = t.Transport.Shutdown()
		t.sifting.Wait()
	})
	return err
}

// trackedConn is a stream that Shutdown can end.
type trackedConn struct {
	net.Conn
	t *transport
}

func (c *trackedConn) Close() error {
	c.t.mu.Lock()
	delete(c.t.conns, c)
	c.t.mu.Unlock()
	return c.Conn.Close()
}

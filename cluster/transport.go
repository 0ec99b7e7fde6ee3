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

// transport is the one that carries the traffic, plus an address to advertise that is decided
// here, and a Shutdown that does not wait for dials and writes in progress.
type transport struct {
	memberlist.Transport
	aware     memberlist.NodeAwareTransport // the same, if it wants names of nodes
	sockets   bool
	advertise netip.AddrPort

	ctx    context.Context // ended by Shutdown
	cancel context.CancelFunc
	once   sync.Once
	mu     sync.Mutex
	conns  map[*trackedConn]struct{}
}

func wrapTransport(t memberlist.Transport, sockets bool, advertise netip.AddrPort) *transport {
	w := &transport{Transport: t, sockets: sockets, advertise: advertise, conns: make(map[*trackedConn]struct{})}
	w.aware, _ = t.(memberlist.NodeAwareTransport)
	w.ctx, w.cancel = context.WithCancel(context.Background())
	return w
}

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
	case t.sockets:
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

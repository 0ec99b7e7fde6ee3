package simnet

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"github.com/hashicorp/memberlist"
)

const (
	// maxPacket is the largest payload of a UDP datagram over IPv4.
	maxPacket = 65507
	// socketBuffer is how many packets wait for a host that does not read; more are
	// dropped. 2 MiB, what memberlist asks the kernel for, hold about this many full packets.
	socketBuffer = 1500
	// backlog is how many connections wait to be accepted.
	backlog = 128
	// firstEphemeralPort is where the ports of dialling ends begin.
	firstEphemeralPort = 32768
	// synRetry is the time to the second attempt to connect; it doubles from then on.
	synRetry = time.Second
	// dialLimit ends attempts without a time-out of their own, as the kernel does.
	dialLimit = 2 * time.Minute
)

// Transport is one host's connection to the network. It implements
// memberlist.NodeAwareTransport; put it into memberlist.Config.Transport. Made by
// [Network.Transport]. Safe for concurrent use.
type Transport struct {
	net     *Network
	ap      netip.AddrPort
	addr    string
	udp     *net.UDPAddr
	packets chan *memberlist.Packet
	streams chan net.Conn
	done    chan struct{} // closed by shutdown

	// Guarded by the network's mutex.
	closed  bool
	paused  bool
	held    []*memberlist.Packet // arrived while paused
	pending []*conn              // connected while paused
	conns   map[*conn]struct{}   // this host's ends of streams that it has not closed
}

var _ memberlist.NodeAwareTransport = (*Transport)(nil)

func newTransport(n *Network, ap netip.AddrPort) *Transport {
	return &Transport{
		net:     n,
		ap:      ap,
		addr:    ap.String(),
		udp:     net.UDPAddrFromAddrPort(ap),
		packets: make(chan *memberlist.Packet, socketBuffer),
		streams: make(chan net.Conn, backlog),
		done:    make(chan struct{}),
		conns:   make(map[*conn]struct{}),
	}
}

// Addr is the address in its canonical spelling, IP:port.
func (t *Transport) Addr() string { return t.addr }

// FinalAdvertiseAddr is the configured address if there is one, else the transport's own.
func (t *Transport) FinalAdvertiseAddr(ip string, port int) (net.IP, int, error) {
	if ip == "" {
		return t.ap.Addr().AsSlice(), int(t.ap.Port()), nil
	}
	addr, err := netip.ParseAddr(ip)
	if err != nil {
		return nil, 0, fmt.Errorf("%w: advertise address %q, want an IP", ErrAddress, ip)
	}
	return addr.Unmap().AsSlice(), port, nil
}

// WriteTo sends a packet. A nil error means no more than that it was sent. b is copied.
func (t *Transport) WriteTo(b []byte, addr string) (time.Time, error) {
	n := t.net
	n.mu.Lock()
	defer n.mu.Unlock()
	now := time.Now()
	if t.closed {
		return now, fmt.Errorf("%w: transport of %s", ErrClosed, t.addr)
	}
	if len(b) > maxPacket {
		return now, fmt.Errorf("%w: %d bytes, at most %d fit", ErrTooLong, len(b), maxPacket)
	}
	if n.hosts[addr] == nil {
		if _, err := parse(addr); err != nil {
			return now, err
		}
	}
	l := n.link(t.addr, addr)
	l.stats.Packets++
	l.stats.Bytes += uint64(len(b))
	buf := append([]byte(nil), b...)
	if l.From == l.To {
		n.arrive(l, buf) // the loopback interface has no weather
		return now, nil
	}
	f := l.draw(n.conditions(l))
	switch {
	case t.paused:
		l.stats.Muted++
		return now, nil
	case !n.open(l):
		l.stats.Cut++
		return now, nil
	case f.lost:
		l.stats.Lost++
	default:
		n.send(l, buf, f.delay)
	}
	if f.twice {
		l.stats.Duplicated++
		n.send(l, append([]byte(nil), b...), f.delay2)
	}
	return now, nil
}

func (n *Network) send(l *link, buf []byte, delay time.Duration) {
	l.stats.InFlight++
	n.schedule(event{at: n.now() + delay, link: l, buf: buf})
}

// WriteToAddress is WriteTo; the name is not used.
func (t *Transport) WriteToAddress(b []byte, a memberlist.Address) (time.Time, error) {
	return t.WriteTo(b, a.Addr)
}

// PacketCh gives the packets that arrived. It is never closed.
func (t *Transport) PacketCh() <-chan *memberlist.Packet { return t.packets }

// StreamCh gives the connections that others opened. It is never closed.
func (t *Transport) StreamCh() <-chan net.Conn { return t.streams }

// receive puts a packet into the socket buffer and says whether there was room.
func (t *Transport) receive(sender *Transport, from string, buf []byte) bool {
	p := &memberlist.Packet{Buf: buf, Timestamp: time.Now()}
	if sender != nil {
		p.From = sender.udp
	} else {
		p.From = net.UDPAddrFromAddrPort(netip.MustParseAddrPort(from)) // it has crashed since
	}
	if t.paused {
		if len(t.held)+len(t.packets) >= socketBuffer {
			return false
		}
		t.held = append(t.held, p)
		return true
	}
	select {
	case t.packets <- p:
		return true
	default:
		return false
	}
}

func (t *Transport) resume() {
	t.paused = false
	now := time.Now()
	for _, p := range t.held {
		p.Timestamp = now // memberlist stamps when it reads, not when the kernel received
		t.packets <- p    // has room: held and this channel together never exceed it
	}
	t.held = nil
	for _, c := range t.pending {
		t.streams <- c // likewise
	}
	t.pending = nil
	for c := range t.conns {
		c.in.wake()
		c.out.wake()
	}
}

// DialTimeout opens a stream. It takes a round trip, fails with ECONNREFUSED when the address
// has no host, and with a time-out when nothing comes back; it tries again after 1, 2,
// 4 ... seconds, as TCP does. A time-out of 0 or less means two minutes.
func (t *Transport) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	if timeout <= 0 {
		timeout = dialLimit
	}
	ap, err := parse(addr)
	if err != nil {
		return nil, err
	}
	n, to := t.net, ap.String()
	fail := func(err error) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Source: net.TCPAddrFromAddrPort(t.ap),
			Addr: net.TCPAddrFromAddrPort(ap), Err: err}
	}
	n.mu.Lock()
	n.link(t.addr, to).stats.Dials++
	n.mu.Unlock()
	deadline := n.now() + timeout
	for retry := synRetry; ; retry *= 2 {
		rtt, sent := t.handshake(to)
		if sent && n.now()+rtt <= deadline {
			if err := t.sleep(rtt); err != nil {
				return fail(err)
			}
			c, err := t.connect(to, ap)
			if err != nil {
				return fail(err)
			}
			if c != nil {
				return c, nil
			}
		}
		left := deadline - n.now()
		if err := t.sleep(min(retry, left)); err != nil {
			return fail(err)
		}
		if left <= retry {
			return fail(os.ErrDeadlineExceeded)
		}
	}
}

// DialAddressTimeout is DialTimeout; the name is not used.
func (t *Transport) DialAddressTimeout(a memberlist.Address, timeout time.Duration) (net.Conn, error) {
	return t.DialTimeout(a.Addr, timeout)
}

// handshake decides whether an attempt to connect gets through both ways, and how long it takes.
func (t *Transport) handshake(to string) (rtt time.Duration, sent bool) {
	n := t.net
	n.mu.Lock()
	defer n.mu.Unlock()
	if t.paused || !n.path(t.addr, to) {
		return 0, false
	}
	if t.addr == to {
		return 0, true
	}
	there, back := n.link(t.addr, to), n.link(to, t.addr)
	ct, cb := n.conditions(there), n.conditions(back)
	lost := there.stream.Float64() < ct.Loss
	lost = back.stream.Float64() < cb.Loss || lost
	rtt = between(there.stream, ct.DelayMin, ct.DelayMax) + between(back.stream, cb.DelayMin, cb.DelayMax)
	return rtt, !lost
}

// connect makes the two ends. No end and no error means that the answer did not come.
func (t *Transport) connect(to string, ap netip.AddrPort) (*conn, error) {
	n := t.net
	n.mu.Lock()
	defer n.mu.Unlock()
	peer := n.hosts[to]
	switch {
	case t.closed:
		return nil, ErrClosed
	case !n.path(t.addr, to):
		return nil, nil
	case peer == nil:
		return nil, os.NewSyscallError("connect", syscall.ECONNREFUSED)
	case len(peer.streams)+len(peer.pending) >= backlog:
		return nil, nil
	}
	n.ports++
	if n.ports > 65535 {
		n.ports = firstEphemeralPort
	}
	near, far := newStream(t, peer, netip.AddrPortFrom(t.ap.Addr(), uint16(n.ports)), ap)
	if peer.paused {
		peer.pending = append(peer.pending, far) // the kernel connects, the process accepts later
	} else {
		peer.streams <- far
	}
	n.link(t.addr, to).stats.Connected++
	return near, nil
}

// sleep ends early when the host goes. It makes no timer that is over at once: in bubbles, under the race detector, the runtime can crash when two goroutines
// look at such timers at the same time (Go 1.26, runtime.(*timer).maybeRunChan).
func (t *Transport) sleep(d time.Duration) error {
	if d <= 0 {
		select {
		case <-t.done:
			return ErrClosed
		default:
			return nil
		}
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-t.done:
		return ErrClosed
	}
}

// Shutdown takes the host off the network. Streams that are still open are reset; what
// was written to closed ones still arrives. It is idempotent.
func (t *Transport) Shutdown() error {
	t.net.mu.Lock()
	defer t.net.mu.Unlock()
	t.shutdown()
	return nil
}

func (t *Transport) shutdown() {
	if t.closed {
		return
	}
	t.closed = true
	close(t.done)
	for c := range t.conns {
		c.abort()
	}
	t.held, t.pending = nil, nil
	delete(t.net.hosts, t.addr)
	if len(t.net.hosts) == 0 {
		t.net.drain()
	}
}

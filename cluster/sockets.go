package cluster

import (
	"bytes"
	"fmt"
	"log"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
)

const (
	maxDatagram = 64 << 10
	// receiveBuffer of the UDP socket: a second of 100 nodes' packets. The kernel may give less.
	receiveBuffer = 4 << 20
	// acceptRetry is the pause after a failed accept: usually for want of file descriptors.
	acceptRetry = 50 * time.Millisecond
	// readRetry keeps a socket that only gives errors from using up a core.
	readRetry = time.Millisecond
	// packetQueue is how many of memberlist's packets wait for it, so that ours need not wait behind them.
	packetQueue = 1024
)

// sockets is a memberlist.Transport on one UDP and one TCP socket of the same port, and the way of our own datagrams, which go by
// memberlist: they are handled by the goroutine that reads them. memberlist's own transport makes a buffer of 64 KiB for every packet.
type sockets struct {
	udp     *net.UDPConn
	tcp     *net.TCPListener
	four    bool // the UDP socket is IPv4 only
	in      intake
	packets chan *memberlist.Packet
	streams chan net.Conn
	logger  *log.Logger
	closed  chan struct{}
	wg      sync.WaitGroup
}

// listen opens the sockets of bind. Our datagrams go to handle, one at a time; it may use b during the call and change it. drop counts
// what found no room. With port 0 the kernel chooses one for TCP, which may be
// taken for UDP, so that it takes a few tries.
func listen(bind netip.AddrPort, logger *log.Logger, handle func(b []byte), drop func()) (*sockets, error) {
	tries := 1
	if bind.Port() == 0 {
		tries = 10
	}
	var err error
	for range tries {
		var t *sockets
		if t, err = open(bind, logger, handle, drop); err == nil {
			return t, nil
		}
	}
	return nil, err
}

func open(bind netip.AddrPort, logger *log.Logger, handle func([]byte), drop func()) (*sockets, error) {
	// An unspecified IPv4 address means IPv4 only, an unspecified IPv6 one means both.
	family := "6"
	switch {
	case bind.Addr().Is4():
		family = "4"
	case bind.Addr().IsUnspecified():
		family = ""
	}
	tcp, err := net.ListenTCP("tcp"+family, net.TCPAddrFromAddrPort(bind))
	if err != nil {
		return nil, err
	}
	port := tcp.Addr().(*net.TCPAddr).AddrPort().Port()
	udp, err := net.ListenUDP("udp"+family, net.UDPAddrFromAddrPort(netip.AddrPortFrom(bind.Addr(), port)))
	if err != nil {
		_ = tcp.Close()
		return nil, err
	}
	for size := receiveBuffer; size >= 64<<10 && udp.SetReadBuffer(size) != nil; size /= 2 {
	}
	t := &sockets{
		udp: udp, tcp: tcp, four: family == "4", logger: logger,
		packets: make(chan *memberlist.Packet, packetQueue), streams: make(chan net.Conn), closed: make(chan struct{}),
	}
	t.in.handle, t.in.drop = handle, drop
	t.in.read = func() { t.wg.Go(t.readPackets) } // the one that it relieves is still counted
	t.wg.Go(t.readPackets)
	t.wg.Go(t.acceptStreams)
	return t, nil
}

func (t *sockets) port() uint16 { return t.tcp.Addr().(*net.TCPAddr).AddrPort().Port() }

func (t *sockets) readPackets() {
	buf := make([]byte, maxDatagram)
	for {
		n, from, err := t.udp.ReadFromUDPAddrPort(buf)
		now := time.Now()
		if err != nil {
			select {
			case <-t.closed:
				return
			case <-time.After(readRetry):
				t.logger.Printf("[ERR] memberlist: reading UDP: %v", err)
				continue
			}
		}
		switch {
		case n == 0:
		case ours(buf[:n]):
			if !t.in.take(buf[:n]) {
				return
			}
		default:
			b := bytes.Clone(buf[:n]) // memberlist keeps it in a queue
			select {
			case t.packets <- &memberlist.Packet{Buf: b, From: net.UDPAddrFromAddrPort(from), Timestamp: now}:
			default:
				t.in.drop()
			}
		}
	}
}

func (t *sockets) acceptStreams() {
	for {
		conn, err := t.tcp.AcceptTCP()
		if err == nil {
			select {
			case t.streams <- conn:
			case <-t.closed:
				_ = conn.Close()
				return
			}
			continue
		}
		select {
		case <-t.closed:
			return
		case <-time.After(acceptRetry):
			t.logger.Printf("[ERR] memberlist: accepting TCP: %v", err)
		}
	}
}

// FinalAdvertiseAddr is not asked: transport, around this one, knows the address.
func (t *sockets) FinalAdvertiseAddr(string, int) (net.IP, int, error) {
	a := t.tcp.Addr().(*net.TCPAddr)
	return a.IP, a.Port, nil
}

func (t *sockets) WriteTo(b []byte, addr string) (time.Time, error) {
	a, err := netip.ParseAddrPort(addr)
	if err != nil {
		return time.Time{}, fmt.Errorf("cluster: address %q: %w", addr, err)
	}
	err = t.write(b, a)
	return time.Now(), err
}

// write sends a datagram and keeps nothing of it.
func (t *sockets) write(b []byte, to netip.AddrPort) error {
	if t.four && to.Addr().Is4In6() {
		to = netip.AddrPortFrom(to.Addr().Unmap(), to.Port())
	}
	_, err := t.udp.WriteToUDPAddrPort(b, to)
	return err
}

func (t *sockets) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	return net.DialTimeout("tcp", addr, timeout)
}

func (t *sockets) PacketCh() <-chan *memberlist.Packet { return t.packets }
func (t *sockets) StreamCh() <-chan net.Conn           { return t.streams }

// Shutdown closes both sockets and waits for their goroutines. Called once.
func (t *sockets) Shutdown() error {
	close(t.closed)
	t.in.close()
	_ = t.tcp.Close()
	_ = t.udp.Close()
	t.wg.Wait()
	return nil
}

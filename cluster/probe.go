package cluster

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Reach says what of this node's traffic arrives at a member, as its answers show. Where nothing comes back, nothing is known of
// what arrived.
type Reach struct {
	Packet    bool          // a small UDP packet
	Full      bool          // a UDP packet of Config.PacketSize
	Stream    bool          // a TCP stream
	RoundTrip time.Duration // of the small packet, as far as it was answered by one; 0: it was not
}

// probeStep is how long a probe waits for an answer in packets, and then again for one over a stream.
const probeStep = 500 * time.Millisecond

// maxProbeAnswer bounds what a probe may ask for: no packet is larger.
const maxProbeAnswer = 64 << 10

// Probe sends a member packets, small and of full size, and a stream, and asks for answers in packets and, where they do not come, over streams; so
// it tells the way there from the way back, and UDP from TCP. It takes at most a second. Lost packets are sent again, as all requests
// are. Errors: ErrUnknownMember, ErrClosed.
func (c *Cluster) Probe(ctx context.Context, to string) (Reach, error) {
	p, err := c.peer(to)
	if err != nil {
		return Reach{}, err
	}
	var r Reach
	var wg sync.WaitGroup
	wg.Go(func() { r.Packet, r.RoundTrip = c.probeOne(ctx, p, 0) })
	wg.Go(func() { r.Full, _ = c.probeOne(ctx, p, c.fullProbe()) })
	wg.Go(func() { r.Stream, _ = c.probeOne(ctx, p, c.space) })
	wg.Wait()
	if c.ctx.Err() != nil {
		return Reach{}, ErrClosed
	}
	return r, nil
}

// fullProbe is the padding with which a probe just fits a packet.
func (c *Cluster) fullProbe() int {
	const some = 300 // the length of more than 255 bytes has the same form up to 65535
	b, err := marshal(&control{Op: opProbe, Data: make([]byte, some)})
	if err != nil {
		return 0 // cannot be: it is always the same message
	}
	return c.space - frameOverhead - (len(b) - some)
}

// probeOne sends one request with so much padding until it is answered, first by a packet and then over a stream.
func (c *Cluster) probeOne(ctx context.Context, p *peer, padding int) (arrived bool, took time.Duration) {
	for _, answer := range []uint64{0, uint64(c.space)} {
		step, cancel := context.WithTimeout(ctx, probeStep)
		begin := time.Now()
		_, err := c.tell(step, p, control{Op: opProbe, Proc: answer, Data: make([]byte, padding)})
		cancel()
		if err == nil || errors.Is(err, ErrRemote) { // of an older version: it does not know the operation, but has heard of it
			if answer == 0 {
				took = max(1, time.Since(begin))
			}
			return true, took
		}
	}
	return false, 0
}

// answerProbe is as long as the probe wants, so that it comes by a packet or by a stream.
func answerProbe(m *control) ([]byte, error) {
	if m.Proc > maxProbeAnswer {
		return nil, fmt.Errorf("%w: control: a probe that wants %d bytes", errPacket, m.Proc)
	}
	return make([]byte, m.Proc), nil
}

// Heard is how many packets of the member's process were taken in so far, without streams. 0 for who is no member.
func (c *Cluster) Heard(name string) uint64 {
	if p := c.snap.Load().byName[name]; p != nil {
		return p.heard.Load()
	}
	return 0
}

// ReceiveBuffer is the size in bytes of the UDP socket's receive buffer that was asked for, and what the kernel gave; both 0 where
// that cannot be known, as with a Transport.
func (c *Cluster) ReceiveBuffer() (wanted, given int) {
	if c.tr.sockets == nil {
		return 0, 0
	}
	if given = receiveBufferOf(c.tr.sockets.udp); given == 0 {
		return 0, 0
	}
	return receiveBuffer, given
}

// tellBuffer says once that the kernel gives less than was asked for.
func (c *Cluster) tellBuffer() {
	if wanted, given := c.ReceiveBuffer(); given < wanted && !c.addr.Addr().IsLoopback() {
		c.log.Info("cluster: the kernel gives a smaller receive buffer than asked for: bursts of packets may be lost, and are sent again; raise the sysctl net.core.rmem_max",
			"wanted", wanted, "given", given)
	}
}

// PacketSize is the largest UDP payload that this node sends, in bytes.
func (c *Cluster) PacketSize() int { return c.cfg.PacketSize }

// BoundPort is the port of this node's own sockets; 0 with a Transport. It differs from that of Addr where Advertise names another.
func (c *Cluster) BoundPort() uint16 {
	if c.tr.sockets == nil {
		return 0
	}
	return c.tr.sockets.port()
}

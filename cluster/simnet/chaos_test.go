package simnet_test

import (
	"encoding/binary"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jatah-io/jatah/cluster/simnet"
)

// chaos is a network whose hosts send, dial, crash and come back while it changes at random.
type chaos struct {
	t       *testing.T
	n       *simnet.Network
	over    chan struct{} // closed when no new streams may begin
	all     sync.WaitGroup
	packets atomic.Int64 // that arrived
	whole   atomic.Int64 // streams that were read to a clean end
	broken  atomic.Int64 // streams that ended in an error
}

const chaosHosts = 5

// run opens the host of an address and uses it until the transport fails.
func (c *chaos) run(address string, seed uint64) {
	tr, err := c.n.Transport(address)
	if err != nil {
		c.t.Error(err)
		return
	}
	gone := make(chan struct{})
	c.all.Go(func() {
		defer close(gone)
		r := rand.New(rand.NewPCG(seed, 1))
		for {
			time.Sleep(time.Duration(r.IntN(20)) * ms)
			if _, err := tr.WriteTo([]byte("packet"), addr(1+r.IntN(chaosHosts))); err != nil {
				return // crashed, or the network closed
			}
			select {
			case <-c.over:
				continue
			default:
			}
			if to := addr(1 + r.IntN(chaosHosts)); r.IntN(10) == 0 {
				size := r.IntN(100_000)
				c.all.Go(func() { c.write(tr, to, size) })
			}
		}
	})
	c.all.Go(func() {
		for {
			select {
			case conn := <-tr.StreamCh():
				c.all.Go(func() { c.read(conn) })
			case <-tr.PacketCh():
				c.packets.Add(1)
			case <-gone:
				return
			}
		}
	})
}

// write sends the size, then so many bytes that count upwards.
func (c *chaos) write(tr *simnet.Transport, to string, size int) {
	conn, err := tr.DialTimeout(to, 5*time.Second)
	if err != nil {
		return
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	buf := binary.LittleEndian.AppendUint32(nil, uint32(size))
	for i := range size {
		buf = append(buf, byte(i))
	}
	_, _ = conn.Write(buf)
}

// read checks that what arrives is what was sent, or begins like it if the stream breaks.
func (c *chaos) read(conn net.Conn) {
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	got, err := io.ReadAll(conn)
	if len(got) < 4 {
		c.broken.Add(1)
		return
	}
	size := binary.LittleEndian.Uint32(got)
	for i, b := range got[4:] {
		if b != byte(i) {
			c.t.Errorf("byte %d of a stream is %d, want %d", i, b, byte(i))
			return
		}
	}
	// A writer that gives up closes its end cleanly in the middle: err is nil then too.
	if err == nil && int(size) == len(got)-4 {
		c.whole.Add(1)
	} else if len(got)-4 > int(size) {
		c.t.Errorf("%d bytes of a stream arrived, %d were sent", len(got)-4, size)
	} else {
		c.broken.Add(1)
	}
}

// disturb changes something.
func (c *chaos) disturb(r *rand.Rand) {
	n, a, b := c.n, addr(1+r.IntN(chaosHosts)), addr(1+r.IntN(chaosHosts))
	switch r.IntN(12) {
	case 0:
		n.Cut(a, b)
	case 1:
		n.Mend(a, b)
	case 2:
		n.Partition([]string{a}, []string{b, addr(1)})
	case 3:
		n.Isolate(a)
	case 4:
		n.Reconnect(a)
	case 5:
		n.Pause(a)
	case 6:
		n.Resume(a)
	case 7:
		n.Crash(a)
		c.run(a, r.Uint64())
	case 8:
		set(c.t, n, simnet.Conditions{Loss: r.Float64() / 2, Duplicate: r.Float64(), DelayMax: 20 * ms,
			Straggle: r.Float64(), StraggleMax: time.Second})
	case 9:
		if err := n.SetLink(a, b, simnet.Conditions{Loss: float64(r.IntN(2))}); err != nil {
			c.t.Error(err)
		}
	case 10:
		n.UnsetLink(a, b)
	case 11:
		n.Heal()
	}
}

func TestChaos(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	for round := range uint64(3) {
		t.Logf("seed %d", seed+round)
		synctest.Test(t, func(t *testing.T) {
			c := &chaos{t: t, n: simnet.New(seed + round), over: make(chan struct{})}
			r := rand.New(rand.NewPCG(seed+round, 0))
			for i := range chaosHosts {
				c.run(addr(i+1), r.Uint64())
			}
			for range 300 {
				time.Sleep(time.Duration(r.IntN(400)) * ms)
				c.disturb(r)
				balanced(t, c.n.Stats())
			}
			close(c.over)
			time.Sleep(time.Minute) // every deadline has passed
			if err := c.n.Close(); err != nil {
				t.Error(err)
			}
			c.all.Wait()
			s := c.n.Stats()
			balanced(t, s)
			t.Logf("%d packets arrived, %d streams whole, %d broken; %+v", c.packets.Load(), c.whole.Load(), c.broken.Load(), s)
			if s.InFlight != 0 || c.packets.Load() == 0 || c.whole.Load() == 0 {
				t.Error("something is left in flight, or nothing ever arrived")
			}
		})
	}
}

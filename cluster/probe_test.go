package cluster

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/jatah-io/jatah/cluster/simnet"
)

// sieve is a transport that loses the packets that drop says, and no stream.
type sieve struct {
	*simnet.Transport
	drop atomic.Pointer[func(to string, size int) bool] // nil: none
}

func (s *sieve) WriteTo(b []byte, to string) (time.Time, error) {
	if drop := s.drop.Load(); drop != nil && (*drop)(to, len(b)) {
		return time.Now(), nil
	}
	return s.Transport.WriteTo(b, to)
}

func (s *sieve) WriteToAddress(b []byte, to memberlist.Address) (time.Time, error) {
	return s.WriteTo(b, to.Addr)
}

// TestProbeTellsTheWaysApart: there and back, small and full packets, packets and streams.
func TestProbeTellsTheWaysApart(t *testing.T) {
	all := Reach{Packet: true, Full: true, Stream: true}
	for _, c := range []struct {
		name        string
		fault       func(w *world, s *sieve) // from n1 to n2
		there, back Reach
	}{
		{"whole", func(*world, *sieve) {}, all, all},
		{"no packets from n1 to n2", func(_ *world, s *sieve) {
			drop := func(to string, _ int) bool { return to == at(2) }
			s.drop.Store(&drop)
		}, Reach{Stream: true}, all},
		{"no full packets from n1 to n2", func(_ *world, s *sieve) {
			drop := func(to string, size int) bool { return to == at(2) && size > 1300 }
			s.drop.Store(&drop)
		}, Reach{Packet: true, Stream: true}, all},
		{"nothing from n1 to n2, so no streams and no answers either", func(w *world, _ *sieve) { w.net.Cut(at(1), at(2)) }, Reach{}, Reach{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				tr, err := w.net.Transport(at(1))
				if err != nil {
					t.Fatal(err)
				}
				s := &sieve{Transport: tr}
				cfg := w.config("n1")
				cfg.Transport = s
				n1, err := Start(t.Context(), cfg, Events{})
				if err != nil {
					t.Fatal(err)
				}
				defer n1.Close()
				n2, err := w.try(2, w.config("n2"))
				if err != nil {
					t.Fatal(err)
				}
				defer n2.Close()
				time.Sleep(3 * time.Second)
				c.fault(w, s)
				heard := n1.Heard("n2")
				begin := time.Now()
				there, err := n1.Probe(t.Context(), "n2")
				if err != nil {
					t.Fatal(err)
				}
				back, err := n2.Probe(t.Context(), "n1")
				if err != nil {
					t.Fatal(err)
				}
				if (there.RoundTrip > 0) != c.there.Packet || there.RoundTrip > 10*time.Millisecond {
					t.Errorf("a round trip of %v", there.RoundTrip)
				}
				if there.RoundTrip, back.RoundTrip = 0, 0; there != c.there || back != c.back {
					t.Errorf("there %+v, back %+v; want %+v and %+v", there, back, c.there, c.back)
				}
				if took := time.Since(begin); took > 2*2*probeStep {
					t.Errorf("it took %v", took)
				}
				if n1.Heard("n2") == heard || n1.Heard("n3") != 0 {
					t.Errorf("n1 heard %d packets of n2, before %d, and %d of n3", n1.Heard("n2"), heard, n1.Heard("n3"))
				}
				if _, err := n1.Probe(t.Context(), "n3"); err == nil {
					t.Error("a process that is not there was probed")
				}
			})
		})
	}
}

// TestFullProbeFillsAPacket: one byte more would not fit.
func TestFullProbeFillsAPacket(t *testing.T) {
	for _, size := range []int{1000, 1400, 65000} {
		c := &Cluster{space: size - 60}
		b, err := marshal(&control{Op: opProbe, Data: make([]byte, c.fullProbe())})
		if err != nil || len(b)+frameOverhead != c.space {
			t.Errorf("packets of %d: a frame of %d bytes, want %d (%v)", size, len(b)+frameOverhead, c.space, err)
		}
	}
	if _, err := answerProbe(&control{Proc: maxProbeAnswer + 1}); err == nil {
		t.Error("a probe may ask for any answer")
	}
}

// TestReceiveBufferIsWhatTheKernelGave, or is not known.
func TestReceiveBufferIsWhatTheKernelGave(t *testing.T) {
	c := startReal(t, Config{Name: "n1", Bind: "127.0.0.1:0"}, Events{})
	if wanted, given := c.ReceiveBuffer(); wanted != 0 && (wanted != receiveBuffer || given < 2048) {
		t.Errorf("wanted %d, given %d", wanted, given)
	}
}

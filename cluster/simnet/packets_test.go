package simnet_test

import (
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jatah-io/jatah/cluster/simnet"
)

const ms = time.Millisecond

// host opens a transport or ends the test.
func host(t testing.TB, n *simnet.Network, addr string) *simnet.Transport {
	t.Helper()
	tr, err := n.Transport(addr)
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

func set(t testing.TB, n *simnet.Network, c simnet.Conditions) {
	t.Helper()
	if err := n.Set(c); err != nil {
		t.Fatal(err)
	}
}

// number sends packet number i.
func number(t testing.TB, from *simnet.Transport, to string, i int) {
	t.Helper()
	if _, err := from.WriteTo(binary.LittleEndian.AppendUint32(nil, uint32(i)), to); err != nil {
		t.Fatal(err)
	}
}

// numbers empties the socket buffer.
func numbers(tr *simnet.Transport) []int {
	var got []int
	for {
		select {
		case p := <-tr.PacketCh():
			got = append(got, int(binary.LittleEndian.Uint32(p.Buf)))
		default:
			return got
		}
	}
}

// exchange sends count packets, 1 ms apart, and returns the numbers in order of arrival.
func exchange(t testing.TB, n *simnet.Network, from, to *simnet.Transport, count int) []int {
	t.Helper()
	var got []int
	for i := range count {
		number(t, from, to.Addr(), i)
		time.Sleep(ms)
		got = append(got, numbers(to)...)
	}
	time.Sleep(time.Minute)
	return append(got, numbers(to)...)
}

// balanced checks that every packet is accounted for.
func balanced(t testing.TB, s simnet.Stats) {
	t.Helper()
	if in, out := s.Packets+s.Duplicated, s.Delivered+s.Dropped()+s.InFlight; in != out {
		t.Errorf("%d packets went in and %d came out: %+v", in, out, s)
	}
}

func TestPacketArrivesAfterTheDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := simnet.New(1)
		a, b := host(t, n, addr(1)), host(t, n, addr(2))
		set(t, n, simnet.Conditions{DelayMin: 5 * ms, DelayMax: 5 * ms})
		start := time.Now()
		buf := []byte("hello")
		if _, err := a.WriteTo(buf, addr(2)); err != nil {
			t.Fatal(err)
		}
		buf[0] = 'j' // the sender may use its buffer again
		p := <-b.PacketCh()
		if string(p.Buf) != "hello" || p.From.String() != addr(1) {
			t.Errorf("got %q from %s, want hello from %s", p.Buf, p.From, addr(1))
		}
		if took := p.Timestamp.Sub(start); took != 5*ms || time.Since(start) != 5*ms {
			t.Errorf("arrived after %v, stamped %v, want 5ms", time.Since(start), took)
		}
	})
}

func TestSameDelayKeepsTheOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := simnet.New(1)
		a, b := host(t, n, addr(1)), host(t, n, addr(2))
		for i := range 1000 {
			number(t, a, addr(2), i)
		}
		time.Sleep(ms)
		if got := numbers(b); len(got) != 1000 || !slices.IsSorted(got) {
			t.Errorf("%d packets arrived, in order: %v; want 1000 in order", len(got), slices.IsSorted(got))
		}
	})
}

func TestDelayIsUniformBetweenItsBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := simnet.New(3)
		a, b := host(t, n, addr(1)), host(t, n, addr(2))
		set(t, n, simnet.Conditions{DelayMin: 10 * ms, DelayMax: 30 * ms})
		var sum time.Duration
		const count = 2000
		for i := range count {
			start := time.Now()
			number(t, a, addr(2), i)
			<-b.PacketCh()
			d := time.Since(start)
			if d < 10*ms || d > 30*ms {
				t.Fatalf("packet %d took %v, want 10ms to 30ms", i, d)
			}
			sum += d
		}
		// Standard error of the mean: 20ms/sqrt(12*2000) = 0.13 ms.
		if mean := sum / count; mean < 19*ms || mean > 21*ms {
			t.Errorf("mean delay %v, want about 20ms", mean)
		}
	})
}

func TestLossIsAsConfiguredAndRepeatsWithTheSeed(t *testing.T) {
	run := func(seed uint64) (got []int) {
		synctest.Test(t, func(t *testing.T) {
			n := simnet.New(seed)
			a, b := host(t, n, addr(1)), host(t, n, addr(2))
			set(t, n, simnet.Conditions{Loss: 0.1, DelayMax: ms})
			got = exchange(t, n, a, b, 10_000)
			s := n.LinkStats(addr(1), addr(2))
			balanced(t, s)
			if s.Packets != 10_000 || s.Bytes != 40_000 || int(s.Delivered) != len(got) {
				t.Errorf("%d arrived, counted %+v", len(got), s)
			}
		})
		return got
	}
	first := run(7)
	// Standard deviation: sqrt(10000 * 0.1 * 0.9) = 30.
	if lost := 10_000 - len(first); math.Abs(float64(lost)-1000) > 150 {
		t.Errorf("lost %d of 10000, want about 1000", lost)
	}
	if !slices.Equal(first, run(7)) {
		t.Error("another run with the same seed lost other packets")
	}
	if slices.Equal(first, run(8)) {
		t.Error("a run with another seed lost the same packets")
	}
}

func TestOtherLinksDoNotShiftTheFateOfAPacket(t *testing.T) {
	run := func(noise bool) (got []int) {
		synctest.Test(t, func(t *testing.T) {
			n := simnet.New(7)
			a, b, c := host(t, n, addr(1)), host(t, n, addr(2)), host(t, n, addr(3))
			set(t, n, simnet.Conditions{Loss: 0.5})
			for i := range 500 {
				number(t, a, addr(2), i)
				if noise {
					number(t, c, addr(2), 1000)
					number(t, a, addr(3), 1000)
				}
			}
			time.Sleep(ms)
			got = slices.DeleteFunc(numbers(b), func(i int) bool { return i == 1000 })
		})
		return got
	}
	if !slices.Equal(run(false), run(true)) {
		t.Error("traffic of other links changed what was lost")
	}
}

func TestDuplicates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := simnet.New(2)
		a, b := host(t, n, addr(1)), host(t, n, addr(2))
		set(t, n, simnet.Conditions{Duplicate: 1, DelayMin: ms, DelayMax: 9 * ms})
		got := exchange(t, n, a, b, 100)
		slices.Sort(got)
		for i := range 100 {
			if 2*i+1 >= len(got) || got[2*i] != i || got[2*i+1] != i {
				t.Fatalf("want each of 100 packets twice, got %v", got)
			}
		}
		set(t, n, simnet.Conditions{Duplicate: 0.2})
		exchange(t, n, a, b, 5000)
		s := n.Stats()
		balanced(t, s)
		// Standard deviation: sqrt(5000 * 0.2 * 0.8) = 28.
		if d := float64(s.Duplicated - 100); math.Abs(d-1000) > 140 {
			t.Errorf("%v of 5000 packets were doubled, want about 1000", d)
		}
	})
}

func TestStragglersArriveLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := simnet.New(2)
		a, b := host(t, n, addr(1)), host(t, n, addr(2))
		set(t, n, simnet.Conditions{Straggle: 0.1, StraggleMin: 50 * ms, StraggleMax: 60 * ms})
		got := exchange(t, n, a, b, 2000)
		if len(got) != 2000 {
			t.Fatalf("%d of 2000 arrived", len(got))
		}
		late, newest := 0, -1
		for _, i := range got {
			if i < newest {
				late++
				// Packets are sent 1 ms apart, until the last one.
				if newest < 1999 && newest-i < 48 || newest-i > 61 {
					t.Errorf("packet %d came after packet %d, want 50 to 60 between them", i, newest)
				}
			}
			newest = max(newest, i)
		}
		if late < 130 || late > 270 {
			t.Errorf("%d of 2000 straggled, want about 200", late)
		}
	})
}

func TestConditionsOfOneLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := simnet.New(1)
		hosts := []*simnet.Transport{host(t, n, addr(1)), host(t, n, addr(2)), host(t, n, addr(3))}
		if err := n.SetLink(addr(1), addr(2), simnet.Conditions{Loss: 1}); err != nil {
			t.Fatal(err)
		}
		set(t, n, simnet.Conditions{})
		if got, want := reach(t, hosts), "..x x.x xx. "; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		n.UnsetLink(addr(1), addr(2))
		if got, want := reach(t, hosts), ".xx x.x xx. "; got != want {
			t.Errorf("undone: got %q, want %q", got, want)
		}
	})
}

func TestLoopbackHasNoWeather(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := simnet.New(1)
		a := host(t, n, addr(1))
		set(t, n, simnet.Conditions{Loss: 1, DelayMin: time.Hour, DelayMax: time.Hour})
		n.Isolate(addr(1))
		number(t, a, addr(1), 5)
		if got := numbers(a); !slices.Equal(got, []int{5}) {
			t.Errorf("got %v, want [5]", got)
		}
	})
}

func TestBadInputIsRefused(t *testing.T) {
	n := simnet.New(1)
	a := host(t, n, addr(1))
	for _, bad := range []string{"", "10.0.0.1", "10.0.0.1:0", "host:7946", "10.0.0.1:99999"} {
		if _, err := n.Transport(bad); !errors.Is(err, simnet.ErrAddress) {
			t.Errorf("transport at %q: %v, want ErrAddress", bad, err)
		}
		if _, err := a.WriteTo([]byte("x"), bad); !errors.Is(err, simnet.ErrAddress) {
			t.Errorf("packet to %q: %v, want ErrAddress", bad, err)
		}
		if _, err := a.DialTimeout(bad, time.Second); !errors.Is(err, simnet.ErrAddress) {
			t.Errorf("stream to %q: %v, want ErrAddress", bad, err)
		}
	}
	for _, bad := range []simnet.Conditions{
		{Loss: -0.1}, {Loss: 1.1}, {Loss: math.NaN()}, {Duplicate: 2}, {Straggle: -1},
		{DelayMin: 2, DelayMax: 1}, {DelayMin: -1}, {StraggleMin: 2, StraggleMax: 1},
	} {
		if err := n.Set(bad); !errors.Is(err, simnet.ErrConditions) {
			t.Errorf("Set(%+v): %v, want ErrConditions", bad, err)
		}
		if err := n.SetLink(addr(1), addr(2), bad); !errors.Is(err, simnet.ErrConditions) {
			t.Errorf("SetLink(%+v): %v, want ErrConditions", bad, err)
		}
	}
	if _, err := a.WriteTo(make([]byte, 65508), addr(2)); !errors.Is(err, simnet.ErrTooLong) {
		t.Errorf("packet of 65508 bytes: %v, want ErrTooLong", err)
	}
	if err := n.Close(); err != nil {
		t.Error(err)
	}
	if _, err := n.Transport(addr(1)); !errors.Is(err, simnet.ErrClosed) {
		t.Errorf("host on a closed network: %v, want ErrClosed", err)
	}
}

func TestAdvertisedAddress(t *testing.T) {
	n := simnet.New(1)
	v6, v4 := host(t, n, "[fd00::1]:7946"), host(t, n, "[::ffff:10.0.0.1]:7946")
	if v4.Addr() != addr(1) {
		t.Errorf("a mapped address is %s, want %s", v4.Addr(), addr(1))
	}
	for _, c := range []struct {
		tr   *simnet.Transport
		ip   string
		port int
		want string
	}{
		{v6, "", 0, "fd00::1 7946"}, {v4, "", 1, "10.0.0.1 7946"}, {v4, "10.9.9.9", 5, "10.9.9.9 5"},
	} {
		ip, port, err := c.tr.FinalAdvertiseAddr(c.ip, c.port)
		if got := ip.String() + " " + strconv.Itoa(port); err != nil || got != c.want {
			t.Errorf("advertise %q %d: %s, %v, want %s", c.ip, c.port, got, err, c.want)
		}
	}
	if _, _, err := v4.FinalAdvertiseAddr("nonsense", 1); !errors.Is(err, simnet.ErrAddress) {
		t.Errorf("advertise nonsense: %v, want ErrAddress", err)
	}
}

package simnet_test

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jatah-io/jatah/cluster/simnet"
)

func TestCutIsOneWayAndDropsWhatIsInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := simnet.New(1)
		a, b := host(t, n, addr(1)), host(t, n, addr(2))
		set(t, n, simnet.Conditions{DelayMin: 10 * ms, DelayMax: 10 * ms})
		number(t, a, addr(2), 1)
		time.Sleep(5 * ms)
		n.Cut(addr(1), addr(2)) // packet 1 is halfway
		number(t, a, addr(2), 2)
		number(t, b, addr(1), 3)
		time.Sleep(20 * ms)
		if got := numbers(b); got != nil {
			t.Errorf("through the cut came %v", got)
		}
		if got := numbers(a); !slices.Equal(got, []int{3}) {
			t.Errorf("the other way came %v, want [3]", got)
		}
		if s := n.LinkStats(addr(1), addr(2)); s.Cut != 2 {
			t.Errorf("counted %d cut, want 2", s.Cut)
		}
		n.Mend(addr(1), addr(2))
		number(t, a, addr(2), 4)
		time.Sleep(20 * ms)
		if got := numbers(b); !slices.Equal(got, []int{4}) {
			t.Errorf("after mending came %v, want [4]", got)
		}
		balanced(t, n.Stats())
	})
}

// reach says which of the hosts hear each other: the rows send, the columns hear.
func reach(t testing.TB, hosts []*simnet.Transport) string {
	t.Helper()
	var rows []byte
	for i, from := range hosts {
		for _, to := range hosts {
			if to != from {
				number(t, from, to.Addr(), i)
			}
		}
		time.Sleep(ms)
		for _, to := range hosts {
			mark := byte('.')
			if len(numbers(to)) > 0 {
				mark = 'x'
			}
			rows = append(rows, mark)
		}
		rows = append(rows, ' ')
	}
	return string(rows)
}

func TestPartitionIsolateHeal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := simnet.New(1)
		var hosts []*simnet.Transport
		for i := range 4 {
			hosts = append(hosts, host(t, n, addr(i+1)))
		}
		expect := func(what, want string) {
			t.Helper()
			if got := reach(t, hosts); got != want {
				t.Errorf("%s: got %q, want %q", what, got, want)
			}
		}
		expect("at first", ".xxx x.xx xx.x xxx. ")
		n.Partition([]string{addr(1), addr(2)}, []string{addr(3)})
		expect("4 is in no group", ".x.x x..x ...x xxx. ")
		n.Partition([]string{addr(1)}, []string{addr(2)}, []string{addr(4)})
		expect("added", ".... .... ...x ..x. ")
		n.Heal()
		expect("healed", ".xxx x.xx xx.x xxx. ")
		n.Isolate(addr(4))
		n.Cut(addr(1), addr(2))
		expect("isolated, and a one-way cut", "..x. x.x. xx.. .... ")
		n.Reconnect(addr(4))
		expect("connected again, the cut stays", "..xx x.xx xx.x xxx. ")
		n.Heal()
		expect("healed again", ".xxx x.xx xx.x xxx. ")
	})
}

func TestPausedHostFindsItsPacketsLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := simnet.New(1)
		a, b := host(t, n, addr(1)), host(t, n, addr(2))
		n.Pause(addr(2))
		for i := range 2000 {
			number(t, a, addr(2), i)
		}
		number(t, b, addr(1), 1)
		time.Sleep(time.Minute)
		if got := len(b.PacketCh()) + len(a.PacketCh()); got != 0 {
			t.Fatalf("%d packets moved during the pause", got)
		}
		n.Resume(addr(2))
		resumed := time.Now()
		first := <-b.PacketCh()
		if !first.Timestamp.Equal(resumed) {
			t.Errorf("stamped %v before it was read", resumed.Sub(first.Timestamp))
		}
		got := numbers(b)
		if len(got) != 1499 || !slices.IsSorted(got) || got[0] != 1 {
			t.Errorf("found %d packets more, in order: %v, want the 1499 after the first", len(got), slices.IsSorted(got))
		}
		s := n.Stats()
		balanced(t, s)
		if s.Overflow != 500 || s.Muted != 1 {
			t.Errorf("counted %d overflown and %d muted, want 500 and 1", s.Overflow, s.Muted)
		}
		number(t, b, addr(1), 2)
		time.Sleep(ms)
		if got := numbers(a); !slices.Equal(got, []int{2}) {
			t.Errorf("after the pause came %v, want [2]", got)
		}
	})
}

func TestAddressPassesToTheNextHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := simnet.New(1)
		a, old := host(t, n, addr(1)), host(t, n, addr(2))
		if _, err := n.Transport(addr(2)); !errors.Is(err, simnet.ErrInUse) {
			t.Errorf("second host at one address: %v, want ErrInUse", err)
		}
		n.Crash(addr(2))
		if _, err := old.WriteTo([]byte("x"), addr(1)); !errors.Is(err, simnet.ErrClosed) {
			t.Errorf("a crashed host sends: %v, want ErrClosed", err)
		}
		number(t, a, addr(2), 1)
		time.Sleep(ms)
		number(t, a, addr(2), 2)
		next := host(t, n, addr(2)) // while 2 is in flight
		time.Sleep(ms)
		if got := numbers(next); !slices.Equal(got, []int{2}) {
			t.Errorf("the next host got %v, want [2]", got)
		}
		if got := numbers(old); got != nil {
			t.Errorf("the crashed host got %v", got)
		}
		if err := old.Shutdown(); err != nil {
			t.Errorf("shutting down after a crash: %v", err)
		}
		number(t, a, addr(2), 3) // the old transport's Shutdown took nothing from the new one
		time.Sleep(ms)
		if got := numbers(next); !slices.Equal(got, []int{3}) {
			t.Errorf("the next host got %v, want [3]", got)
		}
		s := n.Stats()
		balanced(t, s)
		if s.Nobody != 1 {
			t.Errorf("counted %d to nobody, want 1", s.Nobody)
		}
	})
}

package simnet_test

import (
	"fmt"
	"io"
	"log"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/jatah-io/jatah/cluster/simnet"
)

// newNetwork makes a network whose test ends with a minute of silence: a probe of memberlist that
// is under way outlasts Shutdown by some seconds, and a bubble must not end before it.
func newNetwork(t testing.TB, seed uint64) *simnet.Network {
	t.Helper()
	t.Cleanup(func() { time.Sleep(time.Minute) })
	return simnet.New(seed)
}

// newNode starts a memberlist on the network; the test ends it.
func newNode(t testing.TB, n *simnet.Network, name, addr string, change func(*memberlist.Config)) *memberlist.Memberlist {
	t.Helper()
	tr, err := n.Transport(addr)
	if err != nil {
		t.Fatal(err)
	}
	cfg := memberlist.DefaultLANConfig()
	cfg.Name = name
	cfg.Transport = tr
	cfg.Logger = log.New(io.Discard, "", 0)
	cfg.EnableCompression = false
	cfg.DeadNodeReclaimTime = time.Second
	if change != nil {
		change(cfg)
	}
	m, err := memberlist.Create(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Shutdown() })
	return m
}

func join(t testing.TB, m *memberlist.Memberlist, addr string) {
	t.Helper()
	if _, err := m.Join([]string{addr}); err != nil {
		t.Fatal(err)
	}
}

func addr(i int) string { return fmt.Sprintf("10.0.0.%d:7946", i) }

func TestTwoMemberlistsJoin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, 1)
		a := newNode(t, n, "a", addr(1), nil)
		b := newNode(t, n, "b", addr(2), nil)
		join(t, b, addr(1))
		time.Sleep(5 * time.Second)
		if a.NumMembers() != 2 || b.NumMembers() != 2 {
			t.Fatalf("a sees %d members and b %d, want 2 and 2", a.NumMembers(), b.NumMembers())
		}
	})
}

// sees says how many members each node sees.
func sees(nodes ...*memberlist.Memberlist) string {
	var counts []int
	for _, m := range nodes {
		counts = append(counts, m.NumMembers())
	}
	return fmt.Sprint(counts)
}

func TestPartitionIsDetectedAndHealsAfterJoin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, 1)
		a := newNode(t, n, "a", addr(1), nil)
		b := newNode(t, n, "b", addr(2), nil)
		c := newNode(t, n, "c", addr(3), nil)
		join(t, b, addr(1))
		join(t, c, addr(1))
		time.Sleep(5 * time.Second)
		for _, step := range []struct {
			what string
			do   func()
			want string
		}{
			{"joined", func() {}, "[3 3 3]"},
			{"c cut off", func() { n.Partition([]string{addr(1), addr(2)}, []string{addr(3)}) }, "[2 2 1]"},
			{"healed and joined anew", func() { n.Heal(); join(t, c, addr(1)) }, "[3 3 3]"},
			{"c hears nobody", func() { n.Cut(addr(1), addr(3)); n.Cut(addr(2), addr(3)) }, "[2 2 1]"},
			{"healed and joined again", func() { n.Heal(); join(t, c, addr(2)) }, "[3 3 3]"},
			{"c paused", func() { n.Pause(addr(3)) }, "[2 2 1]"},
			{"c resumed and joined again", func() { n.Resume(addr(3)); join(t, c, addr(2)) }, "[3 3 3]"},
			// The remaining pair reaches c one by the way of the other: no one is declared dead.
			{"one link cut", func() { n.Cut(addr(1), addr(3)); n.Cut(addr(3), addr(1)) }, "[3 3 3]"},
		} {
			step.do()
			time.Sleep(time.Minute)
			if got := sees(a, b, c); got != step.want {
				t.Errorf("%s: they see %s members, want %s", step.what, got, step.want)
			}
		}
	})
}

func TestCrashedMemberComesBackAtAnotherAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, 1)
		a := newNode(t, n, "a", addr(1), nil)
		b := newNode(t, n, "b", addr(2), nil)
		join(t, b, addr(1))
		for _, at := range []string{addr(2), addr(3)} { // the same address first
			n.Crash(b.LocalNode().Address())
			if err := b.Shutdown(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
			if got := a.NumMembers(); got != 1 {
				t.Errorf("after the crash a sees %d members, want 1", got)
			}
			b = newNode(t, n, "b", at, nil)
			join(t, b, addr(1))
			time.Sleep(5 * time.Second)
			if got := sees(a, b); got != "[2 2]" {
				t.Errorf("back at %s: they see %s members, want [2 2]", at, got)
			}
		}
	})
}

func TestMembersAgreeInBadWeather(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, 1)
		set(t, n, simnet.Conditions{Loss: 0.05, Duplicate: 0.05, DelayMin: ms, DelayMax: 20 * ms,
			Straggle: 0.05, StraggleMin: 50 * ms, StraggleMax: 200 * ms})
		var nodes []*memberlist.Memberlist
		for i := range 8 {
			nodes = append(nodes, newNode(t, n, fmt.Sprint("n", i), addr(i+1), nil))
			join(t, nodes[i], addr(1))
		}
		time.Sleep(2 * time.Minute)
		if got := sees(nodes...); got != "[8 8 8 8 8 8 8 8]" {
			t.Errorf("they see %s members, want 8 each", got)
		}
		balanced(t, n.Stats())
		if s := n.Stats(); s.Lost == 0 || s.Duplicated == 0 || s.StreamBytes == 0 || s.Overflow != 0 || s.Cut != 0 {
			t.Errorf("the weather does not show: %+v", s)
		}
	})
}

// TestClusterSurvivesAPartition is the example of the package comment.
func TestClusterSurvivesAPartition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		defer time.Sleep(time.Minute) // last of all: memberlist's probes outlast Shutdown
		n := simnet.New(1)            // inside the bubble
		var nodes []*memberlist.Memberlist
		for _, addr := range []string{"10.0.0.1:7946", "10.0.0.2:7946", "10.0.0.3:7946"} {
			tr, err := n.Transport(addr)
			if err != nil {
				t.Fatal(err)
			}
			cfg := memberlist.DefaultLANConfig()
			cfg.Name, cfg.Transport = addr, tr
			cfg.LogOutput = io.Discard
			m, err := memberlist.Create(cfg)
			if err != nil {
				t.Fatal(err)
			}
			defer m.Shutdown()
			if _, err := m.Join([]string{"10.0.0.1:7946"}); err != nil {
				t.Fatal(err)
			}
			nodes = append(nodes, m)
		}
		n.Set(simnet.Conditions{Loss: 0.01, DelayMin: time.Millisecond, DelayMax: 5 * time.Millisecond})
		n.Partition([]string{"10.0.0.1:7946", "10.0.0.2:7946"}, []string{"10.0.0.3:7946"})
		time.Sleep(time.Minute) // virtual: takes some milliseconds
		if got := nodes[0].NumMembers(); got != 2 {
			t.Errorf("the majority sees %d members, want 2", got)
		}
		n.Heal()
	})
}

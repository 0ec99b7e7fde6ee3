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
		n := simnet.New(1)
		a := newNode(t, n, "a", addr(1), nil)
		b := newNode(t, n, "b", addr(2), nil)
		join(t, b, addr(1))
		time.Sleep(5 * time.Second)
		if a.NumMembers() != 2 || b.NumMembers() != 2 {
			t.Fatalf("a sees %d members and b %d, want 2 and 2", a.NumMembers(), b.NumMembers())
		}
	})
}

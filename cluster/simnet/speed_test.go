package simnet_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/jatah-io/jatah/cluster/simnet"
)

// counter is a memberlist delegate that counts the user messages it gets.
type counter struct{ got atomic.Int64 }

func (c *counter) NodeMeta(int) []byte             { return nil }
func (c *counter) NotifyMsg([]byte)                { c.got.Add(1) }
func (c *counter) GetBroadcasts(int, int) [][]byte { return nil }
func (c *counter) LocalState(bool) []byte          { return nil }
func (c *counter) MergeRemoteState([]byte, bool)   {}

// chatter runs a cluster for some virtual time in which each node sends each other one
// a message every 200 ms, and returns how many messages were sent and received.
func chatter(t *testing.T, nodes int, virtual time.Duration) (sent, got int64) {
	n := newNetwork(t, 1)
	if err := n.Set(simnet.Conditions{DelayMin: 100 * time.Microsecond, DelayMax: time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	members := make([]*memberlist.Memberlist, nodes)
	counters := make([]*counter, nodes)
	for i := range members {
		counters[i] = new(counter)
		members[i] = newNode(t, n, addr(i+1), addr(i+1), func(c *memberlist.Config) {
			c.Delegate = counters[i]
			c.HandoffQueueDepth = 1 << 14
		})
		if i > 0 {
			join(t, members[i], addr(1))
		}
	}
	// A rumour may miss a node for good; the exchange of whole states, twice a minute, repairs that.
	for known := false; !known; {
		time.Sleep(time.Second)
		known = true
		for _, m := range members {
			known = known && m.NumMembers() == nodes
		}
	}
	var all sync.WaitGroup
	var total atomic.Int64
	for i, m := range members {
		all.Go(func() {
			// A phase of its own for each node, so that the clock has many stops.
			time.Sleep(time.Duration(i) * 7 * time.Millisecond)
			msg := make([]byte, 64)
			for range virtual / (200 * time.Millisecond) {
				for _, peer := range m.Members() {
					if peer.Name == addr(i+1) {
						continue
					}
					if err := m.SendBestEffort(peer, msg); err != nil {
						t.Error(err)
					}
					total.Add(1)
				}
				time.Sleep(200 * time.Millisecond)
			}
		})
	}
	all.Wait()
	time.Sleep(time.Second)
	for _, c := range counters {
		got += c.got.Load()
	}
	return total.Load(), got
}

func TestNoMessageIsLostWithoutFaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sent, got := chatter(t, 5, 10*time.Second)
		if sent != 5*4*50 || got != sent {
			t.Fatalf("sent %d, got %d, want both %d", sent, got, 5*4*50)
		}
	})
}

// TestTwentyNodesTwoMinutes is the measure of speed: 228 000 messages in two virtual minutes.
// It asserts nothing about real time; go test -v shows it.
func TestTwentyNodesTwoMinutes(t *testing.T) {
	if testing.Short() {
		t.Skip("some 10 s of work")
	}
	start := time.Now()
	synctest.Test(t, func(t *testing.T) {
		sent, got := chatter(t, 20, 2*time.Minute)
		if sent != 228_000 || got != sent {
			t.Fatalf("sent %d, got %d, want both 228000", sent, got)
		}
	})
	t.Logf("took %v", time.Since(start).Round(10*time.Millisecond))
}

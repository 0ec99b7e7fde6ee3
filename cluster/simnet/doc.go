// Package simnet is a network in memory for memberlist, on which whole clusters run inside a testing/synctest bubble.
//
// A test makes a [Network] from a seed, gives each node a [Transport] of it, and then
// changes the weather and breaks links as it likes, in virtual time:
//
//	func TestClusterSurvivesAPartition(t *testing.T) {
//		synctest.Test(t, func(t *testing.T) {
//			defer time.Sleep(time.Minute) // last of all: memberlist's probes outlast Shutdown
//			n := simnet.New(1)            // inside the bubble
//			var nodes []*memberlist.Memberlist
//			for _, addr := range []string{"10.0.0.1:7946", "10.0.0.2:7946", "10.0.0.3:7946"} {
//				tr, err := n.Transport(addr)
//				if err != nil {
//					t.Fatal(err)
//				}
//				cfg := memberlist.DefaultLANConfig()
//				cfg.Name, cfg.Transport = addr, tr
//				cfg.LogOutput = io.Discard
//				m, err := memberlist.Create(cfg)
//				if err != nil {
//					t.Fatal(err)
//				}
//				defer m.Shutdown()
//				if _, err := m.Join([]string{"10.0.0.1:7946"}); err != nil {
//					t.Fatal(err)
//				}
//				nodes = append(nodes, m)
//			}
//			n.Set(simnet.Conditions{Loss: 0.01, DelayMin: time.Millisecond, DelayMax: 5 * time.Millisecond})
//			n.Partition([]string{"10.0.0.1:7946", "10.0.0.2:7946"}, []string{"10.0.0.3:7946"})
//			time.Sleep(time.Minute) // virtual: takes some milliseconds
//			if got := nodes[0].NumMembers(); got != 2 {
//				t.Errorf("the majority sees %d members, want 2", got)
//			}
//			n.Heal()
//		})
//	}
//
// A bubble cannot end while goroutines of it wait: shut every memberlist down, then let some
// virtual time pass, since a probe that is under way ends only when its time-out comes.
//
// # Words
//
//   - host: who holds an address, through a Transport.
//   - link: one direction between two addresses.
//   - conditions: probabilities and delays of links, the network's or a link's own.
//   - cut: a link that drops all. [Network.Partition] and [Network.Isolate] cut many.
//   - path: both directions of a pair, which a stream needs.
//
// # What is modelled
//
// Packets are UDP datagrams: lost, doubled, delayed and reordered by the conditions; dropped
// by cuts, both when they are sent and when they would arrive; dropped by a full socket buffer
// of 1500 packets. They go to whoever holds the address when they arrive.
//
// Streams are TCP connections: in order and whole; slowed down by loss, not broken; stalled
// by a cut of either direction; with a window of 64 KiB. Deadlines work at any time. A dial
// takes a round trip, is refused where nobody listens, and times out where nothing answers.
//
// A pause is what a stopped process looks like from outside; [Network.Crash] a killed one; Crash
// after Isolate a power cut. A restart is [Network.Transport] at the same or another address.
//
// # Guarantees
//
//   - No call waits while it holds a lock, so the bubble's clock never gets stuck here.
//   - The fate of the n-th packet of a link follows from the seed, the two addresses and the
//     conditions at that time, whatever happens on other links.
//   - Packets due at the same moment arrive in the order in which they were sent.
//   - Every packet is accounted for, see [Stats].
//   - There are no goroutines of its own that outlast an event, and one timer for all. Once
//     all transports are shut down nothing is left, neither events nor connections.
//
// # Not guaranteed
//
//   - A whole run is not replayed exactly: which goroutine of a bubble runs first is the
//     scheduler's choice, and memberlist draws random numbers of its own. Assert invariants,
//     not traces.
//   - The goroutines and timers of a paused or crashed host run on. What they send goes
//     nowhere, but they notice how time passes.
//   - Bandwidth is unlimited, and packets of any size up to 65507 bytes fare alike.
//
// It also works outside of a bubble, in real time.
package simnet

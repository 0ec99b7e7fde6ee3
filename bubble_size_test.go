package jatah_test

import (
	"os"
	"testing"
	"time"

	"github.com/jatah-io/jatah"
)

// localShare is how many of the decisions of a virtual minute were made in local memory. Each node asks once for each key at first,
// so that a little traffic shows nothing in less time.
func (b *bubble) localShare(perSecond float64) float64 {
	b.generate()
	b.offer(perSecond)
	if testing.Short() && perSecond > 100 {
		time.Sleep(10 * time.Second)
	} else {
		time.Sleep(time.Minute)
	}
	b.offer(0)
	b.mu.Lock()
	defer b.mu.Unlock()
	return float64(b.bySource[jatah.SourceLocal]) / float64(b.offered)
}

// Steady traffic within the limit is decided locally but for a few requests that ask for the first credit, or more of it.
func TestSteadyTrafficIsDecidedLocally(t *testing.T) {
	for _, x := range []struct {
		name    string
		limit   jatah.Limit
		offered float64
		want    float64
	}{
		{"1000 per second at 70 percent", jatah.Limit{Name: "api", Rate: jatah.PerSecond(1000), Burst: 1000}, 700, 0.99},
		{"10 per second at half", jatah.Limit{Name: "api", Rate: jatah.PerSecond(10), Burst: 50}, 5, 0.90},
	} {
		t.Run(x.name, func(t *testing.T) {
			inBubble(t, 1, x.limit, 1, func(b *bubble) {
				b.start(10)
				got := b.localShare(x.offered)
				t.Logf("%.4f of %d decisions were local; admitted %d; slowest %v; %v", got, b.offered, b.admitted("key-0"), b.slowest, b.bySource)
				if got < x.want {
					t.Errorf("%.4f of the decisions were local, want %v", got, x.want)
				}
				if n := b.admitted("key-0"); float64(n) < 0.999*float64(b.offered) {
					t.Errorf("%d of %d admitted, all within the limit", n, b.offered)
				}
			})
		})
	}
}

// traffic is what each node sends per second, in packets and bytes.
func (b *bubble) traffic(d time.Duration) (packets, bytes float64) {
	before := b.net.Stats()
	time.Sleep(d)
	after := b.net.Stats()
	per := d.Seconds() * float64(len(b.up()))
	return float64(after.Packets-before.Packets) / per, float64(after.Bytes-before.Bytes) / per
}

// What the nodes say to each other at rest is one packet each way per pair and tick, and load does not multiply it.
func TestTrafficBetweenNodes(t *testing.T) {
	for _, n := range []int{3, 10} {
		inBubble(t, 1, jatah.Limit{Name: "api", Rate: jatah.PerSecond(1000), Burst: 1000}, 10, func(b *bubble) {
			b.start(n)
			b.checkTraffic(5*time.Second, 3000)
		})
	}
}

// checkTraffic measures at rest and under load, and holds it against what a tick may cost.
func (b *bubble) checkTraffic(d time.Duration, load float64) {
	b.t.Helper()
	n := len(b.up())
	pairs := float64(n - 1)
	packets, bytes := b.traffic(d)
	b.t.Logf("%d nodes at rest: each sends %.1f packets and %.0f bytes per second", n, packets, bytes)
	// Ten ticks per second, and the gossip and probes of memberlist.
	if most := 10*pairs + 20; packets > most {
		b.t.Errorf("%d nodes at rest: each sends %.1f packets per second, want at most %v", n, packets, most)
	}
	b.generate()
	b.offer(load)
	time.Sleep(2 * time.Second)
	packets, bytes = b.traffic(d)
	b.t.Logf("%d nodes with %v requests per second: each sends %.1f packets and %.0f bytes per second", n, load, packets, bytes)
	b.offer(0)
}

// TestHundredNodes runs a cluster of a hundred: they join, are loaded, fall apart 60 to 40 for less than grace, and come together.
func TestHundredNodes(t *testing.T) {
	if testing.Short() || os.Getenv("JATAH_LONG") != "1" {
		t.Skip("takes minutes; set JATAH_LONG=1")
	}
	hundred(t, 100)
}

func hundred(t *testing.T, n int) {
	begin := time.Now()
	limit := jatah.Limit{Name: "api", Rate: jatah.PerSecond(1000), Burst: 1000, Fallback: jatah.FallbackWait}
	inBubble(t, 1, limit, 3, func(b *bubble) {
		clock := func(what string) { t.Logf("%-12s virtual %7v", what, b.now().Round(time.Millisecond)) }
		b.tune = func(c *jatah.Config) { c.Grace = time.Minute }
		b.start(n)
		clock("joined")
		b.checkTraffic(time.Second, 6000)
		b.offer(6000)
		time.Sleep(12 * time.Second)
		clock("load")
		if x := b.excess(); x > tolerance {
			t.Errorf("excess %v under load", x)
		}
		var left, right []string
		for i, h := range b.hosts {
			if i < n*6/10 {
				left = append(left, h.addr)
			} else {
				right = append(right, h.addr)
			}
		}
		b.net.Partition(left, right)
		time.Sleep(15 * time.Second)
		clock("partition")
		least := n
		for _, h := range b.hosts {
			if i := h.node().Info(); i.K != n {
				t.Errorf("%s counts %d members during the partition, want %d until grace has passed", h.name, i.K, n)
			}
			least = min(least, h.alive())
		}
		t.Logf("the smallest view has %d members alive", least)
		b.net.Heal()
		t.Logf("together again after %v", b.together(time.Minute, n))
		clock("healed")
		b.rest()
		if x := b.excess(); x > tolerance {
			t.Errorf("excess %v", x)
		}
		t.Logf("offered %d by source %v, slowest %v", b.offered, b.bySource, b.slowest)
	})
	t.Logf("real time %v", time.Since(begin).Round(time.Second))
}

package jatah_test

import (
	"testing"
	"time"

	"github.com/jatah-io/jatah"
)

// Leaving takes three seconds when a member does not confirm that it heard of it: here the former process of a node that was
// restarted, before it is found dead. The others divide the leaver's share after two.
func TestLeavingNodeHasNoShareWhileItSaysGoodbye(t *testing.T) {
	modes(t, func(t *testing.T, mode jatah.Mode) {
		limit := jatah.Limit{Name: "api", Rate: jatah.PerSecond(200), Burst: 10, Mode: mode, Fallback: jatah.FallbackWait}
		inBubble(t, 1, limit, 2, func(b *bubble) {
			b.start(3)
			b.generate()
			b.offer(1600)
			time.Sleep(2 * time.Second)
			b.hosts[1].crash()
			time.Sleep(500 * time.Millisecond)
			b.boot(b.hosts[1])
			time.Sleep(1500 * time.Millisecond)
			begin := b.now()
			b.hosts[0].leave()
			took := b.now() - begin
			time.Sleep(3 * time.Second)
			if x := b.excess(); x > tolerance {
				t.Errorf("excess %v while a node left for %v", x, took)
			}
		})
	})
}

package jatah_test

import (
	"testing"

	"github.com/jatah-io/jatah"
)

// A limit leaves mode split and changes its algorithm at once, while keys are in use: the node goes on.
func TestLimitLeavesSplitWithAnotherAlgorithm(t *testing.T) {
	first := slow(30, jatah.Split, jatah.FallbackShare)
	first.Algorithm = jatah.FixedWindow
	first.Rate, first.Burst = jatah.PerDay(30), 0
	inBubble(t, *firstSeed, first, 1, func(b *bubble) {
		b.start(2)
		l := b.hosts[0].life.Load()
		if n := b.hosts[0].takes(b.keys[0], 5); n != 5 {
			b.t.Fatalf("%d of 5 pass", n)
		}
		for _, next := range []jatah.Limit{slow(30, jatah.Hybrid, jatah.FallbackShare), first, slow(30, jatah.Strict, jatah.FallbackShare)} {
			if _, err := l.node.Limit(next); err != nil {
				b.t.Fatal(err)
			}
			if d := l.lim.Take(b.t.Context(), b.keys[0], 1); !d.OK {
				b.t.Errorf("in mode %v: %+v", next.Mode, d)
			}
		}
	})
}

package jatah_test

import (
	"context"
	"testing"
	"time"

	"github.com/jatah-io/jatah"
)

// A limit that queues holds back what is under it, too: who asks the child is told when to start, alone, in a batch and together with others.
func TestAQueueAboveTellsEachWhenToStart(t *testing.T) {
	inAlone(t, func(node *jatah.Node) {
		mustLimit(t, node, jatah.Limit{Name: "out", Algorithm: jatah.LeakyBucket, Rate: jatah.PerMinute(1), Queue: 9})
		tenant := mustLimit(t, node, jatah.Limit{Name: "tenant", Rate: jatah.PerSecond(100), Parent: "out"})
		ask := []jatah.Request{{Limit: "tenant", Key: "a", Cost: 1}}
		for i, take := range []func() jatah.Decision{
			func() jatah.Decision { return tenant.Take(t.Context(), "a", 1) },
			func() jatah.Decision { return tenant.Take(t.Context(), "b", 1) },
			func() jatah.Decision { return node.Batch(t.Context(), ask)[0] },
			func() jatah.Decision { return node.TakeAll(t.Context(), ask).Decisions[0] },
		} {
			if d := take(); !d.OK || d.Delay != time.Duration(i)*time.Minute {
				t.Errorf("request %d: %+v, want it to start after %d minutes", i, d, i)
			}
		}
		begun := time.Now()
		if d, err := tenant.Wait(context.Background(), "a", 1); err != nil || time.Since(begun) != 4*time.Minute {
			t.Errorf("it waited for %v: %+v, %v", time.Since(begun), d, err)
		}
	})
}

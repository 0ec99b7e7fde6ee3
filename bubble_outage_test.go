package jatah_test

import (
	"testing"
	"time"

	"github.com/jatah-io/jatah"
)

// The owner cannot be reached for a minute, in which a node is asked 200 times for each of its keys. What waits to be reported is
// a number for each key and not something for each request, and nothing of it is lost.
func TestOutageIsReportedByKeyAndInFull(t *testing.T) {
	const keys, each = 1000, 200
	modes(t, func(t *testing.T, mode jatah.Mode) {
		inBubble(t, 1, slow(1000, mode, jatah.FallbackShare), 3*keys, func(b *bubble) {
			b.tune = func(c *jatah.Config) { c.Grace = 5 * time.Minute } // no side has the whole limit meanwhile
			b.start(2)
			owner, node := b.hosts[0], b.hosts[1]
			var theirs []string
			for _, key := range b.keys {
				if len(theirs) < keys && b.owner(key) == owner {
					theirs = append(theirs, key)
					node.take(key, 1) // both know it
				}
			}
			time.Sleep(10 * time.Second)
			left := func(key string) float64 {
				st, err := node.life.Load().lim.Peek(b.t.Context(), key)
				if err != nil {
					b.problem("%s: %v", key, err)
				}
				return st.Balance + float64(st.Outstanding)
			}
			before := map[string]float64{}
			for _, key := range theirs {
				before[key] = left(key)
			}
			b.net.Partition([]string{owner.addr}, []string{node.addr})
			time.Sleep(2 * time.Second)
			var passed int64
			for range 20 {
				for _, key := range theirs {
					passed += node.takes(key, each/20)
				}
				time.Sleep(3 * time.Second)
			}
			if want := int64(len(theirs) * each); passed != want || len(theirs) != keys {
				b.t.Errorf("%d of %d requests for %d keys passed", passed, want, len(theirs))
			}
			if s := node.node().Stats(); s.Accounts > keys || s.Active > keys || s.Ledgers > keys || s.Overflows+s.Evictions > 0 {
				b.t.Errorf("%d keys: %+v", keys, s)
			}
			time.Sleep(10 * time.Second) // credit that is not used comes back: a change of owner would burn it
			b.net.Heal()
			b.together(30*time.Second, 2)
			time.Sleep(2 * time.Second)
			for _, key := range theirs {
				if used := before[key] - left(key); used < each-0.1 || used > each+0.1 {
					b.t.Errorf("%s: %.2f charged, want %d", key, used, each)
				}
			}
		})
	})
}

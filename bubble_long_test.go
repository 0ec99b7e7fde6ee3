package jatah_test

import (
	"strings"
	"testing"
	"time"

	"github.com/jatah-io/jatah"
)

// Names and keys of the greatest length fit into messages: such keys are decided, reported, kept by heirs and handed over like all others.
func TestLongestNamesAndKeys(t *testing.T) {
	for _, mode := range []jatah.Mode{jatah.Hybrid, jatah.Strict} {
		t.Run(mode.String(), func(t *testing.T) {
			limit := jatah.Limit{Name: strings.Repeat("n", 64), Rate: jatah.PerHour(1), Burst: 100, Mode: mode}
			inBubble(t, 1, limit, 0, func(b *bubble) {
				for _, c := range "abcdefghijkl" {
					b.keys = append(b.keys, strings.Repeat(string(c), jatah.MaxKey))
				}
				loneSeed(b)
				b.start(3)
				for range 10 {
					for _, h := range b.hosts {
						for _, key := range b.keys {
							if d := h.take(key, 1); !d.OK || d.Source != jatah.SourceLocal && d.Source != jatah.SourceOwner {
								t.Errorf("%s, %.3s: %+v", h.name, key, d)
							}
						}
					}
					time.Sleep(150 * time.Millisecond)
				}
				time.Sleep(10 * time.Second) // what is not used goes back
				left := func(least, most int64) {
					t.Helper()
					for _, h := range b.up() {
						for _, key := range b.keys {
							if st, err := h.life.Load().lim.Peek(b.t.Context(), key); err != nil || st.Remaining < least || st.Remaining > most {
								t.Errorf("%s, %.3s: %d are left, want %d to %d; %v", h.name, key, st.Remaining, least, most, err)
							}
						}
					}
				}
				left(70, 70)
				for _, h := range b.up() {
					if s := h.node().Stats(); s.Dropped["unsent"]+s.Dropped["malformed"]+s.Overflows > 0 {
						t.Errorf("%s: %v, %d overflows", h.name, s.Dropped, s.Overflows)
					}
				}
				b.hosts[2].leave()
				b.together(20*time.Second, 2)
				time.Sleep(3 * time.Second)
				left(70, 70)
				b.hosts[1].crash()
				b.within(40*time.Second, "the last one has all shares", func() bool { i := b.hosts[0].node().Info(); return i.K == 1 && i.Ready })
				time.Sleep(3 * time.Second)
				left(35, 70) // the share of who crashed came back without what its owner had of it
			})
		})
	}
}

package jatah_test

import (
	"log/slog"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jatah-io/jatah"
)

// dailyRules are limits of each kind that gain next to nothing in a test but over a day, and how many tokens they have; the last one's
// keys are in plan pro.
func dailyRules(mode jatah.Mode, day time.Duration) map[*jatah.Limit]int64 {
	return map[*jatah.Limit]int64{
		{Name: "fixed", Algorithm: jatah.FixedWindow, Rate: jatah.Per(100, day), Mode: mode}:                                   100,
		{Name: "log", Algorithm: jatah.SlidingLog, Rate: jatah.Per(50, day), Mode: mode}:                                       50,
		{Name: "two", Rates: []jatah.Rate{jatah.Per(60, day), jatah.Per(100, 7*day)}, Mode: mode}:                              60,
		{Name: "plan", Rate: jatah.Per(10, day), Plans: map[string]jatah.Plan{"pro": {Rate: jatah.Per(100, day)}}, Mode: mode}: 100,
	}
}

// TestEveryRuleOutlivesTheCluster: what is half used is half used after an orderly stop of all nodes, and of one that is alone, whatever the
// rule, and in the plan that it had. All limits are in one cluster, so that its start and stop are paid for once.
func TestEveryRuleOutlivesTheCluster(t *testing.T) {
	for _, mode := range []jatah.Mode{jatah.Hybrid, jatah.Strict, jatah.Split} {
		for _, together := range []bool{false, true} {
			if together && mode == jatah.Split {
				continue // nobody hands anything over
			}
			name := mode.String()
			if together {
				name += ", all together"
			}
			t.Run(name, func(t *testing.T) {
				stateful(t, daily, 1, func(b *bubble, dir string) {
					b.start(3)
					half(b.t, b, mode, true)
					time.Sleep(15 * time.Second) // credit is back
					b.stopAll(together)
					b.startAll(0)
					half(b.t, b, mode, false)
				})
			})
		}
	}
}

// half takes the first half of each limit, or what is left then, at all nodes in turn.
func half(t *testing.T, b *bubble, mode jatah.Mode, first bool) {
	t.Helper()
	for limit, burst := range dailyRules(mode, 24*time.Hour) {
		var nodes []*jatah.Limiter
		for _, h := range b.up() {
			l, err := h.node().Limit(*limit)
			if err == nil && limit.Plans != nil {
				l, err = l.Plan("pro")
			}
			if err != nil {
				t.Fatal(err)
			}
			nodes = append(nodes, l)
		}
		time.Sleep(time.Second) // records are told
		if first {
			for i := range burst / 2 {
				if d := nodes[i%3].Take(t.Context(), "k", 1); !d.OK {
					t.Fatalf("%s: token %d: %+v", limit.Name, i, d)
				}
			}
			continue
		}
		n := int64(0)
		for range 3 {
			for _, l := range nodes {
				for l.Take(t.Context(), "k", 1).OK {
					n++
				}
			}
			time.Sleep(10 * time.Second)
		}
		least, most := burst/2-1, burst/2+1
		if mode == jatah.Split {
			least -= 3 // each share loses its fraction
		}
		if n < least || n > most {
			t.Errorf("%s: %d passed after the restart, want %d to %d", limit.Name, n, least, most)
		}
	}
}

// The same for one node that is alone, where it is exact.
func TestEveryRuleOutlivesOneNode(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	for _, first := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			node, err := jatah.Start(t.Context(), jatah.Config{Node: "n", StateDir: dir, Logger: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			defer node.Close()
			for limit, burst := range dailyRules(jatah.Hybrid, 24*time.Hour) {
				l := mustLimit(t, node, *limit)
				if limit.Plans != nil {
					if l, err = l.Plan("pro"); err != nil {
						t.Fatal(err)
					}
				}
				if d := l.Take(t.Context(), "k", burst/2); !d.OK {
					t.Errorf("%s: first %v: %+v", limit.Name, first, d)
				}
				if d := l.Take(t.Context(), "k", 1); d.OK == !first {
					t.Errorf("%s: one more, first %v: %+v", limit.Name, first, d)
				} else if first {
					l.Refund(t.Context(), "k", 1)
				}
			}
		})
	}
}

// With fallback wait an orderly stop lets nothing through, of any rule, and loses nothing but of a log, for which the shares of who left
// before count as used, if limits are defined when nodes start. Keys start empty there, so the first day, of ten minutes, passes before they are used.
func TestEveryRuleOutlivesTheClusterWithWait(t *testing.T) {
	const day = 10 * time.Minute
	stateful(t, daily, 1, func(b *bubble, dir string) {
		open := func() {
			for _, h := range b.hosts {
				h.open()
				for limit := range dailyRules(jatah.Hybrid, day) {
					limit.Fallback = jatah.FallbackWait
					if _, err := h.node().Limit(*limit); err != nil {
						t.Fatal(err)
					}
				}
			}
			b.together(time.Minute, len(b.hosts))
			time.Sleep(3 * time.Second)
		}
		take := func(want func(burst int64) (least, most int64), more func(n, burst int64) bool) {
			for limit, burst := range dailyRules(jatah.Hybrid, day) {
				limit.Fallback = jatah.FallbackWait
				n := int64(0)
				for range 2 {
					for _, h := range b.up() {
						l, err := h.node().Limit(*limit)
						if err == nil && limit.Plans != nil {
							l, err = l.Plan("pro")
						}
						if err != nil {
							t.Fatal(err)
						}
						for more(n, burst) && l.Take(b.t.Context(), "k", 1).OK {
							n++
						}
					}
					time.Sleep(8500 * time.Millisecond)
				}
				least, most := want(burst)
				if limit.Algorithm == jatah.SlidingLog {
					least = 0
				}
				if n < least || n > most {
					t.Errorf("%s: %d passed, want %d to %d", limit.Name, n, least, most)
				}
			}
		}
		b.add(3)
		open()
		time.Sleep(time.Until(b.begin.Add(2*day + 10*time.Second)))
		take(func(burst int64) (int64, int64) { return burst/2 - 2, burst / 2 }, func(n, burst int64) bool { return n < burst/2 })
		time.Sleep(10 * time.Second)
		for _, h := range b.hosts {
			h.leave()
			time.Sleep(time.Second)
		}
		open()
		take(func(burst int64) (int64, int64) { return burst/2 - 5, burst/2 + burst/4 }, func(int64, int64) bool { return true })
	})
}

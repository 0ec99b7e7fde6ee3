package jatah_test

import (
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jatah-io/jatah"
)

// Where a case is about using up a number of tokens, the rate is so slow that what refills in the test is far below one.

// slow is a limit of n tokens of which none comes back during a test.
func slow(n int64, mode jatah.Mode, fb jatah.Fallback) jatah.Limit {
	return jatah.Limit{Name: "api", Rate: jatah.PerDay(1), Burst: n, Mode: mode, Fallback: fb}
}

// fill makes a key full: with fallback wait a cluster that starts gives its keys nothing in advance.
func (b *bubble) fill(key string) {
	b.t.Helper()
	if err := b.up()[0].life.Load().lim.Reset(b.t.Context(), key); err != nil {
		b.t.Fatal(err)
	}
	time.Sleep(time.Second)
}

// takes asks n times, and counts what was admitted.
func (h *host) takes(key string, n int) (ok int64) {
	for range n {
		if h.take(key, 1).OK {
			ok++
		}
	}
	return ok
}

// modes runs a test in a bubble for each mode that asks owners.
func modes(t *testing.T, f func(t *testing.T, mode jatah.Mode)) {
	for _, mode := range []jatah.Mode{jatah.Hybrid, jatah.Strict} {
		t.Run(mode.String(), func(t *testing.T) { f(t, mode) })
	}
}

// One token per 30 s, asked for at two nodes in turn: the node that does not own the key must not answer from what it
// knew before.
func TestOneTokenIsSpentOnceWhicheverNodeIsAsked(t *testing.T) {
	modes(t, func(t *testing.T, mode jatah.Mode) {
		limit := jatah.Limit{Name: "api", Rate: jatah.Per(1, 30*time.Second), Burst: 1, Mode: mode}
		inBubble(t, 1, limit, 1, func(b *bubble) {
			b.start(2)
			for i := range 30 {
				key := fmt.Sprint("k", i%4) // several, so that both nodes own some
				for j := range 8 {
					h := b.hosts[(i+j)%2]
					if d := h.take(key, 1); d.OK && d.Remaining != 0 || !d.OK && (d.Remaining != 0 || d.RetryAfter > 30*time.Second) {
						t.Errorf("%s %s: %+v", h.name, key, d)
					}
				}
				time.Sleep(100 * time.Millisecond)
			}
			for i := range 4 {
				if n := b.admitted(fmt.Sprint("k", i)); n != 1 {
					t.Errorf("key k%d: %d admitted, want 1", i, n)
				}
			}
		})
	})
}

// The owner of a key is killed after 8 of 10 tokens were used: at most 2 are left, whoever is asked. The new owner gives out what
// the shares that still are there have of them, 2/3, in whole tokens. With fallback wait it starts empty.
func TestCrashedOwnerLeavesWhatIsLeft(t *testing.T) {
	modes(t, func(t *testing.T, mode jatah.Mode) {
		for fb, want := range map[jatah.Fallback][2]int64{jatah.FallbackShare: {9, 10}, jatah.FallbackWait: {8, 8}} {
			t.Run(fb.String(), func(t *testing.T) {
				inBubble(t, 1, slow(10, mode, fb), 1, func(b *bubble) {
					b.start(3)
					key := b.keys[0]
					b.fill(key)
					for i := range 8 {
						if d := b.hosts[i%3].take(key, 1); !d.OK {
							t.Errorf("request %d: %+v", i, d)
						}
						time.Sleep(500 * time.Millisecond)
					}
					time.Sleep(16 * time.Second)
					o := b.owner(key)
					o.crash()
					for i := range 50 {
						b.others(o)[i%2].take(key, 1)
						time.Sleep(time.Second)
					}
					if n := b.admitted(key); n < want[0] || n > want[1] {
						t.Errorf("%d admitted of 10, want %v; %v", n, want, b.bySource)
					}
					if b.slowest > 60*time.Millisecond {
						t.Errorf("a decision took %v", b.slowest)
					}
				})
			})
		}
	})
}

// An owner hangs, not long enough to be declared dead, while the other two nodes are asked 200 times each: they spend
// their shares of 100 tokens and say so, and what they spent is known to the owner when it is back.
func TestSilentOwnerIsReplacedByShares(t *testing.T) {
	for fb, max := range map[jatah.Fallback]int64{jatah.FallbackShare: 34, jatah.FallbackWait: 0, jatah.FallbackDeny: 0, jatah.FallbackAllow: 200} {
		modes(t, func(t *testing.T, mode jatah.Mode) {
			t.Run(fb.String(), func(t *testing.T) {
				inBubble(t, 1, slow(100, mode, fb), 1, func(b *bubble) {
					b.start(3)
					key := b.keys[0]
					b.fill(key)
					o := b.owner(key)
					others := b.others(o)
					for _, h := range others { // they know the key, and hold what mode hybrid grants
						h.take(key, 1)
					}
					time.Sleep(7 * time.Second)
					o.pause()
					time.Sleep(time.Second)
					var sources []jatah.Source
					b.notable = func(_ *host, _ string, d jatah.Decision) { sources = append(sources, d.Source) }
					for _, h := range others {
						got := h.takes(key, 200)
						if got > max || fb == jatah.FallbackShare && got < 20 || fb == jatah.FallbackAllow && got != 200 {
							t.Errorf("%s admits %d, want at most %d", h.name, got, max)
						}
						counted := uint64(0)
						for _, c := range h.node().Stats().Limits[0].Decisions {
							if c.Source != jatah.SourceLocal && c.Source != jatah.SourceOwner {
								counted += c.Count
							}
						}
						if counted < 200 {
							t.Errorf("%s counts %d decisions by fallback, want 200", h.name, counted)
						}
					}
					if i := slices.IndexFunc(sources, func(s jatah.Source) bool { return s == jatah.SourceLocal || s == jatah.SourceOwner }); i >= 0 {
						t.Errorf("decision %d says %v", i, sources[i])
					}
					if b.slowest > 60*time.Millisecond {
						t.Errorf("a decision took %v", b.slowest)
					}
					time.Sleep(time.Second)
					o.resume()
					b.together(30*time.Second, 3)
					time.Sleep(2 * time.Second)
					st, err := others[0].life.Load().lim.Peek(b.t.Context(), key)
					if spent := b.admitted(key); err != nil || fb != jatah.FallbackAllow && float64(100-spent) < st.Balance+float64(st.Outstanding)-0.01 {
						t.Errorf("%d of 100 were spent, but the owner's books say %+v, %v", spent, st, err)
					}
				})
			})
		})
	}
}

// A node alone has nobody to report to.
func TestNodeAloneKeepsNothingToReport(t *testing.T) {
	limit := jatah.Limit{Name: "api", Rate: jatah.PerSecond(1000), Burst: 1000}
	inBubble(t, 1, limit, 1, func(b *bubble) {
		b.start(1)
		b.generate()
		b.offer(3000)
		for range 20 {
			time.Sleep(time.Second)
			s := b.hosts[0].node().Stats()
			if s.Active > 1 || s.Ask.InFlight > 0 || s.Ask.TimedOut > 0 || s.Overflows > 0 || s.Debt > 0 {
				t.Errorf("%+v", s)
			}
		}
		b.offer(0)
		time.Sleep(6 * time.Second)
		if s := b.hosts[0].node().Stats(); s.Active != 0 {
			t.Errorf("%d accounts have something to report", s.Active)
		}
		if n := b.admitted("key-0"); n < 20*1000*98/100 || b.excess() > tolerance {
			t.Errorf("%d admitted in 20 s, excess %v", n, b.excess())
		}
	})
}

// A node that left in good order comes back elsewhere under its name.
func TestNameComesBackAtAnotherAddress(t *testing.T) {
	inBubble(t, 1, slow(50, jatah.Hybrid, jatah.FallbackShare), 8, func(b *bubble) {
		var lines lines
		b.tune = func(c *jatah.Config) { c.Logger = slog.New(slog.NewTextHandler(&lines, nil)) }
		b.start(3)
		old := b.hosts[1]
		old.leave()
		time.Sleep(time.Second)
		again := &host{b: b, name: old.name, addr: "10.9.9.9:7946", weight: 1}
		b.hosts[1] = again
		again.open()
		took := b.within(5*time.Second, "n2 is alive at its new address everywhere", func() bool {
			for _, h := range b.up() {
				m := h.node().Info().Members
				i := slices.IndexFunc(m, func(m jatah.MemberInfo) bool { return m.Name == "n2" && m.State == jatah.Alive && m.Addr == again.addr })
				if i < 0 || h.alive() != 3 {
					return false
				}
			}
			return true
		})
		t.Logf("seen everywhere after %v", took)
		b.together(10*time.Second, 3)
		time.Sleep(time.Second)
		owned := 0
		for _, key := range b.keys {
			if b.owner(key) == again {
				owned++
			}
			for _, h := range b.hosts {
				if d := h.take(key, 1); !d.OK {
					t.Errorf("%s at %s: %+v", key, h.name, d)
				}
			}
		}
		if owned == 0 {
			t.Error("the new n2 owns no key")
		}
		if n := lines.count("conflict", "name is taken"); n > 1 {
			t.Errorf("%d lines about a conflict:\n%s", n, lines.String())
		}
	})
}

// A second live process with a name that is taken must not start, and must not disturb.
func TestSecondProcessOfANameIsRefused(t *testing.T) {
	inBubble(t, 1, slow(50, jatah.Hybrid, jatah.FallbackShare), 1, func(b *bubble) {
		b.start(2)
		owners := func() (s string) {
			for _, h := range b.up() {
				for _, m := range h.node().Info().Members {
					s += fmt.Sprintln(h.name, m.Name, m.Addr, m.Incarnation, m.Partitions, m.State)
				}
			}
			return s
		}
		before := owners()
		second := &host{b: b, name: "n2", addr: "10.9.9.9:7946"}
		begin := b.now()
		_, err := second.try()
		if took := b.now() - begin; err == nil || !strings.Contains(err.Error(), `n2`) || !strings.Contains(err.Error(), b.hosts[1].addr) || took > 10*time.Second {
			t.Errorf("after %v: %v; want within 10 s an error with the name and the address that holds it", took, err)
		}
		for range 60 {
			time.Sleep(time.Second)
			if now := owners(); now != before {
				b.t.Fatalf("members were\n%sand are\n%s", before, now)
			}
		}
	})
}

// A partition of two minutes, longer than grace: each side enforces the whole limit, and what both spent counts afterwards.
func TestLongPartitionHealsAndCountsBothSides(t *testing.T) {
	modes(t, func(t *testing.T, mode jatah.Mode) {
		limit := slow(10, mode, jatah.FallbackShare)
		inBubble(t, 1, limit, 1, func(b *bubble) {
			b.start(3)
			key := b.keys[0]
			left, right := b.hosts[:2], b.hosts[2]
			b.net.Partition([]string{left[0].addr, left[1].addr}, []string{right.addr})
			time.Sleep(10 * time.Second)
			a, c := left[0].takes(key, 12), right.takes(key, 12)
			if a > 10 || c > 10 || a+c == 0 {
				t.Errorf("%d and %d admitted, want at most 10 on each side, and some", a, c)
			}
			time.Sleep(50 * time.Second) // grace is over
			a += left[1].takes(key, 12)
			c += right.takes(key, 12)
			if a > 10 || c > 10 {
				t.Errorf("%d and %d admitted after a minute, want at most 10 on each side", a, c)
			}
			t.Logf("admitted on each side: %d, %d", a, c)
			time.Sleep(time.Minute)
			b.net.Heal()
			took := b.together(time.Minute, 3)
			t.Logf("together again after %v", took)
			time.Sleep(time.Minute - took)
			if b.excess() > 10 {
				t.Errorf("excess %v, at most the burst", b.excess())
			}
			for _, h := range b.hosts {
				d := h.take(key, 1)
				if a+c >= 10 && (d.OK || d.Remaining != 0 || d.RetryAfter <= 0) {
					t.Errorf("%s: %+v after %d of 10 were admitted", h.name, d, a+c)
				}
			}
		})
	})
}

// No absolute time travels between nodes: what they say of a key is the same, whenever they were started.
func TestNodesAgreeOnWaitsWithoutAgreeingOnTime(t *testing.T) {
	modes(t, func(t *testing.T, mode jatah.Mode) {
		limit := jatah.Limit{Name: "api", Rate: jatah.PerMinute(1), Burst: 10, Mode: mode}
		inBubble(t, 1, limit, 1, func(b *bubble) {
			b.add(3)
			for _, h := range b.hosts { // the clocks of nodes count from their starts
				h.open()
				time.Sleep(37 * time.Second)
			}
			b.together(30*time.Second, 3)
			time.Sleep(5 * time.Second)
			key := b.keys[0]
			b.fill(key) // shares that changed hands while the cluster grew were nobody's for a while
			o := b.owner(key)
			begin := b.now()
			if got := b.others(o)[0].takes(key, 11); got != 10 {
				t.Errorf("%d admitted, want 10", got)
			}
			time.Sleep(30 * time.Second)
			for _, h := range b.hosts {
				d := h.take(key, 1)
				if left := time.Minute - (b.now() - begin); d.OK || (d.RetryAfter-left).Abs() > 200*time.Millisecond {
					t.Errorf("%s: %+v, want a wait of %v", h.name, d, left)
				}
				st, err := h.life.Load().lim.Peek(b.t.Context(), key)
				if left := 10*time.Minute - (b.now() - begin); err != nil || st.Remaining != 0 || (st.ResetAfter-left).Abs() > 200*time.Millisecond {
					t.Errorf("%s: %+v, %v, want full in %v", h.name, st, err, left)
				}
			}
			time.Sleep(time.Minute + 200*time.Millisecond - (b.now() - begin))
			var got int64
			for _, h := range b.hosts {
				got += h.takes(key, 1)
			}
			if got != 1 {
				t.Errorf("%d admitted after a minute, want 1", got)
			}
		})
	})
}

// lines is a log that can be counted. It implements io.Writer.
type lines struct {
	mu  sync.Mutex
	all []string
}

var _ io.Writer = (*lines)(nil)

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, string(b))
	return len(b), nil
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.all, "")
}

func (l *lines) count(words ...string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.all {
		if slices.ContainsFunc(words, func(w string) bool { return strings.Contains(strings.ToLower(s), w) }) {
			n++
		}
	}
	return n
}

package jatah_test

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/jatah-io/jatah"
)

// decisions sums what a node counted of a limit.
func decisions(n *jatah.Node, limit string) (allowed, denied, dry uint64) {
	for _, l := range n.Stats().Limits {
		if l.Name == limit {
			for _, c := range l.Decisions {
				if c.Allowed {
					allowed += c.Count
				} else {
					denied += c.Count
				}
			}
			dry = l.DryRun
		}
	}
	return allowed, denied, dry
}

// loneSeed makes hosts that know of the first only, so that this one may be the only member.
func loneSeed(b *bubble) {
	b.tune = func(c *jatah.Config) { c.Join = []string{b.hosts[0].addr} }
}

// A node that was alone gets company and is left alone again, while requests go on: nothing is admitted beyond the limit, what was used stays used, and what
// is there is given. Every decision is counted once, whichever way it was made.
func TestCompanyComesAndGoesWhileTakesGoOn(t *testing.T) {
	for _, fb := range []jatah.Fallback{jatah.FallbackShare, jatah.FallbackWait} {
		t.Run(fb.String(), func(t *testing.T) {
			limit := jatah.Limit{Name: "api", Rate: jatah.PerSecond(50), Burst: 40, Fallback: fb}
			inBubble(t, 1, limit, 20, func(b *bubble) {
				loneSeed(b)
				var mu sync.Mutex
				made := map[string]uint64{}
				b.notable = func(h *host, _ string, d jatah.Decision) {
					if d.Err == nil {
						mu.Lock()
						made[h.name]++
						mu.Unlock()
					}
				}
				b.start(1)
				b.add(1)
				n := b.hosts[0].node()
				slow, err := n.Limit(jatah.Limit{Name: "slow", Rate: jatah.PerHour(1), Burst: 100, Fallback: fb})
				if err != nil {
					t.Fatal(err)
				}
				if fb == jatah.FallbackShare { // the others start empty
					for i := range 50 {
						for range i {
							if d := slow.Take(context.Background(), fmt.Sprint("s", i), 1); !d.OK {
								t.Fatalf("%+v", d)
							}
						}
					}
				}
				b.generate()
				b.offer(4000)
				time.Sleep(5 * time.Second)
				second := b.hosts[1]
				second.open()
				far, err := second.node().Limit(jatah.Limit{Name: "slow", Rate: jatah.PerHour(1), Burst: 100, Fallback: fb})
				if err != nil {
					t.Fatal(err)
				}
				b.together(20*time.Second, 2)
				time.Sleep(5 * time.Second)
				if fb == jatah.FallbackShare {
					for i := range 50 {
						if st, err := far.Peek(context.Background(), fmt.Sprint("s", i)); err != nil || st.Remaining > int64(100-i) || st.Remaining < int64(100-i)-1 {
							t.Errorf("%d of 100 were used, the second node sees %d left: %v", i, st.Remaining, err)
						}
					}
				}
				b.offer(0)
				time.Sleep(time.Second)
				mu.Lock()
				want := maps.Clone(made)
				mu.Unlock()
				for _, h := range b.hosts {
					if allowed, denied, _ := decisions(h.node(), "api"); allowed+denied != want[h.name] {
						t.Errorf("%s: %d were allowed and %d denied, it made %d decisions", h.name, allowed, denied, want[h.name])
					}
				}
				b.offer(4000)
				second.leave()
				b.together(20*time.Second, 1)
				from := b.admittedOfAll()
				begin := b.now()
				time.Sleep(10 * time.Second)
				got, full := b.admittedOfAll()-from, int64((b.now()-begin).Seconds()*50*20)
				if got < full*97/100 {
					t.Errorf("alone again it admits %d of %d", got, full)
				}
				if fb == jatah.FallbackShare {
					for i := range 50 {
						if d := slow.Take(context.Background(), fmt.Sprint("s", i), int64(100-i)); !d.OK && i != 0 {
							if d := slow.Take(context.Background(), fmt.Sprint("s", i), int64(99-i)); !d.OK {
								t.Errorf("alone again, %d of 100 were used: %+v", i, d)
							}
						}
						if d := slow.Take(context.Background(), fmt.Sprint("s", i), 2); d.OK {
							t.Errorf("alone again, used up: %+v", d)
						}
					}
				}
				if x := b.excess(); x > tolerance {
					t.Errorf("excess %v", x)
				}
				b.offer(0)
				time.Sleep(time.Second)
				mu.Lock()
				last := made[b.hosts[0].name]
				mu.Unlock()
				if allowed, denied, _ := decisions(n, "api"); allowed+denied != last {
					t.Errorf("%d were allowed and %d denied, it made %d decisions", allowed, denied, last)
				}
			})
		})
	}
}

func (b *bubble) admittedOfAll() (n int64) {
	for _, k := range b.keys {
		n += b.admitted(k)
	}
	return n
}

// A dry run of the only member refuses nobody, and counts whom it would have refused.
func TestDryRunOfTheOnlyMember(t *testing.T) {
	limit := jatah.Limit{Name: "api", Rate: jatah.PerHour(1), Burst: 10, DryRun: true}
	inBubble(t, 1, limit, 1, func(b *bubble) {
		loneSeed(b)
		b.start(1)
		l := b.hosts[0].life.Load()
		for i := range 25 {
			d := l.lim.Take(context.Background(), "k", 1)
			if !d.OK || d.DryRun != (i >= 10) {
				t.Errorf("the %d-th: %+v", i+1, d)
			}
		}
		for range 5 { // none of it is a decision that a dry run could turn
			l.lim.Take(context.Background(), "k", 0)
		}
		if d := l.lim.Take(context.Background(), "k", 11); !d.OK || !d.DryRun || d.RetryAfter != jatah.Never {
			t.Errorf("above the burst: %+v", d)
		}
		if allowed, denied, dry := decisions(l.node, "api"); allowed != 15 || denied != 16 || dry != 16 {
			t.Errorf("%d allowed, %d denied, %d of them let pass", allowed, denied, dry)
		}
		limit.DryRun = false
		if _, err := l.node.Limit(limit); err != nil {
			t.Fatal(err)
		}
		if d := l.lim.Take(context.Background(), "k", 1); d.OK || d.DryRun || d.Remaining != 0 {
			t.Errorf("in earnest: %+v", d)
		}
	})
}

// Close while takes go on: each is decided or told that the node is closed, and a new process of the name knows all that was used.
func TestTheOnlyMemberIsClosedWhileTakesGoOn(t *testing.T) {
	const burst, keys = 100_000, 8
	limit := jatah.Limit{Name: "api", Rate: jatah.PerHour(1), Burst: burst}
	stateful(t, limit, 1, func(b *bubble, _ string) {
		tune := b.tune
		b.tune = func(c *jatah.Config) { tune(c); c.Join = []string{b.hosts[0].addr} }
		b.start(1)
		h := b.hosts[0]
		l := h.life.Load()
		var wg sync.WaitGroup
		var used [4][keys]int64
		for g := range used {
			wg.Go(func() {
				for i := 0; ; i++ {
					d := l.lim.Take(context.Background(), fmt.Sprint("k", i%keys), 1)
					if d.Err != nil {
						return
					}
					if d.OK {
						used[g][i%keys]++
					}
					if i%100 == 0 {
						time.Sleep(time.Millisecond)
					}
				}
			})
		}
		time.Sleep(300*time.Millisecond + 1)
		h.leave()
		wg.Wait()
		h.open()
		if err := h.node().Wait(context.Background()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Second)
		for i := range keys {
			var sum int64
			for g := range used {
				sum += used[g][i]
			}
			d := h.life.Load().lim.Take(context.Background(), fmt.Sprint("k", i), 0)
			if sum == 0 || d.Remaining != burst-sum {
				t.Errorf("%d were used of %d, and %d remain", sum, burst, d.Remaining)
			}
		}
	})
}

package jatah_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/jatah-io/jatah"
)

// stateful is a bubble whose nodes keep their state, each in a directory of its own.
func stateful(t *testing.T, limit jatah.Limit, keys int, f func(b *bubble, dir string)) {
	dir := t.TempDir()
	inBubble(t, 1, limit, keys, func(b *bubble) {
		b.tune = func(c *jatah.Config) { c.StateDir = filepath.Join(dir, c.Node) }
		f(b, dir)
	})
}

func (h *host) stateFile(dir string) string { return filepath.Join(dir, h.name, h.name+".state") }

// crashAll ends all processes at once as a power cut does: what is on disk stays as it is.
func (b *bubble) crashAll(dir string) {
	b.t.Helper()
	files := map[string][]byte{}
	var ended sync.WaitGroup
	for _, h := range b.up() {
		data, err := os.ReadFile(h.stateFile(dir))
		if err != nil {
			b.t.Fatal(err)
		}
		files[h.stateFile(dir)] = data
		b.net.Crash(h.addr)
		l := h.life.Swap(nil)
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		ended.Go(func() { l.node.Shutdown(ctx) }) // to end its goroutines and its lock
	}
	ended.Wait()
	for name, data := range files {
		if err := os.WriteFile(name, data, 0o600); err != nil {
			b.t.Fatal(err)
		}
	}
}

// stopAll ends all processes in good order: one after the other, or all at the same time.
func (b *bubble) stopAll(together bool) {
	var ended sync.WaitGroup
	for _, h := range b.up() {
		if together {
			ended.Go(h.leave)
			continue
		}
		h.leave()
		time.Sleep(time.Second)
	}
	ended.Wait()
}

// startAll starts a process on each host, some time apart.
func (b *bubble) startAll(apart time.Duration) {
	b.t.Helper()
	for _, h := range b.hosts {
		h.open()
		time.Sleep(apart)
	}
	b.together(time.Minute, len(b.hosts))
	time.Sleep(3 * time.Second)
}

// use takes so many tokens of each key, at all nodes in turn.
func (b *bubble) use(n int) {
	b.t.Helper()
	up := b.up()
	for _, key := range b.keys {
		for i := range n {
			if d := up[i%len(up)].take(key, 1); !d.OK {
				b.t.Fatalf("%s: token %d of %d: %+v", key, i, n, d)
			}
		}
	}
}

// drain takes all that is left of each key, and checks how much was admitted in all.
func (b *bubble) drain(least, most int64) {
	b.t.Helper()
	for range 4 {
		for _, key := range b.keys {
			for _, h := range b.up() {
				for h.take(key, 1).OK {
				}
			}
		}
		time.Sleep(10 * time.Second) // credit that another node holds comes back
	}
	for _, key := range b.keys {
		if n := b.admitted(key); n < least || n > most {
			b.t.Errorf("%s: %d tokens were admitted in all, want %d to %d", key, n, least, most)
		}
	}
}

var daily = jatah.Limit{Name: "api", Rate: jatah.Per(100, 24*time.Hour), Burst: 100}

func allModes(t *testing.T, f func(t *testing.T, limit jatah.Limit)) {
	for _, mode := range []jatah.Mode{jatah.Hybrid, jatah.Strict, jatah.Split} {
		t.Run(mode.String(), func(t *testing.T) {
			limit := daily
			limit.Mode = mode
			f(t, limit)
		})
	}
}

// A daily quota that is half used is half used after the whole cluster was stopped, however it was stopped and is started.
func TestQuotaOutlivesTheCluster(t *testing.T) {
	for _, how := range []struct {
		name     string
		crash    bool
		together bool
		apart    time.Duration
	}{
		{name: "one after the other"},
		{name: "one after the other, started apart", apart: 7 * time.Second},
		{name: "all together", together: true},
		{name: "power cut", crash: true},
		{name: "power cut, started apart", crash: true, apart: 7 * time.Second},
	} {
		t.Run(how.name, func(t *testing.T) {
			allModes(t, func(t *testing.T, limit jatah.Limit) {
				if how.apart > 0 && limit.Mode == jatah.Strict {
					t.Skip("owners do the same as for hybrid")
				}
				stateful(t, limit, 4, func(b *bubble, dir string) {
					b.start(3)
					b.use(50)
					time.Sleep(20 * time.Second) // credit is back, and all is on disk
					if how.crash {
						b.crashAll(dir)
					} else {
						b.stopAll(how.together)
					}
					time.Sleep(30 * time.Second)
					b.startAll(how.apart)
					time.Sleep(5 * time.Second)
					least := int64(98)
					if limit.Mode == jatah.Split {
						least = 94 // each share loses its fraction
					}
					b.drain(least, 101)
					if x := b.excess(); x > tolerance {
						t.Errorf("excess %v", x)
					}
				})
			})
		})
	}
}

// What was not yet on disk is all that a power cut forgets.
func TestPowerCutForgetsOneInterval(t *testing.T) {
	allModes(t, func(t *testing.T, limit jatah.Limit) {
		stateful(t, limit, 2, func(b *bubble, dir string) {
			b.start(3)
			const each = 200 * time.Millisecond
			up := b.up()
			for i := range 60 {
				for _, key := range b.keys {
					up[i%3].take(key, 1)
				}
				time.Sleep(each)
			}
			b.crashAll(dir)
			time.Sleep(10 * time.Second)
			b.startAll(0)
			b.drain(75, 101+int64(5*time.Second/each)+1)
		})
	})
}

// Time that passes while nobody runs refills the quota, as it would have.
func TestStoppedClusterRefills(t *testing.T) {
	allModes(t, func(t *testing.T, limit jatah.Limit) {
		stateful(t, limit, 2, func(b *bubble, dir string) {
			b.start(3)
			b.use(90)
			time.Sleep(20 * time.Second)
			b.stopAll(false)
			time.Sleep(6 * time.Hour) // 25 tokens
			b.startAll(0)
			least := int64(123)
			if limit.Mode == jatah.Split {
				least = 119
			}
			b.drain(least, 126)
		})
	})
}

// With fallback wait nothing is let through beyond the limit, also across a power cut; after an orderly stop nothing is lost.
func TestStateWithFallbackWait(t *testing.T) {
	for _, crash := range []bool{false, true} {
		t.Run(fmt.Sprint("crash ", crash), func(t *testing.T) {
			modes(t, func(t *testing.T, mode jatah.Mode) {
				limit := jatah.Limit{Name: "api", Rate: jatah.Per(100, 5*time.Minute), Burst: 100, Mode: mode, Fallback: jatah.FallbackWait}
				stateful(t, limit, 3, func(b *bubble, dir string) {
					b.start(3)
					time.Sleep(5 * time.Minute)
					b.keys = b.keys[:2]
					b.use(50)
					time.Sleep(20 * time.Second)
					b.use(2)
					if crash {
						b.crashAll(dir)
					} else {
						time.Sleep(20 * time.Second)
						b.stopAll(false)
					}
					b.startAll(0)
					b.keys = []string{"key-0", "key-1", "key-2"}
					for _, key := range b.keys {
						st, err := b.hosts[0].life.Load().lim.Peek(b.t.Context(), key)
						low := map[bool]float64{false: 50, true: 0}[crash]
						if key == "key-2" && !crash {
							low = 95 // nobody ever used it
						}
						if whole := st.Balance + float64(st.Outstanding); err != nil || whole < low {
							t.Errorf("%s: %+v, %v; want at least %v", key, st, err, low)
						}
					}
					for range 3 {
						for _, key := range b.keys {
							for _, h := range b.up() {
								for h.take(key, 1).OK {
								}
							}
						}
						time.Sleep(2 * time.Second)
					}
					if x := b.excess(); x > tolerance {
						t.Errorf("excess %v", x)
					}
				})
			})
		})
	}
}

// Files of before are used up: a rolling restart, and a node that comes back late, do not bring an old balance back, nor charge it twice.
func TestOldStateStaysInThePast(t *testing.T) {
	modes(t, func(t *testing.T, mode jatah.Mode) {
		limit := daily
		limit.Mode = mode
		stateful(t, limit, 3, func(b *bubble, dir string) {
			b.start(3)
			b.use(30)
			time.Sleep(20 * time.Second)
			b.stopAll(true)
			b.startAll(0)
			b.use(30)
			time.Sleep(10 * time.Second)
			for range 2 {
				for _, h := range b.hosts { // rolling
					h.leave()
					time.Sleep(5 * time.Second)
					h.open()
					b.together(time.Minute, 3)
					time.Sleep(5 * time.Second)
				}
			}
			// One crashes with a full file, and comes back to a cluster that went on.
			h := b.hosts[1]
			old, err := os.ReadFile(h.stateFile(dir))
			if err != nil {
				t.Fatal(err)
			}
			h.crash()
			time.Sleep(25 * time.Second)
			if err := os.WriteFile(h.stateFile(dir), old, 0o600); err != nil {
				t.Fatal(err)
			}
			h.open()
			b.together(time.Minute, 3)
			time.Sleep(75 * time.Second)
			b.drain(80, 101) // the crash costs a third of what is left: the share that was not there
		})
	})
}

// Who leaves while others stay keeps nothing: its file would be out of date in a moment.
func TestLeaverEmptiesItsFile(t *testing.T) {
	stateful(t, daily, 20, func(b *bubble, dir string) {
		b.start(3)
		empty, err := os.Stat(b.hosts[0].stateFile(dir))
		if err != nil {
			t.Fatal(err)
		}
		b.use(1)
		time.Sleep(20 * time.Second)
		full, err := os.Stat(b.hosts[0].stateFile(dir))
		if err != nil || full.Size() < empty.Size()+100 {
			t.Errorf("%v bytes while it owns keys, %v before", full.Size(), empty.Size())
		}
		b.hosts[0].leave()
		if left, err := os.Stat(b.hosts[0].stateFile(dir)); err != nil || left.Size() > empty.Size()+16 {
			t.Errorf("%v bytes after it left, %v at its start", left.Size(), empty.Size())
		}
	})
}

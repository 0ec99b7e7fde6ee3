package jatah_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jatah-io/jatah"
)

// takeAll asks for several keys of the bubble's limit at one host, and tells the oracle.
func (h *host) takeAll(reqs []jatah.Request) (r jatah.Result) {
	b, l := h.b, h.life.Load()
	if l == nil || h.paused.Load() {
		return r
	}
	begin := b.now()
	r = l.node.TakeAll(context.Background(), reqs)
	took := b.now() - begin
	if h.life.Load() != l || errors.Is(r.Err, jatah.ErrClosed) {
		return r
	}
	if r.Err != nil || r.OK != (len(r.Violated) == 0) || r.OK != (r.RetryAfter == 0) {
		b.problem("%s: impossible result %+v", h.name, r)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.offered++
	b.slowest = max(b.slowest, took)
	if r.OK {
		for _, q := range reqs {
			b.meter(q.Key).admit(b.now(), q.Cost)
		}
	}
	return r
}

// contend makes every host ask at once for random sets of keys, n times each from several goroutines.
func (b *bubble) contend(n int, every time.Duration) {
	var all sync.WaitGroup
	for i, h := range b.hosts {
		for j := range 4 {
			rng := rand.New(rand.NewPCG(b.seed, uint64(2000+10*i+j)))
			all.Go(func() {
				for range n {
					var reqs []jatah.Request
					for _, k := range rng.Perm(len(b.keys))[:2+rng.IntN(2)] {
						reqs = append(reqs, jatah.Request{Limit: b.limit.Name, Key: b.keys[k], Cost: 1 + rng.Int64N(3)})
					}
					h.takeAll(reqs)
					time.Sleep(time.Duration(rng.ExpFloat64() * float64(every)))
				}
			})
		}
	}
	all.Wait()
}

// left is what the owner of a key has for it, in its pool and out as credit.
func (b *bubble) left(key string) int64 {
	b.t.Helper()
	st, err := b.up()[0].life.Load().lim.Peek(b.t.Context(), key)
	if err != nil {
		b.t.Fatalf("seed %d: %v", b.seed, err)
	}
	return st.Remaining
}

// Three nodes, many take-alls at once over keys that overlap and have different owners: each key is charged what the
// admitted ones wanted of it, to the token. What is left can be had.
func TestTakeAllsThatContendAreChargedWholeOrNotAtAll(t *testing.T) {
	modes(t, func(t *testing.T, mode jatah.Mode) {
		for i := range count(1)/4 + 1 {
			seed := *firstSeed + i
			inBubble(t, seed, slow(300, mode, jatah.FallbackShare), 6, func(b *bubble) {
				b.start(3)
				for _, k := range b.keys {
					b.fill(k)
				}
				owners := map[*host]bool{}
				for _, k := range b.keys {
					owners[b.owner(k)] = true
				}
				b.contend(60, 5*time.Millisecond)
				time.Sleep(15 * time.Second) // idle credit has gone back
				for _, k := range b.keys {
					used := b.admitted(k)
					if got := b.left(k); got != 300-used || used > 300 {
						t.Errorf("seed %d: %s has %d left of 300, %d were admitted", seed, k, got, used)
					}
					time.Sleep(time.Second) // a look tells of demand that was refused long ago, which may bring a token of credit: it is idle by now
					if got := b.left(k); got > 0 {
						time.Sleep(time.Second)
						if d := b.hosts[i%3].take(k, got); !d.OK {
							t.Errorf("seed %d: %d of %s cannot be had: %+v", seed, got, k, d)
						}
					}
				}
				if len(owners) < 2 {
					t.Errorf("seed %d: one node owns every key", seed)
				}
			})
		}
	})
}

// The owner of one of the keys is killed half-way. Nothing is let through beyond the promise, and nothing leaks: the keys whose
// owner lives are charged what was admitted, and when the owner is back and had a while to itself all are full.
func TestTakeAllsOutliveAnOwner(t *testing.T) {
	modes(t, func(t *testing.T, mode jatah.Mode) {
		for _, fb := range []jatah.Fallback{jatah.FallbackWait, jatah.FallbackShare} {
			for i := range count(1)/6 + 1 {
				seed := *firstSeed + i
				limit := jatah.Limit{Name: "api", Rate: jatah.PerSecond(20), Burst: 60, Mode: mode, Fallback: fb}
				inBubble(t, seed, limit, 5, func(b *bubble) {
					b.start(3)
					for _, k := range b.keys {
						b.fill(k)
					}
					b.weather(rough(0.02))
					o := b.owner(b.keys[0])
					time.AfterFunc(time.Second, o.crash)
					b.contend(100, 20*time.Millisecond)
					b.weather(rough(0))
					b.boot(o)
					b.together(90*time.Second, 3)
					time.Sleep(20 * time.Second)
					for _, k := range b.keys {
						if got := b.left(k); got != 60 {
							t.Errorf("seed %d %v: %s has %d left of 60 after a long rest", seed, fb, k, got)
						}
					}
					most := tolerance
					if fb == jatah.FallbackShare {
						most += 60
					}
					if x := b.excess(); x > most {
						t.Errorf("seed %d %v: excess %v, at most %v is promised", seed, fb, x, most)
					}
					if b.slowest > longestDecision {
						t.Errorf("seed %d: a take-all took %v", seed, b.slowest)
					}
				})
			}
		}
	})
}

// A tenant's key stands under a total that all tenants share, wherever they are asked, and whoever owns the keys.
func TestTenantsShareTheirParent(t *testing.T) {
	modes(t, func(t *testing.T, mode jatah.Mode) {
		inBubble(t, *firstSeed, slow(40, mode, jatah.FallbackShare), 1, func(b *bubble) { // of each tenant
			b.start(3)
			total, child := slow(100, mode, jatah.FallbackShare), b.limit
			total.Name, child.Parent = "total", "total"
			for _, h := range b.hosts {
				if _, err := h.node().Limit(child); !errors.Is(err, jatah.ErrLimit) {
					t.Errorf("the parent is unknown: %v", err)
				}
				if _, err := h.node().Limit(total); err != nil {
					t.Fatal(err)
				}
				if _, err := h.node().Limit(child); err != nil {
					t.Fatal(err)
				}
				total.Parent = "api"
				if _, err := h.node().Limit(total); !errors.Is(err, jatah.ErrLimit) {
					t.Errorf("a circle: %v", err)
				}
				total.Parent = ""
				if l, _ := h.node().Lookup("api"); l.Limit().Parent != "total" {
					t.Errorf("%+v", l.Limit())
				}
			}
			var mu sync.Mutex
			var passed int64
			used := map[string]int64{}
			var all sync.WaitGroup
			for i := range 6 {
				all.Go(func() {
					tenant := fmt.Sprint("tenant-", i%4)
					for range 40 {
						if b.hosts[i%3].life.Load().lim.Take(context.Background(), tenant, 1).OK {
							mu.Lock()
							passed++
							used[tenant]++
							mu.Unlock()
						}
						time.Sleep(10 * time.Millisecond)
					}
				})
			}
			all.Wait()
			time.Sleep(15 * time.Second)
			l, _ := b.hosts[0].node().Lookup("total")
			st, err := l.Peek(b.t.Context(), "total")
			if err != nil || st.Remaining != 100-passed || passed < 80 || passed > 100 {
				t.Errorf("%d passed of 100, %+v, %v", passed, st, err)
			}
			for tenant, n := range used {
				if got := b.left(tenant); got != 40-n || n > 40 {
					t.Errorf("%s has %d left of 40, %d passed", tenant, got, n)
				}
			}
			// What is refused by the total costs the tenant nothing, and its wait is told.
			rest := 100 - passed
			if d := b.hosts[1].life.Load().lim.Take(b.t.Context(), "tenant-new", rest+1); d.OK || d.Remaining != rest || d.RetryAfter <= 0 {
				t.Errorf("%+v", d)
			}
			ds := b.hosts[1].node().Batch(b.t.Context(), []jatah.Request{{Limit: "api", Key: "tenant-new", Cost: rest + 1}, {Limit: "api", Key: "tenant-new", Cost: rest}})
			if ds[0].OK || !ds[1].OK {
				t.Errorf("%+v", ds)
			}
			if r := b.hosts[2].node().TakeAll(b.t.Context(), []jatah.Request{{Limit: "api", Key: "tenant-new", Cost: 40}}); r.OK || !slices.Contains(r.Violated, "total") {
				t.Errorf("%+v", r)
			}
			time.Sleep(time.Second)
			if got := b.left("tenant-new"); got != 40-rest {
				t.Errorf("the new tenant has %d left, want %d", got, 40-rest)
			}
		})
	})
}

func TestTakeAllTellsBadInput(t *testing.T) {
	n, err := jatah.Start(t.Context(), jatah.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	if _, err := n.Limit(jatah.Limit{Name: "api", Rate: jatah.PerDay(1), Burst: 5}); err != nil {
		t.Fatal(err)
	}
	good := jatah.Request{Limit: "api", Key: "u", Cost: 1}
	for want, bad := range map[error]jatah.Request{
		jatah.ErrUnknownLimit: {Limit: "none", Key: "u", Cost: 1},
		jatah.ErrKeyEmpty:     {Limit: "api", Cost: 1},
		jatah.ErrKeyTooLong:   {Limit: "api", Key: string(make([]byte, jatah.MaxKey+1)), Cost: 1},
		jatah.ErrNegativeCost: {Limit: "api", Key: "u", Cost: -1},
	} {
		r := n.TakeAll(t.Context(), []jatah.Request{good, bad})
		if r.OK || !errors.Is(r.Err, want) || !errors.Is(r.Decisions[1].Err, want) || r.Decisions[0].Err != nil {
			t.Errorf("%v: %+v", want, r)
		}
	}
	if d := n.Batch(t.Context(), []jatah.Request{{Limit: "api", Key: "u"}})[0]; d.Remaining != 5 {
		t.Errorf("%+v", d)
	}
	if err := (jatah.Limit{Name: "a", Rate: jatah.PerDay(1), Parent: "a"}).Validate(); !errors.Is(err, jatah.ErrLimit) {
		t.Errorf("its own parent: %v", err)
	}
}

package jatah_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jatah-io/jatah"
)

// Waiters on all nodes of a cluster pass in the order of their arrival at their node, together at the rate of the limit and never beyond it.
func TestWaitersOfAClusterShareTheLimit(t *testing.T) {
	for _, mode := range []jatah.Mode{jatah.Hybrid, jatah.Strict, jatah.Split} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			limit := jatah.Limit{Name: "api", Rate: jatah.PerSecond(50), Burst: 15, Mode: mode}
			inBubble(t, *firstSeed, limit, 1, func(b *bubble) {
				b.start(3)
				begin := b.now()
				const each = 100
				var all sync.WaitGroup
				for _, h := range b.hosts {
					var mu sync.Mutex
					var order []time.Duration // when each passed
					for range each {
						order = append(order, -1)
					}
					for i := range each {
						all.Go(func() {
							// Asks of other nodes take up to a millisecond; arrivals are further apart than that, so their order is known.
							time.Sleep(ms(2 * i))
							d, err := h.life.Load().lim.Wait(context.Background(), b.keys[0], 1)
							if err != nil {
								b.problem("%s: number %d: %v", h.name, i, err)
								return
							}
							mu.Lock()
							order[i] = b.now()
							mu.Unlock()
							b.decided(h, h.life.Load(), b.keys[0], 1, d, 0)
						})
					}
					defer func() {
						if order[0] < 0 || !slices.IsSorted(order) {
							b.problem("%s: passed at %v", h.name, order)
						}
						if q := jatah.Queues(h.life.Load().lim); q != 0 {
							b.problem("%s: %d queues are left", h.name, q)
						}
					}()
				}
				all.Wait()
				took, least := b.now()-begin, time.Duration(3*each-15)*time.Second/50
				if took < least-ms(1) || took > least*5/4+time.Second {
					b.problem("300 waiters took %v; the limit allows it in %v", took, least)
				}
				if x := b.excess(); x > tolerance {
					b.problem("%v tokens more than the limit were let through", x)
				}
			})
		})
	}
}

// In a cluster too, a deadline that cannot be met is told on arrival or with the first answer of the owner, but for those
// who are too late by less than a denial may be old. It costs nothing; and those who
// are told so could not have made it: everybody else passes.
func TestDeadlinesInACluster(t *testing.T) {
	limit := jatah.Limit{Name: "api", Rate: jatah.PerSecond(10), Burst: 10}
	inBubble(t, *firstSeed, limit, 1, func(b *bubble) {
		b.start(3)
		begin := b.now()
		var all sync.WaitGroup
		var mu sync.Mutex
		var passed, late, lost int
		for i := range 60 { // the last would pass after 5 s
			h := b.hosts[0]
			all.Go(func() {
				time.Sleep(ms(2 * i))
				ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
				defer cancel()
				came := b.now()
				d, err := h.life.Load().lim.Wait(ctx, b.keys[0], 1)
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err == nil:
					passed++
				case errors.Is(err, jatah.ErrDeadline):
					late++
					took := b.now() - came
					if took > ms(50) {
						lost++
					}
					if left := 2*time.Second - took; d.RetryAfter <= left-ms(1) {
						b.problem("number %d was refused and told to come back in %v, with %v to wait", i, d.RetryAfter, left)
					}
				case !errors.Is(err, context.DeadlineExceeded):
					b.problem("number %d: %v", i, err)
				}
			})
		}
		all.Wait()
		// 10 at once, 20 in two seconds.
		if passed < 28 || passed > 31 || late < 20 {
			b.problem("%d passed and %d were told that they are too late, in %v", passed, late, b.now()-begin)
		}
		if lost > 3 { // what is known of a key in a cluster is up to 0.2 s old, in which two tokens come
			b.problem("%d were told late that they are too late", lost)
		}
	})
}

// While the owner of a key is silent and a fallback denies, nothing is known of the key: nobody is refused because of it, and all who still
// wait when the owner answers again pass.
func TestASilentOwnerRefusesNoDeadline(t *testing.T) {
	limit := jatah.Limit{Name: "api", Rate: jatah.PerSecond(1), Burst: 10, Fallback: jatah.FallbackDeny}
	inBubble(t, *firstSeed, limit, 1, func(b *bubble) {
		b.start(3)
		owner := b.owner(b.keys[0])
		other := b.others(owner)[0]
		b.net.Pause(owner.addr)
		time.Sleep(700 * time.Millisecond)
		var all sync.WaitGroup
		for i := range 5 {
			all.Go(func() {
				time.Sleep(ms(100 + i))
				ctx, cancel := context.WithTimeout(context.Background(), 2500*time.Millisecond)
				defer cancel()
				if d, err := other.life.Load().lim.Wait(ctx, b.keys[0], 1); err != nil {
					b.problem("number %d: %+v, %v", i, d, err)
				}
			})
		}
		time.Sleep(300 * time.Millisecond)
		if q := jatah.Queues(other.life.Load().lim); q != 1 {
			b.problem("%d queues while the owner is silent, want one", q)
		}
		b.net.Resume(owner.addr)
		all.Wait()
	})
}

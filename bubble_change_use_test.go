package jatah_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jatah-io/jatah"
	"github.com/jatah-io/jatah/cluster/simnet"
)

// Limits of every kind are published, removed and defined on all nodes at once, also as sets, while they are in use, under loss and partitions and with
// restarts. Nothing panics or stays behind, whoever waits is told, and in the end all nodes have the same.
func TestChangesInUseOnAllNodesAtOnce(t *testing.T) {
	for i := range max(1, *schedules/8) {
		seed := *firstSeed + uint64(i)
		publishing(t, seed, 3, func(b *bubble) {
			rng := rand.New(rand.NewPCG(seed, 4))
			for range 8 {
				ctx, cancel := context.WithCancel(b.t.Context())
				var all sync.WaitGroup
				for _, h := range b.up() {
					n := h.node()
					for range 2 {
						r := rand.New(rand.NewPCG(rng.Uint64(), 5))
						q := rand.New(rand.NewPCG(rng.Uint64(), 6))
						all.Go(func() {
							for ctx.Err() == nil {
								b.changeAny(ctx, r, n)
								time.Sleep(time.Duration(r.IntN(100)) * time.Millisecond)
							}
						})
						all.Go(func() {
							for ctx.Err() == nil {
								b.useAny(ctx, q, n)
								time.Sleep(time.Duration(q.IntN(10)) * time.Millisecond)
							}
						})
					}
				}
				switch rng.IntN(4) {
				case 0:
					b.net.Partition([]string{b.hosts[0].addr}, []string{b.hosts[1].addr, b.hosts[2].addr})
				case 1:
					b.weather(simnet.Conditions{Loss: 0.3, Duplicate: 0.2, DelayMin: time.Millisecond, DelayMax: 30 * time.Millisecond})
				case 2:
					b.hosts[rng.IntN(3)].crash()
				}
				time.Sleep(time.Duration(500+rng.IntN(2500)) * time.Millisecond)
				cancel()
				all.Wait()
				b.net.Heal()
				b.weather(simnet.Conditions{DelayMin: 200 * time.Microsecond, DelayMax: time.Millisecond})
				for _, h := range b.hosts {
					if h.life.Load() == nil {
						h.open()
					}
				}
			}
			for _, h := range b.hosts {
				if err := h.node().SetLimits(b.limit); err != nil {
					b.problem("%v", err)
				}
			}
			b.within(2*time.Minute, "all agree", b.agree)
		})
	}
}

func anyName(rng *rand.Rand) string { return fmt.Sprint("l", rng.IntN(5)) }

func anyLimit(rng *rand.Rand) jatah.Limit {
	n := 1 + rng.Int64N(50)
	kinds := []jatah.Limit{
		hourlyLimit("", n),
		{Algorithm: jatah.Concurrency, Max: n},
		{Algorithm: jatah.FixedWindow, Rate: jatah.PerMinute(n)},
		{Algorithm: jatah.SlidingLog, Rate: jatah.PerMinute(n)},
		{Algorithm: jatah.LeakyBucket, Rate: jatah.PerSecond(n), Queue: 5, MaxWait: time.Second},
		{Rates: []jatah.Rate{jatah.PerSecond(n), jatah.PerHour(10 * n)}},
		{Rate: jatah.PerSecond(n), Plans: map[string]jatah.Plan{"pro": {Rate: jatah.PerSecond(2 * n)}}, Overrides: []jatah.Override{{Key: "k1", Plan: "pro"}}},
	}
	l := kinds[rng.IntN(len(kinds))]
	l.Name = anyName(rng)
	if rng.IntN(3) == 0 && l.Algorithm != jatah.Concurrency && l.Queue == 0 {
		l.Parent = anyName(rng)
	}
	l.Mode = []jatah.Mode{jatah.Hybrid, jatah.Hybrid, jatah.Strict, jatah.Split}[rng.IntN(4)]
	if l.Algorithm == jatah.Concurrency {
		l.Mode = jatah.Hybrid
	}
	return l
}

func (b *bubble) changeAny(ctx context.Context, rng *rand.Rand, n *jatah.Node) {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(rng.IntN(50))*time.Millisecond)
	defer cancel()
	var err error
	switch rng.IntN(10) {
	case 0, 1:
		err = n.Unpublish(ctx, anyName(rng))
	case 2:
		_, err = n.Limit(anyLimit(rng))
	case 3:
		n.RemoveLimit(anyName(rng))
	case 4:
		err = n.SetLimits(b.limit, anyLimit(rng), anyLimit(rng))
	case 5:
		err = n.SetLimits(b.limit)
	default:
		_, err = n.Publish(ctx, anyLimit(rng))
	}
	for _, known := range []error{jatah.ErrLimit, jatah.ErrUnknownLimit, jatah.ErrParent, jatah.ErrDefined, jatah.ErrClosed} {
		if errors.Is(err, known) {
			return
		}
	}
	if err != nil {
		b.problem("%v", err)
	}
}

func (b *bubble) useAny(ctx context.Context, rng *rand.Rand, n *jatah.Node) {
	x, ok := n.Lookup(anyName(rng))
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(rng.IntN(300))*time.Millisecond)
	defer cancel()
	key := fmt.Sprint("k", rng.IntN(4))
	switch rng.IntN(6) {
	case 0:
		if p, d := x.Acquire(ctx, key, 0); d.OK && p != nil {
			time.Sleep(time.Duration(rng.IntN(50)) * time.Millisecond)
			_ = p.Release(ctx)
		}
	case 1:
		_, _ = x.Wait(ctx, key, 1)
	case 2:
		_, _ = x.Peek(ctx, key)
	case 3:
		_, _ = n.Top(ctx, "", 5)
	default:
		x.Take(ctx, key, 1+rng.Int64N(3))
	}
}

// A limit is used on the node where it was published at once, while the others, one of which owns the key, may not have heard of it. Nobody
// is given more than there is.
func TestNobodyGivesMoreWhileAnOwnerDoesNotKnowTheLimit(t *testing.T) {
	for i := range max(1, *schedules/4) {
		seed := *firstSeed + uint64(i)
		publishing(t, seed, 3, func(b *bubble) {
			b.together(time.Minute, 3)
			b.weather(simnet.Conditions{Loss: 0.3, DelayMin: time.Millisecond, DelayMax: 50 * time.Millisecond})
			const burst = 20
			var admitted [3]atomic.Int64
			var all sync.WaitGroup
			end := time.Now().Add(5 * time.Second)
			for i, h := range b.hosts {
				n := h.node()
				if i == 0 {
					all.Go(func() {
						_, _ = n.Publish(b.t.Context(), hourlyLimit("new", burst))
					})
				}
				for k := range admitted {
					all.Go(func() {
						for time.Now().Before(end) {
							if x, ok := n.Lookup("new"); ok && x.Take(b.t.Context(), fmt.Sprint("k", k), 1).OK {
								admitted[k].Add(1)
							}
							time.Sleep(5 * time.Millisecond)
						}
					})
				}
			}
			all.Wait()
			for k := range admitted {
				if n := admitted[k].Load(); n > burst || n < burst/3 {
					b.problem("k%d: %d admitted of %d", k, n, burst)
				}
			}
		})
	}
}

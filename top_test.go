package jatah_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/jatah-io/jatah"
)

func topOf(t *testing.T, n *jatah.Node, limit string, keys int) jatah.Top {
	t.Helper()
	top, err := n.Top(t.Context(), limit, keys)
	if err != nil {
		t.Fatal(err)
	}
	return top
}

// TestTopAlone: what a node alone has counted, for one limit and for all; and what cannot be asked.
func TestTopAlone(t *testing.T) {
	n, api := lone(t, jatah.Limit{Name: "api", Rate: jatah.PerHour(10), Burst: 10})
	for _, name := range []string{"zero", "idle"} {
		if _, err := n.Limit(jatah.Limit{Name: name, Rate: jatah.PerHour(0)}); err != nil {
			t.Fatal(err)
		}
	}
	ctx := t.Context()
	api.Take(ctx, jatah.Key("a", "b"), 3)
	for range 3 {
		api.Take(ctx, "c", 4)
	}
	api.Charge(ctx, "c", 20)
	zero, _ := n.Lookup("zero")
	zero.Take(ctx, "x", 1)
	top := topOf(t, n, "api", 10)
	if len(top.Limits) != 1 || len(top.Answered) != 1 || top.Missing != nil {
		t.Fatalf("%+v", top)
	}
	l := top.Limits[0]
	if l.Limit != "api" || l.Sample != 1 || l.Span < time.Second || len(l.Used) != 2 || len(l.Refused) != 1 {
		t.Fatalf("%+v", l)
	}
	for i, want := range []jatah.TopKey{{Key: "c", Used: 28, Refused: 1}, {Key: jatah.Key("a", "b"), Used: 3}} {
		if x := l.Used[i]; x.Key != want.Key || x.Used != want.Used || x.Refused != want.Refused || x.UsedError != 0 || x.UsedRate != float64(x.Used)/l.Span.Seconds() {
			t.Errorf("place %d: %+v, want %+v", i, x, want)
		}
	}
	if l.Refused[0] != l.Used[0] {
		t.Errorf("%+v", l.Refused[0])
	}
	all := topOf(t, n, "", 1)
	if len(all.Limits) != 3 || all.Limits[0].Limit != "api" || len(all.Limits[0].Used) != 1 || len(all.Limits[1].Used) != 0 || all.Limits[2].Refused[0].Key != "x" {
		t.Errorf("%+v", all)
	}
	for _, keys := range []int{-1, 0, jatah.MaxTop + 1} {
		if _, err := n.Top(ctx, "api", keys); !errors.Is(err, jatah.ErrConfig) {
			t.Errorf("%d keys: %v", keys, err)
		}
	}
	if _, err := n.Top(ctx, "none", 1); !errors.Is(err, jatah.ErrUnknownLimit) {
		t.Errorf("%v", err)
	}
	n.Close()
	if _, err := n.Top(ctx, "api", 1); !errors.Is(err, jatah.ErrClosed) {
		t.Errorf("%v", err)
	}
}

// TestTopOfACluster: keys are used at different nodes with different weights; every node says the same of them, within the bounds it
// states, and who is missing when one is dead.
func TestTopOfACluster(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 3))
	inBubble(t, 34, jatah.Limit{Name: "api", Rate: jatah.PerSecond(40), Burst: 40}, 0, func(b *bubble) {
		b.start(3)
		used, refused := map[string]int64{}, map[string]int64{}
		const keys = 40
		weights := make([][3]float64, keys)
		for i := range weights {
			for j := range weights[i] {
				weights[i][j] = rng.Float64() * float64(keys-i) / keys
			}
		}
		begin := b.now()
		for b.now()-begin < 20*time.Second {
			for j, h := range b.hosts {
				for i := range weights {
					if rng.Float64() > weights[i][j] {
						continue
					}
					key, cost := fmt.Sprint("user ", i), 1+rng.Int64N(5)
					if d := h.life.Load().lim.Take(context.Background(), key, cost); d.OK {
						used[key] += cost
					} else {
						refused[key]++
					}
				}
			}
			time.Sleep(50 * time.Millisecond)
		}
		time.Sleep(200 * time.Millisecond) // the next sync
		most := func(m map[string]int64) int64 {
			var all []int64
			for _, n := range m {
				all = append(all, n)
			}
			return slices.Max(all)
		}
		for _, h := range b.hosts {
			top := topOf(b.t, h.node(), "api", 30)
			if !slices.Equal(top.Answered, []string{"n1", "n2", "n3"}) || top.Missing != nil || len(top.Limits) != 1 {
				b.t.Fatalf("%v answered, %v are missing", top.Answered, top.Missing)
			}
			l := top.Limits[0]
			if len(l.Used) != 30 || len(l.Refused) == 0 || l.Used[0].Used != most(used) || l.Refused[0].Refused != most(refused) {
				b.t.Errorf("%d and %d keys, the first with %d of %d and %d of %d", len(l.Used), len(l.Refused), l.Used[0].Used, most(used), l.Refused[0].Refused, most(refused))
			}
			for i, x := range l.Used {
				if x.Used != used[x.Key] || x.Refused != refused[x.Key] || x.UsedError != 0 || x.RefusedError != 0 || i > 0 && x.Used > l.Used[i-1].Used {
					b.t.Errorf("%s: %+v; %d were used, %d refused", h.name, x, used[x.Key], refused[x.Key])
				}
			}
		}

		b.hosts[2].crash()
		begin = b.now()
		top := topOf(b.t, b.hosts[0].node(), "", 100)
		if took := b.now() - begin; took > 2100*time.Millisecond {
			b.t.Errorf("it took %v with a dead member", took)
		}
		if !slices.Equal(top.Missing, []string{"n3"}) || !slices.Equal(top.Answered, []string{"n1", "n2"}) {
			b.t.Errorf("%v answered, %v are missing", top.Answered, top.Missing)
		}
		for _, x := range top.Limits[0].Used {
			if x.Used > used[x.Key] || x.Used == 0 {
				b.t.Errorf("without n3 %q has used %d of %d", x.Key, x.Used, used[x.Key])
			}
		}
		time.Sleep(70 * time.Second)
		if top := topOf(b.t, b.hosts[0].node(), "api", 10); top.Missing != nil || top.Limits[0].Used != nil && top.Limits[0].Used[0].Used >= most(used) {
			b.t.Errorf("a minute later: %+v", top)
		}
	})
}

// TestTopUnderAFlood: a flood of new keys at all nodes hides nobody who counts, and what is said of each key stays within the stated bounds.
func TestTopUnderAFlood(t *testing.T) {
	inBubble(t, 35, jatah.Limit{Name: "api", Rate: jatah.PerSecond(1000), Burst: 1000}, 0, func(b *bubble) {
		b.start(3)
		used := map[string]int64{}
		take := func(h *host, key string, cost int64) {
			if d := h.life.Load().lim.Take(context.Background(), key, cost); d.OK {
				used[key] += cost
			}
		}
		for i := range 100 {
			for j, h := range b.hosts {
				for k := range 30 {
					take(h, fmt.Sprintf("flood-%d-%d-%d", i, j, k), 1)
				}
			}
			take(b.hosts[i%3], "steady", 2)
			take(b.hosts[0], "local", 1)
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(200 * time.Millisecond)
		l := topOf(b.t, b.hosts[1].node(), "api", 100).Limits[0]
		if len(l.Used) != 100 || l.Used[0].Key != "steady" || l.Used[1].Key != "local" {
			b.t.Errorf("%d keys, the first are %+v", len(l.Used), l.Used[:2])
		}
		for _, x := range l.Used {
			if n := used[x.Key]; n < x.Used || n > x.Used+x.UsedError {
				b.t.Errorf("%s has used %d, said to be from %d to %d", x.Key, n, x.Used, x.Used+x.UsedError)
			}
		}
	})
}

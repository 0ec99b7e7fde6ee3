package jatah_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jatah-io/jatah"
)

// step is some requests at one moment and what they are told. Waits are exact but for the time that messages take.
type step struct {
	at, cost  int64 // ms after the begin; tokens
	n         int   // requests; 0: 1
	ok        int   // of them pass
	remaining int64 // says the last one; -1: any, as looks in a cluster say what was known last
	retry     time.Duration
}

// TestBucketsOnEveryKindOfNode: the same requests get the same answers from a node without a network, from the only member of a cluster, and from
// one of three.
func TestBucketsOnEveryKindOfNode(t *testing.T) {
	const never = jatah.Never
	cases := map[string]struct {
		limit jatah.Limit
		steps []step
	}{
		"a cost that can never pass takes nothing": {jatah.Limit{Rate: jatah.PerMinute(5)}, []step{
			{cost: 10, remaining: 5, retry: never}, {cost: 6, remaining: 5, retry: never}, {cost: 5, ok: 1}, {cost: 6, retry: never}}},
		"what has refilled is part of the wait": {jatah.Limit{Rate: jatah.Per(5, 300*time.Second)}, []step{
			{cost: 5, ok: 1}, {at: 59_000, cost: 1, retry: time.Second}, {at: 59_900, cost: 1, retry: 100 * time.Millisecond},
			{at: 60_200, cost: 1, ok: 1}, {at: 60_200, cost: 2, retry: 119_800 * time.Millisecond}}},
		"an idle while is worth the burst": {jatah.Limit{Rate: jatah.PerSecond(1), Burst: 3}, []step{
			{cost: 3, ok: 1}, {at: 40_000, cost: 1, n: 25, ok: 3, retry: time.Second}, {at: 41_200, cost: 1, n: 25, ok: 1, retry: 800 * time.Millisecond}}},
		"zero denies": {jatah.Limit{Rate: jatah.PerSecond(0)}, []step{{cost: 1, n: 20, retry: never}, {at: 20_000, cost: 1, n: 20, retry: never}}},
		"looks take nothing": {jatah.Limit{Rate: jatah.PerMinute(3)}, []step{
			{cost: 0, n: 30, ok: 30, remaining: 3}, {cost: 1, n: 3, ok: 3}, {cost: 0, n: 100, ok: 100}, {cost: 1, retry: 20 * time.Second},
			{at: 20_200, cost: 0, n: 5, ok: 5, remaining: -1}, {at: 20_200, cost: 1, ok: 1}, {at: 20_300, cost: 1, retry: 19_700 * time.Millisecond}}},
		"one at a time": {jatah.Limit{Rate: jatah.PerHour(3600), Burst: 1}, []step{
			{cost: 1, n: 25, ok: 1, retry: time.Second}, {at: 2000, cost: 1, n: 25, ok: 1, retry: time.Second}, {at: 2500, cost: 1, n: 25, retry: 500 * time.Millisecond}}},
		"more than one token a millisecond": {jatah.Limit{Rate: jatah.PerSecond(65_535)}, []step{
			{cost: 65_535, ok: 1, remaining: -1}, {at: 2000, cost: 65_535, ok: 1, remaining: -1}, {at: 4000, cost: 65_536, remaining: -1, retry: never}}},
	}
	for name, c := range cases {
		c.limit.Name = "api"
		t.Run(name, func(t *testing.T) {
			t.Run("no network", func(t *testing.T) {
				inAlone(t, func(node *jatah.Node) { walk(t, mustLimit(t, node, c.limit), c.steps, 0) })
			})
			for _, nodes := range []int{1, 3} {
				for _, mode := range []jatah.Mode{jatah.Hybrid, jatah.Strict} {
					t.Run(fmt.Sprint(nodes, " ", mode), func(t *testing.T) {
						c.limit.Mode = mode
						inBubble(t, 1, c.limit, 1, func(b *bubble) {
							if nodes == 1 {
								loneSeed(b)
							}
							b.start(nodes)
							for i, h := range b.hosts { // every node, each with a key of its own
								if i > 0 {
									time.Sleep(time.Second)
								}
								walk(t, h.life.Load().lim, c.steps, i)
							}
						})
					})
				}
			}
		})
	}
}

func walk(t *testing.T, l *jatah.Limiter, steps []step, number int) {
	t.Helper()
	begin, key := time.Now(), fmt.Sprint("k\xff\x00", number)
	for i, s := range steps {
		time.Sleep(time.Until(begin.Add(time.Duration(s.at) * time.Millisecond)))
		ok := 0
		var d jatah.Decision
		for range max(1, s.n) {
			if d = l.Take(context.Background(), key, s.cost); d.Err != nil {
				t.Fatal(d.Err)
			} else if d.OK {
				ok++
			}
		}
		const way = 10 * time.Millisecond
		exact := d.RetryAfter == s.retry || s.retry != jatah.Never && d.RetryAfter > s.retry-way && d.RetryAfter < s.retry+way
		if ok != s.ok || s.remaining >= 0 && d.Remaining != s.remaining || d.Remaining < 0 || !exact {
			t.Errorf("step %d at %d ms, %d requests of %d: %d pass, want %d; the last one is told %d and %v, want %d and %v", i+1, s.at, max(1, s.n), s.cost, ok, s.ok,
				d.Remaining, d.RetryAfter, s.remaining, s.retry)
		}
	}
}

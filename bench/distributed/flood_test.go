package distributed

import (
	"context"
	"errors"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestAccountOf(t *testing.T) {
	r := rule{"r", 10, 5}
	at := func(seconds ...float64) (ds []time.Duration) {
		for _, s := range seconds {
			ds = append(ds, time.Duration(s*float64(time.Second)))
		}
		return ds
	}
	for _, one := range []struct {
		name          string
		admissions    []time.Duration
		length        time.Duration
		bound, excess float64
	}{
		{"nothing", nil, time.Second, 15, 0},
		{"the burst at once", at(0, 0, 0, 0, 0), 0, 5, 0},
		{"two more", at(0, 0, 0, 0, 0, 0, 0), 0, 5, 2},
		{"the burst and what was refilled, in any order", at(0.2, 0, 0, 0.1, 0, 0, 0), 200 * time.Millisecond, 7, 0},
		{"a full bucket does not get fuller", at(1, 1, 1, 1, 1, 1, 1, 1), time.Second, 15, 3},
		{"debt is repaid before the next excess", at(0, 0, 0, 0, 0, 0, 0, 0.3, 0.3), 300 * time.Millisecond, 8, 2},
	} {
		a := accountOf(r, one.length, one.admissions)
		if a.admitted != len(one.admissions) || math.Abs(a.bound-one.bound) > 1e-9 || math.Abs(a.excess-one.excess) > 1e-9 {
			t.Errorf("%s: %+v, want bound %v, excess %v", one.name, a, one.bound, one.excess)
		}
	}
}

// bucket is an exact limiter.
type bucket struct {
	mu     sync.Mutex
	tokens float64
	at     time.Time
}

func (b *bucket) take() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	if b.at.IsZero() {
		b.tokens = float64(tight.burst)
	} else {
		b.tokens = min(float64(tight.burst), b.tokens+float64(tight.rate)*now.Sub(b.at).Seconds())
	}
	b.at = now
	if b.tokens < 1-1e-6 {
		return false
	}
	b.tokens--
	return true
}

func TestFloodCountsWhatLimitersAdmit(t *testing.T) {
	const length = 5 * time.Second
	exact := new(bucket)
	var each [3]bucket
	var mu sync.Mutex
	var asked int
	windows := make(map[int64]int)
	for _, one := range []struct {
		name                 string
		take                 func(client int) (answer, error)
		ratio, excess        float64
		ratioWide, excesWide float64 // how far off they may be
	}{
		{"an exact bucket", func(int) (answer, error) { return one(exact.take()), nil }, 1, 0, 0.01, 0.01},
		{"a bucket for each client", func(c int) (answer, error) { return one(each[c].take()), nil }, 3, 2 + 2*length.Seconds(), 0.01, 0.01},
		{"the first 1500, half of them by a fallback", func(int) (answer, error) {
			mu.Lock()
			defer mu.Unlock()
			asked++
			if a := one(asked <= 1500); asked%2 == 1 {
				return a, nil
			} else {
				return a.oddly(), nil
			}
		}, 0.25, 0.45, 0.001, 0.01}, // at 30 000/s the 1500 take 50 ms, in which 50 are refilled
		{"windows of a second", func(int) (answer, error) {
			mu.Lock()
			defer mu.Unlock()
			windows[time.Now().Unix()]++
			return one(windows[time.Now().Unix()] <= int(tight.rate)), nil
		}, 1, 0.93, 0.01, 0.05}, // six windows are touched in five seconds, the first of them only at its end
	} {
		synctest.Test(t, func(t *testing.T) {
			time.Sleep(930 * time.Millisecond) // the bubble's clock begins with a whole second
			target := &target{name: one.name, clients: 3, batch: 1, take: func(_ context.Context, client int, keys []string) (answer, error) {
				if len(keys) != 1 || keys[0] != "k" {
					t.Errorf("asked for %q", keys)
				}
				return one.take(client)
			}}
			l := load{clients: 3, callers: 8, perSecond: 10_000, length: length}
			s, admissions, took, err := flood(t.Context(), target, l, "k")
			if err != nil {
				t.Fatal(err)
			}
			if took > length || took < length-time.Millisecond { // the last question is before the end
				t.Errorf("%s: took %v, want %v", one.name, took, length)
			}
			if n := 3 * 10_000 * int(length.Seconds()); math.Abs(float64(s.calls)/float64(n)-1) > 0.001 {
				t.Errorf("%s: %d calls, want %d", one.name, s.calls, n)
			}
			a := accountOf(tight, took, admissions)
			if excess := a.excess / float64(tight.burst); math.Abs(a.ratio()-one.ratio) > one.ratioWide || math.Abs(excess-one.excess) > one.excesWide {
				t.Errorf("%s: ratio %v, excess %v; want %v, %v", one.name, a.ratio(), excess, one.ratio, one.excess)
			}
		})
	}
}

func TestFloodOfALimiterThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gone := errors.New("gone")
		target := &target{name: "fails", take: func(context.Context, int, []string) (answer, error) { return answer{}, gone }}
		if _, _, _, err := flood(t.Context(), target, load{3, 8, 1000, time.Second}, "k"); !errors.Is(err, gone) {
			t.Errorf("error %v, want %v", err, gone)
		}
	})
}

func TestFloodEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		target := &target{name: "any", take: func(context.Context, int, []string) (answer, error) { return one(true), nil }}
		_, _, took, err := flood(ctx, target, load{3, 8, 1000, time.Minute}, "k")
		if !errors.Is(err, context.DeadlineExceeded) || took != 300*time.Millisecond {
			t.Errorf("after %v: %v", took, err)
		}
	})
}

func TestFloodRunsInShortForm(t *testing.T) {
	set := runShort(t, Flood())
	for _, peer := range []string{
		"jatah strict", "jatah hybrid", "jatah split", "jatah HTTP hybrid", "redis_rate", "redis INCR+EXPIRE", "redis token bucket",
		"gubernator", "gubernator no batching", "gubernator GLOBAL",
	} {
		if left(peer) {
			continue
		}
		got, ok := set.Median("flood", "admitted", "admitted/limit", peer)
		excess, _ := set.Median("flood", "worst interval", "excess/burst", peer)
		asked, _ := set.Median("flood", "asked", "asked/s", peer)
		if !ok || got <= 0 || asked <= 0 {
			t.Errorf("%s: admitted/limit %v, asked/s %v", peer, got, asked)
		}
		t.Logf("%-24s admitted/limit %.3f, excess/burst %.3f, asked/s %.0f", peer, got, excess, asked)
	}
	// True on any machine: a limit that one process enforces exactly, and ours.
	for _, peer := range []string{"redis_rate", "redis token bucket", "jatah strict", "jatah hybrid", "jatah split"} {
		if got, _ := set.Median("flood", "admitted", "admitted/limit", peer); got > 1.01 {
			t.Errorf("%s admitted %v of its limit", peer, got)
		}
	}
}

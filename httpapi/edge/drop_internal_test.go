package edge

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

func TestDropsAreExact(t *testing.T) {
	for _, d := range []Drop{{1, time.Second}, {3, time.Second}, {7, time.Minute}, {100, 37 * time.Nanosecond * 100}, {1000, time.Hour}, {9, 10}} {
		s, now := newDrops(), time.Now()
		for i := 1; i <= 3*d.After; i++ {
			if got := s.refused("l", "k", &d, now); got != (i > d.After) {
				t.Fatalf("%+v: refusal %d at once is dropped: %v", d, i, got)
			}
		}
		now = now.Add(d.Within)
		for i := 1; i <= d.After; i++ {
			if s.refused("l", "k", &d, now) {
				t.Fatalf("%+v: refusal %d after %v is dropped", d, i, d.Within)
			}
		}
	}
}

// More keys than there are places, at random: nobody is dropped who was refused at most as often as is answered, and one who is refused much
// more often than all others is dropped though places are short.
func TestDropsWithMoreKeysThanPlaces(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	s, now, d := newDrops(), time.Now(), Drop{After: 20, Within: time.Minute}
	keys := 20 * dropSets * dropWays
	refused := make([]int, keys)
	dropped := 0
	for i := range 150_000 {
		k := rng.IntN(keys)
		refused[k]++
		if s.refused("l", fmt.Sprint(k), &d, now) && refused[k] <= d.After {
			t.Fatalf("key %d is dropped after %d refusals", k, refused[k])
		}
		if i%10 == 0 && s.refused("l", "flood", &d, now) {
			dropped++
		}
	}
	if dropped < 7_500 {
		t.Errorf("of a flood of 15000 refusals %d were dropped", dropped)
	}
}

func BenchmarkDrops(b *testing.B) {
	s, now, d := newDrops(), time.Now(), Drop{After: 20, Within: time.Minute}
	b.ReportAllocs()
	for b.Loop() {
		s.refused("limit", "203.0.113.7", &d, now)
	}
}

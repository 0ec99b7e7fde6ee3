package hybrid

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func TestDurationsAreCountedInTheRightBuckets(t *testing.T) {
	var d durations
	d.init(time.Millisecond, 10*time.Millisecond)
	for _, ns := range []int64{-5, 0, 1, 1e6, 1e6 + 1, 1e7, 1e7 + 1, math.MaxInt64 / 8} {
		d.note(ns)
	}
	h := d.histogram()
	if !slices.Equal(h.Counts, []uint64{4, 2, 2}) || h.Count != 8 {
		t.Errorf("counts %v of %d, want [4 2 2] of 8", h.Counts, h.Count)
	}
	if want := time.Duration(1 + 1e6 + 1e6 + 1 + 1e7 + 1e7 + 1 + math.MaxInt64/8); h.Sum != want {
		t.Errorf("the sum is %v, want %v", h.Sum, want)
	}
	fine := uint64(0)
	for _, n := range h.Fine {
		fine += n
	}
	if fine != h.Count || h.Fine[0] != 3 || h.Fine[len(h.Fine)-1] != 1 {
		t.Errorf("the fine buckets have %d, %d of them first and %d last; want 8, 3 and 1", fine, h.Fine[0], h.Fine[len(h.Fine)-1])
	}
	const seed = 7
	rng := rand.New(rand.NewPCG(seed, seed))
	bound := func(i int) float64 { return math.Exp2(float64(h.FineFirst+i) / 8) }
	for range 10_000 {
		ns := int64(math.Exp2(rng.Float64() * 36)) // up to a minute
		i, s := fineIndex(ns), float64(ns)/1e9
		if i < 0 || i >= len(h.Fine) || i > 0 && s <= bound(i-1)*(1-1e-12) || i < len(h.Fine)-1 && s > bound(i)*(1+1e-12) {
			t.Fatalf("seed %d: %d ns are in bucket %d, which ends at %v s", seed, ns, i, bound(i))
		}
	}
}

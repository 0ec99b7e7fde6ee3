package report

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func TestBucketsAreNarrowAndMeet(t *testing.T) {
	for _, v := range []uint64{0, 1, 63, 64, 127, 128, 129, 1000, 1 << 20, 1<<40 - 1, 1 << 40, 1<<63 - 1} {
		i := bucketOf(v)
		if end := uint64(endOf(i)); end < v || float64(end-v) > float64(v)/fine {
			t.Errorf("%d is in bucket %d, which ends at %d", v, i, end)
		}
		if next := bucketOf(uint64(endOf(i)) + 1); v < 1<<62 && next != i+1 {
			t.Errorf("bucket %d ends at %d, but %d follows it", i, endOf(i), next)
		}
	}
}

func TestQuantilesBesideSortedDurations(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	var h, other Histogram
	all := make([]time.Duration, 100_000)
	for i := range all {
		all[i] = time.Duration(r.ExpFloat64() * float64(time.Millisecond))
		if i%3 == 0 {
			other.Add(all[i])
		} else {
			h.Add(all[i])
		}
	}
	h.Merge(&other)
	slices.Sort(all)
	if h.Count() != 100_000 || h.Max() != all[len(all)-1] {
		t.Errorf("%d durations, the longest %v; want 100000, %v", h.Count(), h.Max(), all[len(all)-1])
	}
	for _, q := range []float64{0, 0.5, 0.9, 0.99, 0.999, 1} {
		want := all[min(int(q*100_000), 99_999)]
		if got := h.Quantile(q); got < want || float64(got-want) > float64(want)/fine+1 {
			t.Errorf("quantile %v: %v, want %v", q, got, want)
		}
	}
	tail := h.Tail(time.Microsecond)
	if first, last := tail[0], tail[len(tail)-1]; first.X != 2 || last.X != 10_000 {
		t.Errorf("the tail goes from %v to %v, want from 2 to 10000", first.X, last.X)
	}
	if !slices.IsSortedFunc(tail, func(a, b Point) int { return int(a.Y - b.Y) }) {
		t.Errorf("the tail falls: %v", tail)
	}
}

func TestEmptyHistogram(t *testing.T) {
	var h Histogram
	h.Merge(new(Histogram))
	if h.Count() != 0 || h.Max() != 0 || h.Quantile(0.5) != 0 || len(h.Tail(1)) != 0 {
		t.Error("an empty histogram holds something")
	}
	h.Add(-time.Second)
	if h.Quantile(1) != 0 || h.Count() != 1 {
		t.Error("a negative duration does not count as 0")
	}
}

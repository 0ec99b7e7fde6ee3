package report

import (
	"math/bits"
	"time"
)

const (
	fineBits = 6 // so a bucket is at most 1/64 wide of what it holds
	fine     = 1 << fineBits
)

// Histogram counts durations in buckets whose width is at most 1.6 % of what they hold, so that many samples cost no memory. The
// zero value is empty. Not safe for concurrent use: have one per goroutine and Merge them.
type Histogram struct {
	counts [(64 - fineBits) * fine]uint64
	n      uint64
	max    time.Duration
}

// Add counts one duration; a negative one as 0.
func (h *Histogram) Add(d time.Duration) {
	d = max(d, 0)
	h.counts[bucketOf(uint64(d))]++
	h.n++
	h.max = max(h.max, d)
}

// Merge adds what o has counted.
func (h *Histogram) Merge(o *Histogram) {
	for i, n := range o.counts {
		h.counts[i] += n
	}
	h.n += o.n
	h.max = max(h.max, o.max)
}

// Count is how many durations were added.
func (h *Histogram) Count() uint64 { return h.n }

// Max is the longest duration, exactly; 0 where there is none.
func (h *Histogram) Max() time.Duration { return h.max }

// Quantile is a duration that the part q, 0 to 1, of all does not exceed: Quantile(0.99) is the 99th percentile, rounded up to
// the end of its bucket. 0 where there is none.
func (h *Histogram) Quantile(q float64) time.Duration {
	if h.n == 0 {
		return 0
	}
	want := min(uint64(q*float64(h.n)), h.n-1) // as many are below
	for i, n := range h.counts {
		if want < n {
			return min(endOf(i), h.max)
		}
		want -= n
	}
	return h.max
}

// XTail labels the axis of Tail.
const XTail = "1/(1 - quantile): 10 is p90, 100 p99, 1000 p99.9"

// Tail is the distribution as a curve that shows its tail: X is 1/(1-q), to be drawn on a logarithmic axis labelled XTail, and Y the quantile in the
// given unit. It ends where fewer than ten samples are beyond.
func (h *Histogram) Tail(unit time.Duration) []Point {
	var points []Point
	for decade := 1.0; decade <= float64(h.n)/10; decade *= 10 {
		for _, step := range []float64{1, 2, 5} {
			if x := decade * step; x > 1 && x <= float64(h.n)/10 {
				points = append(points, Point{x, float64(h.Quantile(1-1/x)) / float64(unit)})
			}
		}
	}
	return points
}

// bucketOf: the first 2*fine durations have a bucket each; beyond that each power of two has fine buckets.
func bucketOf(v uint64) int {
	shift := max(bits.Len64(v)-fineBits-1, 0)
	return shift<<fineBits + int(v>>shift)
}

// endOf is the greatest value of a bucket.
func endOf(i int) time.Duration {
	shift := max(i>>fineBits-1, 0)
	return time.Duration(uint64(i-shift<<fineBits+1)<<shift - 1)
}

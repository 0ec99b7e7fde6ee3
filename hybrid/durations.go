package hybrid

import (
	"math"
	"sync/atomic"
	"time"
)

// Histogram is a distribution of durations, twice: by the bounds that it names, and finer by bounds that grow exponentially, as
// native histograms of Prometheus and exponential ones of OpenTelemetry have them. Neither is cumulative.
type Histogram struct {
	Bounds []time.Duration
	Counts []uint64 // one more than Bounds: Counts[i] are those up to Bounds[i], the last those above
	Sum    time.Duration
	Count  uint64 // the sum of Counts

	// Fine[i] are those up to 2^((FineFirst+i)/8) seconds, and not in Fine[i-1]: bounds that grow by 9 %, schema 3 of native and scale 3 of exponential
	// histograms. The first has all that are shorter, the last also those above. It was read later than Counts, so it may have a few more.
	Fine      []uint64
	FineFirst int
}

// Bounds of Histogram.Fine, as exponents of 2 in eighths.
const (
	fineSteps = 8
	fineFirst = -20 * fineSteps // 1 µs
	fineLast  = 5 * fineSteps   // 32 s
	fineCount = fineLast - fineFirst + 1
)

// durations counts durations. Safe for any number of goroutines.
type durations struct {
	bounds []time.Duration
	counts []atomic.Uint64
	fine   [fineCount]atomic.Uint64
	sum    atomic.Int64
}

func (d *durations) init(bounds ...time.Duration) {
	d.bounds, d.counts = bounds, make([]atomic.Uint64, len(bounds)+1)
}

// note counts one duration. The fine count comes first and is read last, so that it never lacks one that the other has.
func (d *durations) note(ns int64) {
	d.fine[fineIndex(ns)].Add(1)
	i := 0
	for i < len(d.bounds) && time.Duration(ns) > d.bounds[i] {
		i++
	}
	d.sum.Add(max(0, ns))
	d.counts[i].Add(1)
}

// fineIndex is where a duration belongs in Histogram.Fine.
func fineIndex(ns int64) int {
	if ns <= 0 {
		return 0
	}
	i := int(math.Ceil(math.Log2(float64(ns)/1e9)*fineSteps)) - fineFirst
	return min(max(0, i), fineCount-1)
}

func (d *durations) histogram() Histogram {
	h := Histogram{Bounds: d.bounds, Counts: make([]uint64, len(d.counts)), Fine: make([]uint64, fineCount), FineFirst: fineFirst}
	for i := range d.counts {
		h.Counts[i] = d.counts[i].Load()
		h.Count += h.Counts[i]
	}
	h.Sum = time.Duration(d.sum.Load())
	for i := range d.fine {
		h.Fine[i] = d.fine[i].Load()
	}
	return h
}

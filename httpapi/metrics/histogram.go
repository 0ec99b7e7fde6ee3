package metrics

import (
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/jatah-io/jatah"
)

// fineSchema is how jatah.Histogram.Fine grows, in Prometheus' words.
const fineSchema = 3

// both is a histogram in its two forms: classic buckets in text and for who knows no others, and native ones in protobuf, for who asks for them.
type both struct{ classic, native prometheus.Metric }

func (b both) Desc() *prometheus.Desc { return b.classic.Desc() }

// Write writes both forms into one message, as client_golang does where it counts itself.
func (b both) Write(m *dto.Metric) error {
	var classic dto.Metric
	if err := b.classic.Write(&classic); err != nil {
		return err
	}
	if err := b.native.Write(m); err != nil {
		return err
	}
	m.Histogram.Bucket = classic.Histogram.Bucket
	m.Histogram.CreatedTimestamp = nil // it would be said of this one kind of metric only
	return nil
}

// histogram makes Prometheus' cumulative counts of plain ones.
func histogram(desc *prometheus.Desc, h jatah.Histogram) prometheus.Metric {
	cumulative, sum := make(map[float64]uint64, len(h.Bounds)), uint64(0)
	for i, bound := range h.Bounds {
		sum += h.Counts[i]
		cumulative[bound.Seconds()] = sum
	}
	classic := prometheus.MustNewConstHistogram(desc, h.Count, h.Sum.Seconds(), cumulative)
	if len(h.Fine) == 0 {
		return classic
	}
	fine, count := map[int]int64{}, h.Fine[0]
	for i, n := range h.Fine[1:] {
		if n > 0 {
			fine[h.FineFirst+1+i] = int64(n)
			count += n
		}
	}
	zero := math.Exp2(float64(h.FineFirst) / (1 << fineSchema))
	return both{classic, prometheus.MustNewConstNativeHistogram(desc, count, h.Sum.Seconds(), fine, nil, h.Fine[0], fineSchema, zero, time.Time{})}
}

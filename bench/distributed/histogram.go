package distributed

import (
	"math/bits"
	"time"
)

// fine is how many buckets there are for each power of two: they are at most 1/64 wide, so a quantile is off by 1.6 % at most.
const fine = 64

// histogram counts durations. The zero value is empty. Not safe for concurrent use.
type histogram struct {
	counts [64 * fine]int64
	total  int64
	most   time.Duration
}

func (h *histogram) add(d time.Duration) {
	h.counts[bucketOf(d)]++
	h.total++
	h.most = max(h.most, d)
}

func bucketOf(d time.Duration) int {
	n := uint64(max(d, 0))
	if n < fine {
		return int(n)
	}
	shift := bits.Len64(n) - 7 // what is left of n has seven bits, the first of them set
	return (shift+1)*fine + int(n>>shift) - fine
}

// lastOf is the longest duration in a bucket.
func lastOf(bucket int) time.Duration {
	if bucket < fine {
		return time.Duration(bucket)
	}
	shift := bucket/fine - 1
	return time.Duration(uint64(bucket%fine+fine+1)<<shift - 1)
}

// quantile is the duration that a part q of all is not above, 0 if there are none.
func (h *histogram) quantile(q float64) time.Duration {
	rank := int64(q * float64(h.total))
	var seen int64
	for b, n := range h.counts {
		if seen += n; seen > rank {
			return min(lastOf(b), h.most)
		}
	}
	return h.most
}

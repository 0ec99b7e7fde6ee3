package topk

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// Summary is what was counted in a span of time up to now. A plain value.
type Summary struct {
	Span   time.Duration // what counts are of, at most Window
	Sample int64         // 1: everything was counted. N: at times only one in N, as N, so that a count is off by about sqrt(count*N)
	Floor  int64         // the most that a key which is not listed can count
	Items  []Item        // the largest first
}

// Item is what one key counts: at least Count, and at most Error more.
type Item struct {
	Key          string
	Count, Error int64
	Rate         float64 // Count per second
}

// rate reckons the rates from counts and span.
func (s *Summary) rate() {
	for i := range s.Items {
		s.Items[i].Rate = float64(s.Items[i].Count) / s.Span.Seconds()
	}
}

func (s *Summary) sort() {
	slices.SortFunc(s.Items, func(a, b Item) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Error, b.Error), strings.Compare(a.Key, b.Key))
	})
}

// Cut leaves the n largest, and those no larger than limit bytes in all, as Size reckons them. What is cut off is remembered in Floor.
func (s *Summary) Cut(n, limit int) {
	keep := 0
	for size := 0; keep < min(n, len(s.Items)); keep++ {
		if size += s.Items[keep].Size(); size > limit {
			break
		}
	}
	for _, x := range s.Items[keep:] {
		s.Floor = max(s.Floor, add(x.Count, x.Error))
	}
	s.Items = s.Items[:keep:keep]
}

// Size is about how many bytes an item needs in a message.
func (x *Item) Size() int { return len(x.Key) + 40 }

// Find is what is known of one key.
func (s *Summary) Find(key string) Item {
	for _, x := range s.Items {
		if x.Key == key {
			return x
		}
	}
	return Item{Key: key, Error: s.Floor}
}

// Merge adds up what several nodes have counted. A key that one of them does not list may have counted up to its Floor there.
func Merge(all []Summary) Summary {
	m := Summary{Sample: 1}
	type sum struct {
		Item
		listed int64 // sum of the floors of the nodes that list it
	}
	sums := map[string]*sum{}
	for _, s := range all {
		m.Span, m.Sample, m.Floor = max(m.Span, s.Span), max(m.Sample, s.Sample), add(m.Floor, max(s.Floor, 0))
		for _, x := range s.Items {
			y := sums[x.Key]
			if y == nil {
				y = &sum{Item: Item{Key: x.Key}}
				sums[x.Key] = y
			}
			y.Count, y.Error, y.Rate = add(y.Count, x.Count), add(y.Error, x.Error), y.Rate+x.Rate
			y.listed = add(y.listed, max(s.Floor, 0))
		}
	}
	for _, y := range sums {
		y.Error = add(y.Error, m.Floor-y.listed)
		m.Items = append(m.Items, y.Item)
	}
	m.sort()
	return m
}

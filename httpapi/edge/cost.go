package edge

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// Cost is what a request costs in tokens, before it is served. An error that wraps ErrRequest refuses the request with 400. It is called by many
// goroutines at once.
type Cost func(*Request) (int64, error)

// Fixed is always the same cost; one below 0 counts as 0.
func Fixed(tokens int64) Cost {
	tokens = max(0, tokens)
	return func(*Request) (int64, error) { return tokens, nil }
}

// Sum adds costs up. It is at most math.MaxInt64, which no limit lets pass.
func Sum(costs ...Cost) Cost {
	return join(costs, saturating)
}

// Max is the largest of several costs.
func Max(costs ...Cost) Cost {
	return join(costs, func(a, b int64) int64 { return max(a, b) })
}

// join folds costs. One below 0 would make the others cheaper, so it counts as 0.
func join(costs []Cost, with func(a, b int64) int64) Cost {
	costs = slices.Clone(costs)
	return func(q *Request) (total int64, err error) {
		for _, cost := range costs {
			c, err := cost(q)
			if err != nil {
				return 0, err
			}
			total = with(total, max(0, c))
		}
		return total, nil
	}
}

// saturating adds what is not below 0.
func saturating(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// ByPath is a cost by path. The patterns are those of [Path]: one without a star counts before one with a star, then the longer one. A path that
// none names costs 1; give "/*" a cost to change that.
func ByPath(costs map[string]int64) Cost {
	patterns := slices.SortedFunc(maps.Keys(costs), func(a, b string) int {
		if starA, starB := strings.Contains(a, "*"), strings.Contains(b, "*"); starA != starB {
			if starB {
				return -1
			}
			return 1
		}
		if len(a) != len(b) {
			return len(b) - len(a)
		}
		return strings.Compare(a, b)
	})
	costs = maps.Clone(costs)
	of := func(p string) int64 {
		for _, pattern := range patterns {
			if under(pattern, p) {
				return max(0, costs[pattern])
			}
		}
		return 1
	}
	return func(q *Request) (int64, error) { return q.dearest(of), nil }
}

// Bounds are for costs by a number. All are in tokens.
type Bounds struct {
	// Min is the least that a request costs. 0: 1.
	Min int64
	// Max is the most that it costs, and what it costs where the number is in a body that is longer than is read, or that cannot be seen. 0:
	// there is no most, and a request with such a body is refused with 400.
	Max int64
	// Missing is the cost where the number is not there or 0, which many programs take for their default. 0: Min.
	Missing int64
}

// Per is one token for each so many units, rounded up: Query("rows").Per(500, Bounds{Max: 100}) costs 3 with ?rows=1001. Less than one unit counts as one.
//
// A number that is odd does not make a request cheap. One that is there twice counts with the larger. One with a fraction or an exponent, one below
// 0, and what is no number refuse the request with 400. One that is too large to be counted costs Max, or else more than any limit lets
// pass.
func (f Field) Per(units int64, b Bounds) Cost {
	units, b.Min = max(1, units), max(0, b.Min)
	if b.Min == 0 {
		b.Min = 1
	}
	if b.Missing <= 0 {
		b.Missing = b.Min
	}
	bounded := func(c int64) int64 {
		c = max(c, b.Min)
		if b.Max > 0 {
			c = min(c, b.Max)
		}
		return c
	}
	leaf := func(text string) (int64, bool) {
		n, ok := number(text)
		if n == 0 {
			return b.Missing, ok
		}
		return (n-1)/units + 1, ok
	}
	return func(q *Request) (int64, error) {
		v := f.read(q, leaf)
		switch {
		case v.unseen && b.Max > 0:
			return b.Max, nil
		case v.unseen || v.odd:
			return 0, f.unreadable(v, "a whole number, 0 or more")
		case !v.found:
			return bounded(b.Missing), nil
		}
		return bounded(v.cost), nil
	}
}

// Table is a cost by value: Query("deep_scan").Table(map[string]int64{"true": 5}). Values are compared without regard to case and to spaces
// around them. "" is for a request without the field; without "" in the table that costs 1. A value that the table does not name costs as much
// as the dearest: programs read 1, on and yes as they read true. So does a field in a body that is longer than is read, or cannot be seen.
func (f Field) Table(costs map[string]int64) Cost {
	table, most := make(map[string]int64, len(costs)), int64(1)
	for value, cost := range costs {
		value = folded(value)
		table[value] = max(table[value], cost)
		most = max(most, cost)
	}
	if _, ok := table[""]; !ok {
		table[""] = 1
	}
	leaf := func(text string) (int64, bool) {
		if cost, ok := table[folded(text)]; ok {
			return cost, true
		}
		return most, true
	}
	return func(q *Request) (int64, error) {
		v := f.read(q, leaf)
		switch {
		case v.unseen:
			return most, nil
		case v.odd:
			return 0, f.unreadable(v, "one value")
		case !v.found:
			return table[""], nil
		}
		return v.cost, nil
	}
}

func folded(value string) string { return strings.ToLower(strings.TrimSpace(value)) }

// number reads a whole number, 0 or more. Without text it is 0. One that is too large is as large as can be.
func number(text string) (n int64, ok bool) {
	text = strings.TrimPrefix(strings.TrimSpace(text), "+")
	for _, c := range []byte(text) {
		if c < '0' || c > '9' {
			return 0, false
		}
		if digit := int64(c - '0'); n > (math.MaxInt64-digit)/10 {
			n = math.MaxInt64
		} else {
			n = n*10 + digit
		}
	}
	return n, true
}

// unreadable is the error where a cost cannot be found.
func (f Field) unreadable(v reading, want string) error {
	where := "the query field"
	if f.body {
		where = "the field of the body"
	}
	if v.unseen {
		return fmt.Errorf("%w: %s %q, which says what the request costs, cannot be found in the first %d bytes of a body that is not compressed", ErrRequest, where, f.name, f.bound)
	}
	return fmt.Errorf("%w: %s %q says what the request costs and must be %s", ErrRequest, where, f.name, want)
}

// Package envelope judges, from outside, whether a limit was kept: in any
// interval of length t at most b + r*t tokens may be admitted.
//
// Words. An admission is seen from outside as two moments: when the request
// was sent and when its answer was there; it was decided at some moment
// between. The excess of an interval is what was admitted in it beyond b + r*t.
//
// Guarantee. [WorstExcess] counts an admission for an interval only if both
// moments lie within it, so what it reports has happened, however long or
// unevenly answers took on their way; a slow observer never sees an excess
// where there was none.
//
// Not guaranteed: that every excess is seen. One that is shorter than the time
// answers take, times r, may stay hidden.
package envelope

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// Admission is one token that was admitted, with both moments on one clock.
type Admission struct {
	Sent, Done time.Duration
}

// Excess is the worst interval that was found. A plain value.
type Excess struct {
	// Tokens is what was admitted beyond b + r*t; zero or less: none, and by
	// how much the interval stayed below. Minus infinity without admissions.
	Tokens   float64
	From, To time.Duration
}

// Allowance is that intervals which have a moment in common with From to To, both
// included, may have Tokens more: what a promise gives for a fault.
type Allowance struct {
	From, To time.Duration
	Tokens   float64
}

// WorstExcess finds the interval with the largest excess over a limit of rate
// tokens per second and burst, and what it is allowed besides: if intervals meet
// several allowances these add up. It leaves its arguments as they are and takes
// O(n log n) for n of both.
func WorstExcess(admissions []Admission, rate, burst float64, besides ...Allowance) Excess {
	worst := Excess{Tokens: math.Inf(-1)}
	if len(admissions) == 0 {
		return worst
	}
	starts := make([]time.Duration, len(admissions))
	for i, a := range admissions {
		starts[i] = a.Sent
	}
	slices.Sort(starts)
	starts = slices.Compact(starts)

	// For an interval [A, B] the excess is n(A, B) + r*A - r*B - b. Going
	// through the ends B in order, the tree holds n(A, B) + r*A for every
	// start A; the interval that ends with an admission begins no later than
	// that admission was sent, or a shorter B would do as well.
	tree := newPrefixTree(starts, rate)
	byEnd := slices.Clone(admissions)
	slices.SortFunc(byEnd, func(a, b Admission) int { return cmp.Compare(a.Done, b.Done) }) // no difference: an int may have 32 bits
	besides = slices.Clone(besides)
	slices.SortFunc(besides, func(a, b Allowance) int { return cmp.Compare(a.From, b.From) })
	for _, a := range byEnd {
		// An allowance is met by the intervals that end after it begins, if they begin before it ends.
		for len(besides) > 0 && besides[0].From <= a.Done {
			until, in := slices.BinarySearch(starts, besides[0].To)
			if !in {
				until--
			}
			if until >= 0 {
				tree.add(until, -besides[0].Tokens)
			}
			besides = besides[1:]
		}
		last, _ := slices.BinarySearch(starts, a.Sent)
		tree.add(last, 1)
		value, first := tree.maximum(last)
		if excess := value - rate*a.Done.Seconds() - burst; excess > worst.Tokens {
			worst = Excess{Tokens: excess, From: starts[first], To: a.Done}
		}
	}
	return worst
}

// prefixTree is an array with two operations in logarithmic time: add to a
// prefix, find the maximum of a prefix. It is a segment tree whose nodes hold
// what was added to their whole range and the maximum below.
type prefixTree struct {
	size  int // leaves, a power of two
	added []float64
	best  []float64 // maximum of the range, with all that was added at or below the node
	where []int     // the leaf that has it
}

func newPrefixTree(starts []time.Duration, rate float64) *prefixTree {
	size := 1
	for size < len(starts) {
		size *= 2
	}
	t := &prefixTree{size: size, added: make([]float64, 2*size), best: make([]float64, 2*size), where: make([]int, 2*size)}
	for i := range size {
		t.best[size+i], t.where[size+i] = math.Inf(-1), i
		if i < len(starts) {
			t.best[size+i] = rate * starts[i].Seconds()
		}
	}
	for node := size - 1; node > 0; node-- {
		t.pull(node)
	}
	return t
}

func (t *prefixTree) pull(node int) {
	child := 2 * node
	if t.best[child+1] > t.best[child] {
		child++
	}
	t.best[node], t.where[node] = t.best[child]+t.added[node], t.where[child]
}

// add adds to the leaves 0 to last.
func (t *prefixTree) add(last int, value float64) { t.addBelow(1, 0, t.size-1, last, value) }

func (t *prefixTree) addBelow(node, low, high, last int, value float64) {
	if high <= last {
		t.added[node] += value
		t.best[node] += value
		return
	}
	middle := (low + high) / 2
	t.addBelow(2*node, low, middle, last, value)
	if last > middle {
		t.addBelow(2*node+1, middle+1, high, last, value)
	}
	t.pull(node)
}

// maximum is the largest of the leaves 0 to last, and which it is.
func (t *prefixTree) maximum(last int) (float64, int) { return t.maximumBelow(1, 0, t.size-1, last) }

func (t *prefixTree) maximumBelow(node, low, high, last int) (float64, int) {
	if high <= last {
		return t.best[node], t.where[node]
	}
	middle := (low + high) / 2
	value, where := t.maximumBelow(2*node, low, middle, last)
	if last > middle {
		if right, at := t.maximumBelow(2*node+1, middle+1, high, last); right > value {
			value, where = right, at
		}
	}
	return value + t.added[node], where
}

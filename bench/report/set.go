package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Set is samples, collected: one for each suite, case, parameters, unit and peer. The zero value is empty. It is a plain value, and not changed
// once it is made.
type Set struct {
	samples []Sample
}

// Collect puts samples of the same thing together.
func Collect(samples []Sample) Set {
	var s Set
	at := make(map[string]int)
	for _, one := range samples {
		one.Case, one.Params = one.fullCase(), nil
		k := strings.Join([]string{one.Suite, one.Case, one.Unit, one.Peer}, "\x00")
		i, ok := at[k]
		if !ok {
			at[k] = len(s.samples)
			one.Values, one.Points = slices.Clone(one.Values), slices.Clone(one.Points)
			s.samples = append(s.samples, one)
			continue
		}
		have := &s.samples[i]
		have.Values = append(have.Values, one.Values...)
		have.Points = append(have.Points, one.Points...)
		have.Note = cmp.Or(have.Note, one.Note)
	}
	for i := range s.samples {
		s.samples[i].Points = medianPoints(s.samples[i].Points)
	}
	return s
}

// Find returns what was collected of one thing; the case has its parameters behind it, as in "take callers=64".
func (s Set) Find(suite, fullCase, unit, peer string) (Sample, bool) {
	for _, one := range s.samples {
		if one.Suite == suite && one.Case == fullCase && one.Unit == unit && one.Peer == peer {
			return one, true
		}
	}
	return Sample{}, false
}

// Median returns the median of all values of one thing; false: there are none.
func (s Set) Median(suite, fullCase, unit, peer string) (float64, bool) {
	one, ok := s.Find(suite, fullCase, unit, peer)
	return Median(one.Values), ok && len(one.Values) > 0
}

// All returns the samples of a suite, in the order in which they were first emitted.
func (s Set) All(suite string) []Sample {
	var of []Sample
	for _, one := range s.samples {
		if one.Suite == suite {
			of = append(of, one)
		}
	}
	return of
}

// fullCase is the case with its parameters.
func (s Sample) fullCase() string {
	names := make([]string, 0, len(s.Params))
	for name := range s.Params {
		names = append(names, name)
	}
	slices.Sort(names)
	full := s.Case
	for _, name := range names {
		full += fmt.Sprintf(" %s=%s", name, strconv.FormatFloat(s.Params[name], 'f', -1, 64))
	}
	return strings.TrimSpace(full)
}

// Median is the middle value, the mean of both where there are two, and NaN where there is none.
func Median(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	half := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[half]
	}
	return (sorted[half-1] + sorted[half]) / 2
}

// medianPoints has one point for each X, in their order, whose Y is the median of those given.
func medianPoints(points []Point) []Point {
	ys := make(map[float64][]float64)
	for _, p := range points {
		ys[p.X] = append(ys[p.X], p.Y)
	}
	out := make([]Point, 0, len(ys))
	for x, of := range ys {
		out = append(out, Point{x, Median(of)})
	}
	slices.SortFunc(out, func(a, b Point) int { return cmp.Compare(a.X, b.X) })
	return out
}

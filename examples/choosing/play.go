package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jatah-io/jatah/bucket"
)

// result is what an algorithm made of a load.
type result struct {
	contender
	asked    int
	admitted []int64 // when each admitted request came, in nanoseconds, in order
	passed   []int64 // when it went on, which is later in a queue; in order
	longest  time.Duration
}

// play asks for one token at each arrival.
func play(c contender, phases []phase) (result, error) {
	a, err := bucket.Compile(c.spec)
	if err != nil {
		return result{}, fmt.Errorf("%s: %w", c.name, err)
	}
	keys := bucket.NewMeterTable(a, 1)
	r := result{contender: c}
	for _, now := range arrivals(phases) {
		r.asked++
		if d := keys.Take("key", now, 1); d.OK {
			r.admitted = append(r.admitted, now)
			r.passed = append(r.passed, now+int64(d.Delay))
			r.longest = max(r.longest, d.Delay)
		}
	}
	slices.Sort(r.passed)
	return r, nil
}

func playAll(cs []contender, phases []phase) ([]result, error) {
	var all []result
	for _, c := range cs {
		r, err := play(c, phases)
		if err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	return all, nil
}

// most is how many passed in the busiest interval of this length.
func (r result) most(length time.Duration) int {
	most, first := 0, 0
	for i, t := range r.passed {
		for r.passed[first] <= t-int64(length) {
			first++
		}
		most = max(most, i-first+1)
	}
	return most
}

// admittedIn is how many of the requests of a phase were admitted.
func (r result) admittedIn(p phase) int { return between(r.admitted, int64(p.from), int64(p.to)) }

// between is how many of the times lie in [from, to).
func between(times []int64, from, to int64) int {
	i, _ := slices.BinarySearch(times, from)
	j, _ := slices.BinarySearch(times, to)
	return j - i
}

const busiest = 5 * time.Second // the length of the windows

// table is the one of the page.
func table(results []result) string {
	var b strings.Builder
	b.WriteString("| algorithm | settings | of the burst | of the overload | in all | most in any 5 s | longest wait |\n|---|---|---|---|---|---|---|\n")
	burst, overload := load()[1], load()[3]
	of := func(p phase) int { return len(arrivals([]phase{p})) }
	for _, r := range results {
		inBurst, inOverload := r.admittedIn(burst), r.admittedIn(overload)
		fmt.Fprintf(&b, "| %s | %s | %d of %d | %d of %d | %d of %d | %d | %s |\n", r.code(), r.text,
			inBurst, of(burst), inOverload, of(overload), len(r.passed), r.asked, r.most(busiest), wait(r.longest))
	}
	return b.String()
}

// code is the name with what a configuration would say set as code.
func (c contender) code() string {
	if rest, ok := strings.CutPrefix(c.name, c.spec.Algorithm); ok {
		return "`" + c.spec.Algorithm + "`" + rest
	}
	return c.name
}

func wait(d time.Duration) string {
	if d == 0 {
		return "none"
	}
	return d.Round(10 * time.Millisecond).String()
}

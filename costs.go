package jatah

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jatah-io/jatah/hybrid"
)

// MaxRoute is the longest route in Limit.Costs, in bytes.
const MaxRoute = 1024

// costTable answers Limiter.Cost. It is never changed once made.
type costTable struct {
	costs    map[string]int64 // as given; shared with whoever reads the definition
	exact    map[string]int64
	prefixes map[string]int64 // what stands before the star
	lengths  []int            // of the prefixes, the longest first, each once
}

// newCostTable copies what it is given; the costs are valid.
func newCostTable(costs map[string]int64) *costTable {
	if len(costs) == 0 {
		return &costTable{}
	}
	t := &costTable{costs: maps.Clone(costs), exact: map[string]int64{}, prefixes: map[string]int64{}}
	for route, cost := range costs {
		prefix, isPrefix := strings.CutSuffix(route, "*")
		if !isPrefix {
			t.exact[route] = cost
			continue
		}
		t.prefixes[prefix] = cost
		t.lengths = append(t.lengths, len(prefix))
	}
	slices.Sort(t.lengths)
	t.lengths = slices.Compact(t.lengths)
	slices.Reverse(t.lengths)
	return t
}

func (t *costTable) cost(route string) int64 {
	if c, ok := t.exact[route]; ok {
		return c
	}
	for _, n := range t.lengths {
		if n > len(route) {
			continue
		}
		if c, ok := t.prefixes[route[:n]]; ok {
			return c
		}
	}
	return 1
}

// mostBurst is the most that any plan of a limit lets pass at once; 0: all deny everything.
func mostBurst(s hybrid.Spec) (most int64) {
	if s.Rate.Count > 0 {
		most = s.Burst
	}
	for _, p := range s.Plans {
		if p.Rate.Count > 0 {
			most = max(most, p.Burst)
		}
	}
	return most
}

// checkCosts says what is wrong with the costs of a limit, whose burst, or that of its largest plan, is known; 0: everything is denied, whatever
// it costs. Routes are looked at in their order, so that the same mistakes give the same error.
func (l Limit) checkCosts(burst int64) error {
	bad := func(route, format string, args ...any) error {
		return fmt.Errorf("%w %q: the cost of route %.80q %s", ErrLimit, l.Name, route, fmt.Sprintf(format, args...))
	}
	for _, route := range slices.Sorted(maps.Keys(l.Costs)) {
		cost := l.Costs[route]
		star := strings.IndexByte(route, '*')
		switch {
		case route == "":
			return bad(route, `has no route; use "*" for all routes that no other names`)
		case len(route) > MaxRoute:
			return bad(route, "has a route of %d bytes; at most %d can be told apart", len(route), MaxRoute)
		case star >= 0 && star != len(route)-1:
			return bad(route, `has a star before its end; only a last "*" stands for anything, as in "/search/*"`)
		case cost < 0:
			return bad(route, "is %d; it must be 0 or more", cost)
		case cost > burst && burst > 0:
			return bad(route, "is %d, above the burst %d: it could never pass; raise the burst or lower the cost", cost, burst)
		}
	}
	return nil
}

// Cost is what a request for a route costs by Limit.Costs: the cost of exactly this route; else that of the longest
// entry ending in "*" with whose beginning the route begins, so that "/search/*" is for "/search/a" and "/search/" and not for
// "/search"; else 1. Routes are compared byte for byte, nothing is cleaned or unescaped.
func (l *Limiter) Cost(route string) int64 { return l.costs.Load().cost(route) }

package definition

import (
	"fmt"
	"strings"

	"github.com/jatah-io/jatah"
)

// SetCost adds one route. Whether the cost fits the burst is judged with the whole limit.
func SetCost(l *jatah.Limit, route, value string) error {
	cost, err := ParseWhole(value, 0)
	if err != nil {
		return fmt.Errorf("the cost of route %q: %w", route, err)
	}
	if l.Costs == nil {
		l.Costs = map[string]int64{}
	}
	l.Costs[route] = cost
	return Probe(jatah.Limit{Burst: min(max(1, cost), mostBurst), Costs: map[string]int64{route: cost}})
}

// mostBurst is a burst that any limit of the fastest rate may have.
const mostBurst = 1 << 50

// costs reads the costs of a limit. It returns the entries that are well formed, to be judged once the burst is known.
func (r Reader) costs(v Value, path string, limit *jatah.Limit) []Entry {
	if v.Shape != Null && v.Shape != Group {
		r.problem(v, path, "needs %s; this is %s", FieldOf(Costs).Want, v.Describe())
		return nil
	}
	var good []Entry
	for _, e := range r.Entries(v, path) {
		at := Under(path, e.Name)
		value, ok := e.Value.Scalar(Integer)
		if !ok {
			r.problem(e.Value, at, "needs a whole number of tokens, such as 5; this is %s", e.Value.Describe())
			continue
		}
		if err := SetCost(limit, e.Name, value); err != nil {
			r.problem(e.At, at, "%s", Plain(err))
			continue
		}
		good = append(good, e)
	}
	return good
}

// fitCosts says at its own place which cost a limit can never let pass.
func (r Reader) fitCosts(entries []Entry, path string, limit jatah.Limit) {
	for _, e := range entries {
		one := limit
		one.Costs = nil
		if one.Validate() != nil {
			return // the limit's own mistake comes first
		}
		one.Costs = map[string]int64{e.Name: limit.Costs[e.Name]}
		if err := one.Validate(); err != nil {
			text := Plain(err)
			if _, after, ok := strings.Cut(text, fmt.Sprintf("%q: ", limit.Name)); ok {
				text = after
			}
			r.problem(e.Value, Under(path, e.Name), "%s", text)
		}
	}
}

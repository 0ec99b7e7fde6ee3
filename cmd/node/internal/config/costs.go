package config

import (
	"fmt"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/jatah-io/jatah"
)

const costsField = "costs"

// setCosts reads the form of variables and flags, "/export:100|/search/*:5". The cost comes after the last colon; a route with one of
// the separators in it can be given in a file only.
func setCosts(l *jatah.Limit, value string) error {
	for _, one := range splitList(value, "|") {
		colon := strings.LastIndexByte(one, ':')
		if colon < 0 {
			return fmt.Errorf("%q is no cost: write ROUTE:COST, such as /export:100, separated by |", one)
		}
		route := strings.TrimSpace(one[:colon])
		if _, twice := l.Costs[route]; twice {
			return fmt.Errorf("the route %q is given twice: keep one", route)
		}
		if err := setCost(l, route, strings.TrimSpace(one[colon+1:])); err != nil {
			return err
		}
	}
	return nil
}

// setCost adds one route. Whether the cost fits the burst is judged with the whole limit.
func setCost(l *jatah.Limit, route, value string) error {
	cost, err := parseWhole(value, 0)
	if err != nil {
		return fmt.Errorf("the cost of route %q: %w", route, err)
	}
	if l.Costs == nil {
		l.Costs = map[string]int64{}
	}
	l.Costs[route] = cost
	return probe(jatah.Limit{Burst: min(max(1, cost), mostBurst), Costs: map[string]int64{route: cost}})
}

// mostBurst is a burst that any limit of the fastest rate may have.
const mostBurst = 1 << 50

// costs reads the costs of a limit. It returns the entries that are well formed, to be judged once the burst is known.
func (w *walker) costs(n ast.Node, path string, limit *jatah.Limit) []entry {
	if _, empty := n.(*ast.NullNode); !empty && !isMapping(n) {
		w.problem(n, path, "needs %s; this is %s", limitFieldOf(costsField).want, describe(n))
		return nil
	}
	var good []entry
	for _, e := range w.entries(n, path) {
		at := under(path, e.key)
		value, ok := scalar(e.value, integer)
		if !ok {
			w.problem(e.value, at, "needs a whole number of tokens, such as 5; this is %s", describe(e.value))
			continue
		}
		if err := setCost(limit, e.key, value); err != nil {
			w.problem(e.node, at, "%s", plain(err))
			continue
		}
		good = append(good, e)
	}
	return good
}

func isMapping(n ast.Node) bool {
	switch n.(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
		return true
	}
	return false
}

// fitCosts says at its own place which cost a limit can never let pass.
func (w *walker) fitCosts(entries []entry, path string, limit jatah.Limit) {
	for _, e := range entries {
		one := limit
		one.Costs = nil
		if one.Validate() != nil {
			return // the limit's own mistake comes first
		}
		one.Costs = map[string]int64{e.key: limit.Costs[e.key]}
		if err := one.Validate(); err != nil {
			text := plain(err)
			if _, after, ok := strings.Cut(text, fmt.Sprintf("%q: ", limit.Name)); ok {
				text = after
			}
			w.problem(e.value, under(path, e.key), "%s", text)
		}
	}
}

package config

import (
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/jatah-io/jatah"
)

const (
	plansField     = "plans"
	overridesField = "overrides"
)

// fit is a plan or override that is well formed, to be judged when the limit's own fields are known.
type fit struct {
	node  ast.Node
	path  string
	addTo func(*jatah.Limit)
}

// inFileOnly refuses a field in a variable or flag.
func inFileOnly(example string) func(*jatah.Limit, string) error {
	return func(*jatah.Limit, string) error {
		return fmt.Errorf("cannot be written here: define the limit in a file, with %s, and give it with --config", example)
	}
}

// amountFields are what a plan or an override may have of a limit's fields.
var amountFields = []string{"rate", "rates", "burst"}

// plans reads the plans of a limit.
func (w *walker) plans(n ast.Node, path string, limit *jatah.Limit) (good []fit) {
	if _, empty := n.(*ast.NullNode); empty {
		return nil
	}
	if !isMapping(n) {
		w.problem(n, path, "needs %s; this is %s", limitFieldOf(plansField).want, describe(n))
		return nil
	}
	for _, e := range w.entries(n, path) {
		at := under(path, e.key)
		before := len(w.loader.problems)
		var amounts jatah.Limit
		given := map[string]bool{}
		for _, f := range w.fieldsOf(e.value, at) {
			given[f.key] = true
			if !slices.Contains(amountFields, f.key) {
				w.problem(f.node, under(at, f.key), "%s", unknownField(f.key, "a field of a plan", amountFields, w.ofLimits(path)))
				continue
			}
			w.setLimit(&amounts, f, under(at, f.key), limitFieldOf(f.key))
		}
		if len(w.loader.problems) > before {
			continue
		}
		if !given["rate"] && !given["rates"] {
			w.problem(e.node, at, "has no rate: add `rate: ` with %s", limitFieldOf("rate").want)
			continue
		}
		if limit.Plans == nil {
			limit.Plans = map[string]jatah.Plan{}
		}
		p := jatah.Plan{Rate: amounts.Rate, Rates: amounts.Rates, Burst: amounts.Burst}
		limit.Plans[e.key] = p
		good = append(good, fit{e.node, at, func(one *jatah.Limit) { one.Plans = map[string]jatah.Plan{e.key: p} }})
	}
	return good
}

// fieldsOf is entries for what must not be empty.
func (w *walker) fieldsOf(n ast.Node, path string) []entry {
	if _, empty := n.(*ast.NullNode); empty {
		w.problem(n, path, "is empty: give it a rate, or remove the line")
		return nil
	}
	return w.entries(n, path)
}

// ofLimits maps the fields that only a limit has to where they belong.
func (w *walker) ofLimits(path string) map[string]string {
	limit, _, _ := strings.Cut(path, ".")
	others := map[string]string{}
	for _, f := range limitFields {
		if !slices.Contains(amountFields, f.name) {
			others[f.name] = "the limit itself, " + limit
		}
	}
	return others
}

// overrides reads the overrides of a limit. named are its plans as they stand in the file, right or wrong.
func (w *walker) overrides(n ast.Node, path string, limit *jatah.Limit, named []string) (good []fit) {
	if _, empty := n.(*ast.NullNode); empty {
		return nil
	}
	seq, ok := n.(*ast.SequenceNode)
	if !ok {
		w.problem(n, path, "needs %s; this is %s", limitFieldOf(overridesField).want, describe(n))
		return nil
	}
	first := map[string]ast.Node{}
	for i, item := range seq.Values {
		at := fmt.Sprintf("%s[%d]", path, i)
		before := len(w.loader.problems)
		o, given := w.override(item, at, named)
		if len(w.loader.problems) > before {
			continue
		}
		for _, field := range []string{"key", "prefix"} {
			id := field + ":" + o.Key + o.Prefix
			switch {
			case given[field] == nil:
			case first[id] != nil:
				w.problem(given[field], under(at, field), "%q is overridden twice, here and at %s: keep one", shorten(o.Key+o.Prefix), w.place(first[id]))
			default:
				first[id] = given[field]
			}
		}
		if len(w.loader.problems) > before {
			continue
		}
		limit.Overrides = append(limit.Overrides, o)
		if o.Plan == "" {
			good = append(good, fit{item, at, func(one *jatah.Limit) { one.Overrides = []jatah.Override{o} }})
		}
	}
	return good
}

var overrideFields = append([]string{"key", "prefix", "plan"}, amountFields...)

// override reads one, and returns where its fields stand.
func (w *walker) override(n ast.Node, path string, named []string) (o jatah.Override, given map[string]ast.Node) {
	given = map[string]ast.Node{}
	if _, empty := n.(*ast.NullNode); empty {
		w.problem(n, path, "is empty: give it a key or a prefix, or remove the dash")
		return o, given
	}
	var amounts jatah.Limit
	for _, e := range w.entries(n, path) {
		given[e.key] = e.node
		at := under(path, e.key)
		switch e.key {
		case "key":
			w.filled(e, at, "a key such as vip", &o.Key)
		case "prefix":
			w.filled(e, at, "the beginning of keys, such as internal:", &o.Prefix)
		case "plan":
			if w.filled(e, at, "the name of one of the plans", &o.Plan); o.Plan != "" && !slices.Contains(named, o.Plan) {
				w.problem(e.value, at, "%s", noPlan(o.Plan, named))
			}
		case "rate", "rates", "burst":
			w.setLimit(&amounts, e, at, limitFieldOf(e.key))
		default:
			w.problem(e.node, at, "%s", unknownField(e.key, "a field of an override", overrideFields, w.ofLimits(path)))
		}
	}
	o.Rate, o.Rates, o.Burst = amounts.Rate, amounts.Rates, amounts.Burst
	rated := given["rate"] != nil || given["rates"] != nil
	switch {
	case given["key"] == nil && given["prefix"] == nil:
		w.problem(n, path, "has neither key nor prefix: say for whom it is, as in {key: vip, plan: pro}")
	case given["key"] != nil && given["prefix"] != nil:
		w.problem(given["prefix"], under(path, "prefix"), "there is a key too: keep one of the two, or write two overrides")
	case given["plan"] != nil && (rated || given["burst"] != nil):
		w.problem(given["plan"], under(path, "plan"), "there are amounts too: keep the plan, or the amounts")
	case given["burst"] != nil && !rated:
		w.problem(given["burst"], under(path, "burst"), "needs a rate beside it: add `rate: ` with %s", limitFieldOf("rate").want)
	}
	return o, given
}

// filled reads a text that must not be empty.
func (w *walker) filled(e entry, path, want string, to *string) {
	values, ok := w.values(e, path, text, want)
	if ok && values[0] == "" {
		w.problem(e.value, path, "is empty: write %s", want)
	} else if ok {
		*to = values[0]
	}
}

func noPlan(name string, named []string) string {
	switch near := nearest(name, named); {
	case near != "":
		return fmt.Sprintf("there is no plan %q: did you mean %q?", shorten(name), near)
	case len(named) == 0:
		return fmt.Sprintf("there is no plan %q: define it under plans, or write the amounts here", shorten(name))
	}
	return fmt.Sprintf("there is no plan %q; there are %s", shorten(name), strings.Join(named, ", "))
}

// fitAmounts says at their own place which amounts cannot be under the limit's algorithm.
func (w *walker) fitAmounts(fits []fit, limit jatah.Limit) {
	limit.Costs, limit.Plans, limit.Overrides = nil, nil, nil
	if limit.Validate() != nil {
		return // the limit's own mistake comes first
	}
	for _, f := range fits {
		one := limit
		f.addTo(&one)
		if err := one.Validate(); err != nil {
			w.problem(f.node, f.path, "%s", verdict(err, limit.Name))
		}
	}
}

// planNames are the plans that stand in a file, among the fields of a limit.
func planNames(limit []entry) (names []string) {
	i := slices.IndexFunc(limit, func(e entry) bool { return e.key == plansField })
	if i < 0 {
		return nil
	}
	var values []*ast.MappingValueNode
	switch n := limit[i].value.(type) {
	case *ast.MappingNode:
		values = n.Values
	case *ast.MappingValueNode:
		values = []*ast.MappingValueNode{n}
	}
	for _, v := range values {
		if key, ok := v.Key.(*ast.StringNode); ok {
			names = append(names, key.Value)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

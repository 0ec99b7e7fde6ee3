package config

import (
	"fmt"
	"slices"
	"strings"

	"github.com/jatah-io/jatah"
	"github.com/jatah-io/jatah/internal/definition"
)

// addLimit defines a limit whose fields are already set. It replaces one of
// the same name from a lower layer and refuses a second one in the same layer.
func (l *loader) addLimit(at place, limit jatah.Limit) {
	path := limitsPath + "." + limit.Name
	if err := limit.Validate(); err != nil {
		l.problem(at, path, "%s", verdict(err, limit.Name))
		return
	}
	first, known := l.limitAt[limit.Name]
	if known && first.layer == at.layer {
		l.problem(at, path, "the limit %q is defined twice, here and at %s: rename one or remove it", limit.Name, first)
		return
	}
	l.limitAt[limit.Name] = at
	same := func(other jatah.Limit) bool { return other.Name == limit.Name }
	if i := slices.IndexFunc(l.cfg.Limits, same); i >= 0 {
		l.cfg.Limits[i] = limit
		return
	}
	l.cfg.Limits = append(l.cfg.Limits, limit)
}

// setCompactLimits reads the form of variables and flags:
// "api=100/min,burst=20;login=5/min,mode=strict;sms=2/min+20/d;jobs=algorithm=concurrency,max=10".
func (l *loader) setCompactLimits(at place, value string) {
	for _, one := range splitList(value, ";") {
		before := len(l.problems)
		if limit := l.compactLimit(at, one); len(l.problems) == before {
			l.addLimit(at, limit)
		}
	}
}

func (l *loader) compactLimit(at place, s string) jatah.Limit {
	var limit jatah.Limit
	name, rest, ok := strings.Cut(s, "=")
	name = strings.TrimSpace(name)
	if !ok || name == "" || strings.TrimSpace(rest) == "" {
		l.problem(at, limitsPath, "%q is no limit: write NAME=RATE, such as api=100/min or api=100/min,burst=20", s)
		return limit
	}
	rate, options, _ := strings.Cut(rest, ",")
	l.setLimit(at, &limit, definition.FieldOf("name"), name)
	seen := map[string]bool{"name": true, "rate": true, "rates": true}
	if strings.Contains(rate, "=") { // no rate, as of concurrency
		options = rest
		seen["rate"], seen["rates"] = false, false
	} else if rates := splitList(rate, elementSeparator); len(rates) > 1 {
		l.setLimit(at, &limit, definition.FieldOf("rates"), rates...)
	} else {
		l.setLimit(at, &limit, definition.FieldOf("rate"), strings.TrimSpace(rate))
	}
	for _, option := range splitList(options, ",") {
		key, value, ok := strings.Cut(option, "=")
		key, value = strings.TrimSpace(key), strings.TrimSpace(value)
		path := limitsPath + "." + name
		f := definition.FieldOf(key)
		switch {
		case !ok:
			l.problem(at, path, "%q is no option: write option=value, such as burst=20", option)
		case f == nil:
			l.problem(at, path, "%s", unknownField(key, "an option of a limit", definition.FieldNames(), nil))
		case f.Kind == list && seen[key]:
			l.problem(at, path+"."+key, "stand first, with + between them: write %s=10/s+500/h", name)
		case seen[key]:
			l.problem(at, path+"."+key, "is given twice in %q: keep one", s)
		default:
			seen[key] = true
			l.setLimit(at, &limit, f, elements(f, value)...)
		}
	}
	return limit
}

// elementSeparator stands between the elements of a list within a limit: commas stand between its options.
const elementSeparator = "+"

func elements(f *definition.Field, value string) []string {
	if f.Kind == list {
		return splitList(value, elementSeparator)
	}
	return []string{value}
}

func (l *loader) setLimit(at place, limit *jatah.Limit, f *definition.Field, values ...string) {
	for _, value := range values {
		if err := inText(limit, f, value); err != nil {
			path := limitsPath + "." + f.Name
			if limit.Name != "" && f.Name != "name" {
				path = limitsPath + "." + limit.Name + "." + f.Name
			}
			l.problem(at, path, "%s", plain(err))
		}
	}
}

// inText sets a field that is a table from a variable or flag.
func inText(limit *jatah.Limit, f *definition.Field, value string) error {
	switch {
	case f.Set != nil:
		return f.Set(limit, value)
	case f.Name == definition.Costs:
		return setCosts(limit, value)
	}
	example := map[string]string{
		definition.Plans: "plans: {pro: {rate: 10/s, burst: 50}}", definition.Overrides: "overrides: [{key: vip, plan: pro}]",
	}[f.Name]
	return fmt.Errorf("cannot be written here: define the limit in a file, with %s, and give it with --config", example)
}

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
		if err := definition.SetCost(l, route, strings.TrimSpace(one[colon+1:])); err != nil {
			return err
		}
	}
	return nil
}

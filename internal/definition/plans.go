package definition

import (
	"fmt"
	"slices"
	"strings"

	"github.com/jatah-io/jatah"
)

// fit is a plan or override that is well formed, to be judged when the limit's own fields are known.
type fit struct {
	at    Value
	path  string
	addTo func(*jatah.Limit)
}

// amountFields are what a plan or an override may have of a limit's fields.
var amountFields = []string{"rate", "rates", "burst"}

// plans reads the plans of a limit.
func (r Reader) plans(v Value, limitPath string, limit *jatah.Limit) (good []fit) {
	path := Under(limitPath, Plans)
	if v.Shape != Null && v.Shape != Group {
		r.problem(v, path, "needs %s; this is %s", FieldOf(Plans).Want, v.Describe())
		return nil
	}
	for _, e := range r.Entries(v, path) {
		at := Under(path, e.Name)
		r, problems := r.counting()
		var amounts jatah.Limit
		given := map[string]bool{}
		for _, f := range r.plan(e.Value, at) {
			given[f.Name] = true
			if !slices.Contains(amountFields, f.Name) {
				r.problem(f.At, Under(at, f.Name), "%s", UnknownField(f.Name, "a field of a plan", amountFields, ofLimits(limitPath)))
				continue
			}
			r.set(&amounts, f.Value, Under(at, f.Name), FieldOf(f.Name))
		}
		if *problems > 0 {
			continue
		}
		if !given["rate"] && !given["rates"] {
			r.problem(e.At, at, "has no rate: add `rate: ` with %s", FieldOf("rate").Want)
			continue
		}
		if limit.Plans == nil {
			limit.Plans = map[string]jatah.Plan{}
		}
		p := jatah.Plan{Rate: amounts.Rate, Rates: amounts.Rates, Burst: amounts.Burst}
		limit.Plans[e.Name] = p
		good = append(good, fit{e.At, at, func(one *jatah.Limit) { one.Plans = map[string]jatah.Plan{e.Name: p} }})
	}
	return good
}

// plan is Entries for what must not be empty.
func (r Reader) plan(v Value, path string) []Entry {
	if v.Shape == Null {
		r.problem(v, path, "is empty: give it a rate, or remove the line")
		return nil
	}
	return r.Entries(v, path)
}

// ofLimits maps the fields that only a limit has to where they belong.
func ofLimits(limitPath string) map[string]string {
	limit := "the limit itself"
	if limitPath != "" {
		limit += ", " + limitPath
	}
	others := map[string]string{}
	for _, f := range fields {
		if !slices.Contains(amountFields, f.Name) {
			others[f.Name] = limit
		}
	}
	return others
}

// overrides reads the overrides of a limit. named are its plans as they are written, right or wrong.
func (r Reader) overrides(v Value, limitPath string, limit *jatah.Limit, named []string) (good []fit) {
	path := Under(limitPath, Overrides)
	switch v.Shape {
	case Null:
		return nil
	case Sequence:
	default:
		r.problem(v, path, "needs %s; this is %s", FieldOf(Overrides).Want, v.Describe())
		return nil
	}
	first := map[string]Value{}
	for i, item := range v.Items {
		at := fmt.Sprintf("%s[%d]", path, i)
		r, problems := r.counting()
		o, given := r.override(item, at, limitPath, named)
		if *problems > 0 {
			continue
		}
		for _, field := range []string{"key", "prefix"} {
			here, ok := given[field]
			if !ok {
				continue
			}
			id := field + ":" + o.Key + o.Prefix
			if before, twice := first[id]; twice {
				r.problem(here, Under(at, field), "%q is overridden twice, here and at %s: keep one", Shorten(o.Key+o.Prefix), r.Place(before))
				continue
			}
			first[id] = here
		}
		if *problems > 0 {
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
func (r Reader) override(v Value, path, limitPath string, named []string) (o jatah.Override, given map[string]Value) {
	given = map[string]Value{}
	if v.Shape == Null {
		r.problem(v, path, "is empty: give it a key or a prefix, or remove the dash")
		return o, given
	}
	var amounts jatah.Limit
	for _, e := range r.Entries(v, path) {
		given[e.Name] = e.At
		at := Under(path, e.Name)
		switch e.Name {
		case "key":
			r.Filled(e.Value, at, "a key such as vip", &o.Key)
		case "prefix":
			r.Filled(e.Value, at, "the beginning of keys, such as internal:", &o.Prefix)
		case "plan":
			if r.Filled(e.Value, at, "the name of one of the plans", &o.Plan); o.Plan != "" && !slices.Contains(named, o.Plan) {
				r.problem(e.Value, at, "%s", noPlan(o.Plan, named))
			}
		case "rate", "rates", "burst":
			r.set(&amounts, e.Value, at, FieldOf(e.Name))
		default:
			r.problem(e.At, at, "%s", UnknownField(e.Name, "a field of an override", overrideFields, ofLimits(limitPath)))
		}
	}
	o.Rate, o.Rates, o.Burst = amounts.Rate, amounts.Rates, amounts.Burst
	has := func(name string) bool {
		_, ok := given[name]
		return ok
	}
	rated := has("rate") || has("rates")
	switch {
	case !has("key") && !has("prefix"):
		r.problem(v, path, "has neither key nor prefix: say for whom it is, as in {key: vip, plan: pro}")
	case has("key") && has("prefix"):
		r.problem(given["prefix"], Under(path, "prefix"), "there is a key too: keep one of the two, or write two overrides")
	case has("plan") && (rated || has("burst")):
		r.problem(given["plan"], Under(path, "plan"), "there are amounts too: keep the plan, or the amounts")
	case has("burst") && !rated:
		r.problem(given["burst"], Under(path, "burst"), "needs a rate beside it: add `rate: ` with %s", FieldOf("rate").Want)
	}
	return o, given
}

// Filled reads a text that must not be empty.
func (r Reader) Filled(v Value, path, want string, to *string) {
	values, ok := r.Values(v, path, Text, want)
	if ok && values[0] == "" {
		r.problem(v, path, "is empty: write %s", want)
	} else if ok {
		*to = values[0]
	}
}

func noPlan(name string, named []string) string {
	switch near := Nearest(name, named); {
	case near != "":
		return fmt.Sprintf("there is no plan %q: did you mean %q?", Shorten(name), near)
	case len(named) == 0:
		return fmt.Sprintf("there is no plan %q: define it under plans, or write the amounts here", Shorten(name))
	}
	return fmt.Sprintf("there is no plan %q; there are %s", Shorten(name), strings.Join(named, ", "))
}

// fitAmounts says at their own place which amounts cannot be under the limit's algorithm.
func (r Reader) fitAmounts(fits []fit, limit jatah.Limit) {
	limit.Costs, limit.Plans, limit.Overrides = nil, nil, nil
	if limit.Validate() != nil {
		return // the limit's own mistake comes first
	}
	for _, f := range fits {
		one := limit
		f.addTo(&one)
		if err := one.Validate(); err != nil {
			r.problem(f.at, f.path, "%s", Verdict(err, limit.Name))
		}
	}
}

// planNames are the plans that are written, among the fields of a limit.
func planNames(limit []Entry) (names []string) {
	i := slices.IndexFunc(limit, func(e Entry) bool { return e.Name == Plans })
	if i < 0 {
		return nil
	}
	for _, m := range limit[i].Value.Members {
		if m.Name.Shape == String {
			names = append(names, m.Name.Text)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

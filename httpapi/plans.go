package httpapi

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/jatah-io/jatah"
)

// underPlan is a limit under one of its plans.
func underPlan(l *jatah.Limiter, name string) (*jatah.Limiter, *problem) {
	under, err := l.Plan(name)
	if err == nil {
		return under, nil
	}
	d := l.Limit()
	if !errors.Is(err, jatah.ErrUnknownPlan) {
		return nil, undecided("The plan could not be found: %v.", err)
	}
	names := slices.Sorted(maps.Keys(d.Plans))
	switch {
	case len(names) == 0:
		return nil, unknownPlan("The limit %s has no plan %s, and no other; leave plan out, or define it.", quote(d.Name), quote(name))
	case len(names) > knownLimits:
		names = append(names[:knownLimits], fmt.Sprintf("and %d more", len(names)-knownLimits))
	}
	return nil, unknownPlan("The limit %s has no plan %s; it has %s.", quote(d.Name), quote(name), strings.Join(names, ", "))
}

func unknownPlan(format string, args ...any) *problem {
	return &problem{slug: "unknown-plan", status: http.StatusBadRequest, field: "plan", detail: fmt.Sprintf(format, args...)}
}

// amountsBody is a plan in a definition, as in the configuration file.
type amountsBody struct {
	Rate  string   `json:"rate,omitempty"`
	Rates []string `json:"rates,omitempty"`
	Burst *int64   `json:"burst,omitempty"`
}

// overrideBody is an override: for a key or for a prefix, with a plan or amounts or, with neither, the limit's own.
type overrideBody struct {
	Key    string `json:"key,omitempty"`
	Prefix string `json:"prefix,omitempty"`
	Plan   string `json:"plan,omitempty"`
	*amountsBody
}

func (b *limitBody) addPlans(l jatah.Limit) {
	amounts := func(p jatah.Plan) amountsBody {
		one := l
		one.Rate, one.Rates, one.Burst, one.Plans, one.Overrides = p.Rate, p.Rates, p.Burst, nil, nil
		x := bodyOf(one)
		return amountsBody{x.Rate, x.Rates, x.Burst}
	}
	for name, p := range l.Plans {
		if b.Plans == nil {
			b.Plans = make(map[string]amountsBody)
		}
		b.Plans[name] = amounts(p)
	}
	for _, o := range l.Overrides {
		x := overrideBody{Key: o.Key, Prefix: o.Prefix, Plan: o.Plan}
		if o.Rate != (jatah.Rate{}) || len(o.Rates) > 0 {
			own := amounts(jatah.Plan{Rate: o.Rate, Rates: o.Rates, Burst: o.Burst})
			x.amountsBody = &own
		}
		b.Overrides = append(b.Overrides, x)
	}
}

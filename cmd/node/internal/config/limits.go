package config

import (
	"slices"
	"strings"

	"github.com/jatah-io/jatah"
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
	l.setLimit(at, &limit, limitFieldOf("name"), name)
	seen := map[string]bool{"name": true, "rate": true, "rates": true}
	if strings.Contains(rate, "=") { // no rate, as of concurrency
		options = rest
		seen["rate"], seen["rates"] = false, false
	} else if rates := splitList(rate, elementSeparator); len(rates) > 1 {
		l.setLimit(at, &limit, limitFieldOf("rates"), rates...)
	} else {
		l.setLimit(at, &limit, limitFieldOf("rate"), strings.TrimSpace(rate))
	}
	for _, option := range splitList(options, ",") {
		key, value, ok := strings.Cut(option, "=")
		key, value = strings.TrimSpace(key), strings.TrimSpace(value)
		path := limitsPath + "." + name
		f := limitFieldOf(key)
		switch {
		case !ok:
			l.problem(at, path, "%q is no option: write option=value, such as burst=20", option)
		case f == nil:
			l.problem(at, path, "%s", unknownField(key, "a limit", limitFieldNames(), nil))
		case f.kind == list && seen[key]:
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

func elements(f *limitField, value string) []string {
	if f.kind == list {
		return splitList(value, elementSeparator)
	}
	return []string{value}
}

func (l *loader) setLimit(at place, limit *jatah.Limit, f *limitField, values ...string) {
	for _, value := range values {
		if err := f.set(limit, value); err != nil {
			path := limitsPath + "." + f.name
			if limit.Name != "" && f.name != "name" {
				path = limitsPath + "." + limit.Name + "." + f.name
			}
			l.problem(at, path, "%s", plain(err))
		}
	}
}

func limitFieldNames() []string {
	names := make([]string, len(limitFields))
	for i, f := range limitFields {
		names[i] = f.name
	}
	return names
}

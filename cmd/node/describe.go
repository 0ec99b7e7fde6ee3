package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jatah-io/jatah"
)

// describeLimit is what a definition amounts to, with what it leaves to defaults.
func describeLimit(l jatah.Limit) string {
	parts := []string{describeRates(l)}
	if l.Algorithm == jatah.Concurrency {
		parts[0] = fmt.Sprintf("at most %d at once", l.Max)
	}
	add := func(is bool, format string, args ...any) {
		if is {
			parts = append(parts, fmt.Sprintf(format, args...))
		}
	}
	if burst, ok := burstOf(l); ok {
		add(true, "burst %d", burst)
	}
	add(true, "%s", cmp.Or(l.Algorithm, jatah.TokenBucket))
	add(l.Calendar != "", "calendar %s in %s", l.Calendar, cmp.Or(l.Timezone, "UTC"))
	add(l.Queue > 0, "queue %d", l.Queue)
	add(l.MaxWait > 0, "longest wait %v", l.MaxWait)
	add(l.Algorithm == jatah.BurstAverage, "%s while the average of %v is below %s", l.BurstRate, l.BurstTime, l.BurstThreshold)
	add(l.Algorithm == jatah.Concurrency, "each for at most %v unless renewed", cmp.Or(l.TTL, time.Minute))
	add(l.MaxLog > 0, "log %d", l.MaxLog)
	mode := l.Mode
	if l.Queued() && mode == jatah.Hybrid {
		mode = jatah.Strict // as the node will have it
	}
	add(true, "%s", mode)
	add(true, "fallback %s", l.Fallback)
	add(l.Overshoot > 0, "overshoot %g", l.Overshoot)
	add(l.DryRun, "dry run")
	add(l.Parent != "", "under %s", l.Parent)
	return strings.Join(parts, ", ")
}

// burstOf is the burst that a definition has or means, if its algorithm has one.
func burstOf(l jatah.Limit) (burst int64, ok bool) {
	switch l.Algorithm {
	case "", jatah.TokenBucket, jatah.LeakyBucket:
		return cmp.Or(l.Burst, rates(l)[0].Count), !l.Queued()
	case jatah.BurstAverage:
		return cmp.Or(l.Burst, 1), true
	}
	return 0, false
}

// describeParts are the plans, overrides and costs of a limit, a line each.
func describeParts(l jatah.Limit) (lines []string) {
	amounts := func(p jatah.Plan) string {
		one := l
		one.Rate, one.Rates, one.Burst = p.Rate, p.Rates, p.Burst
		if burst, ok := burstOf(one); ok {
			return fmt.Sprintf("%s, burst %d", describeRates(one), burst)
		}
		return describeRates(one)
	}
	for _, name := range slices.Sorted(maps.Keys(l.Plans)) {
		lines = append(lines, "plan "+name+": "+amounts(l.Plans[name]))
	}
	for _, o := range l.Overrides {
		whom, what := fmt.Sprintf("key %q", o.Key), "the limit's own"
		if o.Prefix != "" {
			whom = fmt.Sprintf("keys that begin with %q", o.Prefix)
		}
		switch {
		case o.Plan != "":
			what = "plan " + o.Plan
		case o.Rate != (jatah.Rate{}) || len(o.Rates) > 0:
			what = amounts(jatah.Plan{Rate: o.Rate, Rates: o.Rates, Burst: o.Burst})
		}
		lines = append(lines, whom+": "+what)
	}
	for _, route := range slices.Sorted(maps.Keys(l.Costs)) {
		lines = append(lines, fmt.Sprintf("route %q: cost %d", route, l.Costs[route]))
	}
	return lines
}

func rates(l jatah.Limit) []jatah.Rate {
	if len(l.Rates) == 0 {
		return []jatah.Rate{l.Rate}
	}
	return l.Rates
}

func describeRates(l jatah.Limit) string {
	var all []string
	for _, r := range rates(l) {
		all = append(all, r.String())
	}
	return strings.Join(all, " and ")
}

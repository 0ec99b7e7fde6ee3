package main

import (
	"cmp"
	"fmt"
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
	switch l.Algorithm {
	case "", jatah.TokenBucket, jatah.LeakyBucket:
		add(!l.Queued(), "burst %d", cmp.Or(l.Burst, rates(l)[0].Count))
	case jatah.BurstAverage:
		add(true, "burst %d", cmp.Or(l.Burst, 1))
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

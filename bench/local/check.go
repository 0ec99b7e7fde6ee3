package local

import (
	"fmt"
	"slices"

	"github.com/jatah-io/jatah/bench/report"
)

const (
	// farOff is how many times the floor ours may take before a run fails. What is aimed at is 1.5; the rest is for noise, and
	// for the few rounds of a short run.
	farOff = 4
	// mostAllocs leaves room for what the ticks of the node allocate in the background, which with one key is little. An allocation in a decision is 1.
	mostAllocs = 0.05
)

// checkTake fails only on allocations and on ratios that no noise explains.
func checkTake(set report.Set) []error {
	var bad []error
	for _, c := range []string{"hot1/seq", "denied/seq"} {
		if allocs, ok := set.Median("local", c, "allocs/op", baseline); !ok || allocs > mostAllocs {
			bad = append(bad, fmt.Errorf("local: %s: %s allocates %.3f times per decision, want 0 (measured: %v)", c, baseline, allocs, ok))
		}
	}
	for _, c := range []string{"hot1/seq", "keys10k/seq"} {
		ours, ok := set.Median("local", c, "cpu ns/op", baseline)
		if !ok {
			bad = append(bad, fmt.Errorf("local: %s: %s was not measured", c, baseline))
			continue
		}
		if least, ok := set.Median("local", c, "cpu ns/op", "floor"); ok && ours > farOff*least {
			bad = append(bad, fmt.Errorf("local: %s: %s takes %.1f ns, more than %d times the floor's %.1f ns", c, baseline, ours, farOff, least))
		}
		for _, p := range rivals() {
			if theirs, ok := set.Median("local", c, "cpu ns/op", p); ok && ours > theirs {
				bad = append(bad, fmt.Errorf("local: %s: %s takes %.1f ns, %s %.1f ns", c, baseline, ours, p, theirs))
			}
		}
	}
	return bad
}

// rivals are the peers that are neither ours nor the floor.
func rivals() []string {
	var names []string
	for _, p := range peers() {
		if !slices.Contains([]string{baseline, "jatah alone", "jatah split", "floor"}, p.name) {
			names = append(names, p.name)
		}
	}
	return names
}

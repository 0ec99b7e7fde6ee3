package hybrid

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jatah-io/jatah/bucket"
)

// ruled are rules of each kind whose windows are shorter than the gaps between faults, with small amounts so that slack hides
// nothing. rate is what they let through per second in the long run, burst their capacity.
func ruled() []schedule {
	per := bucket.Per
	return []schedule{
		{rate: 50, burst: 200, rule: &bucket.Spec{Algorithm: "fixed_window", Rates: []bucket.Rate{per(200, 4*time.Second)}}},
		{rate: 60, burst: 60, rule: &bucket.Spec{Algorithm: "sliding_window", Rates: []bucket.Rate{per(60, time.Second)}}},
		{rate: 40, burst: 80, rule: &bucket.Spec{Algorithm: "sliding_log", Rates: []bucket.Rate{per(80, 2*time.Second)}}},
		{rate: 100, burst: 20, rule: &bucket.Spec{Algorithm: "leaky_bucket", Rates: []bucket.Rate{per(100, time.Second)}, Burst: 20}},
		{rate: 50, burst: 50, rule: &bucket.Spec{Algorithm: "burst_average", Rates: []bucket.Rate{per(50, time.Second)}, Burst: 50,
			BurstRate: per(200, time.Second), BurstThreshold: per(25, time.Second), BurstTime: 4 * time.Second}},
		{rate: 50, burst: 100, rule: &bucket.Spec{Algorithm: "token_bucket", Rates: []bucket.Rate{per(100, time.Second), per(500, 10*time.Second)}}},
		{rate: 40, burst: 60, rule: &bucket.Spec{Algorithm: "fixed_window", Rates: []bucket.Rate{per(60, time.Second), per(400, 10*time.Second)}}},
	}
}

// ruledKinds are fewer than kinds, since there are many rules.
func ruledKinds() []string {
	if testing.Short() {
		return []string{"pascrjlR"}
	}
	return []string{"pa", "scr", "jlR", "pascrjlR"}
}

// TestNoRuleLetsMoreThrough is TestNothingAboveTheLimit for every other algorithm: with fallback wait no fault lets more through than the
// rule itself would, all nodes together: in windows per window.
func TestNoRuleLetsMoreThrough(t *testing.T) {
	for _, mode := range []Mode{Hybrid, Strict} {
		for _, base := range ruled() {
			t.Run(fmt.Sprintf("%v/%s/%d", mode, base.rule.Algorithm, len(base.rule.Rates)), func(t *testing.T) {
				t.Parallel()
				for i, faults := range ruledKinds() {
					for _, flash := range []bool{false, true} {
						s := base
						if s.mode, s.fallback, s.faults, s.flash, s.loss = mode, FallbackWait, faults, flash, 0.05; flash != (i%2 == 0) && *schedules < 10 {
							continue
						}
						worlds(t, s, func(w *world, s schedule) {
							if x := w.worst(); x > 1e-6 {
								t.Errorf("%v: excess %.2f tokens", s, x)
							}
						})
					}
				}
			})
		}
	}
}

// TestExcessOfRulesWithShare: at most one capacity once per event, and nothing by what is planned.
func TestExcessOfRulesWithShare(t *testing.T) {
	for _, mode := range []Mode{Hybrid, Strict} {
		for _, base := range ruled() {
			t.Run(fmt.Sprintf("%v/%s/%d", mode, base.rule.Algorithm, len(base.rule.Rates)), func(t *testing.T) {
				t.Parallel()
				for _, faults := range ruledKinds() {
					s := base
					s.mode, s.fallback, s.faults, s.flash, s.loss = mode, FallbackShare, faults, true, 0.05
					most := float64(s.burst)
					if strings.Trim(faults, "jlR") == "" {
						most = 1e-6
					}
					worlds(t, s, func(w *world, s schedule) {
						if x := w.worst(); x > most {
							t.Errorf("%v: excess %.2f tokens, at most %.2f are promised", s, x, most)
						}
					})
				}
			})
		}
	}
}

// Without faults a rule admits nearly all that it allows, wherever the load is.
func TestRulesAreUsedUp(t *testing.T) {
	for _, mode := range []Mode{Hybrid, Strict} {
		for _, s := range ruled() {
			t.Run(fmt.Sprintf("%v/%s/%d", mode, s.rule.Algorithm, len(s.rule.Rates)), func(t *testing.T) {
				s.mode, s.seed = mode, *firstSeed
				spec := testSpec(s.rate, s.burst)
				spec.Rule, spec.Rate, spec.Mode = s.rule, s.rule.Rates[0], mode
				w := newWorld(t, s.seed, 3, 0, spec, 1)
				w.start(3)
				w.load(4*float64(s.rate), 3, func() bool { return true })
				w.run(20 * sec)
				alone := newAlone(t, spec)
				for at := int64(0); at < 20*sec; at += int64(float64(sec) / (4 * float64(s.rate))) {
					alone(at)
				}
				// An overload is refused in memory for some milliseconds at a time. What depends on when it was used, as averages
				// and weighted windows do, loses by that.
				least := map[string]float64{"sliding_window": 0.95, "burst_average": 0.9}[s.rule.Algorithm]
				if least == 0 {
					least = 0.98
				}
				if got, want := w.meter[w.keys[0]].n, alone(20*sec); float64(got) < least*float64(want) || w.worst() > 1e-6 {
					t.Errorf("%d passed and %v too many; one meter alone lets %d through", got, w.worst(), want)
				}
			})
		}
	}
}

// newAlone is one exact meter that is asked at given times, and tells how many it let through so far.
func newAlone(t *testing.T, spec Spec) func(at int64) int {
	alg, err := bucket.Compile(*spec.Rule)
	if err != nil {
		t.Fatal(err)
	}
	m, n := alg.New(), 0
	return func(at int64) int {
		if m.Advance(worldEpoch+at, 1, 0); m.Free() >= 1 {
			m.Use(1, 0)
			n++
		}
		return n
	}
}

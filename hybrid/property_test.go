package hybrid

import (
	"flag"
	"math"
	"testing"
)

var schedules = flag.Int("schedules", 12, "random fault schedules per row of the property tests")
var firstSeed = flag.Uint64("seed", 1, "first seed of the property tests")

func TestProbe(t *testing.T) {
	for _, flash := range []bool{false, true} {
		for _, fb := range []Fallback{FallbackWait, FallbackShare} {
			for _, mode := range []Mode{Hybrid, Strict} {
				for _, faults := range []string{"", "p", "a", "s", "c", "r", "j", "l", "R", "L", "pascrjl"} {
					for _, q := range []struct {
						rate, burst int64
						loss        float64
					}{{200, 10, 0.02}, {30, 100, 0.1}} {
						var worst, util float64
						var bad uint64
						over := 0
						for i := range *schedules {
							s := schedule{seed: *firstSeed + uint64(i), rate: q.rate, burst: q.burst, mode: mode, fallback: fb, loss: q.loss, faults: faults, flash: flash, keys: 2}
							spec := testSpec(s.rate, s.burst)
							spec.Mode, spec.Fallback = s.mode, s.fallback
							w := newWorld(t, s.seed, 8, 0, spec, s.keys)
							s.run(w, 3+w.rng.IntN(5), nil)
							x := w.worst()
							if x > 0.01 {
								over++
							}
							if x > worst {
								worst, bad = x, s.seed
							}
							util += w.utilization()
						}
						t.Logf("%-8v %-6v %-6v flash %-5v r %-3d b %-3d %-8s worst %6.2f (seed %d, %d over) utilization %.3f", mode, fb, "", flash, q.rate, q.burst, faults, worst, bad, over, util/float64(*schedules))
					}
				}
			}
		}
	}
	_ = math.Pi
}

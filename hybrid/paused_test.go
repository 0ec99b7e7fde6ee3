package hybrid

import (
	"testing"
	"time"

	"github.com/jatah-io/jatah/bucket"
)

// TestAllArePausedAtOnce: a machine that stands still for a second with all nodes on it. Each of them is sure of nothing afterwards,
// and with fallback share each gets back as owner what another one kept as heir: long windows are not over for it.
func TestAllArePausedAtOnce(t *testing.T) {
	day := bucket.Per(30, 24*time.Hour)
	for name, rule := range map[string]*bucket.Spec{"token_bucket": nil, "fixed_window": {Algorithm: "fixed_window", Rates: []bucket.Rate{day}},
		"sliding_window": {Algorithm: "sliding_window", Rates: []bucket.Rate{day}}, "sliding_log": {Algorithm: "sliding_log", Rates: []bucket.Rate{day}}} {
		modes(t, func(t *testing.T, m Mode) {
			w := quiet(t, 3, 0, Spec{Name: "api", Rate: day, Burst: 30, Rule: rule, Mode: m})
			if n := w.nodes[0].takes("used", 12); n != 12 {
				t.Fatalf("%s: %d of 12 passed", name, n)
			}
			w.rest()
			for _, n := range w.nodes {
				n.paused = true
			}
			w.sleep(900 * ms)
			for _, n := range w.nodes {
				n.paused = false
			}
			w.sleep(5 * sec)
			if n := w.nodes[1].takes("new", 50); n < 29 || n > 30 {
				t.Errorf("%s: %d of 30 passed for a key that was not used", name, n)
			}
			if n := w.nodes[2].takes("used", 50); n < 17 || n > 18 {
				t.Errorf("%s: %d passed with 12 of 30 used", name, n)
			}
		})
	}
}

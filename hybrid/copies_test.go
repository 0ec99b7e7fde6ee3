package hybrid

import (
	"fmt"
	"testing"
	"time"

	"github.com/jatah-io/jatah/bucket"
)

// TestAnHeirAgainForgetsWhatIsFull: while another member was heir for a moment, keys became full and their owner forgot them. It told that to the other one; the
// copies of before are at the heir that has the role again, which nobody tells anything of these keys any more. It forgets them once they are full, and none before.
func TestAnHeirAgainForgetsWhatIsFull(t *testing.T) {
	ten := bucket.Per(1, 10*time.Second)
	for name, rule := range map[string]*bucket.Spec{"token_bucket": nil, "sliding_window": {Algorithm: "sliding_window", Rates: []bucket.Rate{bucket.Per(5, 50*time.Second)}}} {
		for _, fallback := range []Fallback{FallbackShare, FallbackWait} {
			s := Spec{Name: "api", Rate: ten, Burst: 5, Rule: rule, Fallback: fallback}
			if rule != nil {
				s.Rate = rule.Rates[0]
			}
			w := newWorld(t, *firstSeed, 3, 0, s, 0)
			w.start(3)
			w.sleep(60 * sec)
			for i := range 60 {
				w.nodes[i%3].ask(fmt.Sprint("k", i), int64(1+i%5))
			}
			w.sleep(sec)
			copies := func() (n int) {
				for _, o := range w.nodes {
					for _, s := range o.e.standby {
						for k := range s.records {
							if !k.base {
								n++
							}
						}
					}
				}
				return n
			}
			if copies() < 50 {
				t.Fatalf("%s, %v: %d copies", name, fallback, copies())
			}
			for _, n := range w.nodes {
				for _, p := range n.e.parts {
					for _, x := range p.ledgers {
						x.heirHas = heirHasNothing // it is another's to forget
					}
				}
			}
			w.sleep(4 * sec)
			if copies() < 50 {
				t.Errorf("%s, %v: %d copies, and no key is full", name, fallback, copies())
			}
			w.sleep(160 * sec)
			if copies() > 0 {
				t.Errorf("%s, %v: %d copies when all keys are full", name, fallback, copies())
			}
			for _, n := range w.nodes {
				for _, x := range recount(n.e) {
					t.Errorf("%s: %s", n.name, x)
				}
			}
		}
	}
}

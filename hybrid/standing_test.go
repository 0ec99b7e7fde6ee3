package hybrid

import (
	"testing"
	"time"

	"github.com/jatah-io/jatah/bucket"
)

// TestStandingDenialKnowsWhatWasTakenSince: what the node takes itself after it was refused is missing in what it answers next.
func TestStandingDenialKnowsWhatWasTakenSince(t *testing.T) {
	modes(t, func(t *testing.T, m Mode) {
		s := Spec{Name: "api", Rate: bucket.Per(5, 300*time.Second), Burst: 5, Mode: m}
		for _, who := range []int{0, 1} {
			w := quiet(t, 3, 0, s)
			n := append(w.others("k")[:1:1], w.owner("k"))[who]
			begin := w.now
			n.takes("k", 2)
			if d := n.ask("k", 5); d.OK || d.Remaining != 3 {
				t.Fatalf("%+v", d)
			}
			if ok := n.takes("k", 3); ok != 3 {
				t.Fatalf("%d passed, want 3", ok)
			}
			d := n.ask("k", 5)
			want := 300*time.Second - time.Duration(w.now-begin)
			if d.OK || d.Remaining != 0 || (d.RetryAfter-want).Abs() > 100*time.Millisecond {
				t.Errorf("%v: %+v, want 0 left and a wait of %v", m, d, want)
			}
			w.sleep(tick)
			if d := n.ask("k", 5); d.Remaining != 0 || (d.RetryAfter-want+time.Duration(tick)).Abs() > 100*time.Millisecond {
				t.Errorf("%v, a tick later: %+v", m, d)
			}
		}
	})
}

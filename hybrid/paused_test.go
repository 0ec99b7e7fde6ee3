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

// TestAPausedNodeDoesNotWaitForWhoHasFailed: one of three is dead when another one stands still for a moment. Who is dead cannot say that it counts
// the node's new incarnation, but it counted the one before: the two that live go on with two thirds of the limit, long before grace is over.
func TestAPausedNodeDoesNotWaitForWhoHasFailed(t *testing.T) {
	for _, fallback := range []Fallback{FallbackWait, FallbackShare} {
		t.Run(fallback.String(), func(t *testing.T) {
			s := testSpec(30, 30)
			s.Fallback = fallback
			w := quiet(t, 3, 0, s)
			dead, paused := w.nodes[0], w.nodes[1]
			dead.kill()
			w.detect()
			w.sleep(7 * sec)
			paused.paused = true
			w.sleep(900 * ms)
			paused.paused = false
			w.sleep(4 * sec)
			if k := paused.e.weight(paused.clock()); k != 3 {
				t.Errorf("four seconds after the pause its share is 1/%d, want 1/3", k)
			}
			start, admitted := w.now, 0
			for w.now < start+10*sec {
				for _, n := range w.nodes[1:] {
					admitted += n.takes(w.keys[0], 5)
				}
				w.sleep(100 * ms)
			}
			if want := 20 * 10; admitted < want*95/100 {
				t.Errorf("%d passed in ten seconds at two thirds of 30/s", admitted)
			}
			if x := w.worst(); x > 1e-6 {
				t.Errorf("excess %.3f", x)
			}
		})
	}
}

// TestAStragglerOfALifeBetween: a peer is paused twice, and the first packet of its third life comes before the last one of its second. That one is a
// straggler, though nobody has heard of that life before: the third one goes on.
func TestAStragglerOfALifeBetween(t *testing.T) {
	w := quiet(t, 3, 0, testSpec(30, 30))
	peer, n := w.nodes[0], w.nodes[1]
	first := n.e.byName[peer.name].inc
	second, third := nextLife(first, nil), nextLife(nextLife(first, nil), nil)
	stale := n.e.stats.stale.Load()
	say := func(inc uint64, at int64) {
		m := &message{probe: true, stamp: stamp{inc: inc, at: at}}
		n.e.receive(n.clock(), peer.name, m)
	}
	say(third, 10)
	say(second, 5)
	say(first, 4)
	say(third, 20)
	if p := n.e.byName[peer.name]; p.inc != third || p.stamp.at != 20 {
		t.Errorf("the peer's life is %x at %d, want %x at 20", p.inc, p.stamp.at, third)
	}
	if got := n.e.stats.stale.Load() - stale; got != 2 {
		t.Errorf("%d stragglers, want 2", got)
	}
	if last := uint64(1)<<40 - 1<<livesBits | 1<<livesBits - 1; nextLife(last, func() uint64 { return 7 }) != firstLife(7) {
		t.Errorf("after %x comes %x", last, nextLife(last, func() uint64 { return 7 }))
	}
}

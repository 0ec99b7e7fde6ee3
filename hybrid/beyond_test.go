package hybrid

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jatah-io/jatah/bucket"
)

// TestNothingIsForgottenForWantOfRoom alone: a full node keeps what was used of each key when a limit gets another kind of rule and back, and when it is started
// again from its snapshot with less room than before. What is beyond the bounds is counted, and goes when the limit does.
func TestNothingIsForgottenForWantOfRoom(t *testing.T) {
	const n = 50
	bare := Spec{Name: "api", Rate: bucket.Per(5, time.Hour), Burst: 5}
	window := bare
	window.Rule = &bucket.Spec{Algorithm: "fixed_window", Rates: []bucket.Rate{bare.Rate}}
	for _, s := range []Spec{bare, window} {
		e, now, limits := aloneEngine(t, Config{MaxKeys: n}, s)
		l, ctx := limits[0], context.Background()
		for i := range n {
			if d := l.Take(ctx, fmt.Sprint(i), 5); !d.OK {
				t.Fatalf("%+v", d)
			}
		}
		check := func(l *Limit, when string) {
			t.Helper()
			passed := 0
			for i := range n {
				if l.Take(ctx, fmt.Sprint(i), 1).OK {
					passed++
				}
			}
			if passed > 0 {
				t.Errorf("%s: %d keys of %d that were used up pass", when, passed, n)
			}
			for _, x := range recount(l.e) {
				t.Errorf("%s: %s", when, x)
			}
		}
		other := window
		if s.Rule != nil {
			other = bare
		}
		for _, next := range []Spec{other, s} {
			if _, err := e.Define(next); err != nil {
				t.Fatal(err)
			}
			check(l, "as another rule")
		}
		wall := time.Unix(0, e.wall(now.Load()))
		image := e.Snapshot(now.Load(), wall)
		f, then, again := aloneEngine(t, Config{MaxKeys: n / 5}, s)
		if err := f.Restore(then.Load(), wall, image); err != nil {
			t.Fatal(err)
		}
		check(again[0], "after a restart")
		f.Remove("api")
		if m := f.Memory(); m.Keys != 0 || m.Used != 0 {
			t.Errorf("without the limit: %+v", m)
		}
	}
}

// TestARemovedLimitIsForgottenByHeirs, which keep copies of what others own.
func TestARemovedLimitIsForgottenByHeirs(t *testing.T) {
	w := newWorld(t, *firstSeed, 3, 0, slow(5), 0)
	w.start(3)
	w.sleep(sec)
	for i := range 60 {
		w.nodes[i%3].ask(fmt.Sprint("k", i), 2)
	}
	w.sleep(sec)
	copies := int64(0)
	for _, n := range w.nodes {
		copies += n.e.Memory().Parts["standby"]
		n.e.Remove("api")
	}
	w.sleep(10 * sec)
	for _, n := range w.nodes {
		if m := n.e.Memory(); copies == 0 || m.Keys != 0 || m.Used != 0 {
			t.Errorf("%s, which had copies of %d bytes with others: %+v", n.name, copies, m)
		}
		for _, x := range recount(n.e) {
			t.Error(x)
		}
	}
}

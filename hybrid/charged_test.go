package hybrid

import "testing"

// TestReportsAddUpOverRepeatsAndLives: what a lender spent counts once, however often and in whatever order it is said, and
// what its next life spends counts besides. Mode strict: no credit is out that a restart would lose.
func TestReportsAddUpOverRepeatsAndLives(t *testing.T) {
	s := slow(100)
	s.Mode = Strict
	w := quiet(t, 2, 0, s)
	n, o := w.others("k")[0], w.owner("k")
	inc := n.e.inc
	n.kill() // from here on the test speaks for it
	charged := func() float64 {
		pool, out := o.balance("k")
		return 100 - pool - out
	}
	for _, said := range []struct {
		life uint64
		c    int64
		want float64
	}{
		{0, 5, 5},
		{0, 5, 5}, // the answer was lost
		{0, 8, 8}, // overtakes the next
		{0, 6, 8},
		{1, 4, 12}, // restarted: its generations and counters begin anew
		{1, 4, 12},
		{0, 9, 12}, // a straggler of the life that is over
	} {
		m := &message{stamp: stamp{inc + said.life, 1, o.clock()}, echo: stamp{o.e.inc, o.e.ownEpoch, o.clock()},
			reports: []report{{limit: "api", key: "k", gen: 1, c: said.c}}}
		o.e.Receive(o.clock(), n.name, encode(newWriter(), m))
		if got := charged(); got < said.want-0.01 || got > said.want+0.01 {
			t.Errorf("after life %d said %d: %.3f charged, want %v", said.life, said.c, got, said.want)
		}
	}
}

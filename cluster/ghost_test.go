package cluster

import (
	"testing"
	"time"
)

// What was recorded of a process that has gone for good, sent again when memberlist has forgotten it, cannot make it a member for longer than it
// takes to find out that it does not answer: it takes a share away for a while, and gives none.
func TestReplaysOfAProcessThatIsGone(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		h := newHostileWorld(w)
		h.talk(1)
		var record []sentDatagram
		for _, tap := range h.taps {
			record = append(record, tap.recorded(false, 1000)...)
		}
		gone := h.nodes[2]
		_ = gone.Close() // as if it had crashed
		h.nodes = h.nodes[:2]
		w.within(time.Minute, "it is found dead", func() bool { return alive("n1 n2", h.nodes...) })
		for _, n := range h.nodes {
			if err := n.Forget("n3"); err != nil && len(n.View().Lost) > 0 {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		time.Sleep(10 * time.Minute)
		ghost := 0
		for range 3 {
			for _, d := range record {
				h.inject(d.b, d.to)
			}
			for range 100 {
				time.Sleep(100 * time.Millisecond)
				if !alive("n1 n2", h.nodes...) {
					ghost++
				}
			}
		}
		t.Logf("a ghost was a member for about %v of 30 s", time.Duration(ghost)*100*time.Millisecond)
		w.within(time.Minute, "only those that live are members", func() bool { return alive("n1 n2", h.nodes...) })
		time.Sleep(5 * time.Second)
		if !alive("n1 n2", h.nodes...) {
			t.Errorf("%s, %s", names(h.nodes[0].View()), names(h.nodes[1].View()))
		}
		h.talk(2)
	})
}

package cluster

import (
	"testing"
	"time"
)

// A packet from a process that nobody has introduced makes the node ask a member about it, and a flood of such packets not
// more than once a second.
func TestStrangerIsAskedAbout(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		n1, n2, _ := w.three()
		from := header{from: "n9", sender: newIncarnation()}
		stray := appendPacket(nil, &from, 0, nil)
		before := n2.Stats().StreamsOut
		for range 1000 {
			n1.receive(stray)
			time.Sleep(3 * time.Millisecond)
		}
		if got := n1.Stats().Strangers; got < 3 || got > 4 {
			t.Errorf("%d exchanges of states in three seconds of a stranger's packets, want one a second", got)
		}
		if n2.Stats().StreamsOut != before || n2.Stats().Strangers != 0 {
			t.Error("a node that heard no stranger asked about one")
		}
	})
}

// What a process says that was taken for dead leads to that process itself.
func TestDeadThatSpeaksIsAskedItself(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		n1, n2, n3 := w.three()
		wire := n3.wire
		w.crash(n3)
		w.within(30*time.Second, "n3 is lost", func() bool { return alive("n1 n2", n1, n2) })
		a, ok := n1.whoKnows(wire)
		if !ok || a.String() != at(3) {
			t.Errorf("asks %v, %v about the dead n3, want its own address %s", a, ok, at(3))
		}
		if a, ok := n1.whoKnows("n9/0123456789"); !ok || a.String() != at(2) {
			t.Errorf("asks %v, %v about a process it never knew, want the other member %s", a, ok, at(2))
		}
		if _, ok := n1.whoKnows(n2.wire); ok {
			t.Error("asks about a member that is alive")
		}
	})
}

package hybrid

import (
	"fmt"
	"testing"
)

// TestCopiesOfARemovedLimit: an heir hears of the removal before the owner does, or gets the owner's last records after it. Nothing is kept of the limit for long.
func TestCopiesOfARemovedLimit(t *testing.T) {
	for _, heirFirst := range []bool{true, false} {
		w := newWorld(t, *firstSeed, 3, 0, slow(5), 0)
		w.start(3)
		w.sleep(sec)
		for i := range 60 {
			w.nodes[i%3].ask(fmt.Sprint("k", i), 2)
		}
		w.sleep(sec)
		for i := range 60 {
			w.nodes[i%3].ask(fmt.Sprint("k", i), 1) // the records of these are due
		}
		order := w.nodes
		for i, n := range order {
			if heirFirst {
				if i > 0 {
					w.sleep(300 * ms)
					for j := range 60 {
						order[2].ask(fmt.Sprint("k", j), 1)
					}
				}
			}
			n.e.Remove("api")
		}
		w.sleep(20 * sec)
		for _, n := range w.nodes {
			if m := n.e.Memory(); m.Keys != 0 || m.Used != 0 {
				t.Errorf("heir first %v: %s has %+v", heirFirst, n.name, m)
			}
			for _, x := range recount(n.e) {
				t.Error(x)
			}
		}
	}
}

// TestALimitThatIsRemovedBeforeItsHeirHeard: the heir has never confirmed its ledgers. They are not waited for: the heir has all that there is.
func TestALimitThatIsRemovedBeforeItsHeirHeard(t *testing.T) {
	w := newWorld(t, *firstSeed, 3, 0, slow(5), 0)
	w.start(3)
	w.sleep(sec)
	for _, n := range w.nodes {
		if _, err := n.e.Define(Spec{Name: "other", Rate: slow(5).Rate, Burst: 5}); err != nil {
			t.Fatal(err)
		}
		l, _ := n.e.Lookup("other")
		for i := range 60 {
			if _, p := l.Begin(fmt.Sprint(n.name, i), 1); p != nil {
				n.settle()
				w.await(p)
			}
		}
	}
	w.sleep(sec)
	missing := func() (all int) {
		for _, n := range w.nodes {
			for _, p := range n.e.parts {
				all += p.missing
			}
		}
		return all
	}
	for _, n := range w.nodes {
		for _, p := range n.e.parts {
			if p.owned {
				p.heirInc = 0 // as if it had heard of another one: with the next tick all begins anew
			}
		}
	}
	for end := w.now + sec; missing() == 0 && w.now < end; {
		w.step()
	}
	if missing() == 0 {
		t.Fatal("no heir has changed")
	}
	for _, n := range w.nodes {
		n.e.Remove("other")
	}
	w.sleep(5 * sec)
	if n := missing(); n != 0 {
		t.Errorf("%d ledgers are missing at heirs", n)
	}
}

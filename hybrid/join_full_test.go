package hybrid

import (
	"fmt"
	"testing"
	"time"

	"github.com/jatah-io/jatah/bucket"
	"github.com/jatah-io/jatah/internal/budget"
)

// TestAMemberJoinsAFullNode that was the only one: its keys, which took next to nothing, become ledgers. That takes long where there are many, so that its next tick is late; it is
// not taken for a pause, in which a node loses what it owns. No key has more or less afterwards than it had, at either node; what is beyond the bound is counted, new
// keys are refused meanwhile, and when all are full again nothing is left.
func TestAMemberJoinsAFullNode(t *testing.T) {
	for late, fallback := range map[int64]Fallback{0: FallbackShare, 400 * ms: FallbackWait, 2 * sec: FallbackShare} {
		t.Run(fmt.Sprint(fallback, " ", time.Duration(late)), func(t *testing.T) { joinFull(t, fallback, late) })
	}
}

func joinFull(t *testing.T, fallback Fallback, late int64) {
	const bound, burst = 64 << 10, 5
	s := Spec{Name: "api", Rate: bucket.Per(1, 100*time.Second), Burst: burst, Fallback: fallback}
	w := newWorld(t, *firstSeed, 1, 1, s, 0)
	w.hook = func(e *Engine) {
		if e.budget = budget.New(0, bound, 0); e.cfg.Node != "n0" {
			e.budget = budget.New(0, 100*bound, 0)
		}
		e.permits.budget = e.budget
	}
	w.start(1)
	first, second := w.nodes[0], w.nodes[1]
	if w.sleep(5 * sec); fallback == FallbackWait {
		w.sleep(burst * 100 * sec)
	}
	used := map[string]int{}
	for i := range 10_000 {
		k := fmt.Sprint("user-", i)
		cost := 1 + i%burst
		if d := first.ask(k, int64(cost)); d.Err == ErrOverflow {
			break
		} else if !d.OK {
			t.Fatalf("%s: %+v", k, d)
		}
		used[k] = cost
	}
	if len(used) < 300 || first.e.nsolo != len(used) || first.e.budget.Bytes() > bound {
		t.Fatalf("%d keys, of which %d are solo, with %d bytes", len(used), first.e.nsolo, first.e.budget.Bytes())
	}
	check := func() {
		t.Helper()
		for _, n := range w.nodes {
			for _, x := range recount(n.e) {
				t.Errorf("%s: %s", n.name, x)
			}
		}
	}
	second.boot()
	for _, n := range w.nodes {
		n.view = map[int]bool{0: true, 1: true}
		n.push()
	}
	if first.e.nsolo != 0 || first.e.budget.Bytes() < 2*bound {
		t.Errorf("%d keys are solo beside another member, with %d bytes", first.e.nsolo, first.e.budget.Bytes())
	}
	check()
	first.paused = true
	w.sleep(late)
	first.paused = false
	w.sleep(6 * sec)
	check()
	if n := first.e.stats.pauses.Load(); n != 0 {
		t.Errorf("it is said to have been paused %d times", n)
	}
	if d := first.ask("new", 1); d.Err != ErrOverflow {
		t.Errorf("a new key while more is stored than the bound: %+v", d)
	}
	start, gained := w.now, 0
	for k, n := range used {
		passed := second.takes(k, burst+1) // it has room for accounts
		if most := burst - n; passed < most || passed > most+1 {
			t.Errorf("%d passed of %s, of which %d had been used", passed, k, n)
		} else {
			gained += passed - most
		}
	}
	if most := int(float64(w.now-start+10*sec)/float64(100*sec)*float64(len(used))) + 1; gained > most {
		t.Errorf("%d passed more than were left, in a time in which %d came", gained, most)
	}
	check()
	w.sleep(1000 * sec)
	check()
	for _, n := range w.nodes {
		if m := n.e.Memory(); m.Keys != 0 || n.e.nledgers != 0 || m.Parts["accounts"] != 0 || m.Parts["standby"] > 4<<10 || m.Used > bound {
			t.Errorf("%s, when all are full: %d ledgers, %+v", n.name, n.e.nledgers, m)
		}
	}
	if d := first.ask("new", 1); !d.OK {
		t.Errorf("a new key when all are full: %+v", d)
	}
}

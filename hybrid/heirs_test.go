package hybrid

import (
	"fmt"
	"testing"
)

// TestANewHeirIsToldBitByBit: an heir dies, and the next one has none of very many keys. It is told of all of them, of not more than its socket has room for
// in any tick, and of no partition only in part for longer than that takes.
func TestANewHeirIsToldBitByBit(t *testing.T) {
	if raceDetector {
		t.Skip("worlds are not run")
	}
	const keys = 3000
	w := newWorld(t, *firstSeed, 3, 0, slow(5), 0)
	w.hook = func(e *Engine) { e.cfg.MaxMessage = 400 } // a few records
	w.start(3)
	w.sleep(5 * sec)
	for i := range keys {
		w.nodes[i%3].ask(fmt.Sprint("k", i), 2)
	}
	w.sleep(5 * sec)
	missing := func() (n int) {
		for _, o := range w.nodes {
			for _, p := range o.e.parts {
				if o.alive && p.owned {
					n += p.missing
				}
			}
		}
		return n
	}
	if n := missing(); n > 0 {
		t.Fatalf("the heirs miss %d records", n)
	}
	w.nodes[2].kill()
	w.detect()
	most, ticks, ledgers := 0, 0, 0
	for range 120 {
		w.sleep(tick)
		ledgers = 0
		for _, o := range w.nodes[:2] {
			ledgers += int(o.e.nledgers)
			for _, q := range o.e.peers {
				most = max(most, q.standbySent)
			}
		}
		if missing() > 0 {
			ticks++
		}
	}
	t.Logf("%d ledgers; %d ticks with records missing, at most %d packets in one", ledgers, ticks, most)
	if n := missing(); n > 0 {
		t.Errorf("six seconds after the heir was found dead %d records are missing", n)
	}
	if most > standbyPerTick+1 || most < standbyPerTick || ticks < 4 || ticks > 30 {
		t.Errorf("%d packets of records in a tick, %d ticks; want about %d", most, ticks, standbyPerTick)
	}
	if ledgers < keys*9/10 {
		t.Errorf("%d of %d keys are known", ledgers, keys)
	}
}

package hybrid

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

// TestAFullOwnerRecovers: a node that has no room as owner only says so, says that there is room again, and says both anew the next time.
func TestAFullOwnerRecovers(t *testing.T) {
	logs := map[string]*strings.Builder{}
	s := slow(5)
	s.Rate.Count, s.Rate.Per = 1, 1e9
	w := newWorld(t, *firstSeed, 3, 0, s, 0)
	w.hook = func(e *Engine) {
		logs[e.cfg.Node] = &strings.Builder{}
		e.log = slog.New(slog.NewTextHandler(logs[e.cfg.Node], nil))
		e.budget.SetMaxKeys(20)
	}
	w.start(3)
	w.sleep(sec)
	owner := w.nodes[0]
	own := func(round int) (keys []string) {
		for i := 0; len(keys) < 60; i++ {
			if k := fmt.Sprint(round, "-", i); w.owner(k) == owner {
				keys = append(keys, k)
			}
		}
		return keys
	}
	for round := 1; round <= 2; round++ {
		for i, k := range own(round) {
			w.nodes[1+i%2].ask(k, 5)
		}
		if owner.e.stats.ownerFull.Load() == 0 || !owner.e.Memory().Full {
			t.Fatalf("round %d: the owner is not full: %+v", round, owner.e.Memory())
		}
		w.sleep(100 * sec)
		text := logs[owner.name].String()
		if full, free := strings.Count(text, "no room for new keys"), strings.Count(text, "there is room"); full != round || free != round || owner.e.Memory().Full {
			t.Errorf("round %d: %d times full and %d times free is said:\n%s", round, full, free, text)
		}
	}
}

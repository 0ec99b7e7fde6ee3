package hybrid

import (
	"testing"
)

// TestATakeAllKeepsItsAccounts: the room that one key of a take-all needs is not made by forgetting the account of another one, which it has looked up already.
func TestATakeAllKeepsItsAccounts(t *testing.T) {
	w := newWorld(t, *firstSeed, 3, 0, testSpec(10, 5), 0)
	w.hook = func(e *Engine) {
		if e.cfg.Node == "n0" {
			e.budget.SetMaxKeys(1)
		}
	}
	w.start(3)
	w.sleep(sec)
	n := w.nodes[0]
	far := func(prefix string) string {
		for {
			if prefix += "x"; w.owner(prefix) != n {
				return prefix
			}
		}
	}
	first, second := far("a"), far("b")
	n.ask(first, 1)
	w.rest()
	n.ask(first, 1)
	n.e.mu.Lock()
	a := n.e.accountOf(n.limit, first)
	if a == nil {
		t.Fatal("no account")
	}
	a.r += a.drain() // as if a tick had found it idle
	a.ack = a.counters()
	a.live, a.idleAt, n.e.active = false, n.clock(), nil
	n.e.mu.Unlock()
	d := n.askAll(want{"api", first, 2}, want{"api", second, 1})
	if d.Err != ErrOverflow {
		t.Errorf("there is room for one of two keys: %+v", d)
	}
	w.sleep(sec)
	if len(n.e.byGen) != n.e.accounts.n {
		t.Errorf("%d generations of %d accounts", len(n.e.byGen), n.e.accounts.n)
	}
	for _, x := range recount(n.e) {
		t.Error(x)
	}
}

package hybrid

import "testing"

// An owner is cut off and lives on with its balances, while its heir starts from the standby records of the same balances. What
// the heir's side spends of them is charged when the two meet again.
func TestOwnerThatLivedOnIsChargedWhatItsHeirSpent(t *testing.T) {
	for _, mode := range []Mode{Hybrid, Strict} {
		spec := slow(99)
		spec.Mode = mode
		w := quiet(t, 3, 0, spec)
		owner := w.owner("key-0")
		others := w.others("key-0")
		others[0].ask("key-0", 1)
		w.rest()
		w.isolate(owner)
		w.detect()
		w.sleep(9 * sec)
		spent := 1
		for range 200 {
			for _, n := range others {
				if n.ask("key-0", 1).OK {
					spent++
				}
			}
			w.sleep(10 * ms)
		}
		if spent < 30 {
			t.Fatalf("%v: the heir's side could spend only %d of 99", mode, spent)
		}
		w.heal()
		for i := range w.nodes {
			w.meet(i)
		}
		w.sleep(3 * sec)
		if pool, out := owner.balance("key-0"); pool+out > float64(99-spent)+1 {
			t.Errorf("%v: %d of 99 are spent, and the owner has %.1f and %.0f out", mode, spent, pool, out)
		}
	}
}

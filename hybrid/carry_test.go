package hybrid

import "testing"

// A planned change keeps the credit that is out: the entries of its lenders are handed over, and what they set aside goes into
// their generations with the new owner.
func TestPlannedChangeKeepsIdleCredit(t *testing.T) {
	w, _ := tapped(t, 3, 1, slow(90), 12)
	used := map[string]float64{}
	for _, k := range w.keys {
		for _, n := range w.nodes[:3] {
			n.ask(k, 1)
			used[k]++
		}
	}
	w.sleep(3 * tick)
	w.revive(w.nodes[3])
	w.sleep(5 * sec)
	w.left(used, "after a join, with credit out")
}

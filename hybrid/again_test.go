package hybrid

import "testing"

// A hand-off whose confirmation was lost is sent again. It may come when its receiver has handed the partition on, and must not
// be taken for a new one when the partition comes back.
func TestHandOffSentAgainAfterThePartitionMovedOn(t *testing.T) {
	w := quiet(t, 3, 0, slow(90))
	k := w.keys[0]
	from := w.owner(k)
	to := w.others(k)[0]
	part := to.e.partOf(to.e.hash(to.limit, k))
	h := &handOff{id: 1, inc: from.e.inc, epoch: from.e.ownEpoch, parts: newBits(len(to.e.parts)), fresh: newBits(len(to.e.parts)),
		copies: []copyOf{{part: part, limit: to.limit.Spec().Name, key: k, bal: 60, cap: 90}}}
	h.parts.set(part)
	p := to.e.parts[part]
	for i := range 2 {
		p.take(uint64(10+i), to.clock())
		to.e.ReceiveTransfer(to.clock(), from.name, encodeHandOff(h))
		x := p.ledgers[ledgerKey{to.limit, k}]
		switch {
		case i == 0 && (x == nil || x.pool != 60):
			t.Fatalf("the first time: %+v", x)
		case i == 1 && x != nil && x.pool != 0:
			t.Errorf("the second time, in another tenure: %v tokens", x.pool)
		}
	}
}

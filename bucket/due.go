package bucket

import (
	"math"
	"sync/atomic"
)

// block says when to look at a chunk of records for keys that are full, so that what can be forgotten is found without a scan of all.
// Takes only move the moment of being full away, so due remains a lower bound, and is corrected when the chunk is scanned. What brings the moment
// nearer (a refund, a change of the limit) calls lower; so does a new key.
//
// A take of a known key touches nothing here.
type block struct {
	due  atomic.Int64 // none of its keys is full before this time
	next atomic.Int64 // the same of those that the scan under way has been at, else as due
}

// hand is where scanning goes on. Under the table's lock.
type hand struct {
	busy  bool // a chunk was begun
	chunk int
	place int
}

// lessen makes v x unless it is there or below.
func lessen(v *atomic.Int64, x int64) {
	for old := v.Load(); old > x; old = v.Load() {
		if v.CompareAndSwap(old, x) {
			return
		}
	}
}

// lower tells that the key of r may be full at due. The bucket has been changed before.
//
// A scan sets next first and then looks at buckets, so it sees the change or its next is lowered here after that. In the end it stores
// next as due, and looks at next again: so this lowers next first and due then, and earliest last, which is the least due in the same way.
func (t *Table) lower(r *record, due int64) {
	b := (*t.blocks.Load())[t.keys.ChunkOf(r)]
	lessen(&b.next, due)
	lessen(&b.due, due)
	lessen(&t.earliest, due)
}

// cover makes blocks for all chunks. Called under the lock, before anybody finds a record there.
func (t *Table) cover() {
	bs := *t.blocks.Load()
	if len(bs) >= t.keys.Chunks() {
		return
	}
	for len(bs) < t.keys.Chunks() {
		b := new(block)
		b.due.Store(math.MaxInt64)
		b.next.Store(math.MaxInt64)
		bs = append(bs, b) // who has the old slice sees the old length
	}
	t.blocks.Store(&bs)
}

// Sweep forgets keys that are full again, looking at no more than budget keys (all if budget <= 0),
// and returns how many. It goes on where the last call ended, and looks only at chunks of some thousand keys in which one may be full by now, so call
// it often; each tick with a budget of some thousand is enough. A look takes 20 ns, to forget a key some 500.
func (t *Table) Sweep(now int64, budget int) (dropped int) {
	if budget <= 0 {
		budget = math.MaxInt
	}
	t.starved.Store(false) // others may have given memory back
	for budget > 0 && now >= t.earliest.Load() {
		left := min(budget, piece)
		budget -= left
		t.mu.Lock()
		dropped += t.scan(now, &left, math.MaxInt)
		t.mu.Unlock()
		if left > 0 {
			break
		}
	}
	t.swept.Add(int64(dropped))
	return dropped
}

// scan forgets keys that are full, until it forgot enough, or looked at *budget of them, or nothing is due. Called under the lock.
func (t *Table) scan(now int64, budget *int, enough int) (dropped int) {
	now = min(now, math.MaxInt64-1) // MaxInt64 is never
	h := &t.hand
	for *budget > 0 && dropped < enough {
		if !h.busy && !t.begin(now) {
			break
		}
		b := (*t.blocks.Load())[h.chunk]
		h.place = t.keys.Scan(h.chunk, h.place, func(r *record) bool {
			*budget--
			word := r.tat.Load()
			due := t.full(r, word)
			if due <= now && t.drop(r, word, now) {
				dropped++
			} else {
				lessen(&b.next, due) // if a take came just now it is later
			}
			return *budget > 0 && dropped < enough
		})
		if h.place == 0 {
			h.busy = false
			for b.due.Store(b.next.Load()); b.due.Load() > b.next.Load(); {
				b.due.Store(b.next.Load())
			}
			t.publish()
		}
	}
	return dropped
}

// begin chooses the next chunk that is due.
func (t *Table) begin(now int64) bool {
	if now < t.earliest.Load() {
		return false
	}
	bs := *t.blocks.Load()
	for i := range bs {
		c := (t.hand.chunk + 1 + i) % len(bs)
		if bs[c].due.Load() <= now {
			t.hand = hand{busy: true, chunk: c}
			bs[c].next.Store(math.MaxInt64)
			return true
		}
	}
	t.publish()
	return false
}

// publish makes earliest the least due. It may only rise under the lock.
func (t *Table) publish() {
	for {
		first := t.first()
		t.earliest.Store(first)
		if t.first() >= first {
			return
		}
	}
}

func (t *Table) first() int64 {
	first := int64(math.MaxInt64)
	for _, b := range *t.blocks.Load() {
		first = min(first, b.due.Load())
	}
	return first
}

// full returns when the key will be full if nothing else comes. Called under the lock.
func (t *Table) full(r *record, word uint64) int64 {
	state := r.state.Load()
	return max(t.params.at(numberOf(state)).when(word-t.salt(state)), r.newest.Load())
}

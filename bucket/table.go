package bucket

import (
	"math"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/puzpuzpuz/xsync/v4"
)

// DefaultMaxKeys is the bound on the number of keys if none is given.
const DefaultMaxKeys = 1 << 20

// maxMakeRoom bounds how many entries one new key looks at for room, and so how long it may
// hold up others (about 0.2 ms).
const maxMakeRoom = 1024

// Table holds a Bucket for each key that is not full: what is full need not be remembered. An entry
// is made by the first take or charge of a key. It is safe for any number of goroutines; do not
// copy it. Make it with NewTable.
//
// Times and costs are as for Bucket. A take of a known key is a look-up and a compare-and-swap: no
// lock, no allocation.
type Table struct {
	keys    *xsync.Map[string, *entry]
	limit   atomic.Pointer[limit]
	change  sync.Mutex // serialises SetParams
	index   index
	max     int64
	slots   atomic.Int64 // entries, with those about to be inserted
	dropped atomic.Int64 // newest time of a forgotten entry: time does not go back behind it for new ones

	evictions, swept, overflows atomic.Int64
}

// limit is what holds for keys without Params of their own, and since when.
type limit struct {
	p     *Params
	since int64
}

// entry is a bucket in a table. It is 64 bytes, a cache line: hot neighbours do not slow each other
// down.
type entry struct {
	Bucket
	key string
	due atomic.Int64 // not full before this time; written under index.mu
	pos uint32       // in the heap, from 1; under index.mu
	own bool         // made with Params of its own: SetParams leaves it alone
}

// TableStats is a snapshot of a table's counters. All but Entries only grow.
type TableStats struct {
	Entries   int   // keys remembered now
	Max       int   // bound on Entries
	Evictions int64 // full keys forgotten to make room for a new one
	Swept     int64 // full keys forgotten by Sweep
	Overflows int64 // requests of new keys refused because no key was full
}

// NewTable returns an empty table with these Params for all keys, and room for max keys
// (DefaultMaxKeys if max <= 0).
func NewTable(p *Params, max int) *Table {
	if max <= 0 {
		max = DefaultMaxKeys
	}
	t := &Table{keys: xsync.NewMap[string, *entry](), max: int64(max)}
	t.limit.Store(&limit{p: p})
	t.index.init()
	return t
}

// Params returns the Params for keys without their own.
func (t *Table) Params() *Params { return t.limit.Load().p }

// Take takes n tokens of the key if they are there. A cost of 0, or above the burst, stores
// nothing.
func (t *Table) Take(key string, now, n int64) Result { return t.do(opTake, key, nil, now, n) }

// Peek looks: Take of 0.
func (t *Table) Peek(key string, now int64) Result { return t.do(opTake, key, nil, now, 0) }

// Refund gives n tokens back to the key, never above the burst.
func (t *Table) Refund(key string, now, n int64) Result { return t.do(opRefund, key, nil, now, n) }

// Charge takes n tokens of the key even if they are not there. It fails only with Overflow (or a
// negative n).
func (t *Table) Charge(key string, now, n int64) Result { return t.do(opCharge, key, nil, now, n) }

// TakeWith is Take for a key that has Params of its own, such as a share. If the key was used with
// others, its bucket is converted first, as of now. Pass the same pointer as long as they are the
// same. SetParams does not touch such keys.
func (t *Table) TakeWith(key string, p *Params, now, n int64) Result {
	return t.do(opTake, key, p, now, n)
}

// PeekWith is Peek as TakeWith is Take. It too converts a stored bucket, but stores nothing new.
func (t *Table) PeekWith(key string, p *Params, now int64) Result {
	return t.do(opTake, key, p, now, 0)
}

// RefundWith is Refund as TakeWith is Take.
func (t *Table) RefundWith(key string, p *Params, now, n int64) Result {
	return t.do(opRefund, key, p, now, n)
}

// ChargeWith is Charge as TakeWith is Take.
func (t *Table) ChargeWith(key string, p *Params, now, n int64) Result {
	return t.do(opCharge, key, p, now, n)
}

type op uint8

const (
	opTake op = iota
	opRefund
	opCharge
)

func (b *Bucket) do(o op, now, n int64) Result {
	switch o {
	case opRefund:
		return b.Refund(now, n)
	case opCharge:
		return b.Charge(now, n)
	}
	return b.Take(now, n)
}

// do loops only when the entry is replaced or dropped under its feet.
func (t *Table) do(o op, key string, own *Params, now, n int64) Result {
	for {
		p := own
		if p == nil {
			p = t.limit.Load().p
		}
		e, ok := t.keys.Load(key)
		if !ok {
			if r, ok := t.absent(o, key, p, own, now, n); ok {
				return r
			}
			continue
		}
		if e.p != p && !e.p.same(p) {
			t.convert(e, own, now)
			continue
		}
		r := e.do(o, now, n)
		if r.Sealed {
			t.await(key)
			continue
		}
		if o == opRefund && r.ResetAfter != Never {
			t.index.lower(e, max(now, 0)+int64(r.ResetAfter))
		}
		return r
	}
}

// await returns when whoever sealed, or is making, the entry of this key has put one in its place
// or removed it, and tells whether there is one. Both are done under the map's lock of the key, so
// taking that lock is enough.
func (t *Table) await(key string) bool {
	_, ok := t.keys.Compute(key, func(old *entry, _ bool) (*entry, xsync.ComputeOp) { return old, xsync.CancelOp })
	return ok
}

// absent answers for a key that is not stored: it is full. ok is false if the caller is to look
// again.
func (t *Table) absent(o op, key string, p, own *Params, now, n int64) (r Result, ok bool) {
	full := Bucket{p: p}
	r = full.do(o, now, n)
	if n <= 0 || o == opRefund || !r.OK {
		return r, true // nothing to remember
	}
	if t.slots.Load() >= t.max && max(now, 0) < t.index.earliest.Load() {
		// Certainly no room: a flood of new keys ends here. The slot that was the last may be that
		// of this key.
		if t.await(key) {
			return r, false
		}
		return t.overflow(now), true
	}
	return t.insert(o, key, own, now, n)
}

// overflow answers that there is no room for a new key.
func (t *Table) overflow(now int64) Result {
	t.overflows.Add(1)
	return Result{Overflow: true, RetryAfter: max(wait(t.index.earliest.Load(), now), 1)}
}

// insert makes the entry of a new key. ok is false if the caller is to look again.
func (t *Table) insert(o op, key string, own *Params, now, n int64) (r Result, ok bool) {
	key = strings.Clone(key) // its bytes may belong to a request
	var made *entry
	var slot, full bool
	publish := func() (*entry, bool) {
		if slot = slot || t.claim(); !slot {
			full = true
			return nil, true
		}
		// The limit is loaded under the map's lock of the key: SetParams stores it before it walks
		// the map, so it either finds this entry or is found by it.
		p := own
		if p == nil {
			p = t.limit.Load().p
		}
		e := &entry{key: key, own: own != nil}
		e.p = p
		e.newest.Store(t.dropped.Load())
		// Taken before it is published, else a sweeper could find it full.
		if r = e.do(o, now, n); !r.OK {
			return nil, true // the burst was lowered meanwhile
		}
		made = e
		return e, false
	}
	t.keys.LoadOrCompute(key, publish)
	if full {
		if slot = t.evict(now); !slot {
			return t.overflow(now), true
		}
		t.keys.LoadOrCompute(key, publish)
	}
	if made == nil {
		if slot {
			t.slots.Add(-1)
		}
		return r, false
	}
	due, live := made.fullTime()
	if !live {
		due = 0 // sealed already; push will see it
	}
	t.index.push(made, due)
	return r, true
}

// claim takes a free slot.
func (t *Table) claim() bool {
	for {
		n := t.slots.Load()
		if n >= t.max {
			return false
		}
		if t.slots.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// evict forgets a full key and hands its slot over.
func (t *Table) evict(now int64) bool {
	budget := maxMakeRoom
	for e := t.index.next(now, &budget); e != nil; e = t.index.next(now, &budget) {
		if t.drop(e, now) {
			t.evictions.Add(1)
			return true
		}
	}
	return false
}

// drop forgets an entry that the index gave out, if it is still full. A take that came before makes
// sealing fail; one that comes after finds the bucket sealed, looks again and starts with a full
// bucket, as this one was.
func (t *Table) drop(e *entry, now int64) bool {
	done := false
	t.keys.Compute(e.key, func(old *entry, loaded bool) (*entry, xsync.ComputeOp) {
		if !loaded || old != e || !e.seal(now) {
			return old, xsync.CancelOp
		}
		raise(&t.dropped, e.at(now))
		done = true
		return nil, xsync.DeleteOp
	})
	if done {
		return true
	}
	if due, ok := e.fullTime(); ok {
		t.index.push(e, due)
	}
	return false
}

// convert replaces an entry by one with the Params own, or if nil with those of the table. See
// Bucket.Convert for the race that is avoided; the map's lock of the key makes sealing and
// publishing one step for those who await it.
//
// The limit is loaded under that lock: a caller that has loaded it before could carry an old one,
// and turn back an entry that was converted since.
func (t *Table) convert(e *entry, own *Params, now int64) {
	var next *entry
	t.keys.Compute(e.key, func(old *entry, loaded bool) (*entry, xsync.ComputeOp) {
		if !loaded || old != e {
			return old, xsync.CancelOp
		}
		p, at := own, now
		if own == nil {
			lim := t.limit.Load()
			p = lim.p
			if !e.own {
				at = lim.since // until the change the old rate counted
			}
		}
		if e.p.same(p) {
			return old, xsync.CancelOp
		}
		next = &entry{key: e.key, own: own != nil}
		e.convertTo(&next.Bucket, p, at) // only sealed under this lock, so it succeeds
		return next, xsync.UpdateOp
	})
	if next == nil {
		return // somebody else did it
	}
	due, ok := next.fullTime()
	if !ok {
		due = 0 // sealed already; replace will see it
	}
	t.index.replace(e, next, due)
}

// Reset makes the key full again and forgets it.
func (t *Table) Reset(key string) {
	var gone *entry
	t.keys.Compute(key, func(old *entry, loaded bool) (*entry, xsync.ComputeOp) {
		if !loaded {
			return old, xsync.CancelOp
		}
		old.tat.Store(sealed)
		raise(&t.dropped, old.newest.Load())
		gone = old
		return nil, xsync.DeleteOp
	})
	if gone != nil {
		t.index.remove(gone)
		t.slots.Add(-1)
	}
}

// SetParams changes the limit of all keys, as of now, except of those with Params of their own.
// Tokens stay: see Bucket.Convert. Requests go on meanwhile: the first one of a key after the
// change converts it, as of the time of the change, and SetParams itself walks over the others.
func (t *Table) SetParams(p *Params, now int64) {
	t.change.Lock()
	defer t.change.Unlock()
	if t.limit.Load().p.same(p) {
		return
	}
	now = max(now, t.limit.Load().since)
	t.limit.Store(&limit{p: p, since: now})
	t.keys.Range(func(_ string, e *entry) bool {
		if !e.own && e.p != p {
			t.convert(e, nil, now)
		}
		return true
	})
}

// Sweep forgets keys that are full again, looking at no more than budget keys (all if budget <= 0),
// and returns how many. It looks only at keys that may be full by now, so call it often; each tick
// with a budget of some thousand is enough.
func (t *Table) Sweep(now int64, budget int) (dropped int) {
	if budget <= 0 {
		budget = math.MaxInt
	}
	for e := t.index.next(now, &budget); e != nil; e = t.index.next(now, &budget) {
		if t.drop(e, now) {
			t.slots.Add(-1)
			dropped++
		}
	}
	t.swept.Add(int64(dropped))
	return dropped
}

// Len returns the number of keys that are stored.
func (t *Table) Len() int { return t.keys.Size() }

// Stats returns the counters.
func (t *Table) Stats() TableStats {
	return TableStats{
		Entries:   t.keys.Size(),
		Max:       int(t.max),
		Evictions: t.evictions.Load(),
		Swept:     t.swept.Load(),
		Overflows: t.overflows.Load(),
	}
}

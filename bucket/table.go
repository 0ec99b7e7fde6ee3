package bucket

import (
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"github.com/jatah-io/jatah/internal/budget"
	"github.com/jatah-io/jatah/internal/keytable"
)

// DefaultMaxKeys is the bound on the number of keys if none is given.
const DefaultMaxKeys = 1 << 20

// maxMakeRoom bounds how many keys one new key looks at for room, and piece how many are looked at, forgotten or converted in one go. So they
// bound how long new keys are held up (by about 0.1 ms).
const (
	maxMakeRoom = 1024
	piece       = 256
)

// Table holds a Bucket for each key that is not full: what is full need not be remembered. An entry
// is made by the first take or charge of a key. It is safe for any number of goroutines; do not
// copy it. Make it with NewTable.
//
// Times and costs are as for Bucket. A take of a known key is a look-up and a compare-and-swap: no
// lock, no allocation. A key takes about 50 bytes beside its own, and nothing that the garbage collector has to look at;
// the memory of forgotten keys is used for others, and given back when a whole piece of it is free.
type Table struct {
	keys   *keytable.Table[record]
	limit  atomic.Pointer[limit]
	params numbered
	seed   uint64 // of salts
	blocks atomic.Pointer[[]*block]
	budget *budget.Budget
	_      [64]byte // what follows is written for new keys: not in the cache line of what each take reads

	change   sync.Mutex    // serialises SetParams
	mu       sync.Mutex    // of every change but those of cells, which are takes, charges and refunds
	changes  atomic.Uint64 // of the index of keys; odd while one is under way
	life     uint32        // the last one; under mu
	closed   bool          // nothing is counted any more; under mu
	hand     hand
	making   atomic.Bool  // a key may have taken the last room, and not be there yet
	starved  atomic.Bool  // there was no memory for a key, and none was forgotten since
	earliest atomic.Int64 // no key is full before this time
	dropped  atomic.Int64 // newest time of a forgotten entry: time does not go back behind it for new ones

	evictions, swept, overflows atomic.Int64
}

// limit is what holds for keys without Params of their own, and since when.
type limit struct {
	p      *Params
	number uint32
	since  int64
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
	return NewTableIn(p, budget.New(int64(max), 0, 0))
}

// NewTableIn returns an empty table with these Params for all keys, whose keys and memory are counted in b and bounded by it, together with those of
// other tables.
func NewTableIn(p *Params, b *budget.Budget) *Table {
	t := &Table{keys: keytable.NewIn[record](b), budget: b, seed: rand.Uint64()}
	t.params.of = map[Params]uint32{}
	t.limit.Store(&limit{p: p, number: t.params.use(p)})
	t.blocks.Store(new([]*block))
	t.earliest.Store(math.MaxInt64)
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

func (c *cell) try(o op, p *Params, tat, salt uint64, now, n int64) (Result, bool) {
	if o == opTake {
		return c.tryTake(p, tat, salt, now, n)
	}
	return c.tryMove(p, tat, salt, now, n, o == opCharge)
}

// do loops only when the record changes under its feet.
func (t *Table) do(o op, key string, own *Params, now, n int64) Result {
	for {
		r, word := t.keys.Find(key)
		if r == nil {
			if res, ok := t.absent(o, key, own, now, n); ok {
				return res
			}
			continue
		}
		if word == busy {
			t.await(key)
			continue
		}
		state := r.state.Load()
		p := own
		if own == nil {
			lim := t.limit.Load()
			p = lim.p
			if numberOf(state) != lim.number {
				t.convert(key, own, now)
				continue
			}
		} else if has := t.params.at(numberOf(state)); has != own && !has.same(own) {
			t.convert(key, own, now)
			continue
		}
		salt := t.salt(state)
		res, ok := r.try(o, p, word-salt, salt, now, n)
		if !ok {
			continue
		}
		if o == opRefund && res.ResetAfter != Never {
			t.lower(r, max(now, 0)+int64(res.ResetAfter))
		}
		return res
	}
}

// await returns when whoever changes the record of this key has done so.
func (t *Table) await(key string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if r, word := t.keys.Find(key); r != nil && word == busy { // by chance: see record
		state := r.state.Load()
		t.rewrite(r, t.params.at(numberOf(state)), state&ownBit != 0, 0)
	}
}

// absent answers for a key that was not found: if it is not there, it is full. ok is false if the caller is to look again.
func (t *Table) absent(o op, key string, own *Params, now, n int64) (res Result, ok bool) {
	// A key that is just being moved is not found either. If nothing was, all this holds at one moment.
	changes := t.changes.Load()
	crowded := t.crowded(now)
	r, _ := t.keys.Find(key)
	if r == nil && (t.making.Load() || changes%2 != 0 || t.changes.Load() != changes) {
		t.mu.Lock()
		crowded = t.crowded(now)
		r, _ = t.keys.Find(key)
		t.mu.Unlock()
	}
	if r != nil {
		return res, false
	}
	p := own
	if p == nil {
		p = t.limit.Load().p
	}
	var c cell
	res, _ = c.try(o, p, 0, 0, now, n)
	switch {
	case n <= 0 || o == opRefund || !res.OK:
		return res, true // nothing to remember
	case crowded:
		return t.overflow(now), true // a flood of new keys ends here
	}
	return t.insert(o, key, own, now, n, ordinary)
}

// crowded says that there is certainly no room for a new key.
func (t *Table) crowded(now int64) bool {
	return (t.budget.KeysFull() || t.starved.Load()) && max(now, 0) < t.earliest.Load()
}

// overflow answers that there is no room for a new key.
func (t *Table) overflow(now int64) Result {
	t.overflows.Add(1)
	return Result{Overflow: true, RetryAfter: max(wait(t.earliest.Load(), now), 1)}
}

// insert makes the record of a new key. ok is false if the caller is to look again.
func (t *Table) insert(o op, key string, own *Params, now, n int64, how claim) (res Result, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if r, _ := t.keys.Find(key); r != nil {
		return res, false
	}
	t.making.Store(true)
	defer t.making.Store(false)
	budget := maxMakeRoom
	if t.closed {
		return t.overflow(now), true
	}
	if !t.budget.Key(how != ordinary) && (!t.evict(now, &budget) || !t.budget.Key(false)) {
		return t.overflow(now), true
	}
	// The limit is loaded under the lock: SetParams stores it there before it goes through the records, so it either finds this one or is found by it.
	p := own
	if p == nil {
		p = t.limit.Load().p
	}
	var c cell
	c.newest.Store(t.dropped.Load())
	if res, _ = c.try(o, p, 0, 0, now, n); !res.OK {
		t.budget.DropKey()
		return res, true // the burst was lowered meanwhile
	}
	for !t.add(key, p, own != nil, c.tat.Load(), c.newest.Load(), how) {
		if t.starved.Store(true); !t.evict(now, &budget) { // what is freed may be too short: then another one
			t.budget.DropKey()
			return t.overflow(now), true
		}
	}
	return res, true
}

// evict forgets a full key to make room, having looked at some.
func (t *Table) evict(now int64, budget *int) bool {
	if t.scan(now, budget, 1) == 0 {
		return false
	}
	t.evictions.Add(1)
	return true
}

// add makes a record. Called under the lock. It is false if there is no memory for it: see keytable.
func (t *Table) add(key string, p *Params, own bool, tat uint64, newest int64, how claim) bool {
	number := t.params.use(p)
	t.changes.Add(1)
	add := t.keys.Add
	switch how {
	case reserved:
		add = t.keys.AddReserved
	case beyond:
		add = t.keys.AddBeyond
	}
	r, _ := add(key, func(r *record) {
		state := t.born(number, own)
		r.state.Store(state)
		r.newest.Store(newest)
		t.cover()
		r.tat.Store(tat + t.salt(state)) // others see it from now on
		t.lower(r, max(p.when(tat), newest))
	})
	t.changes.Add(1)
	if r == nil {
		t.params.leave(number)
	}
	return r != nil
}

// drop forgets a key that was full at now in this word. A take that came since makes it fail; one that comes after finds the word busy, looks again and
// starts with a full bucket, as this one was. Called under the lock.
func (t *Table) drop(r *record, word uint64, now int64) bool {
	if !r.tat.CompareAndSwap(word, busy) {
		return false
	}
	raise(&t.dropped, r.at(now))
	t.remove(r, r.state.Load())
	return true
}

// remove takes a record that is busy out of the table.
func (t *Table) remove(r *record, state uint64) {
	t.changes.Add(1)
	t.keys.Delete(r)
	t.changes.Add(1)
	t.keys.Free(r)
	if !t.closed {
		t.budget.DropKey()
	}
	t.starved.Store(false)
	t.params.leave(numberOf(state))
}

// convert gives a key the Params own, or if nil those of the table.
//
// The limit is loaded under the lock: a caller that has loaded it before could carry an old one,
// and turn back a record that was converted since.
func (t *Table) convert(key string, own *Params, now int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r, _ := t.keys.Find(key)
	if r == nil {
		return
	}
	state := r.state.Load()
	p, at := own, now
	if own == nil {
		lim := t.limit.Load()
		p = lim.p
		if state&ownBit == 0 {
			at = lim.since // until the change the old rate counted
		}
	}
	if !t.params.at(numberOf(state)).same(p) { // else somebody did it
		t.rewrite(r, p, own != nil, at)
	}
}

// rewrite begins a new life of the same key, with other Params as of the time at. Called under the lock. The race that is avoided is that of
// Bucket.Convert: a take that came before is in the word that is swapped out, one that comes after fails and looks again.
func (t *Table) rewrite(r *record, p *Params, own bool, at int64) {
	state := r.state.Load()
	old := t.params.at(numberOf(state))
	tat := r.tat.Swap(busy) - t.salt(state)
	at = r.at(at) // newest was raised before any TAT that the swap could see
	tat = p.from(old, tat, at)
	next := t.born(t.params.use(p), own)
	t.params.leave(numberOf(state))
	r.state.Store(next)
	raise(&r.newest, at)
	r.tat.Store(tat + t.salt(next))
	t.lower(r, max(p.when(tat), at))
}

// Reset makes the key full again and forgets it.
func (t *Table) Reset(key string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r, _ := t.keys.Find(key)
	if r == nil {
		return
	}
	r.tat.Store(busy)
	raise(&t.dropped, r.newest.Load())
	t.remove(r, r.state.Load())
}

// SetParams changes the limit of all keys, as of now, except of those with Params of their own.
// Tokens stay: see Bucket.Convert. Requests go on meanwhile: the first one of a key after the
// change converts it, as of the time of the change, and SetParams itself walks over the others.
func (t *Table) SetParams(p *Params, now int64) {
	t.change.Lock()
	defer t.change.Unlock()
	old := t.limit.Load()
	if old.p.same(p) {
		return
	}
	t.mu.Lock()
	lim := &limit{p: p, number: t.params.use(p), since: max(now, old.since)}
	t.limit.Store(lim)
	t.params.leave(old.number)
	t.mu.Unlock()
	for chunk := 0; chunk < t.keys.Chunks(); chunk++ {
		for place, more := 0, true; more; more = place != 0 {
			place = t.follow(lim, chunk, place)
		}
	}
}

// follow converts some records of a chunk to a limit that changed, and returns where to go on.
func (t *Table) follow(lim *limit, chunk, place int) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	left := piece
	return t.keys.Scan(chunk, place, func(r *record) bool {
		if state := r.state.Load(); state&ownBit == 0 && numberOf(state) != lim.number {
			t.rewrite(r, lim.p, false, lim.since)
		}
		left--
		return left > 0
	})
}

// Len returns the number of keys that are stored.
func (t *Table) Len() int { return t.keys.Len() }

// Stats returns the counters.
func (t *Table) Stats() TableStats {
	return TableStats{
		Entries:   t.keys.Len(),
		Max:       int(min(t.budget.MaxKeys(), math.MaxInt)),
		Evictions: t.evictions.Load(),
		Swept:     t.swept.Load(),
		Overflows: t.overflows.Load(),
	}
}

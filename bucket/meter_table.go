package bucket

import (
	"hash/maphash"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jatah-io/jatah/internal/budget"
)

// MeterTable holds a Meter for each key that has used something: for a node alone, and for shares. It
// is to all algorithms what Table, which is faster, is to the token bucket. Safe for any number of
// goroutines; do not copy it. Make it with NewMeterTable.
//
// Times are those of Meter, costs are whole tokens. A denied request, a look and a request of cost 0 change
// and store nothing. A negative cost is a mistake of the caller: denied with Never. A key is only
// forgotten when it is Fresh. A table at its bound refuses new keys with Overflow while it finds no such key; it
// looks at 64 keys for each new one and at 1024 more each millisecond.
//
// A request takes the lock of one of 64 shards, and allocates only for a new key.
type MeterTable struct {
	shards [tableShards]shard
	seed   maphash.Seed
	limit  atomic.Pointer[meterLimit]
	change sync.Mutex // serialises SetAlgorithm
	sweep  atomic.Uint32
	budget *budget.Budget
	n      atomic.Int64
	closed atomic.Bool  // there is no room any more
	looked atomic.Int64 // when a new key last looked beyond its shard for room

	evictions, swept, overflows atomic.Int64
}

const (
	tableShards = 64

	// evictLook is how many keys of its shard a new key looks at for room.
	evictLook = 64
)

// meterLimit is what holds for keys without an algorithm of their own, and since when.
type meterLimit struct {
	a     *Algorithm
	since int64
}

type shard struct {
	mu      sync.Mutex
	keys    map[string]*keyed
	list    []*keyed // all of keys, for walks in pieces
	next    int      // of the walk
	most    int      // keys since the map was made: it keeps room for as many
	dropped int64    // newest time of a forgotten key: for new ones time does not go back behind it
	_       [64]byte // locks of neighbours do not share a cache line
}

type keyed struct {
	key   string
	a     *Algorithm
	meter Meter
	place int // in list
	size  int // bytes that are counted for it
	own   bool
}

// NewMeterTable returns an empty table with this algorithm for all keys, and room for max keys
// (DefaultMaxKeys if max <= 0).
func NewMeterTable(a *Algorithm, max int) *MeterTable {
	if max <= 0 {
		max = DefaultMaxKeys
	}
	return NewMeterTableIn(a, budget.New(int64(max), 0, 0))
}

// NewMeterTableIn returns an empty table whose keys and memory are counted in b and bounded by it, together with those of other tables.
func NewMeterTableIn(a *Algorithm, b *budget.Budget) *MeterTable {
	t := &MeterTable{seed: maphash.MakeSeed(), budget: b}
	t.limit.Store(&meterLimit{a: a})
	for i := range t.shards {
		t.shards[i].keys = map[string]*keyed{}
	}
	return t
}

// Algorithm returns the algorithm for keys without their own.
func (t *MeterTable) Algorithm() *Algorithm { return t.limit.Load().a }

// Take takes n tokens of the key if they are there.
func (t *MeterTable) Take(key string, now, n int64) Result { return t.do(opTake, key, nil, now, n) }

// Peek looks: Take of 0.
func (t *MeterTable) Peek(key string, now int64) Result { return t.do(opTake, key, nil, now, 0) }

// Refund gives n tokens back to the key, never more than it has used.
func (t *MeterTable) Refund(key string, now, n int64) Result {
	return t.do(opRefund, key, nil, now, n)
}

// Charge takes n tokens of the key even if they are not there. It fails only with Overflow (or a negative n).
func (t *MeterTable) Charge(key string, now, n int64) Result {
	return t.do(opCharge, key, nil, now, n)
}

// TakeWith is Take for a key that has an algorithm of its own, such as a Share. A key that was
// used with another one is resized first, as of now. Pass the same pointer as long as it is the same.
// SetAlgorithm does not touch such keys.
func (t *MeterTable) TakeWith(key string, a *Algorithm, now, n int64) Result {
	return t.do(opTake, key, a, now, n)
}

// PeekWith is Peek as TakeWith is Take.
func (t *MeterTable) PeekWith(key string, a *Algorithm, now int64) Result {
	return t.do(opTake, key, a, now, 0)
}

// RefundWith is Refund as TakeWith is Take.
func (t *MeterTable) RefundWith(key string, a *Algorithm, now, n int64) Result {
	return t.do(opRefund, key, a, now, n)
}

// ChargeWith is Charge as TakeWith is Take.
func (t *MeterTable) ChargeWith(key string, a *Algorithm, now, n int64) Result {
	return t.do(opCharge, key, a, now, n)
}

func (t *MeterTable) shard(key string) *shard {
	return &t.shards[maphash.String(t.seed, key)%tableShards]
}

func (t *MeterTable) do(o op, key string, own *Algorithm, now, n int64) Result {
	return t.doIn(o, key, own, now, n, ordinary)
}

func (t *MeterTable) doIn(o op, key string, own *Algorithm, now, n int64, how claim) Result {
	s := t.shard(key)
	r, full := t.try(s, o, key, own, now, n, how)
	if !full {
		return r
	}
	// No room in the key's own shard: look further, then once more. Under a flood of new keys not each
	// time: 1 ms keeps that work below a tenth of a core.
	if last := t.looked.Load(); now < last || now-last >= int64(time.Millisecond) {
		t.looked.Store(now)
		if t.Sweep(now, maxMakeRoom) > 0 {
			if r, full = t.try(s, o, key, own, now, n, how); !full {
				return r
			}
		}
	}
	t.overflows.Add(1)
	return Result{Overflow: true, RetryAfter: max(r.RetryAfter, 1)}
}

// try decides. full says that there is no room for the key; RetryAfter then tells when a key nearby can
// be forgotten.
func (t *MeterTable) try(s *shard, o op, key string, own *Algorithm, now, n int64, how claim) (r Result, full bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	// The limit is loaded under the lock: SetAlgorithm stores it before it locks each shard, so it either
	// finds what is stored here or was seen.
	lim := t.limit.Load()
	a := own
	if a == nil {
		a = lim.a
	}
	if e := s.keys[key]; e != nil {
		e.use(a, own != nil, lim.since, now)
		r = decide(o, a, e.meter, now, n)
		t.weigh(e)
		return r, false
	}
	m := a.New()
	m.Advance(max(now, s.dropped), 1, 0)
	r = decide(o, a, m, now, n)
	if !r.OK || n <= 0 || o == opRefund {
		return r, false
	}
	size := keyedBytes + len(key) + Size(m)
	if !t.claim(size, how) {
		if wait, ok := t.makeRoom(s, now, size, how); !ok {
			return Result{RetryAfter: wait}, true
		}
	}
	key = strings.Clone(key) // its bytes may belong to a request
	e := &keyed{key: key, a: a, meter: m, place: len(s.list), size: size, own: own != nil}
	s.keys[key] = e
	s.list = append(s.list, e)
	s.most = max(s.most, len(s.list))
	return r, false
}

// use brings a key to its algorithm. What the table's limit was counts until it was changed.
func (e *keyed) use(a *Algorithm, own bool, since, now int64) {
	if e.a == a {
		return
	}
	if !own && !e.own {
		now = since
	}
	e.meter.Advance(now, 1, 0)
	if a.used {
		e.meter = Move(e.meter, a)
	} else {
		e.meter = Resize(e.meter, a)
	}
	e.a, e.own = a, own
}

// decide applies one operation to a meter.
func decide(o op, a *Algorithm, m Meter, now, n int64) (r Result) {
	m.Advance(now, 1, 0)
	late := time.Duration(max(m.at().now-max(now, 0), 0)) // the caller's clock is behind
	limit := a.Limit()
	switch {
	case n < 0, o == opTake && (n > limit || a.DenyAll()):
		r.RetryAfter = Never
	case o == opRefund:
		m.Return(float64(n), 0)
		r.OK = true
	case o == opCharge:
		m.Use(float64(n), 0)
		r.OK = true
	case m.Free() >= float64(n):
		r.OK = true
		if n > 0 {
			m.Use(float64(n), 0)
			if d, ok := m.(Delayer); ok {
				r.Delay = later(d.Delay(), late)
			}
		}
	default:
		r.RetryAfter = later(m.Wait(float64(n)), late)
	}
	if a.DenyAll() {
		r.RetryAfter = Never
		return r
	}
	if o != opTake && r.OK && m.Free() < 0 {
		r.RetryAfter = later(m.Wait(0), late)
	}
	r.Remaining = int64(min(max(math.Floor(m.Free()), 0), float64(limit)))
	r.ResetAfter = later(m.Reset(), late)
	return r
}

// later adds how far the caller's clock is behind to a wait.
func later(d, late time.Duration) time.Duration {
	if d == 0 || d > Never-late {
		return d
	}
	return d + late
}

func (t *MeterTable) claim(size int, how claim) bool {
	if t.closed.Load() || !t.budget.Key(how != ordinary) {
		return false
	}
	if how == beyond {
		t.budget.Add(budget.Meters, int64(size))
	} else if !t.budget.Take(budget.Meters, int64(size), how == reserved) {
		t.budget.DropKey()
		return false
	}
	t.n.Add(1)
	return true
}

// makeRoom forgets fresh keys of the shard until there is room, or tells how long some will take.
func (t *MeterTable) makeRoom(s *shard, now int64, size int, how claim) (time.Duration, bool) {
	wait := Never
	for range min(evictLook, len(s.list)) {
		e := s.walk()
		if e == nil {
			break
		}
		if t.drop(s, e, now) {
			t.evictions.Add(1)
			if t.claim(size, how) {
				return 0, true
			}
			continue
		}
		wait = min(wait, e.meter.Reset())
	}
	return wait, false
}

// walk returns the next key, round and round.
func (s *shard) walk() *keyed {
	if len(s.list) == 0 {
		return nil
	}
	if s.next >= len(s.list) {
		s.next = 0
	}
	s.next++
	return s.list[s.next-1]
}

// drop forgets a key that is as new.
func (t *MeterTable) drop(s *shard, e *keyed, now int64) bool {
	e.meter.Advance(now, 1, 0)
	if !e.meter.Fresh() {
		return false
	}
	t.remove(s, e)
	return true
}

func (t *MeterTable) remove(s *shard, e *keyed) {
	t.budget.DropKey()
	t.budget.Add(budget.Meters, -int64(e.size))
	t.n.Add(-1)
	s.dropped = max(s.dropped, e.meter.at().now)
	delete(s.keys, e.key)
	last := len(s.list) - 1
	s.list[e.place] = s.list[last]
	s.list[e.place].place = e.place
	s.list[last] = nil
	s.list = s.list[:last]
	s.next = min(s.next, e.place)       // look at the one that moved here
	if s.most > 64 && last < s.most/8 { // a flood has gone
		s.shrink()
	}
}

// shrink gives back what the map and the list keep for more keys.
func (s *shard) shrink() {
	s.list = slices.Clone(s.list)
	s.most = len(s.list)
	s.keys = make(map[string]*keyed, len(s.list))
	for _, e := range s.list {
		s.keys[e.key] = e
	}
}

// Reset makes the key new again and forgets it.
func (t *MeterTable) Reset(key string) {
	s := t.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.keys[key]; e != nil {
		t.remove(s, e)
	}
}

// SetAlgorithm changes the limit of all keys as of now, except of those with their own. What was used stays: see Resize. It
// holds up requests while it walks over a shard.
func (t *MeterTable) SetAlgorithm(a *Algorithm, now int64) {
	t.change.Lock()
	defer t.change.Unlock()
	now = max(now, t.limit.Load().since)
	t.limit.Store(&meterLimit{a, now})
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.Lock()
		for _, e := range s.list {
			if !e.own {
				e.use(a, false, now, now)
				t.weigh(e)
			}
		}
		s.mu.Unlock()
	}
}

// Sweep forgets keys that are as new, looking at no more than budget keys (all if budget <= 0), and
// returns how many. It goes on where the last call ended.
func (t *MeterTable) Sweep(now int64, budget int) (dropped int) {
	if budget <= 0 {
		budget = math.MaxInt
	}
	for range tableShards {
		s := &t.shards[t.sweep.Add(1)%tableShards]
		s.mu.Lock()
		for n := len(s.list); n > 0 && budget > 0; n, budget = n-1, budget-1 {
			if t.drop(s, s.walk(), now) {
				dropped++
			}
		}
		s.mu.Unlock()
		if budget <= 0 {
			break
		}
	}
	t.swept.Add(int64(dropped))
	return dropped
}

// Len returns the number of keys that are stored.
func (t *MeterTable) Len() int { return int(t.n.Load()) }

// Stats returns the counters.
func (t *MeterTable) Stats() TableStats {
	return TableStats{
		Entries:   t.Len(),
		Max:       int(min(t.budget.MaxKeys(), math.MaxInt)),
		Evictions: t.evictions.Load(),
		Swept:     t.swept.Load(),
		Overflows: t.overflows.Load(),
	}
}

package bucket

import (
	"slices"
	"unsafe"

	"github.com/jatah-io/jatah/internal/budget"
)

// keyedBytes is what a key of a MeterTable takes beside its bytes and its meter, as measured: its place in map and list, and what they keep for more.
const keyedBytes = 130

// Size is how many bytes a meter takes in memory. That of a sliding log grows with what it remembers; all others stay what they are.
func Size(m Meter) int {
	switch m := m.(type) {
	case *slidingLog:
		return int(unsafe.Sizeof(*m)) + max(cap(m.log), leastLog)*int(unsafe.Sizeof(event{}))
	case *multiMeter:
		n := int(unsafe.Sizeof(*m))
		for _, one := range m.meters {
			n += 16 + Size(one)
		}
		return n
	}
	return 112
}

// leastLog is how many events are counted for a log in any case: so many it always has room for.
const leastLog = 4

// Smaller is the meter with a log of half the length, whose neighbours are merged: usage then ages late, never early. The meter must not be used any more. All
// but logs stay what they are.
func Smaller(m Meter) Meter {
	switch m := m.(type) {
	case *slidingLog:
		if len(m.log)-m.gone > leastLog {
			m.coalesce()
		}
		m.log, m.gone = slices.Clip(slices.Clone(m.log[m.gone:])), 0
	case *multiMeter:
		for i := range m.meters {
			m.meters[i] = Smaller(m.meters[i])
		}
	}
	return m
}

// weigh counts what a meter has grown or shrunk by. What there is no room for is remembered coarsely.
func (t *MeterTable) weigh(e *keyed) {
	size := keyedBytes + len(e.key) + Size(e.meter)
	if size > e.size && !t.budget.Take(budget.Meters, int64(size-e.size), false) {
		e.meter = Smaller(e.meter)
		size = keyedBytes + len(e.key) + Size(e.meter)
		t.budget.Add(budget.Meters, int64(size-e.size))
	} else if size < e.size {
		t.budget.Add(budget.Meters, int64(size-e.size))
	}
	e.size = size
}

// claim says what a new key may take of the budget.
type claim uint8

const (
	ordinary claim = iota
	reserved       // also what is kept back, and beyond the bound on keys
	beyond         // in any case
)

// TakeReserved is Take for a key that may use what the budget keeps back, as many keys as the caller lets it be. p as in TakeWith, or nil.
func (t *Table) TakeReserved(key string, p *Params, now, n int64) Result {
	return t.claiming(reserved, opTake, key, p, now, n)
}

// ChargeReserved is Charge as TakeReserved is Take.
func (t *Table) ChargeReserved(key string, p *Params, now, n int64) Result {
	return t.claiming(reserved, opCharge, key, p, now, n)
}

// ChargeBeyond is Charge of what must not be forgotten: where there is no room it is stored beyond the bounds.
func (t *Table) ChargeBeyond(key string, p *Params, now, n int64) Result {
	return t.claiming(beyond, opCharge, key, p, now, n)
}

func (t *Table) claiming(how claim, o op, key string, p *Params, now, n int64) Result {
	r := t.do(o, key, p, now, n)
	if !r.Overflow {
		return r
	}
	for {
		if r, ok := t.insert(o, key, p, now, n, how); ok {
			return r
		}
		if r = t.do(o, key, p, now, n); !r.Overflow {
			return r
		}
	}
}

// Close gives back what the table takes of its budget. It must not be used any more; what comes nevertheless is not counted.
func (t *Table) Close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.closed {
		t.closed = true
		t.budget.DropKeys(t.keys.Len())
		t.keys.Close()
	}
}

// Close gives back what the table takes of its budget, and forgets all keys. It must not be used any more; new keys find no room.
func (t *MeterTable) Close() {
	t.closed.Store(true)
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.Lock()
		for len(s.list) > 0 {
			t.remove(s, s.list[len(s.list)-1])
		}
		s.mu.Unlock()
	}
}

// Has says that something is stored of a key.
func (t *Table) Has(key string) bool {
	r, _ := t.keys.Find(key)
	return r != nil
}

// TakeReserved is Take for a key that may use what the budget keeps back, as many keys as the caller lets it be. a as in TakeWith, or nil.
func (t *MeterTable) TakeReserved(key string, a *Algorithm, now, n int64) Result {
	return t.doIn(opTake, key, a, now, n, reserved)
}

// ChargeReserved is Charge as TakeReserved is Take.
func (t *MeterTable) ChargeReserved(key string, a *Algorithm, now, n int64) Result {
	return t.doIn(opCharge, key, a, now, n, reserved)
}

// ChargeBeyond is Charge of what must not be forgotten: where there is no room it is stored beyond the bounds.
func (t *MeterTable) ChargeBeyond(key string, a *Algorithm, now, n int64) Result {
	return t.doIn(opCharge, key, a, now, n, beyond)
}

// Has says that something is stored of a key.
func (t *MeterTable) Has(key string) bool {
	s := t.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.keys[key] != nil
}

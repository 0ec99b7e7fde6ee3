// Package budget bounds how many keys the tables of a node hold together, and how many bytes.
//
// Whoever stores something asks first, so that the bounds hold beside any number of goroutines: there is no moment at which more was given
// than there is. What must be stored in any case (a debt that another node hands over) is added beyond the bounds, and leaves less to others.
//
// A part of the bytes is kept back for those who ask with reserved.
package budget

import (
	"math"
	"sync/atomic"
)

// Part says what bytes are for.
type Part int

// The parts.
const (
	Records  Part = iota // of keys: memory of key tables as it was allocated, index included
	Accounts             // keys that this node has from other owners, or from itself
	Ledgers              // keys that it owns
	Standby              // copies of what others own
	Meters               // keys of rules that are not one token bucket
	Permits
	numParts
)

// Parts is their number.
const Parts = int(numParts)

func (p Part) String() string {
	return [...]string{"records", "accounts", "ledgers", "standby", "meters", "permits"}[p]
}

// Budget is the bounds and what of them is used. Make it with New; safe for any number of goroutines; must not be copied. What takes and
// gives back may be asked of a nil Budget, which has no bounds and counts nothing.
type Budget struct {
	maxKeys, maxBytes atomic.Int64
	reserve           int64
	keys, bytes       atomic.Int64
	parts             [Parts]atomic.Int64
}

// New makes a budget; a bound of 0 is none. reserve is how many of the bytes are kept back.
func New(maxKeys, maxBytes, reserve int64) *Budget {
	b := &Budget{reserve: reserve}
	if maxBytes <= 0 {
		maxBytes, b.reserve = math.MaxInt64, 0
	}
	b.maxBytes.Store(maxBytes)
	b.SetMaxKeys(maxKeys)
	return b
}

// SetMaxKeys changes the bound on keys. Nothing is taken away from who has more.
func (b *Budget) SetMaxKeys(n int64) {
	if n <= 0 {
		n = math.MaxInt64
	}
	b.maxKeys.Store(n)
}

// MaxKeys is the bound on keys; math.MaxInt64: none.
func (b *Budget) MaxKeys() int64 { return b.maxKeys.Load() }

// MaxBytes is the bound on bytes, with what is kept back; math.MaxInt64: none.
func (b *Budget) MaxBytes() int64 { return b.maxBytes.Load() }

// Key takes room for a key; false: there is none. Keys with reserved are beyond the bound, their number is for the caller to bound.
func (b *Budget) Key(reserved bool) bool {
	if b == nil {
		return true
	}
	for n := b.keys.Load(); reserved || n < b.maxKeys.Load(); n = b.keys.Load() {
		if b.keys.CompareAndSwap(n, n+1) {
			return true
		}
	}
	return false
}

// DropKey gives the room of a key back.
func (b *Budget) DropKey() {
	if b != nil {
		b.keys.Add(-1)
	}
}

// DropKeys gives the room of some keys back.
func (b *Budget) DropKeys(n int) {
	if b != nil {
		b.keys.Add(-int64(n))
	}
}

// Keys is how many keys have room.
func (b *Budget) Keys() int64 { return b.keys.Load() }

// KeysFull says that there is no room for another key.
func (b *Budget) KeysFull() bool { return b.keys.Load() >= b.maxKeys.Load() }

// Take takes bytes; false: there are not as many.
func (b *Budget) Take(p Part, n int64, reserved bool) bool {
	if b == nil {
		return true
	}
	most := b.maxBytes.Load()
	if !reserved {
		most -= b.reserve
	}
	for used := b.bytes.Load(); used+n <= most; used = b.bytes.Load() {
		if b.bytes.CompareAndSwap(used, used+n) {
			b.parts[p].Add(n)
			return true
		}
	}
	return false
}

// Add takes bytes without asking, or below 0 gives them back.
func (b *Budget) Add(p Part, n int64) {
	if b != nil && n != 0 {
		b.bytes.Add(n)
		b.parts[p].Add(n)
	}
}

// Bytes is how many bytes are taken.
func (b *Budget) Bytes() int64 { return b.bytes.Load() }

// Part is how many bytes are taken for a part.
func (b *Budget) Part(p Part) int64 { return b.parts[p].Load() }

// Tight says that there is no room for another key, or less than a 32nd of the bytes.
func (b *Budget) Tight() bool {
	most := b.maxBytes.Load()
	return b.KeysFull() || most != math.MaxInt64 && b.bytes.Load() > most-b.reserve-most/32
}

package floor

import (
	"errors"
	"fmt"
	"hash/maphash"
	"math/bits"
	"sync"
	"sync/atomic"
)

// ErrFull: the table has as many keys as it was made for, or no room for the bytes of another.
var ErrFull = errors.New("floor: the table is full")

// ErrKey: the key is empty or longer than MaxKey.
var ErrKey = errors.New("floor: bad key")

// MaxKey is the longest key, in bytes.
const MaxKey = 1<<16 - 1

const (
	lengthBytes = 2
	tagBits     = 24 // of the hash, beside the key's place in the arena
	placeBits   = 64 - tagBits
)

// slot is one key: where its bytes are, and how many tokens it has.
type slot struct {
	// ref is tag<<placeBits | place; 0: the slot is free. It is written once, after the key and its credit, and so publishes them.
	ref    atomic.Uint64
	credit atomic.Int64
}

// Table is a fixed number of keys, each with its credit. Make it with New; must not be copied.
type Table struct {
	seed  maphash.Seed
	mask  uint64
	slots []slot
	arena []byte

	adding sync.Mutex
	keys   int
	most   int
	used   int // bytes of the arena
}

// New makes a table for so many keys with so many bytes in all. Its memory is taken at once: 16 bytes for each slot, of which there are
// the power of two that leaves a quarter of them free, and the keys with two bytes each.
func New(keys, keyBytes int) *Table {
	slots := 1 << bits.Len(uint(keys+keys/3))
	return &Table{
		seed:  maphash.MakeSeed(),
		mask:  uint64(slots - 1),
		slots: make([]slot, slots),
		arena: make([]byte, 1+keyBytes+lengthBytes*keys),
		most:  keys,
		used:  1, // a place is never 0
	}
}

// Take takes cost tokens of the key if it has them. An unknown key has none.
func (t *Table) Take(key string, cost int64) bool {
	s := t.find(maphash.String(t.seed, key), key)
	if s.ref.Load() == 0 {
		return false
	}
	for {
		have := s.credit.Load()
		if have < cost {
			return false
		}
		if s.credit.CompareAndSwap(have, have-cost) {
			return true
		}
	}
}

// Give adds n tokens to the key and makes it known.
func (t *Table) Give(key string, n int64) error {
	if key == "" || len(key) > MaxKey {
		return fmt.Errorf("%w: %d bytes, want 1 to %d", ErrKey, len(key), MaxKey)
	}
	h := maphash.String(t.seed, key)
	t.adding.Lock()
	defer t.adding.Unlock()
	s := t.find(h, key)
	if s.ref.Load() != 0 {
		s.credit.Add(n)
		return nil
	}
	if t.keys == t.most || t.used+lengthBytes+len(key) > len(t.arena) {
		return fmt.Errorf("%w: %d keys with %d bytes", ErrFull, t.keys, t.used)
	}
	place := t.used
	t.arena[place], t.arena[place+1] = byte(len(key)), byte(len(key)>>8)
	copy(t.arena[place+lengthBytes:], key)
	t.used += lengthBytes + len(key)
	t.keys++
	s.credit.Store(n)
	s.ref.Store(tag(h) | uint64(place))
	return nil
}

// find returns the slot of the key, or the free one where it would be. There always is a free one.
func (t *Table) find(h uint64, key string) *slot {
	want := tag(h)
	for i := h & t.mask; ; i = (i + 1) & t.mask {
		s := &t.slots[i]
		ref := s.ref.Load()
		if ref == 0 || ref&^(1<<placeBits-1) == want && string(t.at(ref&(1<<placeBits-1))) == key {
			return s
		}
	}
}

// at is the key at that place of the arena, whose bytes do not change any more.
func (t *Table) at(place uint64) []byte {
	p := t.arena[place:]
	n := int(p[0]) | int(p[1])<<8
	return p[lengthBytes : lengthBytes+n]
}

func tag(h uint64) uint64 { return h &^ (1<<placeBits - 1) }

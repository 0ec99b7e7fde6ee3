package topk

import (
	"math"
	"strings"
)

// Sketch keeps the keys that count most of all that were added. Not for use by several goroutines.
type Sketch struct {
	k     int
	index map[string]uint32 // place in slots
	slots []slot
	heap  []uint32 // of places in slots, the smallest count first
}

// slot is one key. What it truly counts is from count-inherited to count.
type slot struct {
	key              string
	count, inherited int64
	pos              uint32 // in the heap
}

// NewSketch returns an empty sketch for k keys, k at least 1. It takes memory as keys come: about 100 bytes for each, and the key.
func NewSketch(k int) *Sketch {
	return &Sketch{k: max(k, 1), index: map[string]uint32{}}
}

// Add counts n more for a key; n below 1 is nothing. It takes O(log k). It keeps a copy of the key.
func (s *Sketch) Add(key string, n int64) {
	if i, ok := s.index[key]; ok || n <= 0 {
		s.more(i, n)
		return
	}
	s.insert(strings.Clone(key), n) // its bytes may belong to a request
}

// AddBytes is Add for a key that lies in a buffer.
func (s *Sketch) AddBytes(key []byte, n int64) {
	if i, ok := s.index[string(key)]; ok || n <= 0 {
		s.more(i, n)
		return
	}
	s.insert(string(key), n)
}

// more adds to a key that is kept; n below 1 is nothing.
func (s *Sketch) more(i uint32, n int64) {
	if n > 0 {
		x := &s.slots[i]
		x.count = add(x.count, n)
		s.down(x.pos)
	}
}

func (s *Sketch) insert(key string, n int64) {
	if len(s.slots) < s.k {
		i := uint32(len(s.slots))
		s.slots = append(s.slots, slot{key: key, count: n, pos: i})
		s.heap = append(s.heap, i)
		s.index[key] = i
		s.up(i)
		return
	}
	i := s.heap[0]
	x := &s.slots[i]
	delete(s.index, x.key)
	s.index[key] = i
	x.key, x.inherited, x.count = key, x.count, add(x.count, n)
	s.down(0)
}

// Floor is the most that a key which the sketch does not keep can count.
func (s *Sketch) Floor() int64 {
	if s == nil || len(s.slots) < s.k {
		return 0
	}
	return s.slots[s.heap[0]].count
}

// Clear forgets all keys and keeps the memory.
func (s *Sketch) Clear() {
	clear(s.index)
	clear(s.slots) // so that the keys are not kept
	s.slots, s.heap = s.slots[:0], s.heap[:0]
}

// bounds are the least and the most that a key counts.
func (s *Sketch) bounds(key string) (least, most int64) {
	if s == nil {
		return 0, 0
	}
	if i, ok := s.index[key]; ok {
		return s.slots[i].count - s.slots[i].inherited, s.slots[i].count
	}
	return 0, s.Floor()
}

// up and down restore the order of the heap around a position.

func (s *Sketch) up(pos uint32) {
	for pos > 0 {
		parent := (pos - 1) / 2
		if s.at(parent) <= s.at(pos) {
			return
		}
		s.swap(pos, parent)
		pos = parent
	}
}

func (s *Sketch) down(pos uint32) {
	for n := uint32(len(s.heap)); ; {
		child := 2*pos + 1
		if child >= n {
			return
		}
		if child+1 < n && s.at(child+1) < s.at(child) {
			child++
		}
		if s.at(pos) <= s.at(child) {
			return
		}
		s.swap(pos, child)
		pos = child
	}
}

func (s *Sketch) at(pos uint32) int64 { return s.slots[s.heap[pos]].count }

func (s *Sketch) swap(a, b uint32) {
	s.heap[a], s.heap[b] = s.heap[b], s.heap[a]
	s.slots[s.heap[a]].pos, s.slots[s.heap[b]].pos = a, b
}

// add saturates; both are not negative.
func add(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

package keytable

import (
	"slices"
	"unsafe"

	"github.com/jatah-io/jatah/internal/budget"
)

// blocks gives memory to records and index, and takes it back. A table that has become large takes 4 MiB at once and asks the system for large pages: where
// each look-up goes to another page, finding out where the page is takes longer than the look-up.
//
// Memory that was given back is never given to anybody by this package: who found a record there before may still look at it, and even try to
// swap its last word. It goes to the garbage collector when all of its block came back and nobody points to it any more; until then
// its pages go to the system, which shows zeros in their place.
type blocks struct {
	budget *budget.Budget
	beyond bool  // its bounds do not hold now
	bytes  int64 // of the budget
	given  int   // words, until blocks are taken
	cut    *block
	homes  []*home // that have a free segment
	last   int     // number of a home
}

type block struct {
	words []uint64 // what was not cut off yet
	all   int
	live  int
	gone  int // words whose pages went to the system
}

// piece is a part of a block, or has memory of its own.
type piece struct {
	words []uint64
	block *block
}

// home is a piece that holds segments of the index.
type home struct {
	piece
	number int
	free   []*segment
}

// before says that a segment had better stay at h than at o, so that the later ones become empty. nil is a segment's own memory.
func (h *home) before(o *home) bool { return o != nil && (h == nil || h.number < o.number) }

const (
	blockWords = 1 << 19 // 4 MiB: at least one large page of 2 MiB lies in it whole
	blocksFrom = 1 << 19 // 4 MiB

	// guard is how many words can be read beyond a large chunk. The number of a chunk that was given back is used again, and who has a
	// place from before looks for a key there; no key in a chunk that is given back is longer.
	guard = 256

	// segmentCost is what is counted for a segment beside its words: usage, and entries in the directory.
	segmentCost = 64
)

// nowhere is what the numbers of chunks lead to that were given back: no key is there. It is never written to.
var nowhere [chunkWords + guard]uint64

// claim takes bytes of the budget, and back gives them back.
func (b *blocks) claim(n int64, reserved bool) bool {
	if b.beyond {
		b.budget.Add(budget.Records, n)
	} else if !b.budget.Take(budget.Records, n, reserved) {
		return false
	}
	b.bytes += n
	return true
}

func (b *blocks) back(n int64) {
	b.bytes -= n
	b.budget.Add(budget.Records, -n)
}

// take gives zeroed words, at most a chunk of them; false: the budget has no room. more is counted too.
func (b *blocks) take(words, more int, reserved bool) (piece, bool) {
	bytes := int64(words)*8 + int64(more)
	if b.given >= blocksFrom && words == chunkWords {
		if b.cut == nil || len(b.cut.words) == 0 {
			b.cut = nil
			if b.claim(8*(blockWords+guard), reserved) {
				w := make([]uint64, blockWords+guard)
				largePages(w[:blockWords])
				b.cut = &block{words: w[:blockWords], all: blockWords}
			}
		}
		if c := b.cut; c != nil {
			if !b.claim(int64(more), reserved) {
				return piece{}, false
			}
			w := c.words[:words:words]
			c.words = c.words[words:]
			c.live += words
			return piece{w, c}, true
		}
	}
	if words == chunkWords {
		bytes += 8 * guard
	}
	if !b.claim(bytes, reserved) {
		return piece{}, false
	}
	b.given += words
	if words == chunkWords {
		return piece{words: make([]uint64, words+guard)[:words:words]}, true
	}
	return piece{words: make([]uint64, words)}, true
}

// give takes a piece back, which nobody uses any more but who has found something there before.
func (b *blocks) give(p piece, more int) {
	b.back(int64(more))
	c := p.block
	if c == nil {
		b.given -= len(p.words)
		n := len(p.words)
		if n == chunkWords {
			n += guard
		}
		b.back(8 * int64(n))
		return
	}
	if c.live -= len(p.words); c.live == 0 {
		if b.cut == c {
			b.cut = nil
		}
		b.back(8 * int64(c.all+guard-c.gone))
		return
	}
	if toSystem(p.words) {
		c.gone += len(p.words)
		b.back(8 * int64(len(p.words)))
	}
}

// segment gives an empty segment and its home; nil: there is no room.
func (b *blocks) segment(reserved bool) (*segment, *home) {
	if b.given < blocksFrom {
		if !b.claim(8*slots+segmentCost, reserved) {
			return nil, nil
		}
		b.given += slots
		return new(segment), nil
	}
	if len(b.homes) == 0 {
		p, ok := b.take(chunkWords, chunkWords/slots*segmentCost, reserved)
		if !ok {
			return nil, nil
		}
		b.last++
		h := &home{piece: p, number: b.last}
		for i := range segmentsOf(p.words) {
			h.free = append(h.free, &segmentsOf(p.words)[i])
		}
		b.homes = append(b.homes, h)
	}
	h := b.homes[0]
	for _, o := range b.homes {
		if o.before(h) {
			h = o
		}
	}
	s := h.free[len(h.free)-1]
	if h.free = h.free[:len(h.free)-1]; len(h.free) == 0 {
		b.unlist(h)
	}
	for i := range s { // it may have been used
		s[i].Store(0)
	}
	return s, h
}

// giveSegment takes a segment back. It may be used again, by who may still look into it: what is found there is checked at the record.
func (b *blocks) giveSegment(s *segment, h *home) {
	if h == nil {
		b.given -= slots
		b.back(8*slots + segmentCost)
		return
	}
	if h.free = append(h.free, s); len(h.free) == 1 {
		b.homes = append(b.homes, h)
	}
	if len(h.free) < chunkWords/slots {
		return
	}
	b.unlist(h)
	b.give(h.piece, chunkWords/slots*segmentCost)
}

func (b *blocks) unlist(h *home) {
	i := slices.Index(b.homes, h)
	b.homes = slices.Delete(b.homes, i, i+1)
}

func segmentsOf(words []uint64) []segment {
	return unsafe.Slice((*segment)(unsafe.Pointer(unsafe.SliceData(words))), len(words)/slots)
}

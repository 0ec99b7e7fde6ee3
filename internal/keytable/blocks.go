package keytable

// blocks gives memory to records and index. A table that has become large takes 4 MiB at once and asks the system for large pages: where
// each look-up goes to another page, finding out where the page is takes longer than the look-up.
type blocks struct {
	given    int // words, until blocks are taken
	rest     []uint64
	segments []segment // of a piece for the index
}

const (
	blockWords = 1 << 19 // 4 MiB: at least one large page of 2 MiB lies in it whole
	blocksFrom = 1 << 19 // 4 MiB
)

// take gives zeroed words, at most a chunk of them.
func (b *blocks) take(words int) []uint64 {
	if b.given < blocksFrom || words < chunkWords {
		b.given += words
		return make([]uint64, words)
	}
	if len(b.rest) < words {
		b.rest = make([]uint64, blockWords)
		largePages(b.rest)
	}
	w := b.rest[:words:words]
	b.rest = b.rest[words:]
	return w
}

func (b *blocks) segment() *segment {
	if b.given < blocksFrom {
		b.given += slots
		return new(segment)
	}
	if len(b.segments) == 0 {
		b.segments = segmentsOf(b.take(chunkWords))
	}
	s := &b.segments[0]
	b.segments = b.segments[1:]
	return s
}

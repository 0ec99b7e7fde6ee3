package keytable

import "unsafe"

// Chunks is how many blocks of records there are or were: they are numbered from 0. One that has no keys may go, and another one get its number.
func (t *Table[T]) Chunks() int { return len(t.chunks()) }

// ChunkOf says in which block a record lies.
func (t *Table[T]) ChunkOf(r *T) int {
	return int(metaOf(unsafe.Pointer(r), unsafe.Sizeof(*r)).Load() >> (32 + chunkBits))
}

// Live says that a record is in the table.
func (t *Table[T]) Live(r *T) bool {
	return metaOf(unsafe.Pointer(r), unsafe.Sizeof(*r)).Load()&live != 0
}

// Scan calls f for the records of a chunk in the order of their places, from a place on, until f returns false. It begins at 0 and returns the place
// to go on from, or 0 at the end. If the chunk has another one's number by then, it begins anew. f may call anything, and it may run beside anything:
// what is added meanwhile may be missed.
func (t *Table[T]) Scan(chunk, from int, f func(*T) bool) (next int) {
	c := t.chunks()[chunk]
	if c == nil {
		return 0
	}
	word := max(1, from%chunkWords)
	if uint16(from>>chunkBits) != c.serial {
		word = 1
	}
	for word < int(c.used.Load()) {
		p := unsafe.Pointer(&c.words[word])
		var r *T
		m := metaOf(p, unsafe.Sizeof(*r)).Load()
		word += t.header + keyWords(int(m&length))
		if m&live != 0 && !f((*T)(p)) {
			if word >= int(c.used.Load()) {
				return 0
			}
			return int(c.serial)<<chunkBits | word
		}
	}
	return 0
}

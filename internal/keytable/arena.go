package keytable

import (
	"encoding/binary"
	"math/bits"
	"slices"
	"sync/atomic"
	"unsafe"
)

// A record's place is the number of its chunk above the word in the chunk. 0 is nobody's.
const (
	chunkBits  = 15
	chunkWords = 1 << chunkBits // 256 KiB
	maxChunks  = 1 << (32 - chunkBits)
	firstWords = 128 // the first chunk is small, so that a table of a few keys is, and the next ones grow
)

// The word that follows the caller's in a record: its place in the upper half, then whether it is in the table, and the length of its key.
const (
	live   = 1 << 31
	length = live - 1
)

// arena has the records.
type arena struct {
	blocks                // under the table's lock
	header int            // words before the key
	bases  unsafe.Pointer // of memory.bases: loaded and stored atomically, so that a look-up need not go by memory
	memory atomic.Pointer[memory]
	places atomic.Int64 // records, with those that are free

	// Under the table's lock.
	newest *chunk     // where records are added
	avail  [][]uint64 // by the words of a key: a bit for each chunk that has a free record for it
	spare  []uint32   // numbers of chunks that were given back
	serial uint16     // of the last chunk
}

// memory is never changed: another chunk, or one less, makes a new one.
type memory struct {
	bases  []unsafe.Pointer // of the chunks' words
	chunks []*chunk         // nil: it was given back
}

type chunk struct {
	words  []uint64
	used   atomic.Int32
	any    atomic.Bool // some record may be marked
	marked []atomic.Uint64

	// Under the table's lock, but for number and serial.
	piece  piece
	number int
	serial uint16   // tells it from another one of the same number
	live   int      // records that are not free
	places int      // records
	heads  []uint16 // by the words of a key: the first free record; the first word of its key leads to the next. 0: none
	pinned bool     // never given back
}

// place is where a walk goes on, if the chunk is the same.
type place struct {
	chunk, word int
	in          *chunk
}

// spareNumbers is how many numbers of chunks rest before one is used again: as long as somebody may still look for a key where it was.
const spareNumbers = 1024

func (a *arena) at(ref uint32) unsafe.Pointer {
	base := *(*unsafe.Pointer)(unsafe.Add(atomic.LoadPointer(&a.bases), uintptr(ref>>chunkBits)*unsafe.Sizeof(a.bases)))
	return unsafe.Add(base, uintptr(ref%chunkWords)*8)
}

func (a *arena) chunks() []*chunk {
	if m := a.memory.Load(); m != nil {
		return m.chunks
	}
	return nil
}

// alloc finds room for a record; 0: there is none.
func (a *arena) alloc(key string, reserved bool) uint32 {
	if len(key) > length {
		return 0
	}
	k := keyWords(len(key))
	if ref := a.reuse(k); ref != 0 {
		return ref
	}
	n := a.header + k
	c := a.newest
	if c == nil || int(c.used.Load())+n > len(c.words) {
		if n+1 > chunkWords {
			return 0
		}
		if c = a.grow(n, reserved); c == nil {
			return a.divide(k)
		}
	}
	c.pinned = c.pinned || k >= guard-a.header
	word := int(c.used.Load())
	a.name(c, word, len(key))
	c.used.Add(int32(n))
	c.live++
	return uint32(c.number)<<chunkBits | uint32(word)
}

// name writes the word before the key of a new place, which says for who walks over it how long it is.
func (a *arena) name(c *chunk, word, keyLen int) {
	ref := uint64(c.number)<<chunkBits | uint64(word)
	atomic.StoreUint64(&c.words[word+a.header-1], ref<<32|uint64(keyLen))
	c.places++
	a.places.Add(1)
}

// reuse takes a free record of the first chunk that has one for a key of k words, so that the last ones become empty.
func (a *arena) reuse(k int) uint32 {
	if k >= len(a.avail) {
		return 0
	}
	for i, w := range a.avail[k] {
		if w != 0 {
			return a.pop(a.chunks()[i*64+bits.TrailingZeros64(w)], k)
		}
	}
	return 0
}

func (a *arena) pop(c *chunk, k int) uint32 {
	word := int(c.heads[k])
	if c.heads[k] = uint16(atomic.LoadUint64(&c.words[word+a.header])); c.heads[k] == 0 {
		a.avail[k][c.number/64] &^= 1 << (c.number % 64)
	}
	c.live++
	return uint32(c.number)<<chunkBits | uint32(word)
}

// divide makes two of a free record that is too long; 0: there is none.
func (a *arena) divide(k int) uint32 {
	for long := k + a.header + 1; long < len(a.avail); long++ {
		ref := a.reuse(long)
		if ref == 0 {
			continue
		}
		c := a.chunks()[ref>>chunkBits]
		word := int(ref%chunkWords) + a.header + k
		a.name(c, word, (long-k-a.header)*8) // before the first is made shorter: who walks over them finds either
		a.push(c, word, long-k-a.header)
		return ref
	}
	return 0
}

// push notes a free record.
func (a *arena) push(c *chunk, word, k int) {
	for len(c.heads) <= k {
		c.heads = append(c.heads, 0)
	}
	for len(a.avail) <= k {
		a.avail = append(a.avail, nil)
	}
	for len(a.avail[k]) <= c.number/64 {
		a.avail[k] = append(a.avail[k], 0)
	}
	atomic.StoreUint64(&c.words[word+a.header], uint64(c.heads[k])) // who found it before may be comparing the key
	c.heads[k] = uint16(word)
	a.avail[k][c.number/64] |= 1 << (c.number % 64)
}

// grow adds a chunk with room for n words; nil: that cannot be.
func (a *arena) grow(n int, reserved bool) *chunk {
	var m memory
	if old := a.memory.Load(); old != nil {
		m = *old
	}
	number := len(m.chunks)
	again := len(a.spare) > spareNumbers || number == maxChunks
	if again && len(a.spare) == 0 {
		return nil
	}
	size := max(n+1, min(chunkWords, firstWords<<min(2*number, chunkBits)))
	p, ok := a.take(size, chunkCost(size), reserved)
	if !ok {
		return nil
	}
	a.serial++
	c := &chunk{words: p.words, piece: p, serial: a.serial, marked: make([]atomic.Uint64, (size+63)/64), pinned: size != chunkWords}
	c.used.Store(1) // so that no record is at 0
	if again {
		number, a.spare = int(a.spare[0]), a.spare[1:]
	} else {
		m.chunks, m.bases = append(slices.Clip(m.chunks), nil), append(slices.Clip(m.bases), nil)
	}
	c.number = number
	a.put(m, c, number)
	a.newest = c
	return c
}

// chunkCost is the bytes of a chunk beside its words.
func chunkCost(words int) int { return words/8 + 256 }

// put publishes a chunk, or nil, under its number.
func (a *arena) put(m memory, c *chunk, number int) {
	m.chunks, m.bases = slices.Clone(m.chunks), slices.Clone(m.bases)
	m.chunks[number], m.bases[number] = c, unsafe.Pointer(&nowhere)
	if c != nil {
		m.bases[number] = unsafe.Pointer(unsafe.SliceData(c.words))
	}
	atomic.StorePointer(&a.bases, unsafe.Pointer(unsafe.SliceData(m.bases)))
	a.memory.Store(&m)
}

func (a *arena) release(ref uint32) {
	m := metaOf(a.at(ref), uintptr(a.header-1)*8)
	c := a.chunks()[ref>>chunkBits]
	a.push(c, int(ref%chunkWords), keyWords(int(m.Load()&length)))
	if c.live--; c.live == 0 && !c.pinned && c != a.newest {
		a.drop(c)
	}
}

// drop gives the memory of a chunk back, in which all records are free.
func (a *arena) drop(c *chunk) {
	for k := range c.heads {
		if c.heads[k] != 0 {
			a.avail[k][c.number/64] &^= 1 << (c.number % 64)
		}
	}
	a.places.Add(-int64(c.places))
	a.put(*a.memory.Load(), nil, c.number)
	a.spare = append(a.spare, uint32(c.number))
	a.give(c.piece, chunkCost(len(c.words)))
}

func keyWords(n int) int { return max(1, (n+7)/8) }

func metaOf(r unsafe.Pointer, size uintptr) *atomic.Uint64 {
	return (*atomic.Uint64)(unsafe.Add(r, size))
}

// The bytes of a key are whole words, and then its last eight bytes, which overlap with those; of a shorter key its first and last
// four; below that its first, middle and last byte. So two keys of one length are compared without a loop over bytes.

// short is a key of less than eight bytes as one word.
func short(key string) uint64 {
	switch n := len(key); {
	case n >= 4:
		return uint64(le32(key)) | uint64(le32(key[n-4:]))<<32
	case n > 0:
		return uint64(key[0]) | uint64(key[n/2])<<8 | uint64(key[n-1])<<16
	}
	return 0
}

func le32(s string) uint32 {
	return binary.LittleEndian.Uint32(unsafe.Slice(unsafe.StringData(s), len(s)))
}

func le64(s string) uint64 {
	return binary.LittleEndian.Uint64(unsafe.Slice(unsafe.StringData(s), len(s)))
}

// setKey writes the word before the key, and the key. Who found the record when it was another's may be reading it.
func setKey(m unsafe.Pointer, ref uint32, key string) {
	atomic.StoreUint64((*uint64)(m), uint64(ref)<<32|live|uint64(len(key)))
	n := len(key)
	if n < 8 {
		atomic.StoreUint64((*uint64)(unsafe.Add(m, 8)), short(key))
		return
	}
	i := 0
	for ; i+8 <= n; i += 8 {
		atomic.StoreUint64((*uint64)(unsafe.Add(m, 8+i)), le64(key[i:]))
	}
	if i < n {
		atomic.StoreUint64((*uint64)(unsafe.Add(m, 8+i)), le64(key[n-8:]))
	}
}

// sameKey says that the bytes at p, which are as many as the key has, are the key's.
func sameKey(p unsafe.Pointer, key string) bool {
	n := len(key)
	if n < 8 {
		return atomic.LoadUint64((*uint64)(p)) == short(key)
	}
	k := unsafe.Pointer(unsafe.StringData(key))
	i := 0
	for ; i+8 <= n; i += 8 {
		if atomic.LoadUint64((*uint64)(unsafe.Add(p, i))) != load64(unsafe.Add(k, i)) {
			return false
		}
	}
	return i == n || atomic.LoadUint64((*uint64)(unsafe.Add(p, i))) == load64(unsafe.Add(k, n-8))
}

func load64(p unsafe.Pointer) uint64 { return binary.LittleEndian.Uint64((*[8]byte)(p)[:]) }

func appendKey(b []byte, m unsafe.Pointer) []byte {
	n := int(atomic.LoadUint64((*uint64)(m)) & length)
	w := atomic.LoadUint64((*uint64)(unsafe.Add(m, 8)))
	if n < 8 {
		var lo, hi [4]byte
		binary.LittleEndian.PutUint32(lo[:], uint32(w))
		binary.LittleEndian.PutUint32(hi[:], uint32(w>>32))
		if n >= 4 {
			return append(append(b, lo[:]...), hi[8-n:]...)
		}
		return append(b, lo[:n]...)
	}
	i := 0
	for ; i+8 <= n; i += 8 {
		b = binary.LittleEndian.AppendUint64(b, atomic.LoadUint64((*uint64)(unsafe.Add(m, 8+i))))
	}
	if i < n {
		var tail [8]byte
		binary.LittleEndian.PutUint64(tail[:], atomic.LoadUint64((*uint64)(unsafe.Add(m, 8+i))))
		b = append(b, tail[8-(n-i):]...)
	}
	return b
}

// Mark puts a record on the list that Marked goes through. It may run beside anything.
func (t *Table[T]) Mark(r *T) {
	ref := uint32(metaOf(unsafe.Pointer(r), unsafe.Sizeof(*r)).Load() >> 32)
	c := t.chunks()[ref>>chunkBits]
	if c == nil { // long ago
		return
	}
	w, bit := &c.marked[ref%chunkWords/64], uint64(1)<<(ref%64)
	if w.Load()&bit == 0 {
		w.Or(bit)
	}
	if !c.any.Load() { // after the bit: who clears this looks at the bits then
		c.any.Store(true)
	}
}

// Marked calls f for records that were marked since it came by last, and takes them off the list. It ends when it has been through all, and says false,
// or after about n, and goes on from there when it is called next. One caller at a time; f may call anything but Marked.
func (t *Table[T]) Marked(n int, f func(*T)) (more bool) {
	chunks := t.chunks()
	for ; t.marks.chunk < len(chunks); t.marks = (place{chunk: t.marks.chunk + 1}) {
		c := chunks[t.marks.chunk]
		if c == nil {
			continue
		}
		if c != t.marks.in {
			t.marks.in, t.marks.word = c, 0
		}
		if t.marks.word == 0 {
			if n <= 0 {
				return true // before any is cleared: that is for who looks at the bits now
			}
			if !c.any.Load() || !c.any.Swap(false) {
				continue
			}
		}
		for ; t.marks.word < len(c.marked); t.marks.word++ {
			if n <= 0 {
				return true
			}
			if c.marked[t.marks.word].Load() == 0 {
				continue
			}
			for w := c.marked[t.marks.word].Swap(0); w != 0; w &= w - 1 {
				p := unsafe.Pointer(&c.words[t.marks.word*64+bits.TrailingZeros64(w)])
				var r *T
				if r = (*T)(p); t.isAt(c, t.marks.word*64+bits.TrailingZeros64(w)) {
					f(r)
				}
				n--
			}
		}
	}
	t.marks = place{}
	return false
}

// isAt says that a record begins there that is in the table. Who marks a record late may mean one of another chunk.
func (a *arena) isAt(c *chunk, word int) bool {
	i := word + a.header - 1
	if i >= len(c.words) {
		return false
	}
	m := atomic.LoadUint64(&c.words[i])
	return m&live != 0 && m>>32 == uint64(c.number)<<chunkBits|uint64(word)
}

// Places is how many records there are or were: each is a place for a key, and may have none now.
func (t *Table[T]) Places() int { return int(t.places.Load()) }

// Walk looks at n places in their order, from where it ended last, and calls f for the records there; it begins anew at the end. It returns how many places there
// were before the end: fewer than n once it came by all. One caller at a time; f may call anything but Walk.
func (t *Table[T]) Walk(n int, f func(*T)) (seen int) {
	chunks := t.chunks()
	for ; t.walked.chunk < len(chunks); t.walked = (place{chunk: t.walked.chunk + 1}) {
		c := chunks[t.walked.chunk]
		if c == nil {
			continue
		}
		if c != t.walked.in {
			t.walked.in, t.walked.word = c, 1
		}
		for t.walked.word < int(c.used.Load()) {
			if seen >= n {
				return seen
			}
			p := unsafe.Pointer(&c.words[t.walked.word])
			var r *T
			m := metaOf(p, unsafe.Sizeof(*r)).Load()
			t.walked.word += t.header + keyWords(int(m&length))
			if seen++; m&live != 0 {
				f((*T)(p))
			}
		}
	}
	t.walked = place{}
	return seen
}

// All calls f for every record. It may run beside anything: what is added meanwhile may be missed.
func (t *Table[T]) All(f func(*T)) {
	for _, c := range t.chunks() {
		if c == nil {
			continue
		}
		for word := 1; word < int(c.used.Load()); {
			p := unsafe.Pointer(&c.words[word])
			var r *T
			m := metaOf(p, unsafe.Sizeof(*r)).Load()
			word += t.header + keyWords(int(m&length))
			if m&live != 0 {
				f((*T)(p))
			}
		}
	}
}

package keytable

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/jatah-io/jatah/internal/budget"
)

const (
	segmentBits = 9
	slots       = 1 << segmentBits
	maxUsed     = slots * 15 / 16
	maxDepth    = 32 - segmentBits // more would leave no bits of the tag that two halves of a segment differ in
)

// segment is a part of the index. A slot is 0, or the tag of a key above the place of its record. Probing is linear.
type segment [slots]atomic.Uint64

// directory says which segment has the tags that begin with some bits.
type directory struct {
	shift    uint32         // 32 less the bits
	first    unsafe.Pointer // of segments, so that a look-up need not load and check the slice
	segments []atomic.Pointer[segment]
}

func newDirectory(bits uint32) *directory {
	d := &directory{shift: 32 - bits, segments: make([]atomic.Pointer[segment], 1<<bits)}
	d.first = unsafe.Pointer(unsafe.SliceData(d.segments))
	return d
}

func (d *directory) of(tag uint32) *segment {
	return (*atomic.Pointer[segment])(unsafe.Add(d.first, uintptr(tag>>d.shift)*unsafe.Sizeof(d.segments[0]))).Load()
}

// usage is what only writers need of a segment.
type usage struct {
	used  int
	depth uint32 // how many bits all its tags have in common
	home  *home
}

// Table maps keys to records of type T. T must be a struct without pointers of a size that is a multiple of 8 bytes, whose last field is an
// atomic.Uint64 or the like. Make it with New; safe for any number of goroutines; must not be copied.
type Table[T any] struct {
	seed maphash.Seed
	dir  atomic.Pointer[directory] // nil: nothing was ever added
	n    atomic.Int64
	arena

	mu     sync.Mutex // of every change
	usages []*usage   // as directory.segments
	full   int        // segments whose tags have as many bits in common as the directory has

	marks, walked place // where Marked and Walk go on
}

// New makes an empty table. It takes next to no memory until the first Add.
func New[T any]() *Table[T] { return NewIn[T](nil) }

// NewIn makes an empty table whose memory is counted in b, and bounded by it.
func NewIn[T any](b *budget.Budget) *Table[T] {
	var t T
	if unsafe.Sizeof(t) == 0 || unsafe.Sizeof(t)%8 != 0 || unsafe.Alignof(t) != 8 {
		panic("keytable: the size of a record must be a multiple of 8 bytes, aligned to 8")
	}
	return &Table[T]{seed: maphash.MakeSeed(), arena: arena{header: int(unsafe.Sizeof(t)/8) + 1, blocks: blocks{budget: b}}}
}

// Len is the number of keys.
func (t *Table[T]) Len() int { return int(t.n.Load()) }

// Find returns the record of a key, and its last word as it was before the key was compared; nil if the key is not there, or is just
// being moved.
func (t *Table[T]) Find(key string) (r *T, last uint64) {
	d := t.dir.Load()
	if d == nil {
		return nil, 0
	}
	tag := uint32(maphash.String(t.seed, key) >> 32)
	seg := d.of(tag)
	for pos := tag; ; pos++ { // some slot is always free
		w := seg[pos%slots].Load()
		if w == 0 {
			return nil, 0
		}
		if uint32(w>>32) != tag {
			continue
		}
		p := t.at(uint32(w))
		m := unsafe.Add(p, unsafe.Sizeof(*r))
		last = atomic.LoadUint64((*uint64)(unsafe.Add(m, -8)))
		if atomic.LoadUint64((*uint64)(m)) == w<<32|live|uint64(len(key)) && sameKey(unsafe.Add(m, 8), key) {
			return (*T)(p), last
		}
	}
}

// Add returns the record of a key. If there is none it makes one: init sets it up before anybody else can see it, and added is true. What it finds in it
// is what somebody left, or zero. r is nil if the table cannot take more keys: its budget has no room, it has 32 GiB, or the key is longer than a chunk (256 KiB).
func (t *Table[T]) Add(key string, init func(r *T)) (r *T, added bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.add(key, false, init)
}

// AddReserved is Add with what the budget keeps back.
func (t *Table[T]) AddReserved(key string, init func(r *T)) (r *T, added bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.add(key, true, init)
}

// AddBeyond is Add for what must be stored in any case: its memory is counted in the budget, and not bounded by it.
func (t *Table[T]) AddBeyond(key string, init func(r *T)) (r *T, added bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.beyond = true
	defer func() { t.beyond = false }()
	return t.add(key, true, init)
}

func (t *Table[T]) add(key string, reserved bool, init func(r *T)) (r *T, added bool) {
	if t.dir.Load() == nil {
		s, h := t.segment(reserved)
		if s == nil {
			return nil, false
		}
		d := newDirectory(0)
		d.segments[0].Store(s)
		t.usages, t.full = []*usage{{home: h}}, 1
		t.dir.Store(d)
	}
	if r, _ = t.Find(key); r != nil { // nothing moves while the lock is held
		return r, false
	}
	tag := uint32(maphash.String(t.seed, key) >> 32)
	if !t.room(tag, reserved) {
		return nil, false
	}
	ref := t.alloc(key, reserved)
	if ref == 0 {
		return nil, false
	}
	p := t.at(ref)
	setKey(unsafe.Add(p, unsafe.Sizeof(*r)), ref, key)
	r = (*T)(p)
	init(r)
	t.put(tag, ref)
	t.n.Add(1)
	return r, true
}

// Delete takes a record out of the table; its key is not found any more. Free makes room of it. A record must be deleted once.
func (t *Table[T]) Delete(r *T) {
	t.mu.Lock()
	defer t.mu.Unlock()
	m := metaOf(unsafe.Pointer(r), unsafe.Sizeof(*r))
	var buf [128]byte
	tag := uint32(maphash.Bytes(t.seed, appendKey(buf[:0], unsafe.Pointer(m))) >> 32)
	w := m.Load()
	m.Store(w &^ live)
	d := t.dir.Load()
	d.of(tag).cut(uint64(tag)<<32 | w>>32)
	t.usages[tag>>d.shift].used--
	t.n.Add(-1)
	for t.merge(tag) {
	}
}

// Free gives a deleted record's memory to other keys. When all of a chunk is free its memory goes back.
func (t *Table[T]) Free(r *T) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.release(uint32(metaOf(unsafe.Pointer(r), unsafe.Sizeof(*r)).Load() >> 32))
}

// Close gives what the table takes of its budget back. Nothing may be added from then on; the rest works as before, until the collector has it all.
func (t *Table[T]) Close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.back(t.bytes)
	t.budget = nil
}

// Key is the key of a record. It allocates.
func (t *Table[T]) Key(r *T) string { return string(t.AppendKey(nil, r)) }

// AppendKey appends the key of a record to b.
func (t *Table[T]) AppendKey(b []byte, r *T) []byte {
	return appendKey(b, unsafe.Pointer(metaOf(unsafe.Pointer(r), unsafe.Sizeof(*r))))
}

// room sees to it that the segment of a tag can take one more.
func (t *Table[T]) room(tag uint32, reserved bool) bool {
	for {
		d := t.dir.Load()
		i := tag >> d.shift
		u := t.usages[i]
		if u.used < maxUsed {
			return true
		}
		if u.depth == maxDepth {
			return false
		}
		if u.depth == 32-d.shift {
			t.double(d)
			continue
		}
		if !t.split(d, i, u, reserved) {
			return false
		}
	}
}

// double makes the directory twice as long.
func (t *Table[T]) double(d *directory) {
	n := len(d.segments)
	bigger := newDirectory(33 - d.shift)
	usages := make([]*usage, 2*n)
	for i := range d.segments {
		s := d.segments[i].Load()
		bigger.segments[2*i].Store(s)
		bigger.segments[2*i+1].Store(s)
		usages[2*i], usages[2*i+1] = t.usages[i], t.usages[i]
	}
	t.usages, t.full = usages, 0
	t.dir.Store(bigger)
}

// merge makes one of the segment of a tag and its other half, if few keys are left in both. Readers may go on in either.
func (t *Table[T]) merge(tag uint32) bool {
	d := t.dir.Load()
	i := tag >> d.shift
	u := t.usages[i]
	if u.depth == 0 || u.used >= mergeUsed {
		return false
	}
	span := uint32(len(d.segments)) >> u.depth
	from := i / span * span
	other := from ^ span
	v := t.usages[other]
	if v.depth != u.depth || u.used+v.used > mergeUsed {
		return false
	}
	if v.home.before(u.home) {
		from, other, u, v = other, from, v, u
	}
	keep, half := d.segments[from].Load(), d.segments[other].Load()
	for j := range half {
		if w := half[j].Load(); w != 0 {
			keep.put(w)
		}
	}
	if u.depth == 32-d.shift {
		t.full -= 2
	}
	u.depth--
	u.used += v.used
	for j := other; j < other+span; j++ {
		d.segments[j].Store(keep)
		t.usages[j] = u
	}
	t.giveSegment(half, v.home)
	for t.full == 0 && len(t.usages) > 1 {
		t.halve()
	}
	return true
}

// mergeUsed is how many keys two segments may have together that become one.
const mergeUsed = slots / 4

// halve makes the directory half as long.
func (t *Table[T]) halve() {
	d := t.dir.Load()
	smaller := newDirectory(31 - d.shift)
	usages := make([]*usage, len(d.segments)/2)
	for i := range usages {
		smaller.segments[i].Store(d.segments[2*i].Load())
		if usages[i] = t.usages[2*i]; usages[i].depth == 31-d.shift {
			t.full++
		}
	}
	t.usages = usages
	t.dir.Store(smaller)
}

// split gives half of a segment's tags, by their next bit, to a new one. Readers may go on in the old one: what is there no more they miss.
// It is false if there is no room for one.
func (t *Table[T]) split(d *directory, i uint32, u *usage, reserved bool) bool {
	old := d.segments[i].Load()
	half, home := t.segment(reserved)
	if half == nil {
		return false
	}
	bit := uint32(1) << (31 - u.depth)
	var moved [slots]uint64
	n := 0
	for j := range old {
		if w := old[j].Load(); uint32(w>>32)&bit != 0 {
			half.put(w)
			moved[n] = w
			n++
		}
	}
	span := uint32(len(d.segments)) >> u.depth // entries of the directory that lead to the old segment
	u.depth++
	u.used -= n
	if u.depth == 32-d.shift {
		t.full += 2
	}
	v := &usage{depth: u.depth, used: n, home: home}
	for j := i/span*span + span/2; j < i/span*span+span; j++ {
		d.segments[j].Store(half)
		t.usages[j] = v
	}
	for _, w := range moved[:n] {
		old.cut(w)
	}
	return true
}

func (s *segment) put(w uint64) {
	pos := uint32(w >> 32)
	for s[pos%slots].Load() != 0 {
		pos++
	}
	s[pos%slots].Store(w)
}

func (t *Table[T]) put(tag, ref uint32) {
	d := t.dir.Load()
	d.of(tag).put(uint64(tag)<<32 | uint64(ref))
	t.usages[tag>>d.shift].used++
}

// cut removes an entry, and moves back those behind it that would not be found any more.
func (s *segment) cut(w uint64) {
	pos := uint32(w>>32) % slots
	for s[pos].Load() != w {
		pos = (pos + 1) % slots
	}
	for next := (pos + 1) % slots; ; next = (next + 1) % slots {
		w := s[next].Load()
		if w == 0 {
			break
		}
		if home := uint32(w>>32) % slots; (next-home)%slots >= (next-pos)%slots {
			s[pos].Store(w)
			pos = next
		}
	}
	s[pos].Store(0)
}

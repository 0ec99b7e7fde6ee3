package hybrid

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	mathbits "math/bits"
	"slices"
	"strings"
	"unsafe"
)

// writer appends to buf, in msgpack's own forms: a number takes as few bytes as it can. The zero value is empty.
//
// What a tick says of each key is written through the put functions, with room made for all of its fields at once.
type writer struct{ buf []byte }

func newWriter() *writer { return &writer{} }

// Forms of msgpack. Those of uint8 to uint64 follow each other, so do those of the lengths.
const (
	formArray   = 0x90 // to 0x9f, with the length
	formStr     = 0xa0 // to 0xbf, with the length
	formNil     = 0xc0
	formBin8    = 0xc4
	formBin32   = 0xc6
	formFloat32 = 0xca
	formFloat64 = 0xcb
	formUint8   = 0xcc
	formInt8    = 0xd0
	formInt16   = 0xd1
	formInt32   = 0xd2
	formInt64   = 0xd3
	formStr8    = 0xd9
	formStr32   = 0xdb
	formArray16 = 0xdc
	formArray32 = 0xdd
	formNegInt  = 0xe0 // to 0xff: -32 to -1
)

// maxNumber and maxLength are the most bytes that a number, and the length of a string or list, take.
const (
	maxNumber = 9
	maxLength = 5
)

// room makes room for n bytes and returns all that there is of the buffer, and where its end is now. What the put functions
// write there counts once buf is cut after it.
func (w *writer) room(n int) (b []byte, i int) {
	i = len(w.buf)
	if cap(w.buf)-i < n {
		w.buf = slices.Grow(w.buf, n)
	}
	return w.buf[:cap(w.buf)], i
}

func (w *writer) u(v uint64) {
	b, i := w.room(maxNumber)
	w.buf = b[:putUint(b, i, v)]
}

func (w *writer) i(v int64) {
	b, i := w.room(maxNumber)
	w.buf = b[:putInt(b, i, v)]
}

func (w *writer) f(v float64) {
	b, i := w.room(maxNumber)
	w.buf = b[:putFloat(b, i, v)]
}

func (w *writer) s(v string) {
	b, i := w.room(maxLength + len(v))
	w.buf = b[:putString(b, i, v)]
}

func (w *writer) b(v []byte) {
	b, i := w.room(maxLength + len(v))
	w.buf = b[:putBytes(b, i, v)]
}

func (w *writer) list(n int) {
	b, i := w.room(maxLength)
	w.buf = b[:putList(b, i, n)]
}

// Each put function writes at b[i:], where there is room for its longest form, and returns where it ended.

func putUint(b []byte, i int, v uint64) int {
	if v < 0x80 {
		b[i] = byte(v)
		return i + 1
	}
	return putWide(b, i, v)
}

// putWide writes a number from 0x80 on without asking how long it is: keys with short and long counters take turns, so that no
// branch could be predicted.
func putWide(b []byte, i int, v uint64) int {
	form := mathbits.Len(uint(mathbits.Len64(v)-1) >> 3) // 0, 1, 2, 3 for 1, 2, 4, 8 bytes
	n := 1 << (form & 3)
	b[i] = formUint8 + byte(form)
	binary.BigEndian.PutUint64(b[i+1:i+9], v<<((64-8*n)&63))
	return i + 1 + n
}

func putInt(b []byte, i int, v int64) int {
	if v >= 0 {
		return putUint(b, i, uint64(v))
	}
	return putNegative(b, i, v)
}

func putNegative(b []byte, i int, v int64) int {
	switch {
	case v >= -32:
		b[i] = byte(v)
		return i + 1
	case v >= math.MinInt8:
		b[i], b[i+1] = formInt8, byte(v)
		return i + 2
	case v >= math.MinInt16:
		b[i] = formInt16
		binary.BigEndian.PutUint16(b[i+1:], uint16(v))
		return i + 3
	case v >= math.MinInt32:
		b[i] = formInt32
		binary.BigEndian.PutUint32(b[i+1:], uint32(v))
		return i + 5
	}
	b[i] = formInt64
	binary.BigEndian.PutUint64(b[i+1:], uint64(v))
	return i + 9
}

func putFloat(b []byte, i int, v float64) int {
	b[i] = formFloat64
	binary.BigEndian.PutUint64(b[i+1:i+9], math.Float64bits(v))
	return i + 9
}

func putString(b []byte, i int, s string) int {
	switch {
	case s == "": // nearly every plan
		b[i] = formStr
		return i + 1
	case len(s) < 32:
		b[i] = formStr | byte(len(s))
		i++
	default:
		i = putLength(b, i, formStr8, len(s))
	}
	return i + copy(b[i:], s)
}

func putBytes(b []byte, i int, v []byte) int {
	if v == nil {
		b[i] = formNil
		return i + 1
	}
	i = putLength(b, i, formBin8, len(v))
	return i + copy(b[i:], v)
}

func putList(b []byte, i, n int) int {
	if n < 16 {
		b[i] = formArray | byte(n)
		return i + 1
	}
	return putLength(b, i, formArray16-1, n) // there is none of 8 bits
}

// putLength writes a length under the first of three forms, which is for 8 bits, or under one of the two that follow it.
func putLength(b []byte, i int, form byte, n int) int {
	switch {
	case n < 256 && form != formArray16-1:
		b[i], b[i+1] = form, byte(n)
		return i + 2
	case n <= math.MaxUint16:
		b[i] = form + 1
		binary.BigEndian.PutUint16(b[i+1:], uint16(n))
		return i + 3
	}
	b[i] = form + 2
	binary.BigEndian.PutUint32(b[i+1:], uint32(n))
	return i + 5
}

// reader reads in from pos on, and keeps the first error, so that decoding reads as a list of fields. A number may have any of
// msgpack's forms, also one that a writer here does not use.
type reader struct {
	in    []byte
	pos   int
	views bool // strings and bytes are parts of in: good for as long as that is not written to
	err   error
}

func newReader(b []byte) *reader { return &reader{in: b} }

// errShape is of a field that is cut off, or another than the one that belongs there.
var errShape = errors.New("it ends early, or a field has another kind")

// fail notes an error. Nothing more is read.
func (r *reader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
	r.pos = len(r.in)
}

// left is how many bytes are still to be read.
func (r *reader) left() int { return len(r.in) - r.pos }

// to goes on where a get function ended.
func (r *reader) to(i int) {
	if r.pos = i; i < 0 {
		r.fail(errShape)
	}
}

func (r *reader) u() uint64 {
	v, i := getUint(r.in, r.pos)
	r.to(i)
	return v
}

func (r *reader) i() int64 { return int64(r.u()) }

func (r *reader) f() float64 {
	v, i := getFloat(r.in, r.pos)
	r.to(i)
	return v
}

func (r *reader) s() string {
	v, i := getString(r.in, r.pos)
	if r.to(i); !r.views {
		v = strings.Clone(v)
	}
	return v
}

// b is nil for no bytes too.
func (r *reader) b() []byte {
	v, i := getString(r.in, r.pos)
	switch r.to(i); {
	case v == "":
		return nil
	case r.views:
		return r.in[i-len(v) : i : i]
	}
	return []byte(v)
}

// list reads a length that can be true: every element has that many fields, of at least one byte each.
func (r *reader) list(fields int) int {
	n, i := getList(r.in, r.pos)
	if r.to(i); n > r.left()/fields {
		r.fail(fmt.Errorf("%d elements announced, %d bytes left", n, r.left()))
		return 0
	}
	return n
}

// Each get function reads what is at b[i:] and returns where it ended; -1 if it is not there, and then the others do nothing.

// getUint reads a number of any form, negative ones too: in two's complement.
func getUint(b []byte, i int) (uint64, int) {
	if uint(i) < uint(len(b)) && b[i] < 0x80 {
		return uint64(b[i]), i + 1
	}
	return getWide(b, i)
}

// getWide does not ask how long a number is, as putWide.
func getWide(b []byte, i int) (uint64, int) {
	if uint(i) < uint(len(b)) && len(b)-i >= 9 {
		if form := b[i] - formUint8; form < 4 {
			n := 1 << form
			return binary.BigEndian.Uint64(b[i+1:i+9]) >> ((64 - 8*n) & 63), i + 1 + n
		}
	}
	return getOdd(b, i)
}

// getOdd reads a number of any form, also at the very end.
func getOdd(b []byte, i int) (uint64, int) {
	if uint(i) >= uint(len(b)) {
		return 0, -1
	}
	c := b[i]
	i++
	switch {
	case c < 0x80 || c >= formNegInt:
		return uint64(int8(c)), i
	case c == formNil:
		return 0, i
	case c < formUint8 || c > formInt64:
		return 0, -1
	}
	n := 1 << (c & 3) // both rows begin at a multiple of 4
	v, i := getBig(b, i, n)
	if c >= formInt8 {
		shift := 64 - 8*n
		v = uint64(int64(v<<shift) >> shift)
	}
	return v, i
}

// getBig reads a big-endian number of n bytes.
func getBig(b []byte, i, n int) (v uint64, end int) {
	if n > len(b)-i {
		return 0, -1
	}
	for _, c := range b[i : i+n] {
		v = v<<8 | uint64(c)
	}
	return v, i + n
}

func getFloat(b []byte, i int) (float64, int) {
	if uint(i) < uint(len(b)) && b[i] == formFloat64 && len(b)-i >= 9 {
		return math.Float64frombits(binary.BigEndian.Uint64(b[i+1 : i+9])), i + 9
	}
	return getOddFloat(b, i)
}

func getOddFloat(b []byte, i int) (float64, int) {
	if uint(i) < uint(len(b)) && b[i] == formFloat32 {
		v, i := getBig(b, i+1, 4)
		return float64(math.Float32frombits(uint32(v))), i
	}
	v, i := getOdd(b, i)
	return float64(int64(v)), i
}

// getString reads bytes, whether they are called a string or not, as a view.
func getString(b []byte, i int) (string, int) {
	if uint(i) < uint(len(b)) && b[i]&0xe0 == formStr {
		return view(b, i+1, int(b[i]&0x1f))
	}
	return getLongString(b, i)
}

func getLongString(b []byte, i int) (string, int) {
	if uint(i) >= uint(len(b)) {
		return "", -1
	}
	c := b[i]
	switch i++; {
	case c == formNil:
		return "", i
	case c >= formBin8 && c <= formBin32:
		c -= formBin8
	case c >= formStr8 && c <= formStr32:
		c -= formStr8
	default:
		return "", -1
	}
	n, i := getBig(b, i, 1<<c)
	if i < 0 || n > uint64(len(b)-i) {
		return "", -1
	}
	return view(b, i, int(n))
}

// view is a part of b as a string, without copying it. It lives on as long as b is not written to.
func view(b []byte, i, n int) (string, int) {
	if n > len(b)-i {
		return "", -1
	}
	return unsafe.String(unsafe.SliceData(b[i:i+n]), n), i + n
}

func getList(b []byte, i int) (n, end int) {
	if uint(i) >= uint(len(b)) {
		return 0, -1
	}
	c := b[i]
	switch i++; {
	case c&0xf0 == formArray:
		return int(c & 0xf), i
	case c == formNil:
		return 0, i
	case c == formArray16 || c == formArray32:
		n, i := getBig(b, i, 2<<(c-formArray16))
		return int(min(n, math.MaxInt32)), i
	}
	return 0, -1
}

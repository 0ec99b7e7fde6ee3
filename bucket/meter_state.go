package bucket

import (
	"encoding/binary"
	"math"
)

// The state of a meter on the wire: version, kind, then part and out, then what the kind needs. Integers are
// varints, amounts are IEEE 754 in little endian.

const stateVersion = 1

// kinds of meters; the numbers are part of the format.
const (
	kindFixed   = 1
	kindSliding = 2
	kindLog     = 3
	kindBucket  = 4
	kindAverage = 5
	kindMulti   = 6

	kindConcurrency = 7
)

func (m *moment) header(b []byte, kind byte) []byte {
	begun := byte(0)
	if m.begun {
		begun = 1
	}
	return putFloats(append(b, stateVersion, kind, begun), m.part, m.out)
}

func putInt(b []byte, v int64) []byte { return binary.AppendVarint(b, v) }

func putFloats(b []byte, vs ...float64) []byte {
	for _, v := range vs {
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(v))
	}
	return b
}

// reader reads a state; after the first error it reads zeros, and end returns the error.
type reader struct {
	b   []byte
	err error
}

func newReader(b []byte, kind byte) *reader {
	r := &reader{b: b}
	switch {
	case len(b) < 2:
		r.fail("%d bytes are too short", len(b))
	case b[0] != stateVersion:
		r.fail("version %d is unknown, this is version %d", b[0], stateVersion)
	case b[1] != kind:
		r.fail("it is of kind %d and not %d: another algorithm", b[1], kind)
	default:
		r.b = b[2:]
	}
	return r
}

func (r *reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = stateError(format, args...)
	}
}

func (r *reader) byte() byte {
	if r.err == nil && len(r.b) == 0 {
		r.fail("it ends too early")
	}
	if r.err != nil {
		return 0
	}
	v := r.b[0]
	r.b = r.b[1:]
	return v
}

func (r *reader) int() int64 {
	if r.err != nil {
		return 0
	}
	v, n := binary.Varint(r.b)
	if n <= 0 {
		r.fail("a number is malformed")
		return 0
	}
	r.b = r.b[n:]
	return v
}

// age reads a duration before the last Advance, at most now.
func (r *reader) age(now int64) int64 {
	v := r.int()
	if v < 0 {
		r.fail("an age of %d ns is negative", v)
		return 0
	}
	return min(v, now)
}

func (r *reader) float() float64 {
	if r.err == nil && len(r.b) < 8 {
		r.fail("it ends too early")
	}
	if r.err != nil {
		return 0
	}
	v := math.Float64frombits(binary.LittleEndian.Uint64(r.b))
	r.b = r.b[8:]
	if math.IsNaN(v) || math.IsInf(v, 0) {
		r.fail("an amount is not a number")
		return 0
	}
	return v
}

// level reads an amount that may be negative.
func (r *reader) level() float64 {
	v := r.float()
	if math.Abs(v) > maxDebt {
		r.fail("an amount of %g tokens is out of range", v)
		return 0
	}
	return v
}

func (r *reader) amount() float64 {
	v := r.level()
	if v < 0 {
		r.fail("an amount of %g tokens is negative", v)
		return 0
	}
	return v
}

// bytes reads a length and so many bytes.
func (r *reader) bytes() []byte {
	if r.err != nil {
		return nil
	}
	size, n := binary.Uvarint(r.b)
	if n <= 0 || size > uint64(len(r.b)-n) {
		r.fail("it ends too early")
		return nil
	}
	v := r.b[n : n+int(size)]
	r.b = r.b[n+int(size):]
	return v
}

func (r *reader) header(now int64) moment {
	m := moment{now: max(now, 0)}
	switch r.byte() {
	case 0:
	case 1:
		m.begun = true
	default:
		r.fail("a flag is neither 0 nor 1")
	}
	m.part, m.out = r.amount(), r.amount()
	if m.part > 1 {
		r.fail("a part of %g is above 1", m.part)
	}
	return m
}

func (r *reader) end() error {
	if r.err == nil && len(r.b) > 0 {
		r.fail("%d bytes are left over", len(r.b))
	}
	return r.err
}

package cluster

import "encoding/binary"

// skipValue is what comes after the msgpack value at the beginning of b; false: it is cut off. It follows arrays and maps however deep they go
// without a stack, and keeps no more of them than how many values are to come.
func skipValue(b []byte) (rest []byte, ok bool) {
	for left := uint64(1); left > 0; left-- {
		if len(b) == 0 {
			return nil, false
		}
		size, more := valueSize(b)
		if size > uint64(len(b)) {
			return nil, false
		}
		if b = b[size:]; more > uint64(len(b)) { // each takes a byte at least
			return nil, false
		}
		left += more
	}
	return b, true
}

// valueSize is how many bytes the value at the beginning of b takes by itself, and how many values follow that are parts of it. What is cut
// off takes more than there is. b has at least one byte.
func valueSize(b []byte) (size, more uint64) {
	c := b[0]
	switch {
	case c < 0x80, c >= 0xe0, c == 0xc0, c == 0xc1, c == 0xc2, c == 0xc3: // small numbers, nil, what is never used, booleans
		return 1, 0
	case c < 0x90: // map
		return 1, 2 * uint64(c&0xf)
	case c < 0xa0: // array
		return 1, uint64(c & 0xf)
	case c < 0xc0: // string
		return 1 + uint64(c&0x1f), 0
	case c <= 0xc6: // bin of 8, 16, 32 bits
		return lengthAt(b, 1<<(c-0xc4), 0), 0
	case c <= 0xc9: // ext, with a byte for its type
		return lengthAt(b, 1<<(c-0xc7), 1), 0
	case c <= 0xcb: // float32, float64
		return 1 + 4<<(c-0xca), 0
	case c <= 0xcf: // uint8 to uint64
		return 1 + 1<<(c-0xcc), 0
	case c <= 0xd3: // int8 to int64
		return 1 + 1<<(c-0xd0), 0
	case c <= 0xd8: // ext of 1, 2, 4, 8, 16 bytes
		return 2 + 1<<(c-0xd4), 0
	case c <= 0xdb: // string
		return lengthAt(b, 1<<(c-0xd9), 0), 0
	case c <= 0xdd: // array
		n := uint64(2) << (c - 0xdc)
		return 1 + n, number(b, int(n))
	}
	n := uint64(2) << (c - 0xde) // map
	return 1 + n, 2 * number(b, int(n))
}

// lengthAt is the size of a value whose length has n bytes, and that has extra bytes besides.
func lengthAt(b []byte, n int, extra uint64) uint64 { return 1 + uint64(n) + extra + number(b, n) }

// number is the big-endian one of n bytes after the first; 0 if it is cut off.
func number(b []byte, n int) uint64 {
	if len(b) < 1+n {
		return 0
	}
	switch n {
	case 1:
		return uint64(b[1])
	case 2:
		return uint64(binary.BigEndian.Uint16(b[1:]))
	}
	return uint64(binary.BigEndian.Uint32(b[1:]))
}

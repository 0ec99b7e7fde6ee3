package jatah

import (
	"encoding/binary"
	"strings"
)

// MaxKey is the longest key in bytes.
const MaxKey = 1024

// Key joins parts to one key so that no two different lists of parts give the same. One part is itself, so that
// Key("user:42") is "user:42"; only a part that starts with a zero byte, as joined keys do, is wrapped too.
func Key(parts ...string) string {
	if len(parts) == 1 && !strings.HasPrefix(parts[0], "\x00") {
		return parts[0]
	}
	n := 1
	for _, p := range parts {
		n += binary.MaxVarintLen16 + len(p)
	}
	return string(AppendKey(make([]byte, 0, n), parts...))
}

// AppendKey appends what Key makes of the parts to b, for TakeBytes: with a buffer that is used again, as b[:0], it allocates nothing.
// The key is what is appended: where b is not empty, only that is for TakeBytes.
func AppendKey(b []byte, parts ...string) []byte {
	if len(parts) == 1 && !strings.HasPrefix(parts[0], "\x00") {
		return append(b, parts[0]...)
	}
	b = append(b, 0)
	for _, p := range parts {
		b = binary.AppendUvarint(b, uint64(len(p)))
		b = append(b, p...)
	}
	return b
}

// SplitKey is the parts that Key joined. A key that Key did not make is one part.
func SplitKey(key string) []string {
	rest, joined := strings.CutPrefix(key, "\x00")
	if !joined {
		return []string{key}
	}
	var parts []string
	for rest != "" {
		var size [binary.MaxVarintLen16]byte
		n, used := binary.Uvarint(size[:copy(size[:], rest)])
		if used <= 0 || n > uint64(len(rest)-used) {
			return []string{key}
		}
		parts = append(parts, rest[used:used+int(n)])
		rest = rest[used+int(n):]
	}
	if Key(parts...) != key {
		return []string{key}
	}
	return parts
}

func checkKey(key string) error {
	switch {
	case key == "":
		return ErrKeyEmpty
	case len(key) > MaxKey:
		return ErrKeyTooLong
	}
	return nil
}

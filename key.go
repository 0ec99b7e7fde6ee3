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
	b := append(make([]byte, 0, n), 0)
	for _, p := range parts {
		b = binary.AppendUvarint(b, uint64(len(p)))
		b = append(b, p...)
	}
	return string(b)
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

package jatah

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/vmihailenco/msgpack/v5"
)

// publishedFormat is the version of what a published limit is sent and kept as: the msgpack array [version, limit], the limit as a map of its fields by
// name without those that are zero. A field that this version does not know may be what the limit depends on, so such a limit is not
// used; one that leaves it zero is the same to both versions.
const publishedFormat = 1

// errUnreadable is told in the log only.
var errUnreadable = errors.New("jatah: a published limit that this version cannot read; it is passed on as it is. Use the version that published it, or publish it anew")

func encodeLimit(l Limit) ([]byte, error) {
	var b bytes.Buffer
	e := msgpack.NewEncoder(&b)
	e.SetOmitEmpty(true)
	e.UseCompactInts(true)
	err := errors.Join(e.EncodeArrayLen(2), e.EncodeInt(publishedFormat), e.Encode(&l))
	if err != nil {
		return nil, fmt.Errorf("%w %q: %w", ErrLimit, l.Name, err)
	}
	return b.Bytes(), nil
}

func decodeLimit(value []byte) (l Limit, err error) {
	bad := func(format string, args ...any) (Limit, error) {
		return Limit{}, fmt.Errorf("%w: "+format, append([]any{errUnreadable}, args...)...)
	}
	// Once over it all, since the decoder makes room for as many elements as a value claims to have.
	r := bytes.NewReader(value)
	if err := msgpack.NewDecoder(r).Skip(); err != nil || r.Len() > 0 {
		return bad("it is malformed")
	}
	d := msgpack.NewDecoder(bytes.NewReader(value))
	d.DisallowUnknownFields(true)
	if n, err := d.DecodeArrayLen(); err != nil || n != 2 {
		return bad("it is malformed")
	}
	if format, err := d.DecodeInt(); err != nil || format != publishedFormat {
		return bad("its format is %d, this version reads %d", format, publishedFormat)
	}
	if err := d.Decode(&l); err != nil {
		return bad("%w", err)
	}
	return l, nil
}

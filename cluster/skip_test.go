package cluster

import (
	"bytes"
	"testing"

	"github.com/vmihailenco/msgpack/v5"
)

var skipSeeds = []any{
	nil, true, 1, -1, -100, 1 << 30, uint64(1) << 63, 1.5, float32(2.5), "", "short", string(bytes.Repeat([]byte("s"), 40)),
	string(bytes.Repeat([]byte("s"), 300)), bytes.Repeat([]byte("b"), 70000), []byte{}, []any{}, []any{1, "x", []any{nil, 2}},
	map[string]any{"a": 1, "b": []any{map[string]any{"c": nil}}}, make([]int, 20), make([]int, 70000),
}

func TestSkipping(t *testing.T) {
	for _, v := range skipSeeds {
		b, err := msgpack.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		if rest, ok := skipValue(append(bytes.Clone(b), "rest"...)); !ok || string(rest) != "rest" {
			t.Errorf("%T %.20v: %q is left, %v", v, v, rest, ok)
		}
		for n := range min(len(b), 400) {
			if _, ok := skipValue(b[:n]); ok {
				t.Errorf("%T %.20v: the first %d of %d bytes pass", v, v, n, len(b))
			}
		}
	}
	if _, ok := skipValue(bytes.Repeat([]byte{arrayOf1}, 1<<20)); ok {
		t.Error("arrays within arrays without an end pass")
	}
}

// The library skips the same, where it does: it refuses codes that are never used.
func FuzzSkip(f *testing.F) {
	for _, v := range skipSeeds {
		if b, err := msgpack.Marshal(v); err == nil && len(b) < 1000 {
			f.Add(b)
		}
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		rest, ok := skipValue(in)
		if ok && !bytes.HasSuffix(in, rest) {
			t.Fatalf("%x: %x is left", in, rest)
		}
		if len(in) > 4096 { // the library takes a stack as deep as they go
			return
		}
		r := bytes.NewReader(in)
		if err := msgpack.NewDecoder(r).Skip(); err == nil && (!ok || r.Len() != len(rest)) {
			t.Errorf("%x: %d bytes left, %v; the library has %d left", in, len(rest), ok, r.Len())
		}
	})
}

package hybrid

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
)

// encode is a message in bytes of its own; what w holds is lost.
func encode(w *writer, m *message) []byte {
	w.buf = w.buf[:0]
	w.message(m)
	return bytes.Clone(w.buf)
}

// decode reads a message with a decoder of its own. It is good while b is not written to.
func decode(b []byte) (*message, error) { return new(decoder).decode(b) }

// TestBytesOnTheWire holds the very bytes: nodes of two versions speak with each other while a cluster is updated.
func TestBytesOnTheWire(t *testing.T) {
	m := &message{
		stamp: stamp{math.MaxUint64, 3, 1 << 40}, echo: stamp{1, 200, -5}, probe: true, owns: bits{0xf0, 1}, k: 3,
		loan: &loan{k: 3, counted: 77, parts: bits{1}, formers: []former{{1 << 20, 2, 5e8, bits{2}}}},
		reports: []report{
			{limit: "api", key: "user:1234567", gen: 4000, g: 1500, c: 1490, u: 3, denied: 127, want: 128, least: 65536},
			{limit: "api", plan: "gold", key: strings.Repeat("k", 32), gen: 1, was: generation{9, 255, 256, 0, 1}},
		},
		re: -1 << 33,
		grants: []grant{
			{gen: 4000, g: 1500, c: 1490, u: 3, bal: 12.25, rate: 1.5, out: -33, flags: grantHold},
			{gen: 1, bal: math.Inf(1), flags: grantWaits | grantPlan, waits: waits{1, 2e9, 3, 4, 5, 6}, plan: 1 << 63},
		},
		seq: 9, standby: []copyOf{{part: 200, limit: "api", key: "u", full: true, bal: -1, cap: 20, state: []byte{1, 2},
			entries: []handedEntry{{"n1", 7, generation{1, 2, 3, 4, 5}}}}},
		whole: bits{}, acks: []uint64{1, 70000}, handed: []uint64{5},
	}
	const want = "01cd01ffcfffffffffffffffff03cf000001000000000001ccc8fbc402f00103034dc4010191ce0010000002ce1dcd6500c4010292a3617069a0ac75" +
		"7365723a31323334353637cd0fa0cd05dccd05d200037fcc80ce0001000000a3617069a4676f6c64d9206b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b6b" +
		"6b6b6b6b6b6b6b6b6b6b6b6b6b6b010000000000000009ccffcd01000001d3fffffffe0000000092cd0fa0cd05dccd05d20003cb4028800000000000" +
		"cb3ff8000000000000d0df040100000000cb433fffffffffffffcb000000000000000000cd018001ce7735940003040506cf80000000000000000991" +
		"ccc8a3617069a0a17502cbbff0000000000000cb0000000000000000cb4034000000000000cb0000000000000000c402010291a26e31070102030405" +
		"c4009201ce000111709105"
	if got := hex.EncodeToString(encode(newWriter(), m)); got != want {
		t.Errorf("got\n%s, want\n%s", got, want)
	}
	if got := hex.EncodeToString(encodeTwin(newTwinWriter(), m)); got != want {
		t.Errorf("the twin writes\n%s, want\n%s", got, want)
	}
}

// large adds what random messages have none of: strings and lists of every form of a length, and numbers at the ends of every form.
func (r random) large(m *message) {
	edges := []int64{0, 1, -1, -32, -33, 127, 128, -128, -129, 255, 256, 32767, 32768, -32768, -32769, 65535, 65536, math.MaxInt32, math.MaxInt32 + 1,
		math.MinInt32, math.MinInt32 - 1, math.MaxUint32, math.MaxUint32 + 1, math.MaxInt64, math.MinInt64}
	edge := func() int64 { return edges[r.IntN(len(edges))] }
	size := func() int { return []int{0, 1, 31, 32, 255, 256, 65535, 65536}[r.IntN(8)] }
	m.stamp.at, m.echo.epoch = edge(), uint64(edge())
	m.reports, m.grants = nil, nil
	for range []int{0, 1, 15, 16, 17}[r.IntN(5)] {
		m.reports = append(m.reports, report{limit: r.s(3), key: strings.Repeat("x", size()/16), g: max(0, edge()), c: max(0, edge()), want: max(0, edge())})
		m.grants = append(m.grants, grant{gen: uint64(edge()), u: max(0, edge()), out: edge(), bal: r.f()})
	}
	m.seq, m.standby = 1, []copyOf{{limit: strings.Repeat("l", size()), state: make([]byte, size()), entries: []handedEntry{{lender: r.s(40), inc: uint64(edge())}}}}
	if size() > 60000 {
		m.acks = make([]uint64, size())
	}
}

// TestWriterAndTwinAgree: by hand or by the library, the bytes are the same.
func TestWriterAndTwinAgree(t *testing.T) {
	seed := *firstSeed
	r := random{rand.New(rand.NewPCG(seed, 6))}
	w, twin := newWriter(), newTwinWriter()
	for i := range 2000 {
		m := r.message()
		if i%4 == 0 {
			r.large(m)
		}
		if got, want := encode(w, m), encodeTwin(twin, m); !bytes.Equal(got, want) {
			t.Fatalf("seed %d, message %d:\n%x, the twin writes\n%x\n%+v", seed, i, got, want, m)
		}
	}
}

// agree says that both readers find the same in b, or both nothing.
func agree(t *testing.T, d *decoder, b []byte) {
	t.Helper()
	want, no := decodeTwin(b)
	got, err := d.decode(b)
	defer d.release()
	switch {
	case (err == nil) != (no == nil):
		t.Fatalf("%x: %v, the twin says %v", b, err, no)
	case err != nil && !errors.Is(err, errMessage):
		t.Fatalf("%x: error of another kind: %v", b, err)
	case err == nil && !same(got, want):
		t.Fatalf("%x: read as\n%+v, the twin reads\n%+v", b, got, want)
	}
}

// same compares messages as written, since a balance that is not a number equals nothing.
func same(a, b *message) bool {
	return reflect.DeepEqual(plain(a), plain(b)) && bytes.Equal(encode(newWriter(), a), encode(newWriter(), b))
}

// TestReaderAndTwinAgree: whatever a packet holds, read into memory that is full of the packets before it.
func TestReaderAndTwinAgree(t *testing.T) {
	seed := *firstSeed
	r := random{rand.New(rand.NewPCG(seed, 7))}
	twin, d := newTwinWriter(), &decoder{}
	for i := range 2000 {
		m := r.message()
		if i%4 == 0 {
			r.large(m)
		}
		b := encodeTwin(twin, m)
		agree(t, d, b)
		for range 5 { // bytes that were never written so
			c := bytes.Clone(b)
			for range 1 + r.IntN(3) {
				c[r.IntN(len(c))] = byte(r.Uint32())
			}
			agree(t, d, c[:len(c)-r.IntN(2)*r.IntN(len(c))])
		}
	}
}

// TestEveryFormOfANumber: a number is read whatever form others write it in, and refused where it is cut off.
func TestEveryFormOfANumber(t *testing.T) {
	for c := range 256 {
		for n := range 10 {
			b := append([]byte{byte(c)}, bytes.Repeat([]byte{0x9c}, n)...)
			for name, f := range map[string]func(*reader, *twinReader) (a, b any){
				"uint":  func(r *reader, w *twinReader) (a, b any) { return r.u(), w.u() },
				"int":   func(r *reader, w *twinReader) (a, b any) { return r.i(), w.i() },
				"float": func(r *reader, w *twinReader) (a, b any) { return math.Float64bits(r.f()), math.Float64bits(w.f()) },
				"bytes": func(r *reader, w *twinReader) (a, b any) { return fmt.Sprint(r.b()), fmt.Sprint(w.b()) },
				"text":  func(r *reader, w *twinReader) (a, b any) { return r.s(), w.s() },
				"list":  func(r *reader, w *twinReader) (a, b any) { return r.list(1), w.list(1) },
			} {
				r, twin := newReader(b), newTwinReader(b)
				got, want := f(r, twin)
				if (r.err == nil) != (twin.err == nil) || r.err == nil && (got != want || r.left() != twin.src.Len()) {
					t.Errorf("%s of %x: %v, %v, %d left; the twin reads %v, %v, %d left", name, b, got, r.err, r.left(), want, twin.err, twin.src.Len())
				}
			}
		}
	}
}

func FuzzReaderAndTwinAgree(f *testing.F) {
	r := random{rand.New(rand.NewPCG(1, 8))}
	twin := newTwinWriter()
	for range 30 {
		f.Add(encodeTwin(twin, r.message()))
	}
	d := &decoder{}
	f.Fuzz(func(t *testing.T, b []byte) {
		agree(t, d, b)
		if m, err := decodeTwin(b); err == nil && !bytes.Equal(encode(newWriter(), m), encodeTwin(newTwinWriter(), m)) {
			t.Fatalf("%+v is not written as the twin does", m)
		}
	})
}

// deaf is a network that looks at what is sent and loses it.
type deaf struct{ bytes int }

func (n *deaf) Send(_ string, msg []byte) error     { n.bytes += len(msg); return nil }
func (n *deaf) Transfer(_ string, msg []byte) error { n.bytes += len(msg); return nil }

// TestWireAllocatesNothing: once the buffers have grown, neither what is written nor what is read costs an allocation.
func TestWireAllocatesNothing(t *testing.T) {
	if raceDetector {
		t.Skip("under the race detector a sync.Pool loses some of what is put into it")
	}
	n := &deaf{}
	e := New(Config{Node: "n1", Network: n})
	to := e.peer("n2")
	for name, m := range packets() {
		if allocs := testing.AllocsPerRun(200, func() {
			e.mu.Lock()
			for range 5 {
				e.send(to, m, 1, false)
			}
			e.unlock()
		}); allocs > 0 {
			t.Errorf("%s: %v allocations for sending 5 packets", name, allocs)
		}
		msg := encode(newWriter(), m)
		d := &decoder{}
		if allocs := testing.AllocsPerRun(200, func() {
			if _, err := d.decode(msg); err != nil {
				t.Error(err)
			}
			d.release()
		}); allocs > 0 {
			t.Errorf("%s: %v allocations for reading a packet", name, allocs)
		}
	}
	if n.bytes == 0 {
		t.Error("nothing was sent")
	}
}

// TestOutboxIsSentAsQueued: messages of one visit to the lock share a buffer, which moves while it grows.
func TestOutboxIsSentAsQueued(t *testing.T) {
	r := random{rand.New(rand.NewPCG(*firstSeed, 9))}
	var got [][]byte
	e := New(Config{Node: "n1", Network: &taker{take: func(msg []byte) { got = append(got, bytes.Clone(msg)) }}})
	e.spawn = func(f func()) { f() }
	to := e.peer("n2")
	for range 20 {
		var want [][]byte
		e.mu.Lock()
		for range 1 + r.IntN(30) {
			m := r.message()
			e.send(to, m, r.n(), r.IntN(4) == 0)
			want = append(want, encode(newWriter(), m))
		}
		got = nil
		e.unlock()
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("seed %d: %d messages were queued, and %d sent, or others", *firstSeed, len(want), len(got))
		}
	}
}

// TestBulkOutlivesTheOutbox: a transfer runs when the buffer of its visit to the lock is in use again.
func TestBulkOutlivesTheOutbox(t *testing.T) {
	var got []byte
	e := New(Config{Node: "n1", Network: &taker{take: func(msg []byte) { got = msg }}})
	var later []func()
	e.spawn = func(f func()) { later = append(later, f) }
	to := e.peer("n2")
	first := &message{acks: []uint64{1, 2, 3}}
	e.mu.Lock()
	e.send(to, first, 1, true)
	e.unlock()
	e.mu.Lock()
	e.send(to, &message{acks: []uint64{7, 8, 9}}, 1, false)
	e.unlock()
	later[0]()
	if want := encode(newWriter(), first); !bytes.Equal(got, want) {
		t.Errorf("%x was sent, want %x", got, want)
	}
}

// taker is a network that hands on what is sent.
type taker struct{ take func(msg []byte) }

func (n *taker) Send(_ string, msg []byte) error     { n.take(msg); return nil }
func (n *taker) Transfer(_ string, msg []byte) error { n.take(msg); return nil }

// TestADenialOutlivesItsPacket: it is looked at without the lock while the next packet is read into the same memory.
func TestADenialOutlivesItsPacket(t *testing.T) {
	packet := func(next int64) []byte {
		return encode(newWriter(), &message{grants: []grant{{rate: 1, flags: grantRefused | grantWaits, waits: waits{cost: 3, next: next}}}})
	}
	e := New(Config{Node: "n1", Network: &deaf{}})
	a := &account{limit: &Limit{}}
	var d decoder
	for _, next := range []int64{700, 900} {
		m, err := d.decode(packet(next))
		if err != nil {
			t.Fatal(err)
		}
		if next == 700 {
			e.refuse(a, &m.grants[0], 1)
		}
		d.release()
	}
	if w := a.refusal.Load().waits; w == nil || *w != (waits{cost: 3, next: 700}) {
		t.Errorf("the denial that stands waits for %+v", w)
	}
}

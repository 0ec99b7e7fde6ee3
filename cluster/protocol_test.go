package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vmihailenco/msgpack/v5"
)

func TestWhichProtocolTwoSpeak(t *testing.T) {
	of := func(oldest, newest uint8) *meta {
		m := &meta{Protocol: oldest}
		if newest > oldest {
			m.extra.Protocol = newest
		}
		return m
	}
	for _, c := range []struct{ a, b, c, d, want uint8 }{
		{2, 2, 2, 2, 2}, {2, 3, 2, 2, 2}, {2, 3, 2, 3, 3}, {3, 4, 2, 3, 3}, {3, 4, 2, 2, 0}, {4, 5, 2, 3, 0}, {3, 3, 2, 3, 3}, {1, 1, 2, 3, 0},
	} {
		for _, got := range []uint8{of(c.a, c.b).speaks(of(c.c, c.d)), of(c.c, c.d).speaks(of(c.a, c.b))} {
			if got != c.want {
				t.Errorf("%d to %d and %d to %d: %d, want %d", c.a, c.b, c.c, c.d, got, c.want)
			}
		}
	}
}

// Metadata are those that nodes of the previous protocol know: theirs to the byte where only that is spoken, and with what they read of it in its
// place where more is. A newer version's fields are left out.
func TestMetadataForThePreviousProtocol(t *testing.T) {
	config := func(protocol uint8) Config {
		c, err := Config{Name: "n1", HTTP: "h:1", Version: "v", Protocol: protocol, Secrets: [][]byte{secret('a', 16)}, SecretSeed: true, Register: NewRegister(nil)}.withDefaults()
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	m := newMeta(config(PreviousProtocol), 7<<renewBits, time.Unix(1, 0))
	b, err := m.encode()
	if err != nil {
		t.Fatal(err)
	}
	array, err := marshal(&m)
	if err != nil || !bytes.Equal(b, append(bytes.Clone(array), arrayOf1, registerFormat)) {
		t.Errorf("%x, %v", b, err)
	}
	m = newMeta(config(0), 7<<renewBits, time.Unix(1, 0))
	m.extra.Born = 1 << 40
	if b, err = m.encode(); err != nil {
		t.Fatal(err)
	}
	if array, err = marshal(&m); err != nil || !bytes.HasPrefix(b, array) || b[len(array)]&^0xf != arrayOf0 || b[len(array)+1] != registerFormat || m.Protocol != PreviousProtocol {
		t.Errorf("%x, %v", b, err)
	}
	for more := range 5 {
		future := bytes.Clone(b)
		future[len(array)] += byte(more)
		for range more {
			future = append(future, 0x92, 1, 0xa1, 'x')
		}
		if _, got, err := decodeMeta(wireName("n1", 7), future); err != nil || got != m {
			t.Errorf("%d more fields: %+v, %v", more, got, err)
		}
	}
	for cut := len(array) + 2; cut < len(b); cut++ {
		if _, got, err := decodeMeta(wireName("n1", 7), b[:cut]); err != nil || got.extra != (metaExtra{Register: registerFormat}) {
			t.Errorf("cut to %d: %+v, %v", cut, got.extra, err)
		}
	}
}

// future encodes v as a newer version would whose structs have more fields, of any kind, at their ends: in arrays of n elements for which more
// says so.
func future(t testing.TB, b []byte, fields ...int) []byte {
	t.Helper()
	v, err := msgpack.NewDecoder(bytes.NewReader(b)).DecodeInterface()
	if err != nil {
		t.Fatal(err)
	}
	var grow func(v any) any
	grow = func(v any) any {
		list, ok := v.([]any)
		if !ok {
			return v
		}
		for i := range list {
			list[i] = grow(list[i])
		}
		for _, n := range fields {
			if len(list) == n {
				return append(list, "more", map[string]any{"x": []any{1, nil}}, -7)
			}
		}
		return list
	}
	out, err := msgpack.Marshal(grow(v))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestFieldsOfNewerVersionsAreLeftOut(t *testing.T) {
	encode := func(v any) []byte {
		b, err := marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	ws := []wireRecord{{Name: "a", Version: 1, Origin: 2, Value: []byte("v")}, {Name: "b", Version: 3, Origin: 4, Gone: true, Age: time.Hour}}
	for name, c := range map[string]struct {
		b      []byte
		fields []int
		read   func([]byte) (any, error)
	}{
		"control": {encode(&control{Op: opForget, Name: "n", Addr: "a", Proc: 9, Data: []byte("d")}), []int{5}, func(b []byte) (any, error) { return readControl(b) }},
		"shared": {encode(&sharedState{Lost: []sharedLost{{"n", "a:1", 1, 2, 3, true}}, Forgotten: []sharedName{{"m", 7, "b:1"}, {"o", 8, "c:1"}, {"p", 8, "c:1"}, {"q", 8, "c:1"}}}),
			[]int{2, 3, 6}, func(b []byte) (any, error) { return readShared(b) }},
		"records":    {encode(&ws), []int{6}, func(b []byte) (any, error) { return readRecords(b) }},
		"stamps":     {encode(&[]stamp{{"a", 1, 2}, {"b", 1, 2}}), []int{3}, func(b []byte) (any, error) { return readStamps(b) }},
		"difference": {encode(&difference{Records: ws, Wants: []string{"c", "d"}, More: true}), []int{3, 6}, func(b []byte) (any, error) { return readDifference(b) }},
		"kept":       {encode(&keptRegister{Clock: 1, Written: 2, Records: ws}), []int{3, 6}, func(b []byte) (any, error) { return readKept(b) }},
	} {
		want, err := c.read(c.b)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		b := future(t, c.b, c.fields...)
		if got, err := c.read(b); err != nil || fmt.Sprint(got) != fmt.Sprint(want) || len(b) <= len(c.b) {
			t.Errorf("%s: %v, %v; want %v", name, got, err, want)
		}
		for i := range b {
			if _, err := c.read(b[:i]); err == nil {
				t.Errorf("%s: cut to %d of %d bytes it passes", name, i, len(b))
			}
		}
	}
}

// A packet with fields and kinds of a newer version is taken in without them, and what is not known is counted.
func TestPacketsOfNewerVersions(t *testing.T) {
	more := []byte{0xa1, 'x', 0x81, 1, 0x92, 2, 3}
	build := func(k kind, id uint64, body string, more []byte) []byte {
		b := appendFrame(nil, k, id, []byte(body))
		if more != nil {
			b[0] += 2
		}
		return append(b, more...)
	}
	packet := func(h header) []byte {
		b := appendPacket(nil, &h, 3, bytes.Join([][]byte{build(kindMsg, 1, "one", more), build(kindEnd+3, 2, "new", nil), build(kindMsg, 3, "two", nil)}, nil))
		b[0] += 2
		return append(b, more...)
	}
	whole := packet(header{from: "n1", sender: 1, receiver: 2})
	p, err := parsePacket(whole)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []frame{{kindMsg, 1, []byte("one")}, {kindEnd + 3, 2, []byte("new")}, {kindMsg, 3, []byte("two")}} {
		if f := p.next(); f.kind != want.kind || f.id != want.id || !bytes.Equal(f.body, want.body) {
			t.Errorf("frame %d: %+v", i, f)
		}
	}
	for i := range whole {
		if _, err := parsePacket(whole[:i]); err == nil {
			t.Errorf("cut to %d it passes", i)
		}
	}
	inBubble(t, func(t *testing.T, w *world) {
		n1, n2, _ := w.three()
		b := packet(header{from: "n1", sender: n1.Incarnation(), receiver: n2.Incarnation()})
		n2.datagram(n1.sealing.sealed(b))
		if s := n2.Stats(); s.DropNewer != 1 || s.DropMalformed != 0 || strings.Join(n2.packets, ", ") != "n1 one, n1 two" {
			t.Errorf("%+v, %q", s, n2.packets)
		}
	})
}

// Nodes of both protocols beside each other, with and without a secret: all see all, and know what each speaks.
func TestBothProtocolsBesideEachOther(t *testing.T) {
	for _, secrets := range [][][]byte{nil, {secret('a', 16)}} {
		inBubble(t, func(t *testing.T, w *world) {
			cfg := func(i int, protocol uint8) Config {
				c := w.seeded(fmt.Sprint("n", i), secrets...)
				c.Protocol, c.Register = protocol, NewRegister(nil)
				return c
			}
			ns := []*node{w.start(1, cfg(1, 2)), w.start(2, cfg(2, 2))}
			ns = append(ns, w.start(3, cfg(3, 0)), w.start(4, cfg(4, 0)))
			w.within(time.Minute, "four members", func() bool { return alive("n1 n2 n3 n4", ns...) })
			for i, n := range ns {
				if n.meta.Seed != 0 {
					t.Errorf("%s: seed %x", n.cfg.Name, n.meta.Seed)
				}
				for j, m := range n.View().Members {
					want := uint8(2)
					if i >= 2 && j >= 2 {
						want = 3
					}
					if m.Protocol != want || len(m.Secrets()) != len(secrets)*(j/2) && i >= 2 {
						t.Errorf("%s of %s: protocol %d, secrets %q", n.cfg.Name, m.Name, m.Protocol, m.Secrets())
					}
				}
				for _, to := range ns {
					if to == n {
						continue
					}
					if got, err := n.Call(t.Context(), to.cfg.Name, []byte("x")); err != nil || string(got) != "re x" {
						t.Errorf("%s to %s: %q %v", n.cfg.Name, to.cfg.Name, got, err)
					}
				}
			}
			put(t, ns[3].cfg.Register, "a", "1")
			if err := ns[3].Announce(t.Context(), "a"); err != nil || content(ns[0].cfg.Register) != content(ns[3].cfg.Register) {
				t.Errorf("the register of n1: %s, %v", content(ns[0].cfg.Register), err)
			}
		})
	}
}

func TestNoProtocolInCommonIsSaid(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		var log lockedBuffer
		cfg := w.config("n1")
		cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
		n1 := w.start(1, cfg)
		far := n1.meta
		far.Protocol, far.extra.Protocol = 4, 5
		err := n1.meta.differs(&far)
		const want = "protocol is 2 to 3 here and 4 to 5 there, which have none in common: upgrade the older one, one release after the other"
		if !errors.Is(err, ErrMismatch) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v", err)
		}
		// One that speaks later protocols only comes: it is kept out, and both are told why.
		cfg = w.config("n2")
		cfg.oldest, cfg.Protocol = 4, 5
		if _, err := w.try(2, cfg); !errors.Is(err, ErrMismatch) || !strings.Contains(err.Error(), "protocol is 4 to 5 here and 2 to 3 there") {
			t.Errorf("start: %v", err)
		}
		time.Sleep(time.Second)
		if !alive("n1", n1) || !strings.Contains(log.String(), want) {
			t.Errorf("%s; the log: %s", names(n1.View()), log.String())
		}
	})
}

// lockedBuffer is a log that is read while it is written.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func TestProtocolsThatThereAreNotAreRefused(t *testing.T) {
	for _, p := range []uint8{1, Protocol + 1} {
		if _, err := (Config{Name: "n", Protocol: p}).withDefaults(); !errors.Is(err, ErrConfig) {
			t.Errorf("%d: %v", p, err)
		}
	}
}

func FuzzMetaExtra(f *testing.F) {
	for _, x := range []metaExtra{{}, {Register: 1}, {Register: 1, Protocol: 3, Born: 1 << 40, Seeking: true, Secrets: "abcdefgh"}, {Protocol: 3, Born: 1, Lonely: true}} {
		b, err := x.append(nil)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
		f.Add(append(b, 0x92, 1, 2))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		x := decodeExtra(in)
		b, err := x.append(nil)
		if err != nil {
			t.Fatal(err)
		}
		if again := decodeExtra(b); again != x && x.Protocol != 0 {
			t.Errorf("%+v came back as %+v", x, again)
		}
		if n := len(splitFingerprints(x.Secrets)); n > MaxSecrets {
			t.Errorf("%d secrets", n)
		}
	})
}

package cluster

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/vmihailenco/msgpack/v5"
)

func TestPacketIsMsgpack(t *testing.T) {
	body := appendFrame(nil, kindMsg, 0, []byte("one"))
	body = appendFrame(body, kindCall, 7, nil)
	h := header{from: "n1", sender: 5, receiver: 1 << 63}
	b := appendPacket(nil, &h, 2, body)
	if len(b) != h.size()+2*frameOverhead+3 {
		t.Errorf("%d bytes, size and overhead say %d", len(b), h.size()+2*frameOverhead+3)
	}
	var got struct {
		Version          uint8
		From             string
		Sender, Receiver uint64
		Frames           []struct {
			Kind uint8
			ID   uint64
			Body []byte
		}
	}
	if err := msgpack.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	if got.Version != 1 || got.From != "n1" || got.Sender != 5 || got.Receiver != 1<<63 || len(got.Frames) != 2 ||
		string(got.Frames[0].Body) != "one" || got.Frames[1].Kind != uint8(kindCall) || got.Frames[1].ID != 7 {
		t.Errorf("a msgpack library reads %+v", got)
	}
}

// What was read and written again is the same; what was cut or changed is refused or still whole.
func FuzzPacket(f *testing.F) {
	h := header{from: "n1", sender: 1 << 40, receiver: 2 << 40}
	f.Add(appendPacket(nil, &h, 1, appendFrame(nil, kindCall, 9, []byte("body"))))
	f.Add(appendPacket(nil, &h, 0, nil))
	f.Add([]byte{arrayOf5, packetVersion, str8Tag, 255})
	f.Fuzz(func(t *testing.T, in []byte) {
		p, err := parsePacket(in)
		if err != nil {
			return
		}
		h := header{from: string(p.from), sender: p.sender, receiver: p.receiver}
		var frames []byte
		n := p.frames
		for range n {
			f := p.next()
			frames = appendFrame(frames, f.kind, f.id, f.body)
		}
		if out := appendPacket(nil, &h, n, frames); !bytes.Equal(in, out) {
			t.Errorf("%x became %x", in, out)
		}
	})
}

func TestCutPacketsAreRefused(t *testing.T) {
	h := header{from: "n1", sender: 1, receiver: 2}
	whole := appendPacket(nil, &h, 1, appendFrame(nil, kindMsg, 9, []byte("body")))
	for n := range whole {
		if _, err := parsePacket(whole[:n]); err == nil {
			t.Errorf("the first %d of %d bytes pass", n, len(whole))
		}
	}
	if _, err := parsePacket(append(bytes.Clone(whole), 0)); err == nil {
		t.Error("a byte too many passes")
	}
}

func TestReceivingDoesNotAllocate(t *testing.T) {
	h := header{from: "n1", sender: 1, receiver: 2}
	b := appendPacket(nil, &h, 1, appendFrame(nil, kindMsg, 9, []byte("body")))
	if n := testing.AllocsPerRun(100, func() {
		p, err := parsePacket(b)
		if err != nil || p.next().kind != kindMsg {
			t.Fatal("not read")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func FuzzMeta(f *testing.F) {
	m := meta{Format: metaVersion, Incarnation: 7 << renewBits, HTTP: "a:1", Version: "v", Partitions: 271}
	b, err := m.encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(wireName("n1", 7), b)
	f.Add("n1", []byte{0xc0})
	f.Fuzz(func(t *testing.T, wire string, in []byte) {
		name, m, err := decodeMeta(wire, in)
		if err == nil && wireName(name, process(m.Incarnation)) != wire {
			t.Errorf("%q passes with incarnation %x", wire, m.Incarnation)
		}
	})
}

func TestMetaFitsMemberlist(t *testing.T) {
	c, err := Config{
		Name: strings.Repeat("n", 128), HTTP: strings.Repeat("h", 200), Version: strings.Repeat("v", 64), Grace: Never,
	}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	c.Ring.Seed, c.Ring.Partitions, c.Ring.Replication = 1<<63, 1<<20, 1<<12
	m := meta{Claim: 1 << 63, Started: 1 << 62}
	n := newMeta(c, 1<<63, time.Unix(0, 0))
	n.Claim, n.Started = m.Claim, m.Started
	b, err := n.encode()
	if err != nil || len(b) > 512 {
		t.Errorf("the largest metadata has %d bytes: %v", len(b), err)
	}
	name, got, err := decodeMeta(wireName(c.Name, process(1<<63)), b)
	if err != nil || name != c.Name || got != n {
		t.Errorf("read back: %+v, %v", got, err)
	}
}

func TestOutranksIsATotalOrder(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	draw := func() meta {
		return meta{State: state(r.IntN(2)), Claim: uint64(r.IntN(2)), Started: int64(r.IntN(2)), Incarnation: uint64(r.IntN(3))}
	}
	for range 5000 {
		a, b, c := draw(), draw(), draw()
		if a != b && a.outranks(&b) == b.outranks(&a) {
			t.Fatalf("between %+v and %+v", a, b)
		}
		if a.outranks(&b) && b.outranks(&c) && !a.outranks(&c) {
			t.Fatalf("no order among %+v, %+v, %+v", a, b, c)
		}
	}
}

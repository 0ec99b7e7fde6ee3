package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/jatah-io/jatah/cluster/simnet"
)

// content is what a register has, to compare.
func content(r *Register) string {
	var b strings.Builder
	for _, name := range r.Names() {
		v, _ := r.Get(name)
		fmt.Fprintf(&b, "%s=%s ", name, v)
	}
	return strings.TrimSpace(b.String())
}

func put(t *testing.T, r *Register, name, value string) {
	t.Helper()
	if err := r.Put(name, []byte(value)); err != nil {
		t.Fatal(err)
	}
}

// records are all of a register, as they are sent.
func records(r *Register) (ws []wireRecord) {
	for name, rec := range r.records {
		ws = append(ws, rec.wire(name, time.Now()))
	}
	return ws
}

func TestRegisterAlone(t *testing.T) {
	r := NewRegister(nil)
	put(t, r, "a", "1")
	put(t, r, "b", "2")
	put(t, r, "a", "3")
	if got := content(r); got != "a=3 b=2" {
		t.Errorf("%s", got)
	}
	sum, clock := r.digest(), r.clock
	put(t, r, "a", "3")
	if r.digest() != sum || r.clock != clock {
		t.Error("the same value again was a write")
	}
	if !r.Delete("a") || r.Delete("a") || r.Delete("none") {
		t.Error("Delete says whether there was a value")
	}
	if _, ok := r.Get("a"); ok || content(r) != "b=2" {
		t.Errorf("%s", content(r))
	}
	put(t, r, "a", "4")
	if got := content(r); got != "a=4 b=2" || r.gone != 0 || r.bytes != 2 {
		t.Errorf("%s, %d removals, %d bytes", got, r.gone, r.bytes)
	}
}

func TestRegisterBounds(t *testing.T) {
	r := NewRegister(nil)
	if err := r.Put("", nil); err == nil {
		t.Error("a name that is empty was taken")
	}
	if err := r.Put(strings.Repeat("n", maxName+1), nil); err == nil {
		t.Error("a name that is too long was taken")
	}
	if err := r.Put("big", make([]byte, MaxValue+1)); !errors.Is(err, ErrFull) {
		t.Errorf("a value that is too large: %v", err)
	}
	for i := range MaxNames {
		put(t, r, fmt.Sprint(i), "v")
	}
	if err := r.Put("more", nil); !errors.Is(err, ErrFull) {
		t.Errorf("one name too many: %v", err)
	}
	put(t, r, "7", "a name that is there can change")
	if !r.Delete("8") {
		t.Fatal("not removed")
	}
	put(t, r, "more", "there is room again")
	for i := range MaxNames {
		r.Delete(fmt.Sprint(i))
		put(t, r, fmt.Sprint("x", i%100), fmt.Sprint(i))
		r.Delete(fmt.Sprint("x", i%100))
	}
	if r.gone > maxGone || len(r.records) > MaxNames+maxGone {
		t.Errorf("%d removals are remembered in %d records", r.gone, len(r.records))
	}
	for i := 0; r.bytes+MaxValue <= maxValues; i++ {
		put(t, r, fmt.Sprint("big", i), strings.Repeat("v", MaxValue))
	}
	if err := r.Put("last", make([]byte, MaxValue)); !errors.Is(err, ErrFull) {
		t.Errorf("too many bytes in all: %v", err)
	}
	// What others send is bounded too, whatever they send.
	var ws []wireRecord
	for i := range 3 * MaxNames {
		ws = append(ws, wireRecord{Name: fmt.Sprint("other", i), Version: uint64(i + 1), Gone: i%2 == 0})
	}
	if _, refused := r.merge(ws, time.Now()); refused != 0 && len(r.records) < mergeNames {
		t.Errorf("%d refused though there is room", refused)
	}
	if r.gone > maxGone || len(r.records)-r.gone > mergeNames {
		t.Errorf("%d removals in %d records", r.gone, len(r.records))
	}
}

// Whatever the order in which writes arrive, how often, and in what pieces, the result is the same.
func TestRegisterOrderOfArrival(t *testing.T) {
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	for range 200 {
		writers := make([]*Register, 3)
		for i := range writers {
			writers[i] = NewRegister(nil)
		}
		var all []wireRecord
		for i := range 40 {
			w := writers[rng.IntN(len(writers))]
			name := fmt.Sprint(rng.IntN(5))
			if rng.IntN(4) == 0 {
				w.Delete(name)
			} else {
				put(t, w, name, fmt.Sprint(i))
			}
			all = append(all, records(w)...)
			if len(all) > 0 && rng.IntN(3) == 0 {
				writers[rng.IntN(len(writers))].merge(all[rng.IntN(len(all)):], time.Now())
			}
		}
		var first *Register
		for range 3 {
			r := NewRegister(nil)
			rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
			for rest := all; len(rest) > 0; {
				n := 1 + rng.IntN(len(rest))
				r.merge(rest[:n], time.Now())
				r.merge(rest[:rng.IntN(n)], time.Now())
				rest = rest[n:]
			}
			if first == nil {
				first = r
			}
			if content(r) != content(first) || r.digest() != first.digest() {
				t.Fatalf("seed %d: %s and %s", seed, content(r), content(first))
			}
		}
	}
}

// A removal is remembered for its time, counted from when it was made wherever it is told and while it is on disk, and no longer.
func TestRemovalsAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := NewRegister(nil), NewRegister(nil)
		put(t, a, "x", "1")
		old := records(a)
		a.Delete("x")
		time.Sleep(goneFor / 2)
		b.merge(records(a), time.Now())
		kept := b.Encode()
		time.Sleep(goneFor/2 - time.Second)
		c := NewRegister(nil)
		if err := c.Restore(kept); err != nil {
			t.Fatal(err)
		}
		for _, r := range []*Register{a, b, c} {
			if r.sweep(time.Now()); r.gone != 1 {
				t.Error("forgotten too early")
			}
			if r.merge(old, time.Now()); content(r) != "" {
				t.Errorf("%s is back", content(r))
			}
		}
		told := records(b)
		time.Sleep(2 * time.Second)
		for _, r := range []*Register{a, b, c} {
			if r.sweep(time.Now()); r.gone != 0 || r.digest() != 0 {
				t.Error("remembered too long")
			}
			told[0].Age = goneFor
			if r.merge(told, time.Now()); r.gone != 0 {
				t.Error("a removal that is too old was taken")
			}
			put(t, r, "y", "2")
			if r.records["y"].version <= told[0].Version {
				t.Error("a version is used again though its removal was forgotten")
			}
		}
	})
}

func TestRegisterOnDisk(t *testing.T) {
	a := NewRegister(nil)
	for i := range 50 {
		put(t, a, fmt.Sprint(i), strings.Repeat("v", i))
		if i%3 == 0 {
			a.Delete(fmt.Sprint(i))
		}
	}
	b := NewRegister(func([]string) { t.Error("changed is for others") })
	if err := b.Restore(a.Encode()); err != nil || content(a) != content(b) || a.digest() != b.digest() || a.clock != b.clock {
		t.Errorf("%v: %s, want %s", err, content(b), content(a))
	}
	for _, bad := range [][]byte{nil, {0x93}, []byte("text"), bytes.Repeat([]byte{0xff}, 100)} {
		if err := b.Restore(bad); err == nil || content(a) != content(b) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	bad, _ := marshal(&keptRegister{Records: []wireRecord{{Name: "good", Version: 9, Value: []byte("v")}, {Name: "bad"}}})
	if err := b.Restore(bad); err == nil || content(a) != content(b) {
		t.Errorf("a malformed record: %v", err)
	}
}

// What a message says is bounded and checked; nothing panics, and what is malformed changes nothing.
func FuzzRegisterMessages(f *testing.F) {
	r := NewRegister(nil)
	_ = r.Put("a", []byte("1"))
	_ = r.Put("b", nil)
	r.Delete("b")
	ws := records(r)
	stamps := r.stamps()
	for _, v := range []any{&ws, &stamps, r.difference(nil, time.Now()), &keptRegister{Clock: 1 << 60, Records: ws}} {
		b, err := marshal(v)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	for _, v := range []any{&control{Op: opMeta, Name: "n", Addr: "a", Proc: 1 << 60, Data: []byte("d")},
		&sharedState{Lost: []sharedLost{{Name: "n2", Addr: "10.0.0.2:1", Incarnation: 1 << 30, Claim: 2, Age: time.Hour, Left: true}}, Forgotten: []sharedName{{"n3", 7, "10.0.0.3:1"}}}} {
		b, err := marshal(v)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte{0xdd, 0xff, 0xff, 0xff, 0xff})
	f.Add([]byte{0x92, 0xdd, 0xff, 0xff, 0xff, 0xff})
	f.Add(append([]byte{0x81, 0xa1, 'x'}, bytes.Repeat([]byte{0x91}, 1<<20)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		synctest.Test(t, func(t *testing.T) {
			w := &world{t: t, net: simnet.New(1)}
			cfg := w.config("n1")
			cfg.Join, cfg.Register = nil, NewRegister(nil)
			n := w.start(1, cfg)
			put(t, cfg.Register, "own", "v")
			for _, o := range []op{opRecords, opSum, opStamps} {
				before := content(cfg.Register)
				_, err := n.registerControl(&peer{name: "other"}, control{Op: o, Data: b})
				if err != nil && content(cfg.Register) != before {
					t.Errorf("%v, and yet it changed to %s", err, content(cfg.Register))
				}
			}
			_ = NewRegister(nil).Restore(b)
			n.mergeState(b)
			_, _ = n.control(&peer{name: "other", wire: "other/0000000001"}, b)
			for name, rec := range cfg.Register.records {
				if w := rec.wire(name, time.Now()); !w.valid() {
					t.Errorf("%+v was taken", w)
				}
			}
			if cfg.Register.clock > maxVersion {
				t.Errorf("clock %d", cfg.Register.clock)
			}
			_ = n.Close()
			time.Sleep(time.Minute)
		})
	})
}

func TestControlAndSharedStateAreReadAsWritten(t *testing.T) {
	m := control{Op: opPing, Name: "n", Addr: "a", Proc: 1 << 60, Data: []byte("d")}
	b, err := marshal(&m)
	if got, e := readControl(b); err != nil || e != nil || !reflect.DeepEqual(got, m) {
		t.Errorf("%v %v: %+v", err, e, got)
	}
	if b, err = marshal(&control{Op: opLeave}); err == nil {
		_, err = readControl(b)
	}
	if err != nil {
		t.Error(err)
	}
	s := sharedState{Lost: []sharedLost{{Name: "n2", Addr: "10.0.0.2:1", Incarnation: 1 << 30, Claim: 2, Age: time.Hour, Left: true}},
		Forgotten: []sharedName{{"n3", 7, "10.0.0.3:1"}}}
	if b, err = marshal(&s); err == nil {
		var got sharedState
		if got, err = readShared(b); !reflect.DeepEqual(got, s) {
			t.Errorf("%+v", got)
		}
	}
	if err != nil {
		t.Error(err)
	}
	if b, err = marshal(&sharedState{}); err == nil {
		_, err = readShared(b)
	}
	if err != nil {
		t.Error(err)
	}
}

// Nodes of a version without a register read what is said to all, and are told nothing of registers.
func TestOlderNodesReadMetadataAndControl(t *testing.T) {
	// The fields that they know; another number of them is refused.
	type oldMeta struct {
		Format              uint8
		State               state
		Incarnation         Incarnation
		Claim               uint64
		Started             int64
		Protocol            uint8
		HTTP, Version       string
		Partitions          int
		Seed                uint64
		Load                float64
		Replication         int
		Sync, Settle, Grace time.Duration
		Sure                bool
	}
	type oldControl struct {
		Op         op
		Name, Addr string
		Proc       uint64
		Meta       []byte
	}
	cfg := Config{Register: NewRegister(nil), HTTP: "h", Version: "v", Grace: time.Minute}
	m := newMeta(cfg, newIncarnation(), time.Now())
	b, err := m.encode()
	var old oldMeta
	if err == nil {
		err = msgpack.Unmarshal(b, &old)
	}
	if err != nil || old.Incarnation != m.Incarnation || old.Grace != time.Minute {
		t.Errorf("%v: %+v", err, old)
	}
	wire := wireName("n1", process(m.Incarnation))
	if _, got, err := decodeMeta(wire, b); err != nil || got != m || got.extra.Register != registerFormat {
		t.Errorf("%v: %+v", err, got)
	}
	if _, got, err := decodeMeta(wire, append(b[:len(b)-2:len(b)-2], 0x92, 7, 0xcf)); err != nil || got.extra.Register != 7 {
		t.Errorf("of a newer one: %v: %+v", err, got)
	}
	if b, err = marshal(&old); err == nil {
		_, got, e := decodeMeta(wire, b)
		if err = e; got.extra.Register != 0 || got.Incarnation != m.Incarnation {
			t.Errorf("%+v", got)
		}
	}
	var oldForget oldControl
	if err == nil {
		b, err = marshal(&control{Op: opForget, Name: "n", Data: []byte("m")})
	}
	if err == nil {
		err = msgpack.Unmarshal(b, &oldForget)
	}
	if err != nil || string(oldForget.Meta) != "m" {
		t.Errorf("%v: %+v", err, oldForget)
	}
	inBubble(t, func(t *testing.T, w *world) {
		var rs []*Register
		var nodes []*node
		for i := range 3 {
			cfg := w.config(fmt.Sprint("n", i+1))
			if i != 1 {
				cfg.Register = NewRegister(nil)
				rs = append(rs, cfg.Register)
			}
			nodes = append(nodes, w.start(i+1, cfg))
		}
		w.within(time.Minute, "three members", func() bool { return alive("n1 n2 n3", nodes...) })
		put(t, rs[0], "a", "1")
		if err := nodes[0].Announce(t.Context(), "a"); err != nil || content(rs[1]) != "a=1" {
			t.Errorf("%v: %q", err, content(rs[1]))
		}
		time.Sleep(10 * time.Second)
		if s := nodes[1].Stats(); s.DropMalformed != 0 {
			t.Errorf("%+v", s)
		}
	})
}

func sameContent(rs []*Register) bool {
	return !slices.ContainsFunc(rs, func(r *Register) bool { return r.digest() != rs[0].digest() || content(r) != content(rs[0]) })
}

// A member that tells of the highest version there is takes nothing away from the others: all names can still be written, also those that it told of.
func TestTheHighestVersionIsNoEnd(t *testing.T) {
	a, b := NewRegister(nil), NewRegister(nil)
	forged := wireRecord{Name: "forged", Version: maxVersion, Origin: 1 << 63, Value: []byte("x")}
	for _, r := range []*Register{a, b} {
		if _, refused := r.merge([]wireRecord{forged}, time.Now()); refused != 0 {
			t.Fatal("it is not taken")
		}
	}
	for i := range 20 {
		put(t, a, "forged", fmt.Sprint("a", i))
		put(t, b, "forged", fmt.Sprint("b", i)) // at the same time
		put(t, a, "other", fmt.Sprint(i))
		if !b.Delete("forged") {
			t.Error("it cannot be removed")
		}
		put(t, b, "forged", fmt.Sprint("c", i))
		for range 2 {
			a.merge(records(b), time.Now())
			b.merge(records(a), time.Now())
		}
		if content(a) != content(b) || a.digest() != b.digest() {
			t.Fatalf("%s and %s", content(a), content(b))
		}
		if v, ok := a.Get("other"); !ok || string(v) != fmt.Sprint(i) {
			t.Errorf("other is %q", v)
		}
	}
}

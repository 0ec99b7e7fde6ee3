package hybrid

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"runtime"
	"testing"
	"time"

	"github.com/jatah-io/jatah/ring"
)

// random values of a message. Small and large numbers mix, so that every width of the encoding is met.
type random struct{ *rand.Rand }

func (r random) u() uint64 { return r.Uint64() >> r.IntN(64) }
func (r random) n() int64  { return int64(r.Uint64() >> (1 + r.IntN(63))) }
func (r random) i() int64  { return int64(r.Uint64()) >> r.IntN(64) }
func (r random) f() float64 {
	return (r.Float64() - 0.3) * math.Pow(2, float64(r.IntN(50)))
}
func (r random) s(n int) string {
	b := make([]byte, r.IntN(n))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return string(b)
}
func (r random) b() bits {
	b := newBits(1 + r.IntN(300))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}
func (r random) ids() (ids []uint64) {
	for range r.IntN(20) {
		ids = append(ids, r.u())
	}
	return ids
}
func (r random) stamp() stamp { return stamp{r.u(), r.u(), r.i()} }

func (r random) copies() (cs []copyOf) {
	for range r.IntN(8) {
		cs = append(cs, copyOf{part: r.IntN(271), limit: r.s(30), plan: r.s(20), key: r.s(70), base: r.IntN(2) == 0, full: r.IntN(2) == 0,
			bal: r.f(), cap: math.Abs(r.f()), out: math.Abs(r.f())})
	}
	return cs
}

// was is a former generation in half of the cases.
func (r random) was() generation {
	if r.IntN(2) == 0 {
		return generation{}
	}
	few := func() int64 { return r.Int64N(maxTokens) }
	return generation{1 + r.u()/2, few(), few(), few(), few()}
}

// message has each section in half of the cases.
func (r random) message() *message {
	m := &message{stamp: r.stamp(), echo: r.stamp(), probe: r.IntN(2) == 0}
	has := func() bool { return r.IntN(2) == 0 }
	if has() {
		m.owns = r.b()
	}
	if has() {
		m.loan = &loan{k: r.IntN(1000), counted: r.u(), parts: r.b()}
		for range r.IntN(maxFormers + 1) {
			m.loan.formers = append(m.loan.formers, former{r.u(), r.u(), r.i(), r.b()})
		}
	}
	if has() {
		for range r.IntN(20) {
			m.reports = append(m.reports, report{r.s(30), r.s(20), r.s(70), r.u(), r.n(), r.n(), r.n(), r.n(), r.was(), r.n(), r.n(), r.n()})
		}
	}
	if has() {
		m.re = r.i()
		for range r.IntN(20) {
			g := grant{r.u(), r.n(), r.n(), r.n(), r.n(), r.f(), math.Abs(r.f()), r.i(), r.u(), waits{}, 0}
			if g.flags&grantWaits != 0 {
				g.waits = waits{r.n(), r.n(), r.n(), r.n(), r.n(), r.n()}
			}
			if g.flags&grantPlan != 0 {
				g.plan = r.u()
			}
			m.grants = append(m.grants, g)
		}
	}
	if has() {
		m.seq, m.standby = 1+r.u()/2, r.copies()
	}
	if has() {
		m.whole = r.b()
	}
	if has() {
		m.acks = r.ids()
	}
	if has() {
		m.handed = r.ids()
	}
	return m
}

// plain makes messages comparable: an empty list and none are the same, and standby records without a sequence are none.
func plain(m *message) *message {
	c := *m
	if c.seq == 0 {
		c.standby = nil
	}
	if l := m.loan; l != nil {
		d := *l
		d.formers = orNil(d.formers)
		c.loan = &d
	}
	c.reports, c.grants, c.standby, c.acks, c.handed = orNil(c.reports), orNil(c.grants), orNil(c.standby), orNil(c.acks), orNil(c.handed)
	return &c
}

func orNil[T any](s []T) []T {
	if len(s) == 0 {
		return nil
	}
	return s
}

func plainHandOff(h *handOff) *handOff {
	c := *h
	c.copies = orNil(c.copies)
	return &c
}

func TestMessagesSurviveTheWire(t *testing.T) {
	seed := *firstSeed
	r := random{rand.New(rand.NewPCG(seed, 1))}
	w := newWriter()
	for i := range 3000 {
		m := r.message()
		got, err := decode(encode(w, m))
		if err != nil {
			t.Fatalf("seed %d, message %d: %v\n%+v", seed, i, err, m)
		}
		if !reflect.DeepEqual(plain(got), plain(m)) {
			t.Fatalf("seed %d, message %d came back as\n%+v, sent was\n%+v", seed, i, got, m)
		}
	}
}

func TestHandOffsSurviveTheWire(t *testing.T) {
	seed := *firstSeed
	r := random{rand.New(rand.NewPCG(seed, 2))}
	for i := range 1000 {
		h := &handOff{restore: r.IntN(2) == 0, id: r.u(), inc: r.u(), epoch: r.u(), parts: r.b(), fresh: r.b(), copies: r.copies()}
		got, err := decodeHandOff(encodeHandOff(h))
		if err != nil {
			t.Fatalf("seed %d, hand-off %d: %v\n%+v", seed, i, err, h)
		}
		if !reflect.DeepEqual(plainHandOff(got), plainHandOff(h)) {
			t.Fatalf("seed %d, hand-off %d came back as\n%+v, sent was\n%+v", seed, i, got, h)
		}
	}
}

// TestCutOffMessagesAreRefused: no beginning of a message is a message, and nothing may follow one.
func TestCutOffMessagesAreRefused(t *testing.T) {
	r := random{rand.New(rand.NewPCG(*firstSeed, 3))}
	w := newWriter()
	for range 20 {
		b := encode(w, r.message())
		for n := range b {
			if _, err := decode(b[:n]); !errors.Is(err, errMessage) {
				t.Fatalf("the first %d of %d bytes: %v", n, len(b), err)
			}
		}
		if _, err := decode(append(b, 0)); !errors.Is(err, errMessage) {
			t.Fatalf("a byte too many: %v", err)
		}
	}
}

func TestOtherVersionsAreRefused(t *testing.T) {
	w := newWriter()
	b := encode(w, &message{stamp: stamp{inc: 1}})
	b[0] = version + 1
	if _, err := decode(b); !errors.Is(err, errMessage) {
		t.Errorf("message: %v", err)
	}
	h := encodeHandOff(&handOff{})
	h[0] = version + 1
	if _, err := decodeHandOff(h); !errors.Is(err, errMessage) {
		t.Errorf("hand-off: %v", err)
	}
}

// TestNumbersOutOfRangeAreRefused: no counter is negative, no balance is beyond what a float64 counts exactly.
func TestNumbersOutOfRangeAreRefused(t *testing.T) {
	w := newWriter()
	for name, m := range map[string]*message{
		"report":               {reports: []report{{c: -1}}},
		"grant":                {grants: []grant{{g: -1}}},
		"balance not a number": {grants: []grant{{bal: math.NaN()}}},
		"negative rate":        {grants: []grant{{rate: -1}}},
		"copy":                 {seq: 1, standby: []copyOf{{cap: math.NaN()}}},
		"copy out":             {seq: 1, standby: []copyOf{{out: -1}}},
	} {
		if _, err := decode(encode(w, m)); !errors.Is(err, errMessage) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, bal := range []float64{math.Inf(1), math.Inf(-1), maxTokens, -maxTokens} {
		number := func(v float64) []byte { return binary.BigEndian.AppendUint64(nil, math.Float64bits(v)) }
		b := encode(w, &message{grants: []grant{{bal: 1.2345}}})
		forged := bytes.Replace(b, number(1.2345), number(bal), 1)
		if _, err := decode(forged); !errors.Is(err, errMessage) {
			t.Errorf("balance %v: %v", bal, err)
		}
	}
}

// allocated is how many bytes f allocates.
func allocated(f func()) uint64 {
	var a, b runtime.MemStats
	runtime.ReadMemStats(&a)
	f()
	runtime.ReadMemStats(&b)
	return b.TotalAlloc - a.TotalAlloc
}

// TestAnnouncedLengthsAllocateNothing: a length that the rest of a message cannot hold is not believed, so a few bytes from a
// broken or hostile peer never make a node allocate much more than it was sent.
func TestAnnouncedLengthsAllocateNothing(t *testing.T) {
	const padding = 1 << 18
	head := func(flags uint64) *writer {
		w := newWriter()
		w.u(version)
		w.u(flags)
		for range 6 { // two stamps
			w.u(0)
		}
		return w
	}
	handOffHead := func() *writer {
		w := newWriter()
		w.u(version)
		w.u(kindHandOff)
		for range 3 {
			w.u(0)
		}
		w.b(nil)
		w.b(nil)
		return w
	}
	list := func(w *writer, n int) []byte {
		w.list(n)
		return append(w.buf, make([]byte, padding)...)
	}
	message := func(b []byte) func() {
		return func() {
			if _, err := decode(b); err == nil {
				t.Error("a broken message was believed")
			}
		}
	}
	re := head(hasGrants)
	re.i(0)
	seq := head(hasStandby)
	seq.u(1)
	lent := head(hasLoan)
	lent.u(1)
	lent.u(1)
	lent.b(nil)
	handed := list(handOffHead(), padding-1)
	for name, f := range map[string]func(){
		"reports":  message(list(head(hasReports), padding-1)),
		"grants":   message(list(re, padding-1)),
		"standby":  message(list(seq, padding-1)),
		"formers":  message(list(lent, padding-1)),
		"far more": message(list(head(hasReports), math.MaxInt32)),
		"hand-off": func() {
			if _, err := decodeHandOff(handed); err == nil {
				t.Error("a broken hand-off was believed")
			}
		},
	} {
		if n := allocated(f); n > 16*padding {
			t.Errorf("%s: %d bytes allocated for a message of %d", name, n, padding)
		}
	}
}

func FuzzDecode(f *testing.F) {
	r := random{rand.New(rand.NewPCG(1, 4))}
	w := newWriter()
	for range 30 {
		f.Add(encode(w, r.message()))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := decode(b)
		if err != nil {
			if !errors.Is(err, errMessage) {
				t.Fatalf("error of another kind: %v", err)
			}
			return
		}
		again, err := decode(encode(newWriter(), m))
		if err != nil {
			t.Fatalf("what was read cannot be read again: %v\n%+v", err, m)
		}
		if !reflect.DeepEqual(plain(again), plain(m)) {
			t.Fatalf("%+v came back as\n%+v", m, again)
		}
	})
}

func FuzzDecodeHandOff(f *testing.F) {
	r := random{rand.New(rand.NewPCG(1, 5))}
	for range 30 {
		f.Add(encodeHandOff(&handOff{restore: r.IntN(2) == 0, id: r.u(), inc: r.u(), epoch: r.u(), parts: r.b(), fresh: r.b(), copies: r.copies()}))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := decodeHandOff(b)
		if err != nil {
			if !errors.Is(err, errMessage) {
				t.Fatalf("error of another kind: %v", err)
			}
			return
		}
		again, err := decodeHandOff(encodeHandOff(h))
		if err != nil {
			t.Fatalf("what was read cannot be read again: %v\n%+v", err, h)
		}
		if !reflect.DeepEqual(plainHandOff(again), plainHandOff(h)) {
			t.Fatalf("%+v came back as\n%+v", h, again)
		}
	})
}

// TestSizes holds the sizes that the engine reckons with when it fills a packet, after a day of uptime.
func TestSizes(t *testing.T) {
	const day = 24 * int64(time.Hour)
	w := newWriter()
	size := func(m *message) int {
		m.stamp, m.echo = stamp{math.MaxUint64, 12, day}, stamp{math.MaxUint64, 12, day}
		return len(encode(w, m))
	}
	empty := size(&message{})
	typical := report{limit: "api", key: "user:1234567", gen: 4000, g: 1500, c: 1490, u: 3}
	answer := grant{gen: 4000, g: 1500, c: 1490, u: 3, bal: 12.25, rate: 100.0 / 60, out: 25}
	largest := grant{math.MaxUint64, math.MaxInt64, math.MaxInt64, math.MaxInt64, math.MaxInt64, 1.1, 1.1, math.MaxInt64, 63, waits{}, 0}
	planned := largest
	planned.flags, planned.plan = 63|grantPlan, math.MaxUint64
	spare := copyOf{part: 200, limit: "api", key: "user:1234567", bal: 12.25, cap: 20, out: 5}
	one := func(m *message) int { return size(m) - empty }
	rep := one(&message{reports: []report{typical, typical}}) - one(&message{reports: []report{typical}})
	gra := one(&message{grants: []grant{answer, answer}}) - one(&message{grants: []grant{answer}})
	lar := one(&message{grants: []grant{largest, largest}}) - one(&message{grants: []grant{largest}})
	pla := one(&message{grants: []grant{planned, planned}}) - one(&message{grants: []grant{planned}})
	sby := one(&message{seq: 1, standby: []copyOf{spare, spare}}) - one(&message{seq: 1, standby: []copyOf{spare}})
	t.Logf("bytes: message without sections %d, report %d, grant %d (at most %d), standby record %d", empty, rep, gra, lar, sby)
	if rep > 64+len(typical.limit)+len(typical.key) || lar > 80 || pla > planned.size() || sby > 60+len(spare.limit)+len(spare.key) || empty > 100 {
		t.Errorf("an element is larger than the engine reckons: message %d, report %d, grant %d, standby record %d", empty, rep, lar, sby)
	}
}

// TestBeatFitsAPacket: what a tick says to a member fits, at rest and with the most that a loan may carry.
func TestBeatFitsAPacket(t *testing.T) {
	cfg := Config{}.withDefaults()
	w := newWriter()
	const day = 24 * int64(time.Hour)
	for _, nodes := range []int{3, 10, 100} {
		var names []string
		for i := range nodes {
			names = append(names, fmt.Sprintf("node-%d", i))
		}
		r, err := ring.New(cfg.Ring, names)
		if err != nil {
			t.Fatal(err)
		}
		of := func(name string) bits {
			b := newBits(r.Partitions())
			for p := range r.Partitions() {
				if o, _ := r.Owner(p); o == name {
					b.set(p)
				}
			}
			return b
		}
		m := &message{stamp: stamp{math.MaxUint64, 12, day}, echo: stamp{math.MaxUint64, 12, day}, owns: of(names[0]), whole: of(names[0]),
			loan: &loan{k: nodes, counted: math.MaxUint64, parts: of(names[1])}}
		idle := len(encode(w, m))
		for range maxFormers {
			m.loan.formers = append(m.loan.formers, former{math.MaxUint64, 200, 5 * int64(cfg.Tick), of(names[1])})
		}
		for i := range 63 { // one more and they are sent at once
			m.acks = append(m.acks, 1<<16+uint64(i))
		}
		most := len(encode(w, m))
		t.Logf("%d nodes: an idle beat is %d bytes, with %d former owners and %d confirmations %d", nodes, idle, maxFormers, len(m.acks), most)
		if most > cfg.MaxMessage {
			t.Errorf("%d nodes: %d bytes, at most %d fit", nodes, most, cfg.MaxMessage)
		}
	}
}

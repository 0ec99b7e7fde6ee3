package hybrid

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/jatah-io/jatah/bucket"
)

func (r random) saved() *saved {
	s := &saved{id: r.u(), wall: r.i(), records: []savedRecord{}}
	defs := make([]savedDef, 1+r.IntN(4))
	for i := range defs {
		defs[i] = savedDef{limit: fmt.Sprint(i, r.s(20)), rate: bucket.Per(r.Int64N(1000), time.Duration(1+r.Int64N(1e15))), burst: r.Int64N(1e6), k: r.IntN(10)}
		if r.IntN(2) == 0 {
			all := remembered()
			a, err := bucket.Compile(all[r.IntN(len(all))])
			if err == nil && defs[i].k > 0 {
				a, err = a.Share(defs[i].k, r.IntN(defs[i].k))
			}
			if err != nil {
				panic(err)
			}
			defs[i].plan, defs[i].alg = r.s(9), a
		}
	}
	for range r.IntN(50) {
		unit := 1 + r.u()/2
		x := savedRecord{def: defs[r.IntN(len(defs))], part: r.IntN(271), key: r.s(60), base: r.IntN(9) == 0, exact: r.IntN(2) == 0,
			level: bucket.Level{Whole: r.Int64N(1e9) - 1e8, Part: r.Uint64N(unit), Unit: unit}, age: r.n(), lineage: r.u()}
		if r.IntN(4) == 0 {
			x.state = []byte("x" + r.s(30))
		}
		s.records = append(s.records, x)
	}
	return s
}

func TestSavedRoundTrip(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	r := random{rand.New(rand.NewPCG(seed, 1))}
	for range 500 {
		s := r.saved()
		got, err := decodeSaved(kindSnapshot, encodeSaved(kindSnapshot, s))
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if !reflect.DeepEqual(got, s) {
			t.Fatalf("seed %d: got %+v, want %+v", seed, got, s)
		}
	}
}

// Every cut of a snapshot is refused, and no change of a byte makes it panic or take in what is out of range.
func TestDamagedSnapshots(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	r := random{rand.New(rand.NewPCG(seed, 2))}
	for range 20 {
		b := encodeSaved(kindSnapshot, r.saved())
		for n := range b {
			if _, err := decodeSaved(kindSnapshot, b[:n]); !errors.Is(err, ErrSnapshot) {
				t.Fatalf("seed %d: %d of %d bytes: %v", seed, n, len(b), err)
			}
		}
		for range 500 {
			c := bytes.Clone(b)
			c[r.IntN(len(c))] ^= 1 << r.IntN(8)
			checkSaved(t, c)
		}
	}
	for _, kind := range []uint64{kindHandOff, kindRestore, kindSaved} {
		if err := New(Config{Node: "n"}).Restore(1, time.Now(), encodeSaved(kind, &saved{})); !errors.Is(err, ErrSnapshot) {
			t.Errorf("kind %d: %v", kind, err)
		}
	}
}

func checkSaved(t *testing.T, b []byte) {
	s, err := decodeSaved(kindSnapshot, b)
	if err != nil {
		return
	}
	for i := range s.records {
		r := &s.records[i]
		r.older(math.MaxInt64)
		if v, ok := r.fits(&Limit{spec: Spec{Rate: bucket.Per(1, time.Hour), Burst: 5}}); ok && !(math.Abs(v) <= 2*maxTokens) {
			t.Errorf("%+v is worth %v tokens", r, v)
		}
	}
}

func FuzzSnapshot(f *testing.F) {
	r := random{rand.New(rand.NewPCG(1, 1))}
	for range 10 {
		f.Add(encodeSaved(kindSnapshot, r.saved()))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		checkSaved(t, b)
		e := New(Config{Node: "n", Network: nowhere{}})
		_ = e.Restore(1, time.Unix(0, 0), b)
		e.Snapshot(2, time.Unix(1, 0))
	})
}

func savedAs(s Spec) savedDef { return (&Limit{spec: s}).saved() }

type nowhere struct{}

func (nowhere) Send(string, []byte) error     { return nil }
func (nowhere) Transfer(string, []byte) error { return nil }

func TestHandOffTellsHowItBegan(t *testing.T) {
	h := &handOff{id: 3, inc: 4, parts: newBits(9), fresh: newBits(9), copies: []copyOf{{limit: "a", key: "x", saved: 7, start: 9}, {limit: "a", key: "y"}, {limit: "b", key: "z", start: 2}},
		began: map[int]began{2: {lineage: 99, brought: 0.5, lenders: []string{"n1", "n2"}}, 7: {lineage: 1, brought: 1}}}
	b := encodeHandOff(h)
	got, err := decodeHandOff(b)
	if err != nil || !reflect.DeepEqual(got, h) {
		t.Errorf("got %+v, %v, want %+v", got, err, h)
	}
	for i := range b {
		c := bytes.Clone(b)
		c[i] ^= 0x55
		_, _ = decodeHandOff(c)
	}
}

// alone is a node without a network whose clock the test moves.
type single struct {
	*Engine
	at int64
}

func newSingle() *single {
	s := &single{Engine: New(Config{Node: "n"}), at: 1}
	s.clock = func() int64 { return s.at }
	return s
}

func (s *single) define(t *testing.T, spec Spec) *Limit {
	t.Helper()
	l, err := s.Define(spec)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func left(t *testing.T, l *Limit, key string) float64 {
	t.Helper()
	st, err := l.Peek(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	return st.Balance
}

// restart ends one process and begins another, so much later by the time of day.
func (s *single) restart(t *testing.T, off time.Duration) *single {
	t.Helper()
	s.Close()
	wall := time.Unix(1e9, 0)
	b := s.Snapshot(s.at, wall)
	next := newSingle()
	if err := next.Restore(next.at, wall.Add(off), b); err != nil {
		t.Fatal(err)
	}
	return next
}

func TestTimeBetweenProcessesCounts(t *testing.T) {
	day := Spec{Name: "day", Rate: bucket.Per(100, 24*time.Hour), Burst: 100}
	for _, c := range []struct {
		off  time.Duration
		want float64
	}{{0, 50}, {12 * time.Minute, 50 + 100.0/120}, {6 * time.Hour, 75}, {30 * time.Hour, 100}, {-time.Hour, 50}, {math.MaxInt64, 100}} {
		e := newSingle()
		l := e.define(t, day)
		e.at = 5 * sec
		l.Take(t.Context(), "k", 50)
		l.Charge(t.Context(), "debt", 125)
		next := e.restart(t, c.off)
		l = next.define(t, day) // after Restore, as the limits of a program are
		if got := left(t, l, "k"); math.Abs(got-c.want) > 1e-6 {
			t.Errorf("%v later: %v, want %v", c.off, got, c.want)
		}
		if got, want := left(t, l, "debt"), min(100, c.want-75); c.off < 24*time.Hour && math.Abs(got-want) > 1e-6 {
			t.Errorf("%v later: debt %v, want %v", c.off, got, want)
		}
	}
}

func TestRecordsWaitForTheirLimit(t *testing.T) {
	day := Spec{Name: "day", Rate: bucket.Per(100, 24*time.Hour), Burst: 100}
	e := newSingle()
	e.define(t, day).Take(t.Context(), "k", 40)
	for range 3 { // processes that do not define it
		e = e.restart(t, 6*time.Minute)
		e.at += int64(6 * time.Minute)
	}
	if got, want := left(t, e.define(t, day), "k"), 60+100.0*6*6/60/24; math.Abs(got-want) > 1e-6 {
		t.Errorf("%v left, want %v", got, want)
	}
	if len(e.kept.local) != 0 {
		t.Errorf("%v is kept after its use", e.kept.local)
	}
}

func TestUsedTokensStayUsedUnderAnotherDefinition(t *testing.T) {
	day := Spec{Name: "day", Rate: bucket.Per(100, 24*time.Hour), Burst: 100}
	for _, c := range []struct {
		name         string
		change       func(*Spec)
		used, charge int64
		want         float64
	}{
		{"raised", func(s *Spec) { s.Rate.Count, s.Burst = 1000, 1000 }, 40, 0, 960},
		{"lowered", func(s *Spec) { s.Burst = 50 }, 30, 0, 20},
		{"lowered below what was used", func(s *Spec) { s.Burst = 50 }, 80, 0, 0},
		{"lowered, in debt", func(s *Spec) { s.Burst = 50 }, 100, 7, -7},
		{"raised, in debt", func(s *Spec) { s.Burst = 200 }, 100, 7, 93},
		{"another rate", func(s *Spec) { s.Rate = bucket.Per(7, time.Hour) }, 40, 0, 60},
		{"another mode", func(s *Spec) { s.Mode = Split }, 40, 0, 60}, // alone that makes no difference
	} {
		e := newSingle()
		l := e.define(t, day)
		l.Take(t.Context(), "k", c.used)
		l.Charge(t.Context(), "k", c.charge)
		s := day
		c.change(&s)
		if got := left(t, e.restart(t, 0).define(t, s), "k"); math.Abs(got-c.want) > 1e-6 {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
	e := newSingle()
	e.define(t, day).Take(t.Context(), "k", 100)
	s := day
	s.Rate.Count = 0
	next := e.restart(t, 0)
	next.define(t, s) // denies all: nothing to restore, nothing to fail
}

// Random states of one node survive exactly.
func TestRandomStateOfOneNode(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	rng := rand.New(rand.NewPCG(seed, 3))
	for range 30 {
		e := newSingle()
		var specs []Spec
		for i := range 3 {
			specs = append(specs, Spec{Name: fmt.Sprint("l", i), Rate: bucket.Per(1+rng.Int64N(500), time.Duration(1+rng.Int64N(int64(100*time.Hour)))), Burst: 1 + rng.Int64N(1000)})
			e.define(t, specs[i])
		}
		key := func() string { return fmt.Sprint("k", rng.IntN(20)) }
		for range 200 {
			e.at += rng.Int64N(sec)
			l, _ := e.Lookup(specs[rng.IntN(3)].Name)
			if rng.IntN(5) == 0 {
				l.Charge(t.Context(), key(), rng.Int64N(300))
			} else {
				l.Take(t.Context(), key(), rng.Int64N(l.Spec().Burst+1))
			}
		}
		want := map[[2]string]float64{}
		for _, s := range specs {
			l, _ := e.Lookup(s.Name)
			for i := range 20 {
				want[[2]string{s.Name, fmt.Sprint("k", i)}] = left(t, l, fmt.Sprint("k", i))
			}
		}
		next := e.restart(t, 0)
		for _, s := range specs {
			next.define(t, s)
		}
		for k, v := range want {
			l, _ := next.Lookup(k[0])
			if got := left(t, l, k[1]); math.Abs(got-v) > 1e-6*(1+math.Abs(v))+2*float64(l.Spec().Rate.Count)/float64(l.Spec().Rate.Per) {
				t.Errorf("seed %d: %v: %v left, was %v", seed, k, got, v)
			}
		}
	}
}

// Of several records of a key the lowest counts, each once, in whatever order and how often they come.
func TestLowestRecordCountsOnce(t *testing.T) {
	spec := Spec{Name: "api", Rate: bucket.Per(1, 1000*time.Hour), Burst: 100}
	seed := uint64(time.Now().UnixNano())
	rng := rand.New(rand.NewPCG(seed, 4))
	for range 200 {
		w := newWorld(t, seed, 1, 0, spec, 1)
		w.start(1)
		e := w.nodes[0].e
		p := e.parts[e.partOf(e.ringHash("api", "key-0"))]
		p.lineage = 5
		w.sleep(sec)
		low := 100.0
		for range 1 + rng.IntN(6) {
			level := float64(rng.IntN(150) - 50)
			low = min(low, level)
			for range 1 + rng.IntN(2) {
				e.mu.Lock()
				e.keep(savedRecord{def: savedAs(spec), key: "key-0", level: bucket.LevelOf(level), lineage: 1 + rng.Uint64N(3)}, w.now+w.nodes[0].skew)
				if rng.IntN(2) == 0 {
					e.useKept(p, w.nodes[0].clock(), false)
				}
				e.mu.Unlock()
			}
		}
		w.sleep(sec)
		if pool, _ := w.balance("key-0"); math.Abs(pool-low) > 0.01 {
			t.Fatalf("seed %d: %v left, the lowest record said %v", seed, pool, low)
		}
		// What the ledger has been through itself is not charged again, nor is what nobody knows the origin of.
		e.mu.Lock()
		e.keep(savedRecord{def: savedAs(spec), key: "key-0", level: bucket.LevelOf(low - 40), lineage: 5}, w.nodes[0].clock())
		e.keep(savedRecord{def: savedAs(spec), key: "key-0", level: bucket.LevelOf(low - 30)}, w.nodes[0].clock())
		e.mu.Unlock()
		w.sleep(sec)
		if pool, _ := w.balance("key-0"); math.Abs(pool-low) > 0.01 {
			t.Fatalf("seed %d: %v left after records of its own lineage, want %v", seed, pool, low)
		}
	}
}

// A running cluster takes nothing from a file of before.
func TestRunningClusterIgnoresRecords(t *testing.T) {
	spec := Spec{Name: "api", Rate: bucket.Per(1, 1000*time.Hour), Burst: 100}
	w := newWorld(t, 1, 3, 0, spec, 8)
	w.start(3)
	w.sleep(2 * sec)
	for _, n := range w.nodes {
		n.e.mu.Lock()
		for _, p := range n.e.parts {
			p.lineage = 0 // told by a hand-off or an heir
		}
		for _, k := range w.keys {
			n.e.keep(savedRecord{def: savedAs(spec), key: k, level: bucket.Level{Unit: 1}, lineage: 77}, n.clock())
		}
		n.e.mu.Unlock()
	}
	w.sleep(2 * sec)
	for _, k := range w.keys {
		if pool, out := w.balance(k); pool+out < 99.9 {
			t.Errorf("%s has %v of 100 left", k, pool+out)
		}
	}
	w.sleep(keepFor + sec)
	for _, n := range w.nodes {
		if len(n.e.kept.parts) > 0 {
			t.Errorf("%s keeps %d partitions of records", n.name, len(n.e.kept.parts))
		}
	}
}

// Permits are in no file: they end with the node that holds them, and an owner learns from the holders what is held.
func TestPermitsAreNotSaved(t *testing.T) {
	_, _, _, owner, holder, other := holding(t, 5, false)
	for _, n := range []*simNode{owner, holder, other} {
		s, err := decodeSaved(kindSnapshot, n.e.Snapshot(n.e.Now(), time.Unix(1e9, 0)))
		if err != nil {
			t.Fatalf("%s: %v", n.name, err)
		}
		if len(s.records) > 0 {
			t.Errorf("%s: %d records, of which the first is %+v", n.name, len(s.records), s.records[0])
		}
	}

	alone := newSingle()
	l := alone.define(t, permitSpec(2, time.Minute))
	if p, d := l.Acquire(t.Context(), "k", 0); p == nil {
		t.Fatalf("no permit: %+v", d)
	}
	tokens := alone.define(t, Spec{Name: "tokens", Rate: bucket.Per(1, time.Hour), Burst: 5})
	tokens.Take(t.Context(), "k", 3)
	s, err := decodeSaved(kindSnapshot, alone.Snapshot(alone.at, time.Unix(1e9, 0)))
	if err != nil {
		t.Fatal(err)
	}
	if len(s.records) != 1 || s.records[0].def.limit != "tokens" {
		t.Errorf("%+v, want what is left of tokens alone", s.records)
	}
}

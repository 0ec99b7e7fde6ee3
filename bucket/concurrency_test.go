package bucket

import (
	"errors"
	"math/big"
	"testing"
	"time"
)

// permitTwin counts what is held; nothing ages.
type permitTwin struct {
	stand
	used *big.Rat
}

func (w *permitTwin) advance(now int64, part, out *big.Rat) {
	if w.begin(now, part, out) {
		return
	}
	w.now, w.part = max(w.now, now), part
	w.used = plus(w.used, most(w.spent(zero(), out), zero()))
}

func (w *permitTwin) free() *big.Rat {
	return minus(minus(rat(floor(w.amount(w.part))), w.out), w.used)
}

func (w *permitTwin) use(n, out *big.Rat) { w.used = plus(w.used, most(w.spent(n, out), zero())) }

func (w *permitTwin) giveBack(n, out *big.Rat) {
	w.used = most(plus(w.used, w.spent(new(big.Rat).Neg(n), out)), zero())
}

func (w *permitTwin) clone() meterTwin {
	c := *w
	return &c
}

func concurrency(limit int64) Spec { return Spec{Algorithm: "concurrency", Max: limit} }

func TestPermitsDoNotAge(t *testing.T) {
	table := NewMeterTable(mustCompile(t, concurrency(2)), 0)
	table.Take("k", t0, 2)
	if r := table.Take("k", t0+int64(year), 1); r.OK || r.RetryAfter != Never || r.ResetAfter != Never {
		t.Errorf("two permits are held, a year later: %+v", r)
	}
	if n := table.Sweep(t0+int64(year), 0); n != 0 {
		t.Error("a key whose permits are held was forgotten")
	}
	table.Refund("k", t0, 1)
	if r := table.Take("k", t0, 1); !r.OK || r.Remaining != 0 {
		t.Errorf("one was given back: %+v", r)
	}
	table.Refund("k", t0, 2)
	if n := table.Sweep(t0, 0); n != 1 {
		t.Errorf("%d keys were forgotten, want the one that holds nothing", n)
	}
}

// What a share brings is free at once, and what left with one is only gone.
func TestPermitsFollowTheirPart(t *testing.T) {
	for _, up := range []bool{false, true} {
		s := concurrency(10)
		s.RoundUp = up
		m := mustCompile(t, s).New().(Holder)
		want := func(part, free float64) {
			t.Helper()
			if m.Advance(t0, part, 1); m.Free() != free {
				t.Errorf("round up %v, part %v: %v free, want %v", up, part, m.Free(), free)
			}
		}
		want(0, -1)
		m.Hold(4, 1)
		third := 3.0
		if up {
			third = 4
		}
		want(1, 5)
		want(1.0/3, third-5)
		want(1, 5)
		m.Hold(2, 1)
		want(1, 7)
	}
}

func TestAChangedMaxKeepsWhatIsHeld(t *testing.T) {
	m := mustCompile(t, concurrency(10)).New()
	m.Advance(t0, 1, 0)
	m.Use(7, 0)
	if m = Resize(m, mustCompile(t, concurrency(5))); m.Free() != -2 {
		t.Errorf("7 of 5 are held: %v free", m.Free())
	}
	window := mustCompile(t, specMinute("fixed_window", 5)).New()
	window.Advance(t0, 1, 0)
	window.Use(5, 0)
	if m = Resize(window, mustCompile(t, concurrency(5))); m.Free() != 5 {
		t.Errorf("nobody holds what a window counted: %v free", m.Free())
	}
	for _, s := range []Spec{concurrency(0), concurrency(-1), concurrency(1 << 51), {Algorithm: "concurrency", Max: 1, Rates: []Rate{Per(1, time.Second)}},
		{Algorithm: "concurrency", Max: 1, Burst: 3}, {Max: 1, Rates: []Rate{Per(1, time.Second)}}} {
		if err := s.Validate(); !errors.Is(err, ErrSpec) {
			t.Errorf("%+v: %v", s, err)
		}
	}
}

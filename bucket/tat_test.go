package bucket

import (
	"math"
	"math/big"
	"testing"
	"time"
)

// TestTATKeptElsewhere does to a word what is done to a Bucket, and compares all that can be asked of both.
func TestTATKeptElsewhere(t *testing.T) {
	rnd := source(t)
	whole, debts, fulls, nevers := 0, 0, 0, 0
	for range 2000 {
		p, _, _ := randomLimit(rnd)
		b, tat, now := New(p), uint64(0), rnd.Int64N(int64(time.Hour))
		last := Result{}
		for range 30 {
			if later := min(step(rnd, now, last), int64(40*year)); later > now { // what goes back is for the caller to see to
				now = later
			}
			n := logUniform(rnd, 1, max(2, p.burst+p.burst/8))
			if rnd.IntN(2) == 0 {
				last = b.Charge(now, n)
				tat = p.Used(tat, now, n)
			} else if last = b.Take(now, n); last.OK {
				tat = p.Used(tat, now, n)
			} else if last.RetryAfter != p.WaitFor(tat, now, n) && !p.DenyAll() {
				t.Fatalf("%s burst %d: %d tokens in %v, want %v", p.rate, p.burst, n, p.WaitFor(tat, now, n), last.RetryAfter)
			}
			if had := b.tat.Load(); tat != had {
				t.Fatalf("%s burst %d: %d, want %d", p.rate, p.burst, tat, had)
			}
			level, _ := b.Tokens(now)
			if got := p.Level(tat, now); got != floor(level) {
				t.Fatalf("%s burst %d: %d whole tokens of %s", p.rate, p.burst, got, level)
			}
			if got := p.Tokens(tat, now); !near(got, level) {
				t.Fatalf("%s burst %d: %v tokens of %s", p.rate, p.burst, got, level)
			}
			if got := p.IsFull(tat, now); got != b.Full(now) {
				t.Fatalf("%s burst %d: full %v", p.rate, p.burst, got)
			}
			reset := last.ResetAfter
			if p.DenyAll() && !b.Full(now) {
				reset = Never
			}
			if got := p.FullIn(tat, now); got != reset {
				t.Fatalf("%s burst %d: full in %v, want %v", p.rate, p.burst, got, reset)
			}
			want := rnd.Int64N(2*p.burst+3) - p.burst - 1
			w := p.WaitFor(tat, now, want)
			switch {
			case w == 0:
				whole++
			case w == Never:
				if nevers++; want <= p.burst && !p.DenyAll() && p.FullIn(tat, now) != Never {
					t.Fatalf("%s burst %d: %d tokens are never there", p.rate, p.burst, want)
				}
			default:
				debts++
				if p.Level(tat, now+int64(w)) < want || p.Level(tat, now+int64(w)-1) >= want {
					t.Fatalf("%s burst %d: %d tokens after %v: %d, and %d before", p.rate, p.burst, want, w,
						p.Level(tat, now+int64(w)), p.Level(tat, now+int64(w)-1))
				}
			}
			if (w == 0) != (p.Level(tat, now) >= want) {
				t.Fatalf("%s burst %d: a wait of %v for %d of %d", p.rate, p.burst, w, want, p.Level(tat, now))
			}
			if p.IsFull(tat, now) {
				fulls++
			}
		}
	}
	if whole < 1000 || debts < 1000 || fulls < 1000 || nevers < 100 {
		t.Errorf("only %d without a wait, %d with one, %d for ever, %d full", whole, debts, nevers, fulls)
	}
}

// near says that a float64 is within its precision of an exact level.
func near(got float64, want *big.Rat) bool {
	f, _ := want.Float64()
	return math.Abs(got-f) <= math.Abs(f)*4e-16
}

// TestTATOfALevel makes words of levels, and levels of words: never more than what was put in, and less than two units less.
func TestTATOfALevel(t *testing.T) {
	rnd := source(t)
	for range 20_000 {
		p, _, _ := randomLimit(rnd)
		now := logUniform(rnd, 1, int64(40*year))
		// As much debt as fits for certain.
		tokens := (rnd.Float64()*2.5 - 1) * float64(p.burst)
		switch rnd.IntN(4) {
		case 0:
			tokens = math.Trunc(tokens)
		case 1:
			tokens = math.Ldexp(tokens, -rnd.IntN(60))
		}
		got := NewAt(p, now, 0)
		got.tat.Store(p.TATOf(tokens, now))
		level, _ := got.Tokens(now)
		want := new(big.Rat).SetFloat64(tokens)
		if want.Cmp(rat(p.burst)) > 0 {
			want = rat(p.burst)
		}
		lost := want.Sub(want, level)
		if lost.Sign() < 0 || lost.Cmp(new(big.Rat).SetFrac(big.NewInt(2), new(big.Int).SetUint64(p.unit))) > 0 {
			t.Fatalf("%s burst %d: %v tokens became %s, %s less", p.rate, p.burst, tokens, level.FloatString(20), lost.FloatString(20))
		}
		if tokens == math.Trunc(tokens) && lost.Sign() != 0 {
			t.Fatalf("%s burst %d: %v whole tokens became %s", p.rate, p.burst, tokens, level.FloatString(20))
		}
	}
}

// TestTATAtTheEnds has what no limit of a sane mind gets to.
func TestTATAtTheEnds(t *testing.T) {
	p := params(t, "1/s", 10)
	if got := p.Used(5, 0, -3); got != 5 {
		t.Errorf("negative use moved it to %d", got)
	}
	if got := p.Used(0, -int64(time.Hour), 1); got != p.unit {
		t.Errorf("before time began: %d", got)
	}
	for _, tat := range []uint64{p.Used(0, sec, math.MaxInt64), p.TATOf(math.Inf(-1), 0), p.TATOf(math.NaN(), 0), p.TATOf(-1e300, math.MaxInt64)} {
		if tat != lastTAT || p.Level(tat, 0) > -1e9 || p.FullIn(tat, 0) != Never || p.WaitFor(tat, 0, 0) != Never {
			t.Errorf("all the debt there is: %d, level %d", tat, p.Level(tat, 0))
		}
	}
	if tat := p.TATOf(math.Inf(1), sec); !p.IsFull(tat, sec) || p.Level(tat, sec) != 10 {
		t.Errorf("more than all: %d", p.Level(tat, sec))
	}
	if got := p.WaitFor(0, 0, 11); got != Never {
		t.Errorf("more than a burst in %v", got)
	}
	if got := p.WaitFor(lastTAT, 0, math.MinInt64); got != 0 {
		t.Errorf("any debt will do, but %v", got)
	}
	none := params(t, "0/s", 5)
	tat := none.Used(0, 0, 3)
	if none.Level(tat, int64(year)) != 2 || none.WaitFor(tat, 0, 2) != 0 || none.WaitFor(tat, 0, 3) != Never || none.FullIn(tat, 0) != Never || !none.IsFull(0, 0) {
		t.Errorf("rate 0: level %d, %v and %v to wait, full in %v", none.Level(tat, int64(year)), none.WaitFor(tat, 0, 2), none.WaitFor(tat, 0, 3), none.FullIn(tat, 0))
	}
	fine := params(t, "1000000000/s", MaxBurst)
	if fine.unit != 1 || fine.Level(fine.Used(0, 0, 7), 0) != MaxBurst-7 || fine.Level(fine.Used(0, 0, MaxBurst+7), 0) != -7 {
		t.Errorf("units of a token: %d", fine.unit)
	}
}

// BenchmarkTAT is the arithmetic alone.
func BenchmarkTAT(b *testing.B) {
	for _, rate := range []string{"1000000000/s", "100/min", "65535/s"} {
		p := params(b, rate, 1000)
		tat := p.Used(0, sec, 500)
		for name, f := range map[string]func(now int64){
			"used":   func(now int64) { p.Used(tat, now, 1) },
			"level":  func(now int64) { p.Level(tat, now) },
			"tokens": func(now int64) { p.Tokens(tat, now) },
			"of":     func(now int64) { p.TATOf(12.5, now) },
			"full":   func(now int64) { p.IsFull(tat, now) },
			"wait":   func(now int64) { p.WaitFor(tat, now, 900) },
		} {
			b.Run(rate+"/"+name, func(b *testing.B) {
				now := sec
				for b.Loop() {
					now++
					f(now)
				}
			})
		}
	}
}

package bucket

import (
	"flag"
	"math/rand/v2"
	"testing"
	"time"
)

var seed = flag.Uint64("seed", 0, "seed of the property tests; 0 draws one")

func source(t testing.TB) *rand.Rand {
	s := *seed
	if s == 0 {
		s = rand.Uint64()
	}
	t.Logf("go test -run '^%s$' -args -seed %d", t.Name(), s)
	return rand.New(rand.NewPCG(s, 1))
}

// step moves a clock by nanoseconds to years, now and then back, and now and then to just when
// something happens.
func step(rnd *rand.Rand, now int64, last Result) int64 {
	switch rnd.IntN(8) {
	case 0:
		return now
	case 1:
		return max(0, now-logUniform(rnd, 1, int64(day)))
	case 2, 3:
		if last.RetryAfter != Never {
			return max(0, now+int64(last.RetryAfter)+rnd.Int64N(5)-2)
		}
	case 4:
		if last.ResetAfter != Never {
			return max(0, now+int64(last.ResetAfter)+rnd.Int64N(5)-2)
		}
	}
	return now + logUniform(rnd, 1, 1<<uint(1+rnd.IntN(55)))
}

// TestBucketAgreesWithItsTwin compares every field of every answer with exact fractions: random
// limits and shares of them, costs, times (forth and back), refunds, charges and changes of the
// limit.
func TestBucketAgreesWithItsTwin(t *testing.T) {
	rnd := source(t)
	exact, inexact := 0, 0
	for range 500 {
		p, num, den := randomLimit(rnd)
		x := newPair(t, p, num, den)
		now, last := rnd.Int64N(int64(time.Hour)), Result{}
		for range 60 {
			if x.b.p.exact {
				exact++
			} else {
				inexact++
			}
			now = min(step(rnd, now, last), int64(40*year))
			n := rnd.Int64N(4)
			if rnd.IntN(2) == 0 {
				n = logUniform(rnd, 1, max(2, x.w.burst+x.w.burst/8))
			}
			switch k := rnd.IntN(16); {
			case k == 0:
				last = x.move(now, n)
			case k == 1:
				// Not deeper in debt than the word can hold for certain.
				if room := floor(x.w.at(now)) + x.w.burst; room > 0 {
					last = x.move(now, -min(n, room))
				}
			case k == 2:
				p, num, den := randomLimit(rnd)
				if floor(x.w.at(now)) >= -p.burst {
					x.convert(now, p, num, den)
					last = x.take(now, 0)
				}
			default:
				last = x.take(now, n)
			}
		}
	}
	if exact < 1000 || inexact < 1000 {
		t.Errorf("only %d steps of exact and %d of inexact arithmetic", exact, inexact)
	}
}

// TestErrorsDoNotAddUp saturates limits whose rates do not divide the units, each token at the
// first possible nanosecond, and compares with the twin.
func TestErrorsDoNotAddUp(t *testing.T) {
	for _, r := range []Rate{
		Per(65535, time.Second), Per(999999937, time.Second), Per(2999999999, time.Second), Per(11, time.Hour),
	} {
		p, err := NewParams(r, 2)
		if err != nil {
			t.Fatal(err)
		}
		x := newPair(t, p, 1, 1)
		now := int64(0)
		for range 5000 {
			now += int64(x.take(now, 1).RetryAfter)
		}
	}
}

func FuzzTake(f *testing.F) {
	f.Add(uint64(7), int64(time.Second), int64(7), int64(0), int64(3), int64(10), int64(5), uint8(0))
	f.Add(uint64(1), int64(year), int64(1), int64(1<<40), int64(1), int64(1<<62), int64(1), uint8(1))
	f.Add(uint64(3e9), int64(time.Second), int64(1e12), int64(5), int64(1e12), int64(1), int64(1e12), uint8(2))
	f.Add(uint64(999999937), int64(time.Second), int64(1), int64(1<<60), int64(1), int64(-1), int64(1<<62), uint8(3))
	f.Fuzz(func(t *testing.T, count uint64, per, burst, now, n, step, m int64, what uint8) {
		p, err := NewParams(Rate{int64(count), time.Duration(per)}, burst)
		if err != nil {
			return
		}
		b := New(p)
		ask := func(now, n int64, what uint8) {
			free, _ := b.Tokens(now)
			r := b.do(op(what%3), now, n)
			left, _ := b.Tokens(now)
			if r.Remaining < 0 || r.Remaining > burst || r.RetryAfter < 0 || r.ResetAfter < 0 || r.Sealed || r.Overflow {
				t.Fatalf("%+v", r)
			}
			if !r.OK && left.Cmp(free) != 0 {
				t.Fatalf("denied, but %s became %s", free, left)
			}
			if left.Cmp(free) > 0 && op(what%3) != opRefund {
				t.Fatalf("%s became %s", free, left)
			}
			if r.OK && op(what%3) == opTake && n > 0 && free.Sub(free, left).Cmp(rat(n)) != 0 {
				t.Fatalf("%s taken of %d", free, n)
			}
			if left.Cmp(rat(burst)) > 0 {
				t.Fatalf("%s of %d tokens", left, burst)
			}
			if at := max(now, 0) + int64(r.RetryAfter); op(what%3) == opTake && r.RetryAfter != Never && !r.OK {
				x := pair{t: t, b: b}
				if x.copy().Take(at-1, n).OK || !x.copy().Take(at, n).OK {
					t.Fatalf("retry after %d does not hold", r.RetryAfter)
				}
			}
		}
		ask(now, n, what)
		ask(now, m, what/3)
		if step > 0 && now > 0 && now > 1<<62 {
			step = min(step, 1<<62)
		}
		later := int64(min(uint64(max(now, 0))+uint64(max(step, 0)), 1<<63-1))
		ask(later, n, what/9)
		ask(now, m, what/27)
	})
}

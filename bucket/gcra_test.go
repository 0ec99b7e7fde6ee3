package bucket

import (
	"math"
	"testing"
	"time"
)

const (
	ms  = int64(time.Millisecond)
	sec = int64(time.Second)
)

func params(t testing.TB, rate string, burst int64) *Params {
	t.Helper()
	r, err := ParseRate(rate)
	if err != nil {
		t.Fatal(err)
	}
	p, err := NewParams(r, burst)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// row is one line of a trace: what a take of n at the time now answers.
type row struct {
	now, n int64
	want   Result
}

func trace(t *testing.T, b *Bucket, rows []row) {
	t.Helper()
	for i, r := range rows {
		if got := b.Take(r.now, r.n); got != r.want {
			t.Errorf("row %d: take(%v, %d) = %+v, want %+v", i, time.Duration(r.now), r.n, got, r.want)
		}
	}
}

func TestCostAboveBurstIsNeverPossible(t *testing.T) {
	trace(t, New(params(t, "5/min", 5)), []row{
		{0, 10, Result{Remaining: 5, RetryAfter: Never}},
		{0, 6, Result{Remaining: 5, RetryAfter: Never}},
		{0, 5, Result{OK: true, Remaining: 0, ResetAfter: time.Minute}},
		{0, 6, Result{RetryAfter: Never, ResetAfter: time.Minute}},
		{0, math.MaxInt64, Result{RetryAfter: Never, ResetAfter: time.Minute}},
		{0, -1, Result{RetryAfter: Never, ResetAfter: time.Minute}},
	})
}

func TestWaitCountsTheFractionRefilledSoFar(t *testing.T) {
	trace(t, New(params(t, "5/300s", 5)), []row{
		{0, 5, Result{OK: true, ResetAfter: 300 * time.Second}},
		{59 * sec, 1, Result{RetryAfter: time.Second, ResetAfter: 241 * time.Second}},
		{59999 * ms, 1, Result{RetryAfter: time.Millisecond, ResetAfter: 240001 * time.Millisecond}},
		{60 * sec, 1, Result{OK: true, ResetAfter: 300 * time.Second}},
		{60 * sec, 2, Result{RetryAfter: 120 * time.Second, ResetAfter: 300 * time.Second}},
	})
}

func burstAt(b *Bucket, now int64, times int) (allowed int, last Result) {
	for range times {
		if last = b.Take(now, 1); last.OK {
			allowed++
		}
	}
	return allowed, last
}

func TestIdleTimeGivesAtMostABurst(t *testing.T) {
	for _, c := range []struct {
		burst   int64
		now     []int64
		allowed []int
	}{
		{1, []int64{0, 2 * sec, 3602 * sec}, []int{1, 1, 1}},
		{3, []int64{0, 3600 * sec, 3601 * sec}, []int{3, 3, 1}},
	} {
		b := New(params(t, "1/s", c.burst))
		for i, now := range c.now {
			allowed, last := burstAt(b, now, 25)
			if allowed != c.allowed[i] || last.OK || last.RetryAfter != time.Second {
				t.Errorf("burst %d at %v: %d allowed, then %+v", c.burst, time.Duration(now), allowed, last)
			}
		}
	}
}

func TestRatesAboveOnePerMillisecond(t *testing.T) {
	b := New(params(t, "65535/s", 65535))
	for i := range int64(20) {
		if r := b.Take(i*100*ms, 1); !r.OK || r.Remaining != 65534 {
			t.Errorf("at %d ms: %+v", i*100, r)
		}
	}
	half := 500 * time.Microsecond
	trace(t, New(params(t, "2000/s", 1)), []row{
		{0, 1, Result{OK: true, ResetAfter: half}},
		{400_000, 1, Result{RetryAfter: 100 * time.Microsecond, ResetAfter: 100 * time.Microsecond}},
		{500_000, 1, Result{OK: true, ResetAfter: half}},
	})
	allowed, last := burstAt(New(params(t, "6000/s", 6000)), 0, 6001)
	if allowed != 6000 || last.RetryAfter != 166667 {
		t.Errorf("%d allowed, then %+v", allowed, last)
	}
}

func TestRateZeroDeniesAll(t *testing.T) {
	for _, burst := range []int64{0, 5} {
		b := New(params(t, "0/s", burst))
		for i := range int64(1000) {
			if r := b.Take(i*sec, 1); r != (Result{RetryAfter: Never}) {
				t.Fatalf("%+v", r)
			}
		}
		if r := b.Peek(0); r != (Result{RetryAfter: Never}) {
			t.Errorf("look: %+v", r)
		}
	}
}

func TestSevenPerSecondLosesNothing(t *testing.T) {
	b := New(params(t, "7/s", 7))
	allowed := 0
	for now := int64(0); now <= 1000*sec; now += ms {
		for b.Take(now, 1).OK {
			allowed++
		}
	}
	if allowed != 7007 {
		t.Errorf("%d allowed in 1000 s, want 7007", allowed)
	}
}

func TestTimeThatGoesBackAndForthMakesNoTokens(t *testing.T) {
	b := New(params(t, "10/10s", 10))
	allowed := 0
	for i := range int64(1000) {
		if r := b.Take((100-i%2)*sec, 1); r.OK {
			allowed++
			if r.Remaining != int64(10-allowed) {
				t.Errorf("time does not stand still: %+v after %d", r, allowed)
			}
		}
	}
	if allowed != 10 {
		t.Errorf("%d allowed", allowed)
	}
	// The answer holds on the clock that went back.
	if r := b.Take(99*sec, 1); r.RetryAfter != 2*time.Second {
		t.Errorf("%+v", r)
	}
}

func TestElapsedTimeIsThatOfTheClockGiven(t *testing.T) {
	trace(t, New(params(t, "10/10s", 10)), []row{
		{100 * sec, 10, Result{OK: true, ResetAfter: 10 * time.Second}},
		{101 * sec, 1, Result{OK: true, ResetAfter: 10 * time.Second}},
		{101 * sec, 1, Result{RetryAfter: time.Second, ResetAfter: 10 * time.Second}},
	})
}

func TestChangeOfLimitKeepsTokens(t *testing.T) {
	b := New(params(t, "100/min", 100))
	left := []int64{99, 9, 8}
	for i, p := range []*Params{b.Params(), params(t, "10/min", 10), params(t, "1000/min", 1000)} {
		if i > 0 {
			var ok bool
			if b, ok = b.Convert(p, 0); !ok {
				t.Fatal("not converted")
			}
		}
		if r := b.Take(0, 1); !r.OK || r.Remaining != left[i] {
			t.Errorf("step %d: %+v", i, r)
		}
	}
}

func TestChangeOfLimitKeepsDebt(t *testing.T) {
	b := New(params(t, "10/s", 10))
	b.Charge(0, 30) // 20 tokens owed
	b, _ = b.Convert(params(t, "1/s", 3), sec)
	if r := b.Take(sec, 1); r != (Result{RetryAfter: 11 * time.Second, ResetAfter: 13 * time.Second}) {
		t.Errorf("10 tokens of debt at 1/s: %+v", r)
	}
	b, _ = b.Convert(params(t, "0/s", 3), sec)
	b, _ = b.Convert(params(t, "1/s", 3), 100*sec)
	if r := b.Peek(100 * sec); r != (Result{RetryAfter: 10 * time.Second, ResetAfter: 13 * time.Second}) {
		t.Errorf("after a rate of 0 for a while: %+v", r)
	}
}

func TestChargeAndRefund(t *testing.T) {
	b := New(params(t, "1/s", 10))
	for i, c := range []struct{ got, want Result }{
		{b.Charge(0, 4), Result{OK: true, Remaining: 6, ResetAfter: 4 * time.Second}},
		{b.Charge(0, 8), Result{OK: true, RetryAfter: 2 * time.Second, ResetAfter: 12 * time.Second}},
		{b.Take(0, 1), Result{RetryAfter: 3 * time.Second, ResetAfter: 12 * time.Second}},
		{b.Take(0, 0), Result{RetryAfter: 2 * time.Second, ResetAfter: 12 * time.Second}},
		{b.Refund(0, 1), Result{OK: true, RetryAfter: time.Second, ResetAfter: 11 * time.Second}},
		{b.Refund(0, 0), Result{OK: true, RetryAfter: time.Second, ResetAfter: 11 * time.Second}},
		{b.Refund(0, 7), Result{OK: true, Remaining: 6, ResetAfter: 4 * time.Second}},
		{b.Refund(0, math.MaxInt64), Result{OK: true, Remaining: 10}},
		{b.Refund(0, -1), Result{Remaining: 10, RetryAfter: Never}},
		{b.Charge(0, math.MinInt64), Result{Remaining: 10, RetryAfter: Never}},
	} {
		if c.got != c.want {
			t.Errorf("row %d: %+v, want %+v", i, c.got, c.want)
		}
	}
}

func TestNewAtStartsWithALevel(t *testing.T) {
	p := params(t, "1/s", 10)
	for _, c := range []struct {
		tokens int64
		want   Result
	}{
		{50, Result{OK: true, Remaining: 10}},
		{10, Result{OK: true, Remaining: 10}},
		{3, Result{OK: true, Remaining: 3, ResetAfter: 7 * time.Second}},
		{0, Result{OK: true, ResetAfter: 10 * time.Second}},
		{-5, Result{RetryAfter: 5 * time.Second, ResetAfter: 15 * time.Second}},
		{math.MinInt64, Result{RetryAfter: Never, ResetAfter: Never}},
	} {
		if got := NewAt(p, sec, c.tokens).Peek(sec); got != c.want {
			t.Errorf("%d tokens: %+v, want %+v", c.tokens, got, c.want)
		}
	}
}

func TestEverythingSaturatesTowardsDenial(t *testing.T) {
	for _, p := range []*Params{
		params(t, "1/year", 100), params(t, "3000000000/s", 1), params(t, "7/s", 7),
		params(t, "3000000000/s", 1e12), params(t, "999999937/s", MaxBurst), params(t, "1/364d", 1),
	} {
		for _, now := range []int64{math.MinInt64, 0, int64(clockRange), math.MaxInt64 - 1, math.MaxInt64} {
			b := New(p)
			for range 3 {
				if r := b.Charge(now, math.MaxInt64); r.Remaining != 0 || !r.OK || r.ResetAfter <= 0 {
					t.Fatalf("%s at %d: %+v", p.rate, now, r)
				}
			}
			if r := b.Take(math.MaxInt64, 1); r.OK && p.rate.Count < 1e9 {
				t.Errorf("%s: debt of 2^63 forgotten: %+v", p.rate, r)
			}
			b.Refund(math.MaxInt64, math.MaxInt64)
			b.Refund(math.MaxInt64, math.MaxInt64)
			b.Refund(math.MaxInt64, math.MaxInt64)
			if r := b.Take(math.MaxInt64, p.burst); !r.OK || r.Remaining != 0 {
				t.Errorf("%s: refunded in full, but %+v", p.rate, r)
			}
			// The clock has run out: nothing refills, nothing is free.
			if r := b.Take(math.MaxInt64, 1); r.OK {
				t.Errorf("%s: %+v", p.rate, r)
			}
		}
	}
}

// Unix time in nanoseconds is a valid clock, for all rates.
func TestClockOfUnixTime(t *testing.T) {
	now := time.Date(2040, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano()
	for _, rate := range []string{"1/year", "3/s", "7/s", "65535/s", "999999937/s", "3000000000/s"} {
		b := New(params(t, rate, 3))
		if r := b.Take(now, 3); !r.OK {
			t.Errorf("%s: %+v", rate, r)
		}
		r := b.Take(now, 1)
		if r.OK || r.RetryAfter == Never {
			t.Errorf("%s: %+v", rate, r)
		}
		if r := b.Take(now+int64(r.RetryAfter), 1); !r.OK {
			t.Errorf("%s: %+v", rate, r)
		}
	}
}

// Callers round waits up to seconds: a nanosecond too much would show as a second.
func TestWaitOfWholeSecondsIsExact(t *testing.T) {
	for _, n := range []int64{11, 97, 65535, 999983, 999999937, 2999999999} {
		p, err := NewParams(Per(n, time.Second), n)
		if err != nil {
			t.Fatal(err)
		}
		for now := int64(0); now < int64(20*year); now += int64(year) + 12345 {
			if r := New(p).Take(now, n); r.ResetAfter != time.Second {
				t.Errorf("%d/s at %d: %+v", n, now, r)
			}
		}
	}
}

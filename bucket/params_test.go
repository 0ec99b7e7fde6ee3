package bucket

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"
)

func TestNewParamsRefusesWhatItCannotKeep(t *testing.T) {
	for _, c := range []struct {
		r     Rate
		burst int64
		is    error
		says  string
	}{
		{Per(-1, time.Second), 1, ErrRateRange, "negative"},
		{Per(1, time.Second), 0, ErrBurst, "1 or more"},
		{Per(1, time.Second), -1, ErrBurst, "negative"},
		{Per(3e9, time.Second), MaxBurst + 1, ErrBurst, "above"},
		{Per(1, year), 101, ErrBurst, "100 years"},
		{Per(1, time.Second), math.MaxInt64, ErrBurst, "above"},
		{Per(1, time.Second), 1e12, ErrBurst, "100 years"},
	} {
		if _, err := NewParams(c.r, c.burst); !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%v, burst %d: %v", c.r, c.burst, err)
		}
	}
	for _, c := range []struct{ num, den int64 }{{1, 0}, {-1, 2}, {3, 2}, {0, -1}} {
		if _, err := NewShare(Per(1, time.Second), c.num, c.den, 1); !errors.Is(err, ErrShare) {
			t.Errorf("%d/%d: %v", c.num, c.den, err)
		}
	}
}

// TestUnits states which arithmetic a limit gets.
func TestUnits(t *testing.T) {
	for _, c := range []struct {
		rate  string
		burst int64
		exact bool
	}{
		{"1/year", 1, true}, {"1/year", 100, true}, {"100/min", 20, true}, {"7/s", 7, true}, {"3/s", 1, true},
		{"2000/s", 1, true}, {"6000/s", 6000, true}, {"1000000000/s", 1, true}, {"3000000000/s", 1e12, true},
		{"3000000000/s", MaxBurst, true}, {"0/s", 5, true}, {"1000/h", 1000, true},
		{"65535/s", 65535, false}, {"999999937/s", 1, false}, {"2999999999/s", 1e12, false}, {"11/h", 1, false},
		{"7/year", 500, false},
	} {
		p := params(t, c.rate, c.burst)
		if p.exact != c.exact {
			t.Errorf("%s burst %d: exact %v", c.rate, c.burst, p.exact)
		}
		// Half a nanosecond or finer: the clock shows 2 or more after 1 ns.
		if !p.exact && p.mul>>p.shift < 2 {
			t.Errorf("%s burst %d: coarse units: %+v", c.rate, c.burst, p)
		}
		if p.clock(int64(clockRange)) >= p.last && !p.DenyAll() {
			t.Errorf("%s burst %d: the clock ends before its range: %+v", c.rate, c.burst, p)
		}
	}
}

func TestShares(t *testing.T) {
	third, err := NewShare(Per(5, time.Minute), 1, 3, 2)
	if err != nil {
		t.Fatal(err)
	}
	trace(t, New(third), []row{
		{0, 2, Result{OK: true, ResetAfter: 72 * time.Second}},
		{0, 1, Result{RetryAfter: 36 * time.Second, ResetAfter: 72 * time.Second}},
		{36 * sec, 1, Result{OK: true, ResetAfter: 72 * time.Second}},
		{36 * sec, 3, Result{RetryAfter: Never, ResetAfter: 72 * time.Second}},
	})
	none, err := NewShare(Per(5, time.Minute), 1, 7, 0)
	if err != nil {
		t.Fatal(err)
	}
	trace(t, New(none), []row{{0, 1, Result{RetryAfter: Never}}, {0, 0, Result{OK: true}}})
	zero, err := NewShare(Per(5, time.Minute), 0, 7, 3)
	if err != nil || !zero.DenyAll() {
		t.Fatal(zero, err)
	}
	trace(t, New(zero), []row{{0, 1, Result{RetryAfter: Never}}})
}

// A tiny share of a slow limit takes longer to fill than any clock runs: it must deny then, not
// wrap.
func TestShareOfCenturies(t *testing.T) {
	for _, den := range []int64{300, 1000, 1 << 40, math.MaxInt64} {
		p, err := NewShare(Per(1, year), 1, den, 1)
		if err != nil {
			t.Fatal(err)
		}
		b := New(p)
		if r := b.Take(0, 1); !r.OK {
			t.Errorf("1/%d: %+v", den, r)
		}
		if r := b.Take(int64(70*year), 1); r.OK || r.RetryAfter != Never || r.ResetAfter != Never {
			t.Errorf("1/%d: %+v", den, r)
		}
		if got := p.FillTime(); got != Never {
			t.Errorf("1/%d fills in %v", den, got)
		}
	}
}

func TestFillTime(t *testing.T) {
	for _, c := range []struct {
		rate  string
		burst int64
		want  time.Duration
	}{
		{"100/min", 20, 12 * time.Second}, {"3/s", 1, 333333334}, {"0/s", 3, 0}, {"65535/s", 65535, time.Second},
		{"3000000000/s", 1, 1}, {"1/year", 100, 100 * year},
	} {
		if got := params(t, c.rate, c.burst).FillTime(); got != c.want {
			t.Errorf("%s burst %d: %v, want %v", c.rate, c.burst, got, c.want)
		}
	}
}

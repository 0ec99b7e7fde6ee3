package bucket

import (
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
	"time"
)

func TestParseRate(t *testing.T) {
	for _, c := range []struct {
		in   string
		want Rate
		text string
	}{
		{"100/min", Per(100, time.Minute), "100/min"},
		{"100/m", Per(100, time.Minute), "100/min"},
		{"100/minute", Per(100, time.Minute), "100/min"},
		{"7/s", Per(7, time.Second), "7/s"},
		{"7/sec", Per(7, time.Second), "7/s"},
		{"7/second", Per(7, time.Second), "7/s"},
		{"1/h", Per(1, time.Hour), "1/h"},
		{"1/hour", Per(1, time.Hour), "1/h"},
		{"2/d", Per(2, 24*time.Hour), "2/d"},
		{"2/day", Per(2, 24*time.Hour), "2/d"},
		{"3/w", Per(3, 7*24*time.Hour), "3/week"},
		{"3/week", Per(3, 7*24*time.Hour), "3/week"},
		{"4/month", Per(4, 30*24*time.Hour), "4/month"},
		{"5/year", Per(5, 365*24*time.Hour), "5/year"},
		{"5/10s", Per(5, 10*time.Second), "5/10s"},
		{"5/90s", Per(5, 90*time.Second), "5/90s"},
		{"5/1m30s", Per(5, 90*time.Second), "5/90s"},
		{"5/60s", Per(5, time.Minute), "5/min"},
		{"1/1h1s", Per(1, time.Hour+time.Second), "1/1h1s"},
		{"1/100ms", Per(1, 100*time.Millisecond), "1/100ms"},
		{"1/24h", Per(1, 24*time.Hour), "1/d"},
		{"1/d12h", Per(1, 36*time.Hour), "1/36h"},
		{"10/2weeks", Per(10, 14*24*time.Hour), "10/14d"},
		{"5r/m", Per(5, time.Minute), "5/min"},
		{"5r/s", Per(5, time.Second), "5/s"},
		{" 5 / s ", Per(5, time.Second), "5/s"},
		{"0/s", Per(0, time.Second), "0/s"},
		{"0/h", Per(0, time.Hour), "0/h"},
		{"3000000000/s", Per(3e9, time.Second), "3000000000/s"},
		{"3/ns", Per(3, 1), "3/ns"},
	} {
		got, err := ParseRate(c.in)
		if err != nil || got != c.want || got.String() != c.text {
			t.Errorf("%q: %+v (%v), %v; want %+v (%s)", c.in, got, got, err, c.want, c.text)
		}
	}
}

func TestParseRateSaysWhatToDo(t *testing.T) {
	for _, c := range []struct {
		in   string
		is   error
		says string
	}{
		{"", ErrRateSyntax, "100/min"},
		{"100", ErrRateSyntax, "100/min"},
		{"/s", ErrRateSyntax, "100/min"},
		{"5/", ErrRateSyntax, "100/min"},
		{"0.5/s", ErrRateSyntax, "1/2s"},
		{"1e3/s", ErrRateSyntax, "whole number"},
		{"-1/s", ErrRateSyntax, "whole number"},
		{"1,000/s", ErrRateSyntax, "whole number"},
		{"r/s", ErrRateSyntax, "whole number"},
		{"99999999999999999999/s", ErrRateSyntax, "2^63"},
		{"5/1.5s", ErrRateSyntax, "1s500ms"},
		{"5/fortnight", ErrRateSyntax, "unknown unit"},
		{"5/10", ErrRateSyntax, "unknown unit"},
		{"5/0s", ErrRateSyntax, "zero"},
		{"5/-1s", ErrRateSyntax, "unknown unit"},
		{"5/s/s", ErrRateSyntax, "unknown unit"},
		{"5/300years", ErrRateSyntax, "too long"},
		{"5/99999999999999999999s", ErrRateSyntax, "too long"},
		{"5/200years200years", ErrRateSyntax, "too long"},
		{"1/2years", ErrRateRange, "slower than 1/year"},
		{"3000000001/s", ErrRateRange, "faster than 3000000000/s"},
		{"4/ns", ErrRateRange, "faster"},
	} {
		_, err := ParseRate(c.in)
		if !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.says) || !strings.HasPrefix(err.Error(), "bucket: ") {
			t.Errorf("%q: %v; want %v with %q", c.in, err, c.is, c.says)
		}
	}
}

func TestValidateRate(t *testing.T) {
	for _, c := range []struct {
		r  Rate
		ok bool
	}{
		{Rate{}, true},
		{Per(0, time.Hour), true},
		{Per(0, -1), true},
		{Per(-1, time.Second), false},
		{Per(1, 0), false},
		{Per(1, -time.Second), false},
		{Per(1, year), true},
		{Per(1, year+1), false},
		{Per(3, 1), true},
		{Per(4, 1), false},
		{Per(math.MaxInt64, math.MaxInt64), true},
		{Per(math.MaxInt64, 1), false},
		{Per(1, math.MaxInt64), false},
	} {
		if err := c.r.Validate(); (err == nil) != c.ok || err != nil && !errors.Is(err, ErrRateRange) {
			t.Errorf("%+v: %v", c.r, err)
		}
	}
}

func TestRateAsText(t *testing.T) {
	var c struct{ Rate Rate }
	if err := json.Unmarshal([]byte(`{"Rate":"5r/m"}`), &c); err != nil || c.Rate != Per(5, time.Minute) {
		t.Errorf("%v, %v", c, err)
	}
	if b, err := json.Marshal(c); err != nil || string(b) != `{"Rate":"5/min"}` {
		t.Errorf("%s, %v", b, err)
	}
	if err := json.Unmarshal([]byte(`{"Rate":"often"}`), &c); !errors.Is(err, ErrRateSyntax) {
		t.Error(err)
	}
	if _, err := json.Marshal(Per(-1, time.Second)); !errors.Is(err, ErrRateRange) {
		t.Error(err)
	}
	if s := Per(5, -time.Second).String(); s != "5/-1s" {
		t.Error(s)
	}
}

func FuzzParseRate(f *testing.F) {
	for _, s := range []string{"100/min", "5r/m", "5/1m30s", "0/s", "1/3d4h5m6s7ms8us9ns", "0.5/s", "3/month", "1/μs", "9/9µs"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r, err := ParseRate(s)
		if err != nil {
			if !errors.Is(err, ErrRateSyntax) && !errors.Is(err, ErrRateRange) {
				t.Fatalf("%q: %v", s, err)
			}
			return
		}
		again, err := ParseRate(r.String())
		if err != nil || again != r {
			t.Fatalf("%q is %+v, written %q, read %+v, %v", s, r, r.String(), again, err)
		}
	})
}

// FuzzRateString goes the other way: every valid rate is written so that it is read as the same.
func FuzzRateString(f *testing.F) {
	f.Add(int64(100), int64(time.Minute))
	f.Add(int64(1), int64(26*time.Hour+1))
	f.Add(int64(0), int64(0))
	f.Add(int64(0), int64(-81))
	f.Fuzz(func(t *testing.T, n, d int64) {
		r := Per(n, time.Duration(d))
		s := r.String()
		again, err := ParseRate(s)
		if valid := r.Validate(); (valid == nil) != (err == nil) {
			t.Fatalf("%+v: %v, but reading %q: %v", r, valid, s, err)
		}
		if err == nil && again != r && (r.Count != 0 || r.Per > 0) {
			t.Fatalf("%+v is written %q, read %+v", r, s, again)
		}
	})
}

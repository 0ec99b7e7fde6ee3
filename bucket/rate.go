package bucket

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"strings"
	"time"
)

// Units of time that a rate may name. A month is 30 days and a year 365:
// a rate is a quotient and not an appointment in a calendar.
const (
	day   = 24 * time.Hour
	week  = 7 * day
	month = 30 * day
	year  = 365 * day
)

// MaxPerSecond is the fastest rate.
const MaxPerSecond = 3_000_000_000

// Errors of rates; match them with errors.Is.
var (
	ErrRateSyntax = errors.New("bucket: malformed rate")
	ErrRateRange  = errors.New("bucket: rate out of range")
)

// Rate is Count tokens per Per. A Count of 0, and so the zero value, denies all.
// Rates compare with == as written: 60/min and 1/s are different values of the same speed.
type Rate struct {
	Count int64
	Per   time.Duration
}

// Per returns the rate of n tokens per d. It does not validate.
func Per(n int64, d time.Duration) Rate { return Rate{Count: n, Per: d} }

// Validate tells whether the rate is 0, or between 1 per year and 3e9 per second.
// Its errors match ErrRateRange.
func (r Rate) Validate() error {
	switch {
	case r.Count == 0:
		return nil
	case r.Count < 0:
		return fmt.Errorf("%w: %d tokens is negative; write 0/s to deny all", ErrRateRange, r.Count)
	case r.Per <= 0:
		return fmt.Errorf("%w: the duration %v is not positive", ErrRateRange, r.Per)
	}
	// Count/Per > 3e9/1e9 per ns, in 128 bits.
	if hi, lo := bits.Mul64(uint64(r.Per), MaxPerSecond/uint64(time.Second)); hi == 0 && uint64(r.Count) > lo {
		return fmt.Errorf("%w: %s is faster than %d/s", ErrRateRange, r, int64(MaxPerSecond))
	}
	if hi, lo := bits.Mul64(uint64(r.Count), uint64(year)); hi == 0 && lo < uint64(r.Per) {
		return fmt.Errorf("%w: %s is slower than 1/year", ErrRateRange, r)
	}
	return nil
}

// unit is one word for a duration; the first of a size is the one String writes.
type unit struct {
	word string
	size time.Duration
}

func units() []unit {
	return []unit{
		{"year", year}, {"years", year}, {"y", year},
		{"month", month}, {"months", month},
		{"week", week}, {"weeks", week}, {"w", week},
		{"d", day}, {"day", day}, {"days", day},
		{"h", time.Hour}, {"hour", time.Hour}, {"hours", time.Hour}, {"hr", time.Hour},
		{"min", time.Minute}, {"m", time.Minute}, {"minute", time.Minute}, {"minutes", time.Minute},
		{"s", time.Second}, {"sec", time.Second}, {"second", time.Second}, {"seconds", time.Second},
		{"ms", time.Millisecond},
		{"us", time.Microsecond}, {"µs", time.Microsecond}, {"μs", time.Microsecond},
		{"ns", time.Nanosecond},
	}
}

// ParseRate reads a rate: whole tokens, a slash and a duration, as in 100/min,
// 5/10s, 1/1m30s, 3/2d, 0/s, or in the manner of nginx 5r/s and 30r/m. Units are s, sec,
// second; m, min, minute; h, hour; d, day; w, week; month (30 days); year (365
// days); ms, us and ns. Decimals are refused, since 0.1 of a token is better said as a duration.
// The rate is validated. Errors match ErrRateSyntax or ErrRateRange.
func ParseRate(s string) (Rate, error) {
	count, per, found := strings.Cut(strings.TrimSpace(s), "/")
	count, per = strings.TrimSpace(count), strings.TrimSpace(per)
	if !found || count == "" || per == "" {
		return Rate{}, fmt.Errorf("%w %q: want tokens per duration, such as 100/min or 5/10s", ErrRateSyntax, s)
	}
	n, err := parseCount(strings.TrimSuffix(count, "r"))
	if err != nil {
		return Rate{}, fmt.Errorf("%w %q: %w", ErrRateSyntax, s, err)
	}
	d, err := parsePer(per)
	if err != nil {
		return Rate{}, fmt.Errorf("%w %q: %w", ErrRateSyntax, s, err)
	}
	r := Rate{Count: n, Per: d}
	if err := r.Validate(); err != nil {
		return Rate{}, err
	}
	return r, nil
}

func parseCount(s string) (int64, error) {
	if strings.ContainsAny(s, ".eE") {
		return 0, fmt.Errorf("%q is not a whole number; lengthen the duration instead (0.5/s is 1/2s)", s)
	}
	for _, c := range []byte(s) {
		if c < '0' || c > '9' {
			return 0, fmt.Errorf("%q is not a whole number of tokens", s)
		}
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%q is not a whole number of tokens below 2^63", s)
	}
	return n, nil
}

// parsePer reads a duration: numbers with units, the first number may be left out when it is 1.
func parsePer(s string) (time.Duration, error) {
	if strings.Contains(s, ".") {
		return 0, fmt.Errorf("%q has a decimal point; write whole units (1.5s is 1s500ms)", s)
	}
	var total time.Duration
	for rest := s; rest != ""; {
		digits := len(rest) - len(strings.TrimLeft(rest, "0123456789"))
		n := int64(1)
		if digits > 0 {
			var err error
			if n, err = strconv.ParseInt(rest[:digits], 10, 64); err != nil {
				return 0, fmt.Errorf("duration %q is too long", s)
			}
		} else if rest != s {
			return 0, fmt.Errorf("duration %q is malformed", s)
		}
		rest = rest[digits:]
		letters := strings.IndexAny(rest, "0123456789")
		if letters < 0 {
			letters = len(rest)
		}
		size, ok := unitSize(rest[:letters])
		if !ok {
			return 0, fmt.Errorf("unknown unit of time %q; use s, min, h, d, week, month, year, ms, us or ns", rest[:letters])
		}
		rest = rest[letters:]
		hi, lo := bits.Mul64(uint64(n), uint64(size))
		if hi != 0 || lo > math.MaxInt64-uint64(total) {
			return 0, fmt.Errorf("duration %q is too long", s)
		}
		total += time.Duration(lo)
	}
	if total == 0 {
		return 0, fmt.Errorf("duration %q is zero", s)
	}
	return total, nil
}

func unitSize(word string) (time.Duration, bool) {
	for _, u := range units() {
		if u.word == word {
			return u.size, true
		}
	}
	return 0, false
}

// String returns the shortest form that ParseRate reads back as the same value, such as 100/min or
// 1/1h1s. A rate of 0 without a duration is 0/s, one that is out of range is written with Go's
// duration.
func (r Rate) String() string {
	if r.Count == 0 && r.Per <= 0 {
		return "0/s"
	}
	if r.Per <= 0 {
		return fmt.Sprintf("%d/%v", r.Count, r.Per)
	}
	return strconv.FormatInt(r.Count, 10) + "/" + formatPer(r.Per)
}

// formatPer returns the shortest of: the bare unit, a multiple of one unit, a sum of units.
func formatPer(d time.Duration) string {
	best, sum, rest := "", "", d
	for i, all := 0, units(); i < len(all); i++ {
		u := all[i]
		if i > 0 && u.size == all[i-1].size {
			continue
		}
		if d == u.size {
			return u.word
		}
		if d%u.size == 0 {
			if s := strconv.FormatInt(int64(d/u.size), 10) + u.word; best == "" || len(s) < len(best) {
				best = s
			}
		}
		if n := rest / u.size; n > 0 {
			sum += strconv.FormatInt(int64(n), 10) + u.word
			rest %= u.size
		}
	}
	if len(sum) < len(best) {
		return sum
	}
	return best
}

// MarshalText implements encoding.TextMarshaler with String; it refuses what ParseRate would.
func (r Rate) MarshalText() ([]byte, error) {
	if err := r.Validate(); err != nil {
		return nil, err
	}
	return []byte(r.String()), nil
}

// UnmarshalText implements encoding.TextUnmarshaler with ParseRate.
func (r *Rate) UnmarshalText(text []byte) error {
	parsed, err := ParseRate(string(text))
	if err != nil {
		return err
	}
	*r = parsed
	return nil
}

package fields

import (
	"math"
	"math/bits"
	"strconv"
	"time"

	"github.com/jatah-io/jatah"
)

// CeilSeconds rounds a wait up to whole seconds.
func CeilSeconds(d time.Duration) int64 { return CeilDiv(d, time.Second) }

// CeilDiv is how many whole units a wait has, rounded up; 0 for none.
func CeilDiv(d, unit time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	return int64((d-1)/unit) + 1
}

// AppendMillis writes a wait in whole milliseconds as JSON, rounded up; null: never.
func AppendMillis(b []byte, d time.Duration) []byte {
	if d == jatah.Never {
		return append(b, "null"...)
	}
	return strconv.AppendInt(b, CeilDiv(d, time.Millisecond), 10)
}

// appendLimitItem writes the member of the RateLimit list for one policy.
func appendLimitItem(b []byte, name string, d *jatah.Decision) []byte {
	return appendAmounts(appendItemName(b, name), d)
}

func appendItemName(b []byte, name string) []byte { return append(appendSFString(b, name), ";r="...) }

func appendAmounts(b []byte, d *jatah.Decision) []byte {
	b = appendSFInt(b, d.Remaining)
	if d.ResetAfter != jatah.Never {
		b = append(b, ";t="...)
		b = appendSFInt(b, CeilSeconds(d.ResetAfter))
	}
	return b
}

// AppendPolicy writes the RateLimit-Policy list of a limit: one member, or one for each of several rates. The first has the name of the limit,
// the others that with -2, -3 and so on.
func AppendPolicy(b []byte, l *jatah.Limit) []byte {
	if len(l.Rates) == 0 {
		return appendPolicyItem(b, l.Name, l.Rate, l.Capacity())
	}
	for i, r := range l.Rates {
		name, quota := l.Name, r.Count
		switch {
		case i > 0:
			name += "-" + strconv.Itoa(i+1)
			b = append(b, ", "...)
		case l.Burst > 0:
			quota = l.Burst
		}
		b = appendPolicyItem(b, name, r, quota)
	}
	return b
}

// appendPolicyItem writes the member of the RateLimit-Policy list for one
// rate: q is the burst and w the seconds in which it fills, rounded up, which for a window are its count and its
// length. A limit that never fills has no w.
func appendPolicyItem(b []byte, name string, r jatah.Rate, burst int64) []byte {
	b = append(appendSFString(b, name), ";q="...)
	b = appendSFInt(b, burst)
	if r.Count > 0 {
		b = append(b, ";w="...)
		b = appendSFInt(b, fillSeconds(r, burst))
	}
	return b
}

// fillSeconds is burst*per/count in seconds, rounded up; it saturates.
func fillSeconds(r jatah.Rate, burst int64) int64 {
	hi, lo := bits.Mul64(uint64(burst), uint64(r.Per))
	count, second := uint64(r.Count), uint64(time.Second)
	high, part := hi/count, hi%count
	low, rest := bits.Div64(part, lo, count) // high:low are nanoseconds
	if high >= second {
		return math.MaxInt64
	}
	seconds, frac := bits.Div64(high, low, second)
	if seconds >= math.MaxInt64 {
		return math.MaxInt64
	}
	if frac > 0 || rest > 0 {
		seconds++
	}
	return int64(seconds)
}

// appendSFString writes a String of RFC 9651. It can hold printable ASCII only;
// anything else becomes a question mark (the names of limits are ASCII).
func appendSFString(b []byte, s string) []byte {
	b = append(b, '"')
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c < ' ' || c > '~':
			b = append(b, '?')
		default:
			b = append(b, c)
		}
	}
	return append(b, '"')
}

// appendSFInt writes an Integer of RFC 9651, which has at most 15 digits.
func appendSFInt(b []byte, n int64) []byte {
	const most = 999_999_999_999_999
	return strconv.AppendInt(b, min(max(n, -most), most), 10)
}

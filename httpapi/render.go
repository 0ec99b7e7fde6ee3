package httpapi

import (
	"bytes"
	"math"
	"math/bits"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/jatah-io/jatah"
)

// appendDecision writes a decision as JSON. echo is the key as JSON. Who is allowed
// has nothing to wait for, also after a charge that left the key in debt.
func appendDecision(b []byte, l *terms, d *jatah.Decision, echo []byte, cost int64) []byte {
	retry := d.RetryAfter
	if d.OK {
		retry = 0
	}
	b = append(b, `{"allowed":`...)
	b = strconv.AppendBool(b, d.OK)
	b = append(b, `,"limit":`...)
	b = appendJSON(b, l.Name)
	b = append(b, `,"key":`...)
	b = appendEcho(b, echo)
	if l.plan != "" {
		b = append(b, `,"plan":`...)
		b = appendJSON(b, l.plan)
	}
	b = append(b, `,"cost":`...)
	b = strconv.AppendInt(b, cost, 10)
	b = append(b, `,"remaining":`...)
	b = strconv.AppendInt(b, d.Remaining, 10)
	b = append(b, `,"retry_after_ms":`...)
	b = appendMillis(b, retry)
	b = append(b, `,"reset_after_ms":`...)
	b = appendMillis(b, d.ResetAfter)
	if d.Delay > 0 {
		b = append(b, `,"delay_ms":`...)
		b = appendMillis(b, d.Delay)
	}
	b = append(b, `,"mode":"`...)
	b = append(b, d.Mode.String()...)
	b = append(b, `","source":"`...)
	b = append(b, d.Source.String()...)
	b = append(b, '"')
	if d.DryRun {
		b = append(b, `,"dry_run":true`...)
	}
	if retry == jatah.Never {
		b = append(b, `,"reason":`...)
		b = appendJSON(b, neverReason(&l.Limit, cost))
	}
	return append(b, '}')
}

// neverReason says why no wait helps.
func neverReason(l *jatah.Limit, cost int64) string {
	switch most := l.Capacity(); {
	case most == 0:
		return "the rate of the limit is 0, which denies everything"
	case cost > most:
		word := "burst"
		if len(l.Rates) > 0 || burstOf(*l) == nil {
			word = "most that can pass at once,"
		}
		return "the cost " + strconv.FormatInt(cost, 10) + " exceeds the " + word + " " + strconv.FormatInt(most, 10) + "; it is never possible"
	}
	return "no wait helps"
}

// appendMillis writes a wait in whole milliseconds, rounded up; null: never.
func appendMillis(b []byte, d time.Duration) []byte {
	if d == jatah.Never {
		return append(b, "null"...)
	}
	return strconv.AppendInt(b, ceilDiv(d, time.Millisecond), 10)
}

// ceilSeconds rounds a wait up to whole seconds.
func ceilSeconds(d time.Duration) int64 { return ceilDiv(d, time.Second) }

func ceilDiv(d, unit time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	return int64((d-1)/unit) + 1
}

// appendEcho writes the key as it was sent, but always as valid UTF-8 and
// without white space between the parts of an array.
func appendEcho(b, echo []byte) []byte {
	if !utf8.Valid(echo) {
		echo = bytes.ToValidUTF8(echo, []byte("\ufffd"))
	}
	if echo[0] != '[' {
		return append(b, echo...)
	}
	for s := (scanner{b: echo}); s.i < len(echo); {
		switch c := s.peek(); c {
		case '"':
			raw, _, _ := s.str() // was read before
			b = append(b, raw...)
		default:
			b = append(b, c)
			s.i++
		}
	}
	return b
}

// appendJSON writes a string as JSON. Bytes that are no UTF-8 become U+FFFD.
func appendJSON(b []byte, s string) []byte {
	const hex = "0123456789abcdef"
	b = append(b, '"')
	from := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c < utf8.RuneSelf {
			if c < ' ' || c == '"' || c == '\\' {
				b = append(b, s[from:i]...)
				if c < ' ' {
					b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
				} else {
					b = append(b, '\\', c)
				}
				from = i + 1
			}
			i++
			continue
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && size == 1 {
			b = append(b, s[from:i]...)
			b = append(b, "\ufffd"...)
			from = i + 1
		}
		i += size
	}
	b = append(b, s[from:]...)
	return append(b, '"')
}

// The headers of a decision beside Content-Type, as indexes of an answer's values.
const (
	headLength = iota
	headRetryAfter
	headRateLimit
	headPolicy
	headXLimit
	headXRemaining
	headXReset
	numHeads
)

// headNames are canonical in the sense of net/http, so that they can be set in
// a header map as they are.
var headNames = [numHeads]string{
	headLength:     "Content-Length",
	headRetryAfter: "Retry-After",
	headRateLimit:  "Ratelimit",
	headPolicy:     "Ratelimit-Policy",
	headXLimit:     "X-Ratelimit-Limit",
	headXRemaining: "X-Ratelimit-Remaining",
	headXReset:     "X-Ratelimit-Reset",
}

// heads collects header values in one buffer, to make them one string at the end.
type heads struct {
	b   []byte
	end [numHeads]int
}

func (v *heads) done(i int) { v.end[i] = len(v.b) }

// values cuts the collected values out of a single string. They must
// have been added in the order of their indexes; what was left out is empty.
func (v *heads) values() *[numHeads]string {
	all, vals, from := string(v.b), new([numHeads]string), 0
	for i, end := range v.end {
		if end > from {
			vals[i], from = all[from:end], end
		}
	}
	return vals
}

// decisionHeads writes the header values of a decision. wall is when it was made.
func (c *Config) decisionHeads(v *heads, l *jatah.Limit, d *jatah.Decision, length int, wall func() time.Time) {
	*v = heads{b: v.b[:0]}
	v.b = strconv.AppendInt(v.b, int64(length), 10)
	v.done(headLength)
	if !d.OK && d.RetryAfter != jatah.Never {
		v.b = strconv.AppendInt(v.b, max(1, ceilSeconds(d.RetryAfter)), 10)
		v.done(headRetryAfter)
	}
	most := l.Capacity()
	if !c.OmitRateLimit {
		v.b = appendLimitItem(v.b, l.Name, d)
		v.done(headRateLimit)
		v.b = appendPolicy(v.b, l, most)
		v.done(headPolicy)
	}
	if c.OmitXRateLimit {
		return
	}
	v.b = strconv.AppendInt(v.b, most, 10)
	v.done(headXLimit)
	v.b = strconv.AppendInt(v.b, d.Remaining, 10)
	v.done(headXRemaining)
	if d.ResetAfter == jatah.Never {
		return
	}
	if c.ResetEpoch {
		at := wall().Add(d.ResetAfter)
		v.b = strconv.AppendInt(v.b, at.Add(time.Second-1).Unix(), 10)
	} else {
		v.b = strconv.AppendInt(v.b, ceilSeconds(d.ResetAfter), 10)
	}
	v.done(headXReset)
}

// appendLimitItem writes the member of the RateLimit list for one policy.
func appendLimitItem(b []byte, name string, d *jatah.Decision) []byte {
	b = append(appendSFString(b, name), ";r="...)
	b = appendSFInt(b, d.Remaining)
	if d.ResetAfter != jatah.Never {
		b = append(b, ";t="...)
		b = appendSFInt(b, ceilSeconds(d.ResetAfter))
	}
	return b
}

// appendPolicy writes the RateLimit-Policy list: one member, or one for each of several rates. The first has the name of the limit, the
// others that with -2, -3 and so on. most is the capacity of the limit.
func appendPolicy(b []byte, l *jatah.Limit, most int64) []byte {
	if len(l.Rates) == 0 {
		return appendPolicyItem(b, l.Name, l.Rate, most)
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

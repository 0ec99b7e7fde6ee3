package httpapi

import (
	"bytes"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/jatah-io/jatah"
	"github.com/jatah-io/jatah/httpapi/internal/fields"
	"github.com/jatah-io/jatah/httpapi/internal/problems"
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

func appendMillis(b []byte, d time.Duration) []byte { return fields.AppendMillis(b, d) }

func ceilDiv(d, unit time.Duration) int64 { return fields.CeilDiv(d, unit) }

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

func appendJSON(b []byte, s string) []byte { return problems.AppendString(b, s) }

// decisionHeads writes the header values of a decision. wall is when it was made.
func (c *Config) decisionHeads(v *fields.Set, l *jatah.Limit, d *jatah.Decision, length int, wall func() time.Time) {
	retry := d.RetryAfter
	if d.OK {
		retry = 0
	} else {
		retry = max(1, retry)
	}
	v.Begin(length, retry)
	v.Add(c.fields(), wall, fields.Item{Limit: l, Decision: d})
}

// fields are the headers that decisions have.
func (c *Config) fields() fields.Options {
	return fields.Options{OmitRateLimit: c.OmitRateLimit, OmitXRateLimit: c.OmitXRateLimit, Legacy: c.Legacy, ResetEpoch: c.ResetEpoch}
}

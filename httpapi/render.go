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

// face is what answers say of a limit whatever was decided. It is not changed once made.
type face struct {
	*jatah.Terms
	heads           fields.Fixed
	beforeKey, cost string // JSON, between what changes
}

func newFace(t *jatah.Terms) *face {
	name := appendJSON([]byte(`,"limit":`), t.Name)
	f := &face{Terms: t, heads: fields.FixedOf(&t.Limit), beforeKey: string(append(name, `,"key":`...)), cost: `,"cost":`}
	if t.Plan != "" {
		f.cost = string(appendJSON([]byte(`,"plan":`), t.Plan)) + f.cost
	}
	return f
}

// faceOf is the face of a limit as it holds for a key.
func (h *Handler) faceOf(l *jatah.Limiter, key string) *face {
	return h.faces.Of(l.Terms(key), newFace)
}

// appendDecision writes a decision as JSON. echo is the key as JSON. Who is allowed
// has nothing to wait for, also after a charge that left the key in debt.
func appendDecision(b []byte, f *face, d *jatah.Decision, echo []byte, cost int64) []byte {
	retry := d.RetryAfter
	if d.OK {
		retry = 0
		b = append(b, `{"allowed":true`...)
	} else {
		b = append(b, `{"allowed":false`...)
	}
	b = append(b, f.beforeKey...)
	b = appendEcho(b, echo)
	b = append(b, f.cost...)
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
		b = appendJSON(b, neverReason(&f.Limit, cost))
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
func (c *Config) decisionHeads(v *fields.Set, f *face, d *jatah.Decision, length int, wall func() time.Time) {
	retry := d.RetryAfter
	if d.OK {
		retry = 0
	} else {
		retry = max(1, retry)
	}
	v.Begin(length, retry)
	v.One(c.fields(), wall, &f.heads, d)
}

// fields are the headers that decisions have.
func (c *Config) fields() fields.Options {
	return fields.Options{OmitRateLimit: c.OmitRateLimit, OmitXRateLimit: c.OmitXRateLimit, Legacy: c.Legacy, ResetEpoch: c.ResetEpoch}
}

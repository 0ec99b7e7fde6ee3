package bucket

import (
	"math"
	"math/bits"
	"time"
)

// slidingWindow estimates the usage of the last period P from two counters: that of the current window of
// the epoch, and that of the one before, weighted with how much of it lies in the last period:
//
//	Free = part*limit - out - max(0, cur - kept) - prev*(P-e)/P
//
// with e the time since the current window began. The arithmetic is exact where part is 1. The
// estimate takes the usage of the window before as spread evenly; where it was not, up to twice
// the limit can pass in a period, and less than the limit too. Use sliding_log for an exact one.
type slidingWindow struct {
	moment
	rule      *slidingRule
	start     int64
	cur, prev float64 // used in this window and in the one before
	kept      float64 // of shares that left in this window: elsewhere they count as used in it
}

// slidingRule is a compiled sliding_window.
type slidingRule struct {
	tokens  float64
	period  int64
	roundUp bool
}

func compileSliding(s Spec, r Rate, _ int64, _ *Algorithm) (rule, error) {
	tokens, err := windowTokens(r)
	if err != nil {
		return nil, err
	}
	return &slidingRule{tokens, int64(max(r.Per, 1)), s.RoundUp}, nil
}

func (r *slidingRule) meter() Meter                { return &slidingWindow{rule: r} }
func (r *slidingRule) capacity() float64           { return r.tokens }
func (r *slidingRule) amount(part float64) float64 { return amount(r.tokens, part, r.roundUp) }

func (r *slidingRule) share(k, rank int) rule {
	s := *r
	s.tokens = wholeShare(r.tokens, k, rank)
	return &s
}

// turn moves the counters to the window of t. What is kept takes off what was used in the same window, since
// elsewhere both fade together. What of it was not used by then ends: a use in the next window
// would outlast what fades elsewhere.
func (m *slidingWindow) turn(t int64) {
	switch w := t/m.rule.period - m.start/m.rule.period; {
	case w <= 0:
		return
	case w == 1:
		m.prev = max(m.cur-m.kept, 0)
	default:
		m.prev = 0
	}
	m.cur, m.kept = 0, 0
	m.start = t - t%m.rule.period
}

// free is Free at t in the current window.
func (m *slidingWindow) free(t int64) float64 {
	whole, frac := portion(m.prev, m.rule.period-(t-m.start), m.rule.period)
	return below(m.rule.amount(m.part)-m.out-max(m.cur-m.kept, 0)-whole, frac)
}

// portion returns x * num/den for 0 <= num <= den as a whole number and a fraction below 1, exactly where x is
// whole; a fraction that is not 0 stays above 0.
func portion(x float64, num, den int64) (whole, frac float64) {
	w, f := math.Modf(x)
	hi, lo := bits.Mul64(uint64(w), uint64(num))
	q, rem := bits.Div64(hi, lo, uint64(den))
	whole, frac = float64(q), float64(rem)/float64(den)+f*float64(num)/float64(den)
	if frac >= 1 {
		if f == 0 {
			return whole, math.Nextafter(1, 0)
		}
		return whole + 1, frac - 1
	}
	return whole, frac
}

func (m *slidingWindow) Advance(now int64, part, out float64) {
	now, part, out = m.later(now, part, out)
	if !m.begun {
		m.moment = moment{now, part, out, true}
		m.start = now - now%m.rule.period
		return
	}
	m.turn(now)
	m.now = now
	m.cur = min(m.cur+m.consumed(0, out), maxDebt)
	if part != m.part {
		more := m.rule.amount(part) - m.rule.amount(m.part)
		m.part = part
		m.cur, m.kept = book(m.cur, m.kept, more)
	}
}

func (m *slidingWindow) Free() float64 { return m.free(m.now) }

func (m *slidingWindow) Use(n, out float64) {
	m.cur = min(m.cur+m.consumed(n, out), maxDebt)
}

// Return takes tokens off this window, and what it does not hold off the one before.
func (m *slidingWindow) Return(n, out float64) {
	m.cur += m.consumed(-n, out)
	if m.cur < 0 {
		m.prev = max(m.prev+m.cur, 0)
		m.cur = 0
	}
}

// Wait looks at what is left of this window, at the next one, in which what is used now fades, and at
// the time after it, when all is forgotten.
func (m *slidingWindow) Wait(n float64) time.Duration {
	c := *m
	for range 2 {
		end := c.start + c.rule.period
		if end < c.start {
			return Never // of the clock
		}
		if t := c.first(n, end); t < end {
			return time.Duration(t - m.now)
		}
		c.turn(end)
		c.now = end
	}
	if c.free(c.now) >= n {
		return time.Duration(c.now - m.now)
	}
	return Never
}

// first returns the first time from now on, before end, at which n are free, or end.
func (m *slidingWindow) first(n float64, end int64) int64 {
	if m.free(m.now) >= n {
		return m.now
	}
	left := (m.rule.amount(m.part) - m.out - max(m.cur-m.kept, 0) - n) / m.prev // of the window before
	guess := max(end-toTime(left*float64(m.rule.period)), m.now)
	return firstTime(m.now, guess, func(t int64) bool { return t >= end || m.free(t) >= n })
}

func (m *slidingWindow) Reset() time.Duration {
	left := m.rule.period - (m.now - m.start)
	switch {
	case m.cur > m.kept:
		if left > math.MaxInt64-m.rule.period {
			return Never
		}
		return time.Duration(left + m.rule.period)
	case m.prev != 0 || m.cur != 0 || m.kept != 0:
		return time.Duration(left)
	}
	return 0
}

func (m *slidingWindow) Fresh() bool {
	return m.cur == 0 && m.prev == 0 && m.kept == 0 && m.out == 0
}

func (m *slidingWindow) clone() Meter {
	c := *m
	return &c
}

func (m *slidingWindow) capacity() float64 { return m.rule.capacity() }

func (m *slidingWindow) taken() float64 {
	return m.rule.amount(m.part) - m.Free() - m.out
}

func (m *slidingWindow) adopt(old Meter) error {
	o, ok := old.(*slidingWindow)
	if !ok || o.rule.period != m.rule.period {
		return errKind
	}
	rule := m.rule
	*m = *o
	m.rule = rule
	m.kept = o.kept * rule.tokens / max(o.rule.tokens, 1)
	return nil
}

func (m *slidingWindow) State(b []byte) []byte {
	b = m.header(b, kindSliding)
	b = putInt(b, m.start/m.rule.period)
	return putFloats(b, m.cur, m.prev, m.kept)
}

func (m *slidingWindow) Load(b []byte, now int64) error {
	r := newReader(b, kindSliding)
	n := *m
	n.moment = r.header(now)
	number := r.int()
	n.cur, n.prev, n.kept = r.amount(), r.amount(), r.amount()
	if err := r.end(); err != nil {
		return err
	}
	if !n.begun {
		*m = slidingWindow{moment: n.moment, rule: m.rule}
		return nil
	}
	w, ahead, err := loadWindow(epochWindows(m.rule.period), number, n.now)
	if err != nil {
		return err
	}
	n.start = w.start
	if ahead {
		n.now = w.start
	}
	n.turn(n.now)
	*m = n
	return nil
}

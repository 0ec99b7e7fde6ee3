package bucket

import (
	"math"
	"time"
)

// Holder is a Meter of what is held and given back, and does not age: concurrency. Other than of other meters, of a Holder a rise
// of part frees what it brings, at once: who moves a share knows what is held. It never says how long to wait.
type Holder interface {
	Meter
	// Hold says what is held and what is out besides, in tokens, whatever was known before.
	Hold(used, out float64)
}

// permitMeter counts permits. Free = floor(part*max) - out - used; with RoundUp the part is rounded up.
type permitMeter struct {
	moment
	rule *permitRule
	used float64
}

// permitRule is a compiled concurrency limit.
type permitRule struct {
	max     float64
	roundUp bool
}

func compileConcurrency(s Spec, _ Rate, _ int64, _ *Algorithm) (rule, error) {
	if s.Max < 1 || s.Max > maxTokens {
		return nil, specError("max is %d; it is how many permits are held at once, from 1 to %d", s.Max, int64(maxTokens))
	}
	return &permitRule{float64(s.Max), s.RoundUp}, nil
}

func (r *permitRule) meter() Meter      { return &permitMeter{rule: r} }
func (r *permitRule) capacity() float64 { return r.max }

func (r *permitRule) share(k, rank int) rule {
	s := *r
	s.max = wholeShare(r.max, k, rank)
	return &s
}

func (r *permitRule) amount(part float64) float64 { return math.Floor(amount(r.max, part, r.roundUp)) }

func (m *permitMeter) Advance(now int64, part, out float64) {
	now, part, out = m.later(now, part, out)
	m.used += m.consumed(0, out)
	m.moment = moment{now, part, out, true}
}

func (m *permitMeter) Free() float64 { return m.rule.amount(m.part) - m.out - m.used }

func (m *permitMeter) Use(n, out float64) { m.used = min(m.used+m.consumed(n, out), maxDebt) }

func (m *permitMeter) Return(n, out float64) { m.used = max(m.used+m.consumed(-n, out), 0) }

func (m *permitMeter) Hold(used, out float64) {
	m.used, m.out = min(max(used, 0), maxDebt), max(out, 0)
}

func (m *permitMeter) Wait(n float64) time.Duration {
	if m.Free() >= n {
		return 0
	}
	return Never
}

func (m *permitMeter) Reset() time.Duration {
	if m.used > 0 {
		return Never
	}
	return 0
}

func (m *permitMeter) Fresh() bool { return m.used == 0 && m.out == 0 }

func (m *permitMeter) clone() Meter {
	c := *m
	return &c
}

func (m *permitMeter) capacity() float64 { return m.rule.max }
func (m *permitMeter) taken() float64    { return m.used }

// adopt keeps what is held. What another algorithm counts as used is not held by anybody.
func (m *permitMeter) adopt(old Meter) error {
	m.moment = *old.at()
	if o, ok := old.(*permitMeter); ok {
		m.used = o.used
	}
	return nil
}

func (m *permitMeter) State(b []byte) []byte {
	return putFloats(m.moment.header(b, kindConcurrency), m.used)
}

func (m *permitMeter) Load(b []byte, now int64) error {
	r := newReader(b, kindConcurrency)
	n := *m
	n.moment, n.used = r.header(now), r.amount()
	if err := r.end(); err != nil {
		return err
	}
	*m = n
	return nil
}

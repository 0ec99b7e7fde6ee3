package bucket

import (
	"math"
	"slices"
	"sync/atomic"
	"time"
)

// slidingLog keeps each use for the period P: in any interval of length P at most the limit passes, exactly.
//
//	Free = part*limit - sum(log) - out
//
// When the part falls, Free falls with it at once: whatever were used of a share after it left would still count
// here when the share, a period later, counts as unused elsewhere.
//
// What is granted as credit counts while it is out, and enters the log when it is known to be
// spent. The log holds at most MaxLog events. When it is full, neighbours are merged in pairs with the later
// time of both: usage then ages late, never early, and Algorithm.Coalesced counts it.
type slidingLog struct {
	moment
	rule *logRule
	log  []event // oldest first; log[:gone] is over
	gone int
	sum  float64
}

type event struct {
	at int64
	n  float64
}

// logRule is a compiled sliding_log.
type logRule struct {
	tokens    float64
	period    int64
	max       int
	roundUp   bool
	coalesced *atomic.Uint64
}

func compileLog(s Spec, r Rate, _ int64, a *Algorithm) (rule, error) {
	tokens, err := windowTokens(r)
	if err != nil {
		return nil, err
	}
	most := s.MaxLog
	if most == 0 {
		most = DefaultMaxLog
	}
	if most < 2 || most > 1<<20 {
		return nil, specError("max_log is %d; it must be between 2 and %d events", most, 1<<20)
	}
	return &logRule{tokens, int64(max(r.Per, 1)), most, s.RoundUp, a.coalesced}, nil
}

func (r *logRule) meter() Meter                { return &slidingLog{rule: r} }
func (r *logRule) capacity() float64           { return r.tokens }
func (r *logRule) amount(part float64) float64 { return amount(r.tokens, part, r.roundUp) }

func (r *logRule) share(k, rank int) rule {
	s := *r
	s.tokens = wholeShare(r.tokens, k, rank)
	return &s
}

// end is when an event at t is over: it lasts for [t, t+P).
func (r *logRule) end(t int64) int64 {
	if t > math.MaxInt64-r.period {
		return math.MaxInt64
	}
	return t + r.period
}

func (m *slidingLog) Advance(now int64, part, out float64) {
	now, part, out = m.later(now, part, out)
	if !m.begun {
		m.moment = moment{now, part, out, true}
		return
	}
	m.now = now
	m.expire()
	m.add(m.consumed(0, out))
	if part != m.part {
		more := m.rule.amount(part) - m.rule.amount(m.part)
		m.part = part
		m.add(snap(more))
	}
}

func (m *slidingLog) expire() {
	for m.gone < len(m.log) && m.rule.end(m.log[m.gone].at) <= m.now {
		m.sum -= m.log[m.gone].n
		m.gone++
	}
	if m.gone == len(m.log) {
		m.log, m.gone, m.sum = m.log[:0], 0, 0
		if cap(m.log) > 64 {
			m.log = nil // the burst is over
		}
	} else if m.gone > len(m.log)/2 {
		m.log = append(m.log[:0], m.log[m.gone:]...)
		m.gone = 0
	}
}

// add logs n tokens as of now.
func (m *slidingLog) add(n float64) {
	if n <= 0 {
		return
	}
	n = min(n, maxDebt-m.sum)
	if last := len(m.log) - 1; last >= m.gone && m.log[last].at == m.now {
		m.log[last].n += n
	} else {
		if len(m.log)-m.gone >= m.rule.max {
			m.coalesce()
		}
		m.log = append(m.log, event{m.now, n})
	}
	m.sum += n
}

// coalesce halves the log. Doing all pairs at once costs little per event, and the error, the time
// between two neighbours, is spread evenly.
func (m *slidingLog) coalesce() {
	live := m.log[m.gone:]
	merged := live[:0]
	for i := 0; i < len(live); i += 2 {
		e := live[i]
		if i+1 < len(live) {
			e = event{live[i+1].at, e.n + live[i+1].n}
		}
		merged = append(merged, e)
	}
	m.log = m.log[:m.gone+len(merged)]
	m.rule.coalesced.Add(1)
}

// remove takes n tokens off the log, the newest first.
func (m *slidingLog) remove(n float64) {
	for n > 0 && len(m.log) > m.gone {
		last := &m.log[len(m.log)-1]
		if last.n > n {
			last.n -= n
			m.sum -= n
			return
		}
		n -= last.n
		m.sum -= last.n
		m.log = m.log[:len(m.log)-1]
	}
	if len(m.log) == m.gone {
		m.log, m.gone, m.sum = m.log[:0], 0, 0
	}
}

func (m *slidingLog) Free() float64 {
	return snap(m.rule.amount(m.part) - m.sum - m.out)
}

func (m *slidingLog) Use(n, out float64) { m.add(m.consumed(n, out)) }

func (m *slidingLog) Return(n, out float64) {
	if c := m.consumed(-n, out); c > 0 {
		m.add(c)
	} else {
		m.remove(-c)
	}
}

func (m *slidingLog) Wait(n float64) time.Duration {
	free := m.Free()
	if free >= n {
		return 0
	}
	for i := m.gone; i < len(m.log); i++ {
		end := m.rule.end(m.log[i].at)
		if end == math.MaxInt64 {
			return Never
		}
		free = snap(free + m.log[i].n)
		if i+1 == len(m.log) {
			// The last one leaves nothing: no rounding is left either.
			free = snap(m.rule.amount(m.part) - m.out)
		}
		if free >= n {
			return time.Duration(end - m.now)
		}
	}
	return Never
}

func (m *slidingLog) Reset() time.Duration {
	if len(m.log) == m.gone {
		return 0
	}
	return until(m.rule.end(m.log[len(m.log)-1].at), m.now)
}

func (m *slidingLog) Fresh() bool { return len(m.log) == m.gone && m.out == 0 }

func (m *slidingLog) clone() Meter {
	c := *m
	c.log, c.gone = slices.Clone(m.log[m.gone:]), 0
	return &c
}

func (m *slidingLog) capacity() float64 { return m.rule.capacity() }

func (m *slidingLog) taken() float64 { return m.sum }

func (m *slidingLog) adopt(old Meter) error {
	o, ok := old.(*slidingLog)
	if !ok {
		return errKind
	}
	rule := m.rule
	*m = *o
	m.rule = rule
	m.log, m.gone = slices.Clone(o.log[o.gone:]), 0
	for len(m.log) > rule.max {
		m.coalesce()
	}
	m.expire()
	return nil
}

func (m *slidingLog) State(b []byte) []byte {
	b = m.header(b, kindLog)
	b = putInt(b, int64(len(m.log)-m.gone))
	for _, e := range m.log[m.gone:] {
		b = putFloats(putInt(b, m.now-e.at), e.n)
	}
	return b
}

func (m *slidingLog) Load(b []byte, now int64) error {
	r := newReader(b, kindLog)
	n := slidingLog{moment: r.header(now), rule: m.rule}
	count := r.int()
	if count < 0 || count > int64(len(r.b)/9) {
		r.fail("it cannot hold %d events", count)
		count = 0
	}
	for last := int64(0); count > 0 && r.err == nil; count-- {
		e := event{n.now - r.age(n.now), r.amount()}
		if e.at < last {
			r.fail("its events are not in order")
		}
		last = e.at
		n.log = append(n.log, e)
		n.sum += e.n
	}
	if n.sum > maxDebt {
		r.fail("it holds too many tokens")
	}
	if err := r.end(); err != nil {
		return err
	}
	if !n.begun {
		*m = slidingLog{moment: n.moment, rule: m.rule}
		return nil
	}
	for len(n.log) > n.rule.max {
		n.coalesce()
	}
	n.expire()
	*m = n
	return nil
}

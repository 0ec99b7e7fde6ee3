package bucket

import (
	"math"
	"time"
)

// fixedWindow counts what is used in windows: [k*P, (k+1)*P) from the Unix epoch, or those of a calendar. Twice
// the limit can pass in a short time around the end of a window: that is the price of fixed windows.
//
// Free = part*limit - out - max(0, used - kept). Where nodes disagree about the time, a share that moves within the
// difference around the end of a window may be counted as new at both.
type fixedWindow struct {
	moment
	rule *windowRule
	span window
	used float64 // in this window
	kept float64 // of shares that left in this window: elsewhere they count from the next one
}

// windowRule is a compiled fixed_window.
type windowRule struct {
	tokens  float64
	roundUp bool
	windows windows
}

// window is the time [start, end) in nanoseconds.
type window struct{ start, end int64 }

// windows tells which window a time lies in. number and start convert between a window and
// a number that is the same on all nodes.
type windows interface {
	at(now int64) window
	number(w window) int64
	start(number int64) (int64, bool)
}

// epochWindows are windows of one length.
type epochWindows int64

func (p epochWindows) at(now int64) window {
	start := now - now%int64(p)
	if start > math.MaxInt64-int64(p) {
		return window{start, math.MaxInt64}
	}
	return window{start, start + int64(p)}
}

func (p epochWindows) number(w window) int64 { return w.start / int64(p) }

func (p epochWindows) start(n int64) (int64, bool) {
	if n < 0 || n > math.MaxInt64/int64(p) {
		return 0, false
	}
	return n * int64(p), true
}

func compileWindow(s Spec, r Rate, _ int64, _ *Algorithm) (rule, error) {
	tokens, err := windowTokens(r)
	if err != nil {
		return nil, err
	}
	w := &windowRule{tokens: tokens, roundUp: s.RoundUp, windows: epochWindows(max(r.Per, 1))}
	if s.Calendar == "" {
		if s.Timezone != "" {
			return nil, specError("timezone %q without a calendar; set calendar to day, for example", s.Timezone)
		}
		return w, nil
	}
	per, ok := nominal(s.Calendar)
	if !ok {
		return nil, specError("calendar %q is unknown; use hour, day, week, month or year", s.Calendar)
	}
	if r.Per != per && r.Count != 0 {
		return nil, specError("calendar %s needs a rate per %s, not %s", s.Calendar, s.Calendar, r)
	}
	zone, err := loadZone(s.Timezone)
	if err != nil {
		return nil, err
	}
	w.windows = calendarWindows{s.Calendar, zone}
	return w, nil
}

func (r *windowRule) meter() Meter      { return &fixedWindow{rule: r} }
func (r *windowRule) capacity() float64 { return r.tokens }

func (r *windowRule) share(k, rank int) rule {
	s := *r
	s.tokens = wholeShare(r.tokens, k, rank)
	return &s
}

func (r *windowRule) amount(part float64) float64 { return amount(r.tokens, part, r.roundUp) }

func (m *fixedWindow) Advance(now int64, part, out float64) {
	now, part, out = m.later(now, part, out)
	if !m.begun {
		m.moment = moment{now, part, out, true}
		m.span = m.rule.windows.at(now)
		return
	}
	if now >= m.span.end {
		m.span, m.used, m.kept = m.rule.windows.at(now), 0, 0
	}
	m.now = now
	m.used += m.consumed(0, out)
	m.share(part)
}

// share books a change of part: what is free stays.
func (m *fixedWindow) share(part float64) {
	if part == m.part {
		return
	}
	more := m.rule.amount(part) - m.rule.amount(m.part)
	m.part = part
	m.used, m.kept = book(m.used, m.kept, more)
}

// book keeps Free when the tokens of a part grow by more: first what is kept goes back, the rest
// came used up. When they shrink, the difference is kept.
func book(used, kept, more float64) (float64, float64) {
	if more <= 0 {
		return used, snap(kept - more)
	}
	back := min(kept, more)
	return snap(used + more - back), snap(kept - back)
}

func (m *fixedWindow) Free() float64 {
	// What is kept may be used, but not given away as credit: that might be spent in the next window.
	return snap(m.rule.amount(m.part) - m.out - max(m.used-m.kept, 0))
}

func (m *fixedWindow) Use(n, out float64) {
	m.used = min(m.used+m.consumed(n, out), maxDebt)
}

func (m *fixedWindow) Return(n, out float64) {
	m.used = max(m.used+m.consumed(-n, out), 0)
}

func (m *fixedWindow) Wait(n float64) time.Duration {
	switch {
	case m.Free() >= n:
		return 0
	case snap(m.rule.amount(m.part)-m.out) < n || m.span.end == math.MaxInt64:
		return Never
	}
	return time.Duration(m.span.end - m.now)
}

func (m *fixedWindow) Reset() time.Duration { return until(m.span.end, m.now) }

func (m *fixedWindow) Fresh() bool { return m.used == 0 && m.kept == 0 && m.out == 0 }

func (m *fixedWindow) clone() Meter {
	c := *m
	return &c
}

func (m *fixedWindow) capacity() float64 { return m.rule.capacity() }

func (m *fixedWindow) taken() float64 { return m.used }

func (m *fixedWindow) adopt(old Meter) error {
	o, ok := old.(*fixedWindow)
	if !ok {
		return errKind
	}
	m.moment, m.used = o.moment, o.used
	m.span = m.rule.windows.at(o.now)
	if o.kept > 0 { // shares that left, at the new size
		m.kept = o.kept * m.rule.tokens / max(o.rule.tokens, 1)
	}
	return nil
}

func (m *fixedWindow) State(b []byte) []byte {
	b = m.moment.header(b, kindFixed)
	b = putInt(b, m.rule.windows.number(m.span))
	return putFloats(b, m.used, m.kept)
}

func (m *fixedWindow) Load(b []byte, now int64) error {
	r := newReader(b, kindFixed)
	n := *m
	n.moment = r.header(now)
	number := r.int()
	n.used, n.kept = r.amount(), r.amount()
	if err := r.end(); err != nil {
		return err
	}
	if !n.begun {
		*m = fixedWindow{moment: n.moment, rule: m.rule}
		return nil
	}
	span, ahead, err := loadWindow(m.rule.windows, number, n.now)
	if err != nil {
		return err
	}
	if n.now >= span.end { // of a window that is over
		span, n.used, n.kept = m.rule.windows.at(n.now), 0, 0
	}
	n.span = span
	if ahead {
		n.now = span.start
	}
	*m = n
	return nil
}

// loadWindow finds the window of a number. One that is just ahead comes from a node whose clock is ahead: time
// stands still until ours has caught up. One that is further ahead counts as the present
// one, so that a clock gone wrong elsewhere cannot stop this key.
func loadWindow(ws windows, number, now int64) (w window, ahead bool, err error) {
	start, ok := ws.start(number)
	if !ok {
		return window{}, false, stateError("window %d does not exist", number)
	}
	w, here := ws.at(start), ws.at(now)
	if w.start != start {
		return window{}, false, stateError("no window of this limit starts with number %d", number)
	}
	switch {
	case w.start <= here.start:
		return w, false, nil
	case w.start == here.end:
		return w, true, nil
	}
	return here, false, nil
}

package bucket

import (
	"math"
	"strings"
)

// Level is what a bucket holds, exactly: Whole + Part/Unit tokens, where 0 <= Part < Unit. Whole is rounded down, so it is
// below zero for every debt. It may be copied, and means the same under any Params; the zero value is an empty bucket.
type Level struct {
	Whole      int64
	Part, Unit uint64
}

// LevelOf is a number of tokens as a Level: exact from 2^-9 tokens up, else to 2^-53 of a token.
func LevelOf(tokens float64) Level {
	whole := math.Floor(tokens)
	switch {
	case !(whole > math.MinInt64): // also NaN
		return Level{Whole: math.MinInt64, Unit: 1}
	case whole >= math.MaxInt64:
		return Level{Whole: math.MaxInt64, Unit: 1}
	}
	const unit = 1 << 62
	return Level{Whole: int64(whole), Part: min(uint64((tokens-whole)*unit), unit-1), Unit: unit}
}

// Tokens is the level as a number, rounded to a float64.
func (l Level) Tokens() float64 {
	if l.Unit == 0 {
		return float64(l.Whole)
	}
	return float64(l.Whole) + float64(l.Part)/float64(l.Unit)
}

// level is what is left of a full bucket when so many units are missing.
func (p *Params) level(missing uint64) Level {
	if missing <= p.full {
		left := p.full - missing
		return Level{Whole: int64(left / p.unit), Part: left % p.unit, Unit: p.unit}
	}
	debt := missing - p.full
	whole, rest := debt/p.unit, debt%p.unit
	l := Level{Whole: -int64(min(whole, math.MaxInt64-1)), Unit: p.unit}
	if rest > 0 {
		l.Whole, l.Part = l.Whole-1, p.unit-rest
	}
	return l
}

// missing is the inverse of level, rounded up.
func (p *Params) missing(l Level) uint64 {
	var part uint64
	if l.Part > 0 && l.Part < l.Unit {
		part, _ = scale(l.Part, p.unit, l.Unit)
	}
	if l.Whole >= 0 {
		if l.Whole >= p.burst {
			return 0
		}
		return p.full - p.units(l.Whole) - part
	}
	return add(p.full, p.debt(l.Whole)-part)
}

// Each calls f with every key that is not full, until f returns false: its Params and what it holds at now. Takers are not
// held up. A key that is used meanwhile is told as before or after that use, one that is new or
// forgotten meanwhile perhaps not at all.
func (t *Table) Each(now int64, f func(key string, p *Params, left Level) bool) {
	t.keys.Range(func(key string, e *entry) bool {
		for {
			tat := e.tat.Load()
			if tat != sealed {
				clock := e.p.clock(e.at(now))
				return tat <= clock || f(key, e.p, e.p.level(tat-clock))
			}
			// Replaced: whoever sealed it puts its successor in place under the map's lock of the key.
			var ok bool
			if t.await(key) {
				e, ok = t.keys.Load(key)
			}
			if !ok {
				return true // forgotten: it was full
			}
		}
	})
}

// Restore makes the entry of a key that held so much a while ago, in nanoseconds, and was not used since; p as for TakeWith,
// nil for the Params of the table. It says whether it did: not if the key is known, or full by now, or the table is.
func (t *Table) Restore(key string, p *Params, now int64, left Level, ago int64) bool {
	own := p != nil
	if !own {
		p = t.limit.Load().p
	}
	missing := p.missing(left)
	missing -= min(missing, p.clock(max(ago, 0)))
	if missing == 0 || !t.claim() {
		return false
	}
	now = max(now, t.dropped.Load(), 0)
	e := &entry{key: strings.Clone(key), own: own}
	e.p = p
	e.newest.Store(now)
	e.tat.Store(min(add(p.clock(now), missing), lastTAT))
	if _, known := t.keys.LoadOrStore(e.key, e); known {
		t.slots.Add(-1)
		return false
	}
	due, live := e.fullTime()
	if !live {
		due = 0 // sealed already; push will see it
	}
	t.index.push(e, due)
	return true
}

package bucket

import "math"

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
// forgotten meanwhile perhaps not at all, or twice if it is used again after that.
func (t *Table) Each(now int64, f func(key string, p *Params, left Level) bool) {
	more := true
	for chunk := 0; more && chunk < t.keys.Chunks(); chunk++ {
		t.keys.Scan(chunk, 0, func(r *record) bool {
			if key, p, missing := t.look(r, now); missing > 0 {
				more = f(key, p, p.level(missing))
			}
			return more
		})
	}
}

// look tells the key of a record, its Params and the units that are missing: 0 also if it is nobody's.
func (t *Table) look(r *record, now int64) (key string, p *Params, missing uint64) {
	for {
		word := r.tat.Load()
		if word == busy {
			break
		}
		key, p, missing = t.read(r, word, now)
		if r.tat.Load() == word {
			return key, p, missing // all of one life
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.keys.Live(r) {
		return "", nil, 0
	}
	return t.read(r, r.tat.Load(), now)
}

func (t *Table) read(r *record, word uint64, now int64) (key string, p *Params, missing uint64) {
	state := r.state.Load()
	p = t.params.at(numberOf(state))
	clock := p.clock(r.at(now))
	if tat := word - t.salt(state); tat > clock {
		return t.keys.Key(r), p, tat - clock
	}
	return "", p, 0
}

// Restore makes the entry of a key that held so much a while ago, in nanoseconds, and was not used since; p as for TakeWith,
// nil for the Params of the table. It says whether it did: not if the key is known, or full by now, or the table is.
func (t *Table) Restore(key string, p *Params, now int64, left Level, ago int64) bool {
	return t.restore(key, p, now, left, ago, ordinary)
}

// RestoreBeyond is Restore of what must not be forgotten: where there is no room it is stored beyond the bounds.
func (t *Table) RestoreBeyond(key string, p *Params, now int64, left Level, ago int64) bool {
	return t.restore(key, p, now, left, ago, beyond)
}

func (t *Table) restore(key string, p *Params, now int64, left Level, ago int64, how claim) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	own := p != nil
	if !own {
		p = t.limit.Load().p
	}
	missing := p.missing(left)
	missing -= min(missing, p.clock(max(ago, 0)))
	if missing == 0 {
		return false
	}
	if r, _ := t.keys.Find(key); r != nil || t.closed || !t.budget.Key(how != ordinary) {
		return false
	}
	now = max(now, t.dropped.Load(), 0)
	if !t.add(key, p, own, min(add(p.clock(now), missing), lastTAT), now, how) {
		t.budget.DropKey()
		return false
	}
	return true
}

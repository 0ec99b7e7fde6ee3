package hybrid

import (
	"math"
	"time"

	"github.com/jatah-io/jatah/bucket"
)

// fallback is a key's own share while its owner is silent, as a token bucket. It is empty when the loan has
// run out, and refills at the node's weight times the rate.
type fallback struct {
	active  bool
	started int64
	own     float64
	at      int64        // the moment own is meant at; in the future while the loan lasts
	ahead   float64      // what may be spent at once; owed
	m       bucket.Meter // instead of own, where the rule is not one token bucket: in windows the share counts from the next one on
}

// fall decides a request by fallback: its ask has timed out, or the owner is silent.
func (e *Engine) fall(a *account, cost, now int64) Decision {
	s := &a.limit.spec
	d := a.decision(false, SourceShare, now)
	d.RetryAfter = e.cfg.Tick
	if cost == 0 {
		d.OK, d.Source, d.Err = true, SourceLocal, ErrUnreachable
		return d
	}
	if s.permits() {
		e.fallOnPermits(a, &d, cost, now)
		return d
	}
	switch s.Fallback {
	case FallbackDeny:
		d.Source = SourceDeny
		return d
	case FallbackAllow:
		d.OK, d.RetryAfter, d.Source, d.MaxExcess = true, 0, SourceAllow, math.MaxInt64
		return d
	}
	d.MaxExcess = e.worst(s)
	k := e.weight(now)
	if k == 0 || a.owner != nil && !e.silent(a.owner, now) {
		// One answer is late, or this node has no share yet. The share is still lent: refuse, and soon look again.
		return d
	}
	f := &a.fallback
	if f.active && e.lend[a.part].last > f.started {
		*f = fallback{} // it was lent again meanwhile
	}
	top := float64(wholeShare(s.Burst, k, e.rank(a.hash)))
	if !f.active {
		*f = fallback{active: true, started: now, at: max(now, e.lentUntil(a.part))}
		if e.off&ruleWait != 0 {
			f.at = now
		}
		if f.m = a.limit.newMeter(f.at); f.m != nil {
			f.m.Advance(e.wall(f.at), 1/float64(k), 0)
		}
		if s.Fallback == FallbackShare {
			f.ahead = top
			if a.heard {
				f.ahead = math.Floor(max(0, a.known) / float64(k))
			}
			f.ahead = max(0, f.ahead+float64(min(0, a.left()))) // less what is owed already
		}
	}
	if f.m != nil {
		e.fallOnMeter(a, f, &d, cost, now)
		return d
	}
	rate := a.limit.perNs / float64(k)
	if now > f.at {
		f.own = min(top, f.own+float64(now-f.at)*rate)
		f.at = now
	}
	c := float64(cost)
	switch {
	case f.own >= c:
		f.own -= c
		d.OK = true
	case f.ahead >= c:
		f.ahead -= c
		a.gain(-cost)
		e.activate(a)
		d.OK, d.Source = true, SourceAhead
	}
	d.Remaining = int64(math.Floor(max(f.own, f.ahead)))
	d.ResetAfter = time.Duration(min((top-f.own)/rate, math.MaxInt64/2)) + time.Duration(f.at-now)
	switch {
	case d.OK:
		d.RetryAfter = 0
	case c > top: // more than the share can ever cover: when the silent members no longer count
		if d.RetryAfter = e.grace(); d.RetryAfter < 0 {
			d.RetryAfter = bucket.Never
		}
	default:
		d.RetryAfter = time.Duration(min(math.Ceil((c-f.own)/rate), math.MaxInt64/2)) + time.Duration(f.at-now)
	}
	return d
}

// redefineFallback lets the share of a key go on under a definition that has changed, with what was used of it.
func (a *account) redefineFallback() {
	f, alg := &a.fallback, a.limit.alg
	switch {
	case !f.active:
	case alg == nil && f.m != nil:
		f.own, f.m = max(0, f.m.Free()), nil
	case f.m != nil:
		f.m = bucket.Resize(f.m, alg)
	case alg != nil: // from here on the share counts as one that has just come
		f.m = a.limit.newMeter(f.at)
	}
}

// fallOnMeter is the end of fall for other rules than one token bucket.
func (e *Engine) fallOnMeter(a *account, f *fallback, d *Decision, cost, now int64) {
	var early time.Duration // the loan has not run out yet
	if now < f.at {
		early = time.Duration(f.at - now)
	} else {
		f.m.Advance(e.wall(now), 1/float64(max(1, e.weight(now))), 0)
	}
	c := float64(cost)
	switch {
	case early == 0 && f.m.Free() >= c:
		f.m.Use(c, 0)
		d.OK = true
		if q, ok := f.m.(bucket.Delayer); ok {
			d.Delay = q.Delay()
		}
	case f.ahead >= c:
		f.ahead -= c
		a.gain(-cost)
		e.activate(a)
		d.OK, d.Source = true, SourceAhead
	}
	d.Remaining = int64(math.Floor(max(0, f.m.Free(), f.ahead)))
	d.ResetAfter, d.RetryAfter = later(f.m.Reset(), early), 0
	if !d.OK {
		d.RetryAfter = later(f.m.Wait(c), early)
	}
}

// later is a wait that begins only after another one.
func later(d, after time.Duration) time.Duration {
	if d > bucket.Never-after {
		return bucket.Never
	}
	return d + after
}

func (e *Engine) grace() time.Duration {
	if e.view.Grace != 0 {
		return e.view.Grace
	}
	return e.cfg.Grace
}

// worst is the largest excess that a limit allows under one fault, in tokens.
func (e *Engine) worst(s *Spec) int64 {
	x := int64(s.Overshoot * float64(s.Burst))
	if s.Fallback == FallbackShare {
		x += s.Burst
	}
	return x
}

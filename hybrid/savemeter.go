package hybrid

import (
	"errors"
	"reflect"
	"time"

	"github.com/jatah-io/jatah/bucket"
)

// Records of keys under other rules than one token bucket hold the state of a bucket.Meter, that of the whole limit or of a share, with
// nothing out. Their age is how long ago that was: it is loaded as of then, and moved to now. Where the clock went back the
// age is 0, and a window that the record names stays the present one.

// meter is what the record says as of now; nil: nothing under the rule of alg, which is nil for a token bucket. From one rule to another
// what was used stays used, as when a limit changes while it is in use.
func (r *savedRecord) meter(alg *bucket.Algorithm, wall int64) bucket.Meter {
	if r.def.alg == nil || alg == nil || len(r.state) == 0 || r.def.alg.DenyAll() || alg.DenyAll() {
		return nil
	}
	was := r.def.alg
	if sameRule(was, alg) {
		was = alg // loaded as it is, exactly
	}
	m := was.New()
	if m.Load(r.state, max(0, wall-r.age)) != nil {
		return nil
	}
	m.Advance(wall, 1, 0)
	if was != alg {
		m = bucket.Resize(m, alg)
	}
	return m
}

// sameRule says that two algorithms are the same definition, and the same share of it.
func sameRule(a, b *bucket.Algorithm) bool {
	if a == b || a == nil || b == nil {
		return a == b
	}
	k, rank := a.Held()
	k2, rank2 := b.Held()
	return k == k2 && rank == rank2 && reflect.DeepEqual(a.Spec(), b.Spec())
}

// used is how many tokens the record says were used, as of now.
func (r *savedRecord) used(wall int64) float64 {
	if r.def.alg == nil {
		return float64(r.def.burst) - r.tokens()
	}
	if m := r.meter(r.def.alg, wall); m != nil {
		return bucket.Taken(m)
	}
	return 0
}

// saveMeter is saveLedger for a ledger with a meter.
func (e *Engine) saveMeter(p *partition, x *ledger, now int64) bucket.Meter {
	m := bucket.Clone(x.m)
	m.Advance(e.wall(now), p.era().fraction, 0)
	if own := e.own(x, 0); own > 0 {
		m.Return(own, 0)
	} else {
		m.Use(-own, 0)
	}
	wholeMeter(m, x.limit.spec.Fallback != FallbackWait || x.exact && p.bringing, e.wall(now))
	return m
}

// wholeMeter makes a meter one of the whole limit. Shares that are missing here will bring their part again when they come; with
// fallback wait only what they left here is known to be unused.
func wholeMeter(m bucket.Meter, brings bool, wall int64) {
	if brings {
		bucket.Hold(m, 1)
	} else {
		m.Advance(wall, 1, 0)
	}
}

// copiedMeter is what a copy of another owner's ledger says, as one of the whole limit.
func (e *Engine) copiedMeter(l *Limit, c *copyOf, age int64) bucket.Meter {
	m := l.alg.New()
	wall := max(0, e.wall(e.now())-age)
	if len(c.state) == 0 || m.Load(c.state, wall) != nil {
		return nil
	}
	m.Advance(wall, c.cap/float64(max(1, l.spec.Burst)), 0)
	wholeMeter(m, l.spec.Fallback != FallbackWait, wall)
	return m
}

// saveMeters is saveBuckets for rules that are not one token bucket.
func (e *Engine) saveMeters(s *saved, l *Limit, t *bucket.MeterTable, exact bool, now int64) {
	e.mu.Lock()
	inc, plans := e.inc, map[*bucket.Algorithm]string{}
	all := l.all()
	algs := make([]*bucket.Algorithm, len(all))
	for i, v := range all {
		algs[i] = v.alg
	}
	e.mu.Unlock()
	t.Each(e.wall(now), func(key string, a *bucket.Algorithm, _ bool, m bucket.Meter) bool {
		plan, known := plans[a]
		for i, b := range algs {
			if !known && b != nil && reflect.DeepEqual(a.Spec(), b.Spec()) {
				plan, known = all[i].plan, true
			}
		}
		plans[a] = plan
		k, _ := a.Held()
		spec := a.Spec()
		def := savedDef{limit: l.def.Load().Name, plan: plan, rate: spec.Rates[0], burst: a.Limit(), k: k, alg: a}
		s.records = append(s.records, savedRecord{def: def, key: key, level: bucket.LevelOf(bound(m.Free())), state: m.State(nil), lineage: inc, exact: exact})
		return true
	})
}

// restoreMeter is restoreBucket for a rule that is not one token bucket. shares are those made for records before.
func (e *Engine) restoreMeter(l *Limit, r *keptRecord, shares map[*bucket.Algorithm]*bucket.Algorithm, now int64) {
	t := l.meters.Load()
	if t == nil || l.alg == nil {
		return
	}
	alg := l.alg
	k, rank := r.def.alg.Held()
	if k > 0 {
		// The key goes on with the share that it had, and gets the present one when it is used next.
		if alg = shares[r.def.alg]; alg == nil || !reflect.DeepEqual(alg.Spec(), l.alg.Spec()) {
			var err error
			if alg, err = l.alg.Share(k, rank); err != nil {
				return
			}
			shares[r.def.alg] = alg
		}
	}
	m := r.meter(alg, e.wall(now))
	if m == nil {
		return
	}
	if k == 0 && l.whole.Load() == nil {
		alg = nil // that of the table
	}
	t.RestoreBeyond(r.key, alg, m, e.wall(now))
}

// restoreLedgerMeter is restoreLedger for a ledger with a meter.
//
// Where shares still bring their part, the ledger becomes what the record says, with what was used here since on top, if
// that is more than it knows. Elsewhere, and with fallback wait, what the record says beyond those before it is charged.
func (e *Engine) restoreLedgerMeter(p *partition, x *ledger, r *savedRecord, now int64) {
	l := x.limit
	rec := r.meter(l.alg, e.wall(now))
	if rec == nil {
		return
	}
	if r.def.plan == l.plan && x.saved == 0 && rec.Fresh() && l.spec.Fallback != FallbackWait {
		return
	}
	p.refill(x, now)
	used, burst, wait, first := bucket.Taken(rec), float64(l.spec.Burst), l.spec.Fallback == FallbackWait, !x.recorded
	x.recorded = true
	if wait && first {
		if x.start, x.exact = 0, r.exact && p.bringing && !x.carried; x.exact {
			x.start = burst
		}
	}
	switch {
	case p.bringing && !x.carried && (!wait || x.exact):
		e.holdMeter(p, x, rec, now, first && wait)
	case wait:
		x.spend(max(0, used-burst) - max(0, min(used, x.saved)-burst))
	default:
		bucket.UseOf(x.m, rec, x.saved, x.outstanding())
		x.spent += max(0, used-x.saved)
	}
	x.saved = max(x.saved, min(used, maxTokens-1))
	e.changed(p, x)
}

// holdMeter makes a ledger what a record of the whole limit says, for the shares that have brought their part by now. Not if it
// knows more already, unless it must.
func (e *Engine) holdMeter(p *partition, x *ledger, m bucket.Meter, now int64, must bool) {
	out := x.outstanding()
	bucket.Hold(m, p.brought)
	m.Advance(e.wall(now), p.era().fraction, 0)
	m.Use(x.spent, out)
	if must || bucket.Taken(m) > bucket.Taken(x.m) || m.Free() < x.m.Free() {
		x.m, x.at, x.era = m, now, p.first+uint64(len(p.eras)-1)
	}
}

// rule writes the rule of a definition.
func (w *writer) rule(a *bucket.Algorithm) {
	if a == nil {
		w.list(0)
		return
	}
	s := a.Spec()
	_, rank := a.Held()
	w.list(len(s.Rates))
	for _, r := range s.Rates {
		w.rate(r)
	}
	w.s(s.Algorithm)
	w.i(s.Burst)
	w.s(s.Calendar)
	w.s(s.Timezone)
	w.i(s.Queue)
	w.i(int64(s.MaxWait))
	w.rate(s.BurstRate)
	w.rate(s.BurstThreshold)
	w.i(int64(s.BurstTime))
	w.i(int64(s.MaxLog))
	var up uint64
	if s.RoundUp {
		up = 1
	}
	w.u(up)
	w.u(uint64(rank))
}

func (w *writer) rate(r bucket.Rate) {
	w.i(r.Count)
	w.i(int64(r.Per))
}

func (r *reader) rate() bucket.Rate { return bucket.Rate{Count: r.i(), Per: time.Duration(r.i())} }

// rule reads the rule of a definition, of which a share is one of k.
func (r *reader) rule(k int) *bucket.Algorithm {
	n := r.list(2)
	if n == 0 || r.err != nil {
		return nil
	}
	s := bucket.Spec{Rates: make([]bucket.Rate, n)}
	for i := range s.Rates {
		s.Rates[i] = r.rate()
	}
	s.Algorithm, s.Burst, s.Calendar, s.Timezone = r.s(), r.i(), r.s(), r.s()
	s.Queue, s.MaxWait, s.BurstRate, s.BurstThreshold = r.i(), time.Duration(r.i()), r.rate(), r.rate()
	s.BurstTime, s.MaxLog, s.RoundUp = time.Duration(r.i()), int(r.i()), r.u() == 1
	rank := int(min(r.u(), maxMembers))
	if r.err != nil {
		return nil
	}
	a, err := bucket.Compile(s)
	if err == nil && k > 0 {
		a, err = a.Share(k, rank)
	} else if err == nil && rank > 0 {
		err = errors.New("a rank in a whole limit")
	}
	if err != nil {
		r.err = err
	}
	return a
}

package bucket

import "strings"

// Hold changes the part of a limit that a meter may use so that what was used stays used, to the token: shares that come bring all their
// tokens along, and shares that go take theirs, which may leave a debt. It is for what is kept while no owner is there; between
// owners use Advance. Credit that is out counts as spent. The meter must have been advanced before.
func Hold(m Meter, part float64) {
	at := m.at()
	m.Advance(at.now, at.part, 0)
	part = clampPart(part)
	switch x := m.(type) {
	case *fixedWindow:
		x.kept = 0
	case *slidingWindow:
		x.kept = 0
	case *bucketMeter:
		x.hold(part)
	case *queueMeter:
		x.hold(part)
	case *averageMeter:
		// What a share took away is forgotten here, so one that comes brings nothing: it refills.
		x.settle(true)
		x.pool -= max(0, x.rule.amount(x.part)-x.rule.amount(part))
	case *multiMeter:
		for _, y := range x.meters {
			Hold(y, part)
		}
	}
	at.part = part
}

func (m *bucketMeter) hold(part float64) {
	m.settle(true)
	full := m.rule.amount(part)
	m.pool = min(m.pool+full-m.cap, full)
	m.cap = full
}

// Taken returns how many tokens count as used, apart from credit that is out: of several rates by the one that has most.
func Taken(m Meter) float64 { return m.taken() }

// UseOf charges m, rate by rate, with what another meter counts as used beyond some tokens. Both are of the same algorithm; out is
// what m has out.
func UseOf(m, other Meter, beyond, out float64) {
	a, ok := m.(*multiMeter)
	b, too := other.(*multiMeter)
	if !ok || !too {
		m.Use(max(0, other.taken()-beyond), out)
		return
	}
	a.out = out
	for i, x := range a.meters {
		if i < len(b.meters) {
			UseOf(x, b.meters[i], beyond, out)
		}
	}
}

// Held tells which share this is: see Share. k is 0 for the whole limit.
func (a *Algorithm) Held() (k, rank int) { return a.k, a.rank }

// Each calls f with every key that is not as new, until f returns false: its algorithm, whether that is its own, and a copy of
// its meter as of now. A key that is used meanwhile is told as before or after that use, one that is new or forgotten meanwhile perhaps not at
// all. Requests are held up for as long as it takes to copy a 64th of the table.
func (t *MeterTable) Each(now int64, f func(key string, a *Algorithm, own bool, m Meter) bool) {
	for i := range t.shards {
		for _, e := range t.shards[i].copies(now) {
			if !f(e.key, e.a, e.own, e.meter) {
				return
			}
		}
	}
}

func (s *shard) copies(now int64) []keyed {
	s.mu.Lock()
	defer s.mu.Unlock()
	copies := make([]keyed, 0, len(s.list))
	for _, e := range s.list {
		if e.meter.Advance(now, 1, 0); !e.meter.Fresh() {
			copies = append(copies, keyed{key: e.key, a: e.a, own: e.own, meter: Clone(e.meter)})
		}
	}
	return copies
}

// Restore makes the entry of a key from a meter, which is the table's from then on: of the algorithm own as for TakeWith, or if that is nil of the
// table's. It says whether it did: not if the key is known, or as new by now, or the table is full.
func (t *MeterTable) Restore(key string, own *Algorithm, m Meter, now int64) bool {
	return t.restore(key, own, m, now, ordinary)
}

// RestoreBeyond is Restore of what must not be forgotten: where there is no room it is stored beyond the bounds.
func (t *MeterTable) RestoreBeyond(key string, own *Algorithm, m Meter, now int64) bool {
	return t.restore(key, own, m, now, beyond)
}

func (t *MeterTable) restore(key string, own *Algorithm, m Meter, now int64, how claim) bool {
	s := t.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if m.Advance(max(now, s.dropped), 1, 0); m.Fresh() || s.keys[key] != nil || !t.claim(keyedBytes+len(key)+Size(m), how) {
		return false
	}
	e := &keyed{key: strings.Clone(key), a: own, meter: m, place: len(s.list), size: keyedBytes + len(key) + Size(m), own: own != nil}
	if own == nil {
		e.a = t.limit.Load().a
	}
	s.keys[e.key] = e
	s.list = append(s.list, e)
	s.most = max(s.most, len(s.list))
	return true
}

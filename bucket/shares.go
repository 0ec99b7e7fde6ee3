package bucket

import "math"

// Clone returns a copy of a meter that goes its own way.
func Clone(m Meter) Meter { return m.clone() }

// Used calls f for each key with the tokens, rounded up, that it lacks to be full at now, debts and all. For who changes to another
// algorithm; f may use the table.
func (t *Table) Used(now int64, f func(key string, tokens int64)) {
	t.Each(now, func(key string, p *Params, left Level) bool {
		if n := p.Burst() - left.Whole; n > 0 { // Whole is rounded down
			f(key, n)
		}
		return true
	})
}

// Used is as that of Table.
func (t *MeterTable) Used(now int64, f func(key string, tokens int64)) {
	t.Each(now, func(key string, _ *Algorithm, _ bool, m Meter) bool {
		f(key, int64(math.Ceil(max(0, snap(Taken(m))))))
		return true
	})
}

// Bring gives the tokens that a share of weight w brings along to who has just begun to hold it: of each rate that part. Without it
// a share that comes counts as used up. out is what is out, as for Return.
func Bring(m Meter, w, out float64) {
	if all, ok := m.(*multiMeter); ok {
		for _, x := range all.meters {
			Bring(x, w, out)
		}
		return
	}
	m.Return(w*m.capacity(), out)
}

// Coarse returns a copy of a meter whose State takes at most about 16 bytes for each of so many events, for a message with little
// room: logs are merged, so that usage ages late, never early. Other meters are small already.
func Coarse(m Meter, events int) Meter {
	c := m.clone()
	switch x := c.(type) {
	case *slidingLog:
		for live := len(x.log) - x.gone; live > max(events, 1); live = len(x.log) - x.gone {
			x.coalesce()
			x.rule.coalesced.Add(^uint64(0)) // not for want of MaxLog
		}
	case *multiMeter:
		for i := range x.meters {
			x.meters[i] = Coarse(x.meters[i], events/len(x.meters))
		}
	}
	return c
}

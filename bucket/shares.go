package bucket

import (
	"math"
	"math/big"
)

// Clone returns a copy of a meter that goes its own way.
func Clone(m Meter) Meter { return m.clone() }

// Used is how many tokens count as used now, beside what is out: of several rates the most.
func Used(m Meter) float64 { return max(0, m.taken()) }

// Used calls f for each key with the tokens, rounded up, that it lacks to be full at now, debts and all. For who changes to another
// algorithm; f may use the table.
func (t *Table) Used(now int64, f func(key string, tokens int64)) {
	t.keys.Range(func(key string, e *entry) bool {
		level, ok := e.Tokens(now)
		if !ok {
			return true // it is being replaced, or forgotten
		}
		lacks := new(big.Rat).Sub(new(big.Rat).SetInt64(e.Params().Burst()), level)
		if n := new(big.Int).Quo(new(big.Int).Add(lacks.Num(), new(big.Int).Sub(lacks.Denom(), big.NewInt(1))), lacks.Denom()); n.Sign() > 0 && n.IsInt64() {
			f(key, n.Int64())
		}
		return true
	})
}

// Used is as that of Table.
func (t *MeterTable) Used(now int64, f func(key string, tokens int64)) {
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.Lock()
		used := map[string]int64{}
		for _, e := range s.list {
			e.meter.Advance(now, 1, 0)
			used[e.key] = int64(math.Ceil(snap(Used(e.meter))))
		}
		s.mu.Unlock()
		for key, n := range used {
			f(key, n)
		}
	}
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

package hybrid

import "time"

// What an heir forgets by itself, of what owners keep with it: see standby.

// removedLimit is a limit that was removed here. Others may hear of that later, and speak of it until then.
type removedLimit struct {
	name string
	at   int64
}

// removedFor is how long they may: more than a change of limits takes to reach every node, and the last packets.
const removedFor = int64(5 * time.Second)

// tickRemoved forgets what owners said of limits after they were removed here.
func (e *Engine) tickRemoved(now int64) {
	for len(e.removed) > 0 && now-e.removed[0].at >= removedFor {
		if _, again := e.limits.Load(e.removed[0].name); !again {
			e.forgetRecords(e.removed[0].name)
		}
		e.removed = e.removed[1:]
	}
}

// forgetRecords is for a limit that was removed: its owners will not speak of it again.
func (e *Engine) forgetRecords(limit string) {
	for _, s := range e.standby {
		for k, r := range s.records {
			if k.limit == limit {
				delete(s.records, k)
				s.count(e, -k.size(r))
			}
		}
	}
}

// copyLooks is how many copies are looked at in a tick, about.
const copyLooks = 1000

// sweepCopies forgets copies that would be full if they were taken over now: a key without one is full as well. Usually its owner says so; but not to an heir that has the
// role again, of keys that it forgot while another one had it.
func (e *Engine) sweepCopies(now int64) {
	left := copyLooks
	for n := 0; n < len(e.parts) && left > 0; n++ {
		e.scursor = (e.scursor + 1) % len(e.parts)
		s := e.standby[e.scursor]
		if s == nil || !s.whole {
			continue
		}
		for k, r := range s.records {
			if left--; left < 0 {
				break
			}
			if !k.base && e.grownFull(s, r, now) {
				delete(s.records, k)
				s.count(e, -k.size(r))
			}
		}
	}
}

// grownFull says that a key is full by what its copy has grown since, as adopt reckons it.
func (e *Engine) grownFull(s *standby, r *record, now int64) bool {
	l, ok := e.limits.Load(r.c.limit)
	if !ok {
		return false
	}
	l = l.copied(&r.c)
	if l.alg == nil {
		burst := float64(l.spec.Burst)
		return r.c.cap >= burst && r.c.bal+float64(s.heardAt-r.at)*l.perNs >= burst
	}
	m := l.alg.New()
	if len(r.c.state) == 0 || m.Load(r.c.state, e.wall(r.at)) != nil {
		return false
	}
	m.Advance(e.wall(now), 1, 0)
	return m.Fresh()
}

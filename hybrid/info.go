package hybrid

import (
	"time"
)

// Info is the state of shares and loans as one node sees it. Durations are from now.
type Info struct {
	Node        string
	Incarnation uint64
	Epoch       uint64
	K           int     // members among whom limits are divided
	Weight      float64 // this node's part of every limit; 0 until it has settled
	Settling    time.Duration
	Settle      time.Duration
	Grace       time.Duration // negative: for ever
	Partitions  int
	Owned       int
	Handing     int // hand-offs that are not acknowledged
	Members     []MemberInfo
}

// MemberInfo is one member as this node sees it.
type MemberInfo struct {
	Name        string
	Present     bool
	Lost        bool          // counted in K though gone, or gone in good order
	Left        bool          // in good order
	Reserved    time.Duration // how long its share stays reserved; 0: it is not
	Partitions  int           // that it owns in this node's ring
	LendsTo     int           // partitions whose share this node lends it now
	LentBy      int           // partitions whose share it lends this node now
	Share       float64       // the part of these limits that this is worth, on average over this node's partitions
	Silent      bool          // has not answered for three ticks
	HeardAgo    time.Duration // since it last answered
	Incarnation uint64
}

// Settling is about how long it takes until this node has a share and has begun to use it; 0: it has.
func (e *Engine) Settling() time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.alone() {
		return 0
	}
	if e.started {
		return 0
	}
	return time.Duration(max(e.tick/4, e.born+e.settle()-e.now()))
}

// Specs lists the definitions of all limits.
func (e *Engine) Specs() []Spec {
	var s []Spec
	e.limits.Range(func(_ string, l *Limit) bool {
		s = append(s, l.Spec())
		return true
	})
	return s
}

// Info describes shares and loans now.
func (e *Engine) Info() Info {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.now()
	i := Info{Node: e.cfg.Node, Incarnation: e.inc, Epoch: e.ownEpoch, K: max(1, e.k), Weight: 1, Settle: time.Duration(e.settle()),
		Grace: e.grace(), Partitions: len(e.parts), Handing: len(e.handing)}
	if e.alone() {
		i.Owned = len(e.parts)
		return i
	}
	if i.Settling = time.Duration(max(0, e.born+e.settle()-now)); e.view.Unsure {
		i.Settling = max(i.Settling, e.cfg.Tick)
	}
	if i.Weight = 0; e.weight(now) > 0 {
		i.Weight = 1 / float64(e.weight(now))
	}
	index := map[string]int{}
	for _, p := range e.peers {
		if p.present {
			index[p.name] = len(i.Members)
			i.Members = append(i.Members, e.memberInfo(p, now))
		}
	}
	for part, l := range e.lend {
		if l.owner != nil && l.owner.present {
			m := &i.Members[index[l.owner.name]]
			m.Partitions++
			if l.last > 0 && now < l.last+e.ttl || l.owner == e.self && i.Weight > 0 {
				m.LendsTo++
			}
		}
		if p := e.parts[part]; p.owned {
			i.Owned++
			for _, s := range p.shares {
				if at, ok := index[s.lender]; ok && p.usable(s, now) {
					i.Members[at].LentBy++
					i.Members[at].Share += 1 / float64(s.k)
				}
			}
		}
	}
	for j := range i.Members {
		i.Members[j].Share /= float64(max(1, i.Owned))
	}
	for _, l := range e.view.Lost {
		m := MemberInfo{Name: l.Name, Lost: true, Left: l.Left}
		if !l.Left {
			if m.Reserved = e.grace(); m.Reserved >= 0 {
				m.Reserved = max(0, m.Reserved-time.Duration(now-l.Since))
			}
		}
		i.Members = append(i.Members, m)
	}
	return i
}

func (e *Engine) memberInfo(p *peer, now int64) MemberInfo {
	m := MemberInfo{Name: p.name, Present: true, Incarnation: p.inc}
	if p != e.self {
		m.Silent = e.silent(p, now)
		m.HeardAgo = time.Duration(now - p.heardAt)
	}
	return m
}

package hybrid

import (
	"slices"
)

// receive takes in one message. Whatever it says twice, late or out of order changes nothing. What is kept of m is copied: see decoder.
func (e *Engine) receive(now int64, from string, m *message) {
	if e.self == nil || from == e.cfg.Node || m.stamp.inc == 0 {
		return
	}
	e.awakeIfLate(now, 0) // what has queued up in front of a process that was stopped must not be taken for news
	p := e.peer(from)
	if slices.Contains(p.retired, m.stamp.inc) || outlived(m.stamp.inc, p.inc) {
		e.stats.stale.Add(1)
		return // a straggler of a life that is over
	}
	if p.inc != m.stamp.inc {
		e.reborn(p, m.stamp.inc, now)
	}
	if m.stamp.at > p.stamp.at || p.stamp.inc == 0 {
		p.stamp = m.stamp
		if m.owns != nil {
			if p.k, p.kAt = m.k, now; m.k > e.k {
				e.countMembers(now)
			}
			if e.pendings {
				e.dropPending(p, m.owns)
			}
		}
	}
	if m.echo.inc == e.inc && m.echo.at > p.echoed {
		p.echoed, p.heardAt = m.echo.at, now
	}
	if m.owns != nil && m.echo.inc == e.inc && p.counts != e.inc { // said in each tick, and to members only
		p.counts = e.inc
		e.welcomed()
	}
	if m.loan != nil {
		e.borrow(p, m, now)
	}
	grants := e.grants[:0]
	if len(m.reports) > 0 && m.echo.inc != 0 && m.echo.inc != e.inc {
		// Said to an earlier life of this node. Its sender will hear of this one, and say what it owes anew: charged
		// now, it would be charged twice.
		m.reports, m.probe = nil, true
	}
	for i := range m.reports {
		if g, ok := e.handle(p, m.stamp.inc, &m.reports[i], now); ok {
			grants = append(grants, g)
		}
	}
	e.receiveGrants(p, m, now)
	e.receiveStandby(p, m, now)
	if m.probe || len(grants) > 0 {
		e.sendGrants(p, grants, m.stamp.at, now)
	}
	e.grants = grants
}

// size is about the most bytes that a grant takes.
func (g *grant) size() int {
	n := 75
	if g.flags&grantWaits != 0 {
		n = 130
	}
	if g.flags&grantPlan != 0 {
		n += 12
	}
	return n
}

// sendGrants answers in as few messages as they fit in.
func (e *Engine) sendGrants(to *peer, gs []grant, re, now int64) {
	for {
		n := 0
		for room := e.cfg.MaxMessage - 120; n < len(gs) && (n == 0 || gs[n].size() <= room); n++ {
			room -= gs[n].size()
		}
		e.send(to, &message{re: re, grants: gs[:n]}, now, false)
		if gs = gs[n:]; len(gs) == 0 {
			return
		}
	}
}

func (e *Engine) receiveGrants(p *peer, m *message, now int64) {
	if len(m.grants) > 0 && m.echo.inc != e.inc {
		return // granted to an earlier life of this node: its generations have the same numbers
	}
	for i := range m.grants {
		g := &m.grants[i]
		a := e.byGen[g.gen]
		// A grant of another generation, or of another life of the owner, is void.
		if a == nil || a.owner != p || a.limit.gone.Load() || e.closed.Load() || a.ownerInc != 0 && a.ownerInc != m.stamp.inc {
			continue
		}
		if g.flags&grantNoLimit != 0 {
			e.warnNoLimit(a.limit, p)
			continue
		}
		a.ownerInc = m.stamp.inc
		if m.re > 0 && g.flags&grantUnknown == 0 {
			a.confirmed = max(a.confirmed, m.stamp.epoch)
		}
		e.answer(a, g, m.re, now)
	}
	e.answered(p, m.re, now)
}

// reborn is called when a peer speaks with a new incarnation: it restarted, or was paused for so long that it is
// sure of nothing any more. Its credit and loans of before are void.
func (e *Engine) reborn(p *peer, inc uint64, now int64) {
	if p.inc != 0 {
		if p.retired = append(p.retired, p.inc); len(p.retired) > 8 {
			p.retired = p.retired[1:]
		}
		for i := range e.lend {
			if e.lend[i].owner == p {
				e.endLoan(i, now)
			}
		}
	}
	known := p.inc != 0
	p.inc, p.stamp, p.loanAt = inc, stamp{}, 0
	e.heirReborn(p)
	e.restore(p, now)
	if !known {
		return
	}
	for _, a := range slices.Clone(e.active) {
		if a.owner != p {
			continue
		}
		e.bind(a)
		if a.ask != nil {
			e.sendAsk(a, now)
		}
	}
}

func (e *Engine) warnNoLimit(l *Limit, p *peer) {
	if l.warned.CompareAndSwap(false, true) {
		e.log.Warn("the owner of some keys has no limit of this name: its nodes decide by fallback until it is defined there", "limit", l.spec.Name, "owner", p.name)
	}
}

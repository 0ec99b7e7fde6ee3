package hybrid

import (
	"slices"
)

// lending is the lender's side of one partition: to whom this node's share of it is lent.
//
// Safety rests on one inequality. The owner uses the share until the time of its own stamp that the
// lender echoed, plus TTL, on the owner's clock. The lender sent that echo after the stamp was made, and
// considers the share lent until TTL after it last sent any loan, on its own clock. So the owner stops
// first, whatever the clocks show and however long messages take.
type lending struct {
	owner   *peer
	inc     uint64 // the owner's incarnation that the loan was made to
	epoch   uint64 // of the stamp last echoed
	last    int64  // when a loan was last sent; 0: not lent to this owner
	formers []formerShare
}

// endLoan turns the present loan of a partition, if there is one, into a loan to a former owner.
func (e *Engine) endLoan(i int, now int64) {
	l := &e.lend[i]
	if l.last > 0 && l.owner != nil && l.owner != e.self {
		l.formers = append(l.formers, formerShare{l.inc, l.epoch, l.last + e.ttl})
	}
	l.last = 0
	l.formers = slices.DeleteFunc(l.formers, func(f formerShare) bool { return f.until < now })
}

// lentUntil is when the last loan of a partition has run out, as the lender counts it.
func (e *Engine) lentUntil(i int) int64 {
	l := &e.lend[i]
	var until int64
	if l.last > 0 {
		until = l.last + e.ttl
	}
	for _, f := range l.formers {
		until = max(until, f.until)
	}
	return until
}

// lendTo makes the loan of all partitions that this node's ring gives to a peer, but those whose owner does not yet know of
// permits that are held here. It is nil while the node has no share, has not yet heard a stamp of the peer, or was not answered for three ticks.
func (e *Engine) lendTo(p *peer, now int64) *loan {
	k := e.weight(now)
	if k == 0 && e.permitLimits == 0 || p.stamp.inc == 0 || p.stamp.inc != p.inc || e.silent(p, now) {
		return nil
	}
	l := &loan{k: k, counted: e.counted.print, parts: newBits(len(e.lend))}
	any := false
	for i := range e.lend {
		x := &e.lend[i]
		if x.owner != p || e.unlent.has(i) {
			continue
		}
		if k == 0 { // no share to lend; it says that the owner knows of all permits
			l.parts.set(i)
			any = true
			continue
		}
		// The owner must not use the share before who had it has stopped.
		if !l.formersOf(x, i, p.inc, now, len(e.lend)) {
			continue
		}
		l.parts.set(i)
		any = true
		x.inc, x.epoch, x.last = p.inc, p.stamp.epoch, now
	}
	if !any {
		return nil
	}
	return l
}

// maxFormers keeps a loan within a packet. Partitions whose former owners do not fit are lent a tick later.
const maxFormers = 12

// formersOf adds the former owners of a partition that may still use the share; false: there is no room.
func (l *loan) formersOf(x *lending, part int, inc uint64, now int64, parts int) bool {
	added := 0
	for _, f := range x.formers {
		if f.until > now && f.inc != inc {
			added++
		}
	}
	if added > 0 && len(l.formers)+added > maxFormers {
		return false
	}
	for _, f := range x.formers {
		if f.until > now && f.inc != inc {
			l.former(f, part, now, parts)
		}
	}
	return true
}

func (l *loan) former(f formerShare, part int, now int64, n int) {
	for i := range l.formers {
		if o := &l.formers[i]; o.inc == f.inc && o.epoch == f.epoch {
			o.left = max(o.left, f.until-now)
			o.parts.set(part)
			return
		}
	}
	o := former{inc: f.inc, epoch: f.epoch, left: f.until - now, parts: newBits(n)}
	o.parts.set(part)
	l.formers = append(l.formers, o)
}

// borrow takes in a loan.
func (e *Engine) borrow(from *peer, m *message, now int64) {
	l := m.loan
	if m.echo.inc != e.inc {
		return // lent to another life of this node
	}
	if l.k > 0 && now < e.born+e.settle()/2 {
		e.established = true
	}
	newest := m.stamp.at > from.loanAt
	if newest {
		from.loanAt = m.stamp.at
	}
	for i, p := range e.parts {
		if !p.owned || !l.parts.has(i) || m.echo.epoch < p.epoch {
			continue
		}
		s := p.shareOf(from.name)
		was, counted := p.usable(s, now) && s.inc == m.stamp.inc, *s
		if s.inc != m.stamp.inc || p.unheard[from.name] {
			e.toldHeld(p, from.name, m.stamp.inc, now)
		}
		if s.inc != m.stamp.inc {
			*s = share{lender: from.name, inc: m.stamp.inc, brought: s.brought}
		}
		for _, f := range l.formers {
			if f.parts.has(i) && f.inc != e.inc {
				s.former(f, now)
			}
		}
		s.formers = slices.DeleteFunc(s.formers, func(f formerShare) bool { return f.until <= now })
		s.until = max(s.until, m.echo.at+e.ttl)
		if newest || s.k == 0 {
			s.k, s.counted = l.k, l.counted
		}
		// Nearly always a loan renews one that is in use: then nothing changes but its end, and p.next is early.
		if !was || !p.usable(s, now) || s.k != counted.k || s.counted != counted.counted {
			e.settleShares(p, now)
		}
	}
}

// former notes that the share is lent to a former owner as well, for as long as is left.
func (s *share) former(f former, now int64) {
	if i := slices.IndexFunc(s.from, func(o formerShare) bool { return o.inc == f.inc }); i < 0 {
		s.from = append(s.from, formerShare{inc: f.inc, epoch: f.epoch})
	} else {
		s.from[i].epoch = max(s.from[i].epoch, f.epoch)
	}
	for i := range s.formers {
		if o := &s.formers[i]; o.inc == f.inc && o.epoch >= f.epoch {
			o.until = max(o.until, now+f.left)
			return
		}
	}
	s.formers = append(s.formers, formerShare{f.inc, f.epoch, now + f.left})
}

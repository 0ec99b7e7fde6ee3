package hybrid

import (
	"slices"

	"github.com/jatah-io/jatah/bucket"
)

// Permits in the protocol: a permit that is taken is consumption, one that is released a refund, so that a lender holds C - U. Of a
// lender that may still use its credit all that was granted and not given back counts as held: G - R - U. That is also
// what it holds at most when it is silent. It ends when the lender is gone, or has not been heard for as long as a permit can live.
//
// A generation begins with C = what is held. A ledger of permits is not handed over, nor kept by the heir: the new owner
// learns from the holders what is held, and grants nothing before every member has lent to it, which they do once it knows.

// permits says that the limit counts what is held at once.
func (s *Spec) permits() bool { return s.Rule != nil && s.Rule.Algorithm == "concurrency" }

// holds is how many permits this node holds of the key, as the counters say.
func (a *account) holds() int64 { return a.counters().c - a.u }

// carriesPermits says that the owner must know something of the account: permits that are held, or credit for them.
func (a *account) carriesPermits() bool {
	return a.limit.spec.permits() && !a.limit.gone.Load() && (a.left() != 0 || a.holds() > 0)
}

// unconfirmed says that the owner may not know yet, in the epoch in which this node would lend to it, what the account holds.
func (a *account) unconfirmed() bool {
	return a.carriesPermits() && (a.left() < 0 || a.owner != nil && a.confirmed < a.owner.stamp.epoch)
}

// unconfirmedParts are the partitions that must not be lent yet: their owner would take what is held here for free.
func (e *Engine) unconfirmedParts() bits {
	var b bits
	for _, a := range e.active {
		if a.owner != e.self && a.unconfirmed() {
			if b == nil {
				b = newBits(len(e.lend))
			}
			b.set(a.part)
		}
	}
	return b
}

// renewHeld is renew for permits: credit is given up, what is held goes along.
func (a *account) renewHeld(left int64) (held int64) {
	held = max(0, a.g-a.r-left-min(0, a.left())-a.u)
	a.was, a.u = generation{}, 0
	a.confirmed = 0
	return held
}

// isPermits says that a ledger counts permits.
func (l *ledger) isPermits() bool { return l.limit.spec.permits() }

// recount makes the meter say what the entries say.
func (l *ledger) recount() {
	m, ok := l.m.(bucket.Holder)
	if !ok {
		return
	}
	var all, out float64
	for _, x := range l.entries {
		all += float64(max(0, x.g-x.r-x.u))
		out += float64(x.out())
	}
	out = min(out, all)
	m.Hold(all-out, out)
}

// drop forgets what some lenders held, and says whether that was anything.
func (l *ledger) drop(gone func(*entry) bool) bool {
	n := len(l.entries)
	l.entries = slices.DeleteFunc(l.entries, gone)
	if len(l.entries) == n {
		return false
	}
	l.recount()
	return true
}

// expireHeld forgets what lenders held that were not heard for so long that all of it has expired there: a permit lives for at most TTL
// from when it was taken or renewed, and both happen only within a TTL of the protocol after this owner answered.
func (l *ledger) expireHeld(now int64) {
	e := l.limit.e
	l.drop(func(x *entry) bool {
		return x.lender != e.cfg.Node && now-x.seen > int64(l.limit.spec.TTL)+e.lease()
	})
}

// dropHeld forgets, in one partition, what some lenders held; those who were refused are told.
func (e *Engine) dropHeld(p *partition, now int64, gone func(*entry) bool) {
	if e.permitLimits == 0 {
		return
	}
	for _, x := range p.ledgers {
		if x.isPermits() && x.drop(gone) {
			p.refill(x, now)
			e.tell(p, x)
		}
	}
}

// membersGone frees the permits of members that are no longer in the view.
func (e *Engine) membersGone(now int64) {
	absent := func(x *entry) bool {
		p := e.byName[x.lender]
		return p == nil || !p.present
	}
	for _, p := range e.parts {
		if p.owned {
			e.dropHeld(p, now, absent)
		}
	}
}

// awaitLoans notes who must have lent a partition to this node before it grants permits of it: all who may hold some.
func (e *Engine) awaitLoans(p *partition) {
	for _, o := range e.peers {
		if o.present && o != e.self {
			p.await(o.name)
		}
	}
}

// awaitNew is for a member that comes into view while this node has just taken partitions over: it may have been a member for others.
func (e *Engine) awaitNew(name string, now int64) {
	for _, p := range e.parts {
		if p.owned && now < p.takenAt+e.settle() {
			p.await(name)
		}
	}
}

func (p *partition) await(lender string) {
	if p.unheard == nil {
		p.unheard = map[string]bool{}
	}
	p.unheard[lender] = true
}

// knowsHeld says that the owner has been told of all permits that members hold of a partition's keys.
func (e *Engine) knowsHeld(p *partition) bool {
	for name := range p.unheard {
		if o := e.byName[name]; o == nil || !o.present {
			delete(p.unheard, name)
		}
	}
	return len(p.unheard) == 0
}

// toldHeld is called when a lender lends a partition, in its present life: all that it holds has been reported, and what it does
// not report it does not hold any more.
func (e *Engine) toldHeld(p *partition, lender string, inc uint64, now int64) {
	delete(p.unheard, lender)
	e.dropHeld(p, now, func(x *entry) bool { return x.lender == lender && x.inc != inc })
}

// sayHeld tells this node, as the owner of a key, what it holds itself, before it grants anything.
func (e *Engine) sayHeld(now int64) {
	for _, a := range slices.Clone(e.active) {
		if a.owner == e.self && a.unconfirmed() {
			e.say(a, now)
		}
	}
}

// fallOnPermits is fallback for permits. With share, of its own share, rounded down, a node may hold what it does not hold already, once the
// share is no longer lent; but others may hold by then what was granted out of it, and permits do not age: that is the excess of share. So with
// wait nothing is granted. The owner is told when it answers again: before the share is lent to it.
func (e *Engine) fallOnPermits(a *account, d *Decision, cost, now int64) {
	s := &a.limit.spec
	d.MaxExcess, d.OK = 0, false
	switch k := e.weight(now); {
	case s.Fallback == FallbackDeny:
		d.Source = SourceDeny
	case s.Fallback == FallbackAllow:
		d.Source, d.OK, d.MaxExcess = SourceAllow, true, s.Burst
	case s.Fallback == FallbackShare && k > 0 && (a.owner == nil || e.silent(a.owner, now)) && now >= e.lentUntil(a.part):
		free := s.Burst/int64(k) - a.holds()
		if d.OK = cost <= free; d.OK {
			free -= cost
		}
		d.Remaining = max(0, free)
	}
	if d.OK {
		a.gain(-cost)
		e.activate(a)
		d.RetryAfter = 0
	}
}

// renewable is until when a permit of the key may be renewed: its owner, if it hears no more, forgets it soon after.
func (a *account) renewable(e *Engine, now int64) int64 {
	if a.owner == e.self {
		return now + int64(a.limit.spec.TTL)
	}
	return a.answered + int64(a.limit.spec.TTL) + e.ttl
}

package hybrid

import (
	"time"

	"github.com/jatah-io/jatah/internal/budget"
)

// doTick does what is due every sync interval: it ends what has run out, renews what is held, and says to every
// member in one packet what this node has to say to it, as lender and as owner.
func (e *Engine) doTick(now, late int64) {
	if e.self == nil {
		return
	}
	e.awakeIfLate(now, late)
	e.lastTick = now
	e.ticks++
	e.countMembers(now)
	e.started = e.settled(now) && !e.view.Unsure
	for _, p := range e.parts {
		if p.owned {
			e.ownShare(p, now)
			e.startFull(p, now)
			e.settleShares(p, now)
		}
	}
	e.coolHot()
	e.tickAccounts(now)
	e.unlent = e.unconfirmedParts()
	e.recallIdle(now)
	e.tellRefused(now)
	e.tickStandby(now)
	e.tickKept(now)
	e.tickHandOff(now)
	owns := newBits(len(e.parts))
	for i, p := range e.parts {
		if p.owned {
			owns.set(i)
		}
	}
	probing := false
	for _, p := range e.peers {
		if p.present && p != e.self {
			e.beat(p, owns, now)
			probing = probing || now-p.heardAt >= 3*e.tick/2
		}
	}
	if probing {
		e.wake()
	}
	e.sweepAccounts(now, 1000)
	e.sweepLedgers(now, 1000)
	e.sweepBuckets(now)
	e.solo = e.isSolo(now)
	e.lone = e.k == 1 && len(e.view.Alive) == 1
}

// beat is the packet of a tick to one member. Reports and grants that do not fit go in packets of their own.
func (e *Engine) beat(p *peer, owns bits, now int64) {
	m := &message{owns: owns, k: e.ownK, loan: e.lendTo(p, now), whole: e.wholeFor(p), acks: p.acks}
	p.acks = p.acks[:0] // whoever sends keeps nothing
	room := e.cfg.MaxMessage - 100 - 3*len(owns) - 10*len(m.acks)
	if m.loan != nil {
		room -= len(m.loan.formers) * (40 + len(owns))
	}
	n := 0
	for ; n < len(p.due) && room > p.due[n].size(); n++ {
		room -= p.due[n].size()
	}
	m.grants = p.due[:n]
	e.pack(p, m, room, now)
	if n < len(p.due) {
		e.sendGrants(p, p.due[n:], 0, now)
	}
	p.due = p.due[:0]
}

// pack sends m with the peer's reports, in as few messages as they fit in.
func (e *Engine) pack(p *peer, m *message, room int, now int64) {
	from := 0
	for i := range p.reports {
		r := &p.reports[i]
		size := 66 + len(r.limit) + len(r.plan) + len(r.key)
		if size > room {
			m.reports = p.reports[from:i]
			e.send(p, m, now, false)
			m, room, from = &message{}, e.cfg.MaxMessage-100, i
		}
		room -= size
	}
	m.reports = p.reports[from:]
	e.send(p, m, now, false)
	clear(p.reports) // so that no key is kept for them
	p.reports = p.reports[:0]
}

// Holding times of credit, in ticks.
const (
	idleTicks     = 80 // credit that was not used for so long is returned
	courtesyTicks = 30 // the same for a key that was used but once in such a time: what it was given beyond that may never be used, and is renewed all the while
	renewTicks    = 2  // an idle account's lease is renewed this often
)

// again says whether a use at now comes soon after the one before.
func (e *Engine) again(a *account, now int64) bool {
	return a.usedAt != 0 && now-a.usedAt <= idleTicks*e.tick
}

// tickAccounts goes through the accounts that hold credit, owe something or have something to say.
func (e *Engine) tickAccounts(now int64) {
	keep := e.active[:0]
	all := e.active
	e.active = nil // accounts that become active meanwhile are collected there
	for _, a := range all {
		if e.tickAccount(a, now) {
			keep = append(keep, a)
		} else {
			a.live = false
			a.idleAt = now
		}
	}
	e.active = append(keep, e.active...)
}

// tickAccount voids, returns and reports, and says whether the account stays active.
func (e *Engine) tickAccount(a *account, now int64) bool {
	a.settleSpent()
	if a.limit.gone.Load() {
		a.drain()
		return false
	}
	// The lease would run out before the next tick.
	if a.g > 0 && a.owner != e.self && now+e.tick > a.until && a.left()+a.held > 0 {
		if a.limit.spec.permits() { // the owner keeps the generation; it hears what was not used when it hears again
			a.r += a.drain()
		} else {
			e.renew(a)
		}
	}
	k := a.counters()
	if k.c != a.usedC {
		a.limit.top.used.Note(a.key, k.c-a.usedC)
		if a.usedC > 0 { // else renew has said it
			a.often = a.often || e.again(a, now)
		}
		a.usedC, a.usedAt = k.c, now
	}
	hold := int64(courtesyTicks)
	if a.often || a.owner == e.self { // which renews nothing
		hold = idleTicks
	}
	if a.limit.spec.Mode == Strict || e.leaving { // who leaves keeps nothing
		hold = 0
	}
	if a.ask == nil && now-a.usedAt >= hold*e.tick {
		if n := a.drain(); n > 0 {
			a.r += n
			k = a.counters()
		}
	}
	settled := k == a.ack && a.was.number == 0
	permits := a.carriesPermits()
	if a.limit.spec.permits() && (a.asked > 0 && a.ask == nil || a.unconfirmed()) {
		settled = false
	}
	if a.owner == e.self {
		if k != a.sent || !settled || a.denied.Load() > 0 && a.left() > 0 {
			r := a.report(now)
			if g, ok := e.handle(e.self, e.inc, &r, now); ok {
				e.apply(a, &g, now, now)
			}
			settled = a.counters() == a.ack
		}
		return !settled || permits || a.left() != 0 || a.held != 0 || a.ask != nil
	}
	held := permits || a.left() != 0 || a.held != 0
	if a.owner != nil && (!settled || held && now-a.sentAt >= renewTicks*e.tick) {
		a.owner.reports = append(a.owner.reports, a.report(now))
	}
	return !settled || held || a.ask != nil
}

// awakeIfLate notices that the process was paused, or the machine suspended. With nobody else counted, nobody else can have
// used anything; nor can a member that came since the last tick, which tells it that it is counted and lends to it. That one takes long where many keys are
// handed over to who came: it must not be taken for a pause.
func (e *Engine) awakeIfLate(now, late int64) {
	if late > 0 {
		e.reanchor(now)
	}
	if now-e.lastTick+late-e.tick > e.ttl/2 && e.k > 1 && !e.lone {
		e.awake(now, late)
	}
}

// awake is called when the node was paused or suspended: whatever it held may have run out. As owner it starts anew, as
// lender it voids its credit and waits for its loans to run out. It takes a new incarnation, so that nothing said to the old
// one is believed. What it keeps as heir stays: when all nodes were paused at once, that is all that anybody knows.
func (e *Engine) awake(now, late int64) {
	away := now - e.lastTick + max(0, late)
	e.log.Warn("this node was paused; it starts anew as owner and lender", "for", time.Duration(away))
	e.stats.pauses.Add(1)
	e.reanchor(now)
	before := e.inc
	e.inc = nextLife(before, e.cfg.Incarnation)
	e.self.inc = e.inc
	for _, p := range e.peers {
		if (p.counts == before || p.counted == before) && (e.grace() < 0 || away < int64(e.grace())/2) {
			p.counted = e.inc
		}
	}
	for i := range e.lend {
		e.endLoan(i, now)
	}
	e.ownEpoch++
	for _, p := range e.parts {
		if p.owned {
			e.unstoreAll(p)
			p.take(e.ownEpoch, now)
			e.awaitLoans(p)
		}
	}
	e.telling, e.recalling = nil, nil
	e.handing = nil
	for _, p := range e.peers {
		p.stamp, p.echoed, p.heardAt, p.loanAt = stamp{}, 0, now, 0
		p.due, p.acks = nil, nil
	}
	e.lastTick = now
	e.accounts.each(func(a *account) {
		a.refusal.Store(nil)
		a.fallback = fallback{}
		if a.live || a.left() != 0 || a.carriesPermits() {
			e.renew(a)
			if a.owner != nil {
				a.ownerInc = a.owner.inc
			}
		}
		for a.ask != nil && len(a.ask.waiters) > 0 {
			w := a.ask.waiters[0]
			e.stats.silent.Add(1)
			w.done <- e.fallInto(a, w.cost, w.hold, now)
			a.ask.waiters = a.ask.waiters[1:]
		}
		a.ask = nil
	})
	e.asks = nil
	e.sayHeld(now)
}

// sweepAccounts looks at some accounts and forgets those that nothing need be remembered of.
func (e *Engine) sweepAccounts(now int64, budget int) {
	e.accounts.sweep(budget, func(a *account) {
		if e.forgettable(a, now) {
			e.forget(a)
		}
	})
}

// forgettable: no credit, nothing owed, nothing to say, no denial that stands, no fallback in use, and
// no low balance that the allowance must respect.
func (e *Engine) forgettable(a *account, now int64) bool {
	if a.pinned {
		return false
	}
	if a.limit.gone.Load() {
		return !a.live && a.ask == nil // there is nobody to tell the rest
	}
	if a.live || a.ask != nil || a.held != 0 || a.left() != 0 || a.counters() != a.ack && a.counters() != (counters{}) {
		return false
	}
	if a.mustWait(1, now) > 0 || a.carriesPermits() {
		return false
	}
	// What a former owner's silence left does not count with another one: see bind.
	if o := e.ownerOf(a.part); a.fallback.active && a.owner == o && (o == nil || e.silent(o, now)) {
		return false
	}
	if phi := a.limit.spec.Overshoot; phi > 0 && a.heard && a.limit.perNs > 0 {
		if short := phi*float64(a.limit.spec.Burst) - a.known; short > 0 && !a.recovered(short+1, now) {
			return false
		}
	}
	// Ahead of its share a node spends the last balance it saw; of a forgotten key it would spend its whole share.
	if s := &a.limit.spec; s.Fallback == FallbackShare && a.heard && a.limit.perNs > 0 && !e.budget.Tight() {
		if short := float64(s.Burst) - a.known - float64(a.outAll); short > 0 && !a.recovered(short, now) {
			return false
		}
	}
	return now-a.idleAt >= 20*e.tick || e.budget.Tight()
}

// recovered says that so many tokens can have come back since the owner spoke last. In a window none come before it ends.
func (a *account) recovered(tokens float64, now int64) bool {
	age := now - a.moment.Load()
	if a.limit.alg != nil {
		return age >= a.waits.reset
	}
	return float64(age)*a.limit.perNs >= tokens
}

func (e *Engine) forget(a *account) {
	e.cool(a)
	a.settleSpent()
	e.accounts.drop(a)
	delete(e.byGen, a.gen)
	e.budget.Add(budget.Accounts, -a.size())
	e.dropPurse(a.limit, a.purse)
	e.stats.swept.Add(1)
}

// baseIsFull says that a full ledger may be forgotten: a new one would be full too. With fallback wait an owner that was told nothing
// starts its keys used up, and a key that was reset since is not like others.
func (p *partition) baseIsFull(x *ledger, now int64) bool {
	if x.limit.spec.Fallback != FallbackWait {
		return true
	}
	b := p.base(x.limit)
	p.refill(b, now)
	return p.isFull(b, now)
}

// sweepLedgers looks at some ledgers and forgets those that are full, with nothing out.
func (e *Engine) sweepLedgers(now int64, budget int) {
	for n := 0; n < len(e.parts) && budget > 0; n++ {
		e.pcursor = (e.pcursor + 1) % len(e.parts)
		p := e.parts[e.pcursor]
		if !p.owned || len(p.ledgers) == 0 {
			continue
		}
		e.settleShares(p, now)
		for k, x := range p.ledgers {
			if budget--; budget < 0 {
				break
			}
			p.refill(x, now)
			// A straggler must not find a ledger that has forgotten what it says: it would be charged again.
			if p.isFull(x, now) && p.baseIsFull(x, now) && !x.heirDue && x.telling == nil && x.recalling == nil && x.quietSince() < now-10*e.tick && !e.heirKeeps(p, x) {
				e.unstore(p, k, x)
				p.notMissing(x)
				e.stats.swept.Add(1)
			} else {
				e.weigh(p, x)
			}
		}
		p.shrink()
	}
}

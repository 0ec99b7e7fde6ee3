package hybrid

import (
	"slices"
	"time"
)

// ask is a request to the owner that is in flight for one key. Requests of the same key that come
// meanwhile wait with it.
type ask struct {
	waiters []*waiter
	started int64
	resend  int64 // when to say it again
	tries   int
}

// waiter is one request that waits for the owner.
type waiter struct {
	key   string
	cost  int64 // 0: wants to know the balance, no tokens
	until int64
	hold  *hold // not nil: of a take-all, which holds what it gets there before it spends it
	asked bool  // its cost was in the message that was sent last
	done  chan Decision
}

const (
	resendAfter = int64(5 * time.Millisecond) // a few round trips in a data centre; doubled each time
	pollEvery   = int64(5 * time.Millisecond)
	probeEvery  = int64(10 * time.Millisecond)
	recallWait  = int64(15 * time.Millisecond) // how long the owner holds an answer while idle credit comes back
)

// wait queues a request for the owner's answer, and asks unless an ask is in flight.
func (e *Engine) wait(a *account, cost, now int64) *waiter { return e.waitInto(a, cost, nil, now) }

// waitInto is wait for a take-all: what the owner grants is held in h.
func (e *Engine) waitInto(a *account, cost int64, h *hold, now int64) *waiter {
	w := &waiter{key: a.key, cost: cost, hold: h, until: now + int64(e.cfg.AskTimeout), done: make(chan Decision, 1)}
	if a.ask == nil {
		a.ask = &ask{started: now}
		if e.pollAt == 0 || e.pollAt > now+min(resendAfter, int64(e.cfg.AskTimeout)) {
			e.pollAt = now
			e.wake()
		}
		e.asks = append(e.asks, a)
		a.ask.waiters = append(a.ask.waiters, w)
		e.sendAsk(a, now)
		return w
	}
	a.ask.waiters = append(a.ask.waiters, w)
	if a.owner == e.self {
		e.sendAsk(a, now)
	}
	return w
}

func (e *Engine) wake() {
	select {
	case e.kick <- struct{}{}:
	default:
	}
}

// sendAsk tells the owner what the account's waiters want, in total: said twice, it grants nothing more. If enough asks are on their
// way to that owner it waits, to travel with others when one of those is answered.
func (e *Engine) sendAsk(a *account, now int64) {
	p := a.owner
	if p == nil || p == e.self {
		r := e.reportAsk(a, now)
		if p == nil {
			return
		}
		if g, ok := e.handle(e.self, e.inc, &r, now); ok {
			e.answer(a, &g, now, now)
		}
		return
	}
	if a.ask.tries == 0 && !p.flights.room(now) {
		a.ask.resend = now + resendAfter
		p.asking = append(p.asking, a)
		return
	}
	p.reports = append(p.reports, e.reportAsk(a, now))
	e.sendAsking(p, now)
}

// answered is called when all grants of a message are taken in: what waited for it, or came of it, leaves together.
func (e *Engine) answered(p *peer, re, now int64) {
	if (p.flights.landed(re) || p.flights.room(now)) && len(p.asking) > 0 {
		e.sendAsking(p, now)
	}
}

// reportAsk is what the owner is told, and notes that it is being told.
func (e *Engine) reportAsk(a *account, now int64) report {
	r := a.report(now)
	for _, w := range a.ask.waiters {
		w.asked = true
	}
	a.asked = now
	a.ask.resend = now + resendAfter<<min(a.ask.tries, 5)
	a.ask.tries++
	e.stats.asks.Add(1)
	if a.ask.tries > 1 {
		e.stats.resent.Add(1)
	}
	return r
}

// sendAsking sends what is in p.reports, and what waits: asks, and what was spent. It may have been said by now, or be over.
func (e *Engine) sendAsking(p *peer, now int64) {
	for _, a := range p.asking {
		switch {
		case a.owner != p:
		case a.ask != nil && a.ask.tries == 0:
			p.reports = append(p.reports, e.reportAsk(a, now))
		case a.ask == nil && a.counters() != a.sent:
			p.reports = append(p.reports, a.report(now))
		}
	}
	clear(p.asking)
	p.asking = p.asking[:0]
	if len(p.reports) > 0 {
		p.flights.start(now)
		e.pack(p, &message{}, e.cfg.MaxMessage-100, now)
	}
}

// flights are the asks on their way to one owner: when each was sent, 0 for none.
//
// At rest an ask leaves at once. While maxFlights are under way, those that arise wait for the next answer, and then leave together: many
// callers cost few packets, and few turns of the owner's lock. So an ask waits at most for a part of a round trip.
type flights [maxFlights]int64

const (
	maxFlights = 2
	// flightLost is when an ask does not count as being under way any more: it was lost, or the owner is further away than
	// it pays to wait for.
	flightLost = int64(2 * time.Millisecond)
)

// room says whether one more may be sent. All of one moment count once: they are of one call, and together already.
func (f *flights) room(now int64) bool {
	for _, at := range f {
		if at == 0 || at == now || now-at >= flightLost {
			return true
		}
	}
	return false
}

func (f *flights) start(now int64) {
	first := 0
	for i, at := range f {
		if at == now {
			return
		}
		if at < f[first] {
			first = i
		}
	}
	f[first] = now
}

// landed says that an ask of that time was under way, and is not any more.
func (f *flights) landed(at int64) bool {
	for i := range f {
		if at > 0 && f[i] == at {
			f[i] = 0
			return true
		}
	}
	return false
}

// answer takes in a grant and serves who waits, first come first served.
func (e *Engine) answer(a *account, g *grant, re, now int64) {
	gen := a.gen
	e.apply(a, g, re, now)
	if g.flags&grantNews != 0 {
		if a.refusal.Load() != nil {
			e.refuse(a, g, now)
		}
		if g.g > a.g { // credit of a former owner that was handed over after all: the answer to a report brings it
			e.say(a, now)
		}
		return
	}
	if g.flags&grantRecall != 0 {
		e.giveBack(a, now)
		return
	}
	if a.ask == nil {
		return
	}
	if a.gen != gen { // the owner did not know the generation: ask again in the next
		e.sendAsk(a, now)
		return
	}
	if g.flags&(grantRefused|grantHold) == 0 {
		a.refusal.Store(nil) // what was wanted is granted: the denial of before knows nothing of what went since
	}
	e.serve(a, g, now)
}

// serve decides the waiters that can be decided after an answer, and asks again for those that came since.
func (e *Engine) serve(a *account, g *grant, now int64) {
	k := a.ask
	refused := false
	for len(k.waiters) > 0 {
		w := k.waiters[0]
		if w.cost == 0 {
			w.done <- a.decision(true, SourceOwner, now)
			k.waiters = k.waiters[1:]
			continue
		}
		if _, ok := a.spend(w.cost); ok {
			if w.hold != nil {
				a.setAside(w.hold, w.cost, SourceOwner)
			}
			e.stats.asking.note(now - k.started)
			d := a.decision(true, SourceOwner, now)
			d.Delay = a.departs(g)
			w.done <- d
			k.waiters = k.waiters[1:]
			continue
		}
		if g.flags&grantRefused == 0 || !w.asked {
			break // put off, or the answer to a report in which nobody wanted anything
		}
		if !refused {
			e.refuse(a, g, now)
			refused = true
		}
		retry := a.mustWait(w.cost, now)
		if retry == 0 {
			break // covered, but not granted: others were first, or it takes a tick. Ask again
		}
		e.stats.asking.note(now - k.started)
		a.denied.Add(w.cost)
		if g.flags&grantOverflow != 0 {
			w.done <- e.ownerHasNoRoom(a, w)
		} else {
			w.done <- a.denial(a.limit, w.cost, retry, SourceOwner, now)
		}
		k.waiters = k.waiters[1:]
	}
	if len(k.waiters) == 0 {
		e.endAsk(a)
		e.tellSpent(a, now)
		return
	}
	if !k.waiters[0].asked && a.owner != e.self {
		k.tries = 0
		k.started = now
		e.sendAsk(a, now)
	}
}

// departs is how long what was spent last must wait, where a queue spaces departures: the last token granted goes last, and as
// many intervals before it as there are tokens left.
func (a *account) departs(g *grant) time.Duration {
	if g.flags&grantWaits == 0 || g.waits.delay == 0 || g.rate == 0 {
		return 0
	}
	return max(0, time.Duration(float64(g.waits.delay)-float64(max(0, a.left()))*1e9/g.rate))
}

// tellSpent reports at once what was just spent, where the pool may be full but for what is out before the next tick does:
// until its owner hears of it, nothing refills in its place. With a burst of 1 that would cost half of the rate.
func (e *Engine) tellSpent(a *account, now int64) {
	out, gain := float64(a.outAll), a.limit.perNs*float64(e.tick)
	if a.counters() == a.sent || a.known+out+gain < float64(a.limit.spec.Burst) || out < gain/100 {
		return // said already; the pool has room until the tick; or it is next to nothing
	}
	if p := a.owner; p != nil && p != e.self {
		p.asking = append(p.asking, a) // this was an answer of its owner: see answered
		return
	}
	e.say(a, now)
}

// say reports an account now.
func (e *Engine) say(a *account, now int64) {
	r := a.report(now)
	switch a.owner {
	case nil:
	case e.self:
		if g, ok := e.handle(e.self, e.inc, &r, now); ok {
			e.apply(a, &g, now, now)
		}
	default:
		e.send(a.owner, &message{reports: []report{r}}, now, false)
	}
}

func (e *Engine) endAsk(a *account) {
	a.ask = nil
	if a.asked > 0 && a.limit.spec.permits() { // no answer came: what it granted is not known
		e.activate(a)
	}
	if i := slices.Index(e.asks, a); i >= 0 {
		e.asks[i] = e.asks[len(e.asks)-1]
		e.asks = e.asks[:len(e.asks)-1]
	}
}

// Poll resends asks, ends those that waited too long, and probes peers that are about to be thought silent. It
// returns the nanoseconds after which it wants to be called again, 0 for not before there is a new ask.
func (e *Engine) Poll(now int64) int64 {
	e.mu.Lock()
	defer e.unlock()
	for i := len(e.asks) - 1; i >= 0; i-- {
		if i >= len(e.asks) {
			continue
		}
		a := e.asks[i]
		e.expire(a, now)
		if a.ask != nil && now >= a.ask.resend {
			e.bind(a)
			if e.silent(a.owner, now) {
				e.giveUp(a, now)
			} else {
				if a.ask.tries == 0 {
					a.owner.flights = flights{} // it has waited for too long
				}
				e.sendAsk(a, now)
			}
		}
	}
	probing := e.probe(now)
	e.pollAt = 0
	var next int64
	switch {
	case len(e.asks) > 0:
		next = pollEvery
		for _, a := range e.asks {
			next = min(next, a.ask.resend-now, a.ask.waiters[0].until-now)
		}
		next = max(1, next)
	case probing:
		next = probeEvery
	}
	if next > 0 {
		e.pollAt = now + next // an ask that begins and ends before then need not wake anybody
	}
	return next
}

// expire decides the waiters whose time is over by fallback.
func (e *Engine) expire(a *account, now int64) {
	rest := a.ask.waiters[:0:0]
	for _, w := range a.ask.waiters {
		if now < w.until {
			rest = append(rest, w)
			continue
		}
		e.stats.timedOut.Add(1)
		w.done <- e.fallInto(a, w.cost, w.hold, now)
	}
	if a.ask.waiters = rest; len(rest) == 0 {
		e.endAsk(a)
	}
}

// giveUp decides all waiters of an account by fallback, because its owner is silent.
func (e *Engine) giveUp(a *account, now int64) {
	e.stats.silent.Add(uint64(len(a.ask.waiters)))
	for _, w := range a.ask.waiters {
		w.done <- e.fallInto(a, w.cost, w.hold, now)
	}
	a.ask.waiters = nil
	e.endAsk(a)
}

// probe asks members that have not answered for a tick and a half for a sign of life, so that a few lost
// messages are not taken for a silent owner.
func (e *Engine) probe(now int64) (any bool) {
	for _, p := range e.peers {
		if quiet := now - p.heardAt; !p.present || p == e.self || quiet < 3*e.tick/2 || quiet >= 3*e.tick {
			continue
		}
		any = true
		if now-p.probedAt >= probeEvery {
			p.probedAt = now
			e.send(p, &message{probe: true}, now, false)
		}
	}
	return any
}

// giveBack returns the credit that was not used since the last tick.
func (e *Engine) giveBack(a *account, now int64) {
	a.recalled = a.held > 0
	if k := a.counters(); k.c != a.usedC || a.ask != nil {
		return
	}
	n := a.drain()
	a.r += n
	if n > 0 || a.counters() != a.ack { // called back twice: what was said the first time may be lost
		e.say(a, now)
	}
}

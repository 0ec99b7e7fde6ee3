package hybrid

import (
	"math"
	"strings"
	"time"

	"github.com/jatah-io/jatah/bucket"
	"github.com/jatah-io/jatah/internal/budget"
)

// begin decides a request that found neither credit nor a standing denial, or makes it wait for the owner.
func (e *Engine) begin(now int64, l *Limit, key string, cost int64) (Decision, *waiter) {
	e.mu.Lock()
	defer e.unlock()
	if e.closed.Load() {
		return Decision{Mode: l.spec.Mode, Err: ErrClosed, RetryAfter: bucket.Never}, nil
	}
	if cost == 0 || cost > l.spec.Burst {
		return e.look(l, key, cost, now)
	}
	if d, ok := e.takeSolo(l, key, cost, now); ok {
		return d, nil
	}
	a, err := e.account(l, key)
	if err == nil && a.limit != l {
		e.replan(a, l)
	}
	if err == ErrOverflow {
		return e.noRoom(&l.spec), nil
	}
	if err != nil {
		return Decision{Mode: l.spec.Mode, Err: err, RetryAfter: e.cfg.Tick}, nil
	}
	e.bind(a)
	if a.owner == nil || e.silent(a.owner, now) {
		e.stats.silent.Add(1)
		return e.fallInto(a, cost, nil, now), nil
	}
	if !a.live && a.g > 0 && now-a.idleAt > 10*e.tick {
		e.renew(a) // the owner may have forgotten a quiet key: say nothing that it would have to know
	}
	if l.spec.Mode == Hybrid {
		if left, ok := a.spend(cost); ok { // it came while the lock was waited for
			return l.credited(&l.spec, a, left), nil
		}
		if e.overshoot(a, cost, now) {
			return a.decision(true, SourceLocal, now), nil
		}
	}
	w := e.wait(a, cost, now)
	select {
	case d := <-w.done: // this node is the owner
		return d, nil
	default:
		return Decision{}, w
	}
}

// look answers a request that takes nothing: of cost 0, or above the burst. It stores nothing that was not there.
func (e *Engine) look(l *Limit, key string, cost, now int64) (Decision, *waiter) {
	if d, ok := e.lookSolo(l, key, cost, now); ok {
		return d, nil
	}
	if cost > l.spec.Burst {
		if a := e.accountOf(l, key); a != nil && a.heard {
			d := a.decision(false, SourceLocal, now)
			d.RetryAfter = bucket.Never
			return d, nil
		}
		return Decision{Mode: l.spec.Mode, Remaining: l.spec.Burst, RetryAfter: bucket.Never}, nil
	}
	if a := e.accountOf(l, key); a != nil && a.heard {
		d := a.decision(true, SourceLocal, now)
		if l.alg != nil {
			if left := a.waits.next - (now - a.moment.Load()); a.known+float64(a.outAll) < 0 && left > 0 {
				d.OK, d.RetryAfter = false, wait(left)
			}
			return d, nil
		}
		d.inDebt(l, a.known+float64(a.outAll)+float64(now-a.moment.Load())*l.growth()+float64(min(0, a.left())))
		return d, nil
	}
	hash := e.hash(l, key)
	if p := e.parts[e.partOf(hash)]; p.owned {
		e.settleShares(p, now)
		x := e.peekLedger(p, l, key, hash, now)
		level := p.level(x, now)
		d := Decision{OK: true, Mode: l.spec.Mode, Source: SourceOwner, Remaining: min(max(0, int64(math.Floor(level))), l.spec.Burst),
			ResetAfter: l.fill(float64(l.spec.Burst) - level)}
		if d.inDebt(l, level+x.outstanding()); x.m != nil {
			if d.ResetAfter = x.m.Reset(); !d.OK {
				d.RetryAfter = wait(p.waitFor(x, 0, now))
			}
		}
		return d, nil
	}
	return Decision{OK: true, Mode: l.spec.Mode, Remaining: l.spec.Burst}, nil
}

// inDebt refuses a look at a key that has less than nothing.
func (d *Decision) inDebt(l *Limit, level float64) {
	if level < 0 {
		d.OK, d.RetryAfter = false, max(1, l.fill(-level))
	}
}

// sync tells the owner of a refund or charge, or just asks it for the balance.
func (e *Engine) sync(now int64, l *Limit, key string, refund, charge int64) (*account, *waiter, error) {
	e.mu.Lock()
	defer e.unlock()
	if e.closed.Load() {
		return nil, nil, ErrClosed
	}
	a, err := e.account(l, key)
	if err != nil {
		return nil, nil, err
	}
	e.bind(a)
	a.u = saturatingAdd(a.u, min(refund, a.missing(l)))
	if charge > 0 { // no debt is deeper than a message can say
		a.gain(-min(charge, max(0, a.left()+4*maxBurst)))
	}
	if refund > 0 || charge > 0 {
		e.activate(a)
		a.refusal.Store(nil)
	}
	if a.owner == nil || e.silent(a.owner, now) {
		return a, nil, nil
	}
	return a, e.wait(a, 0, now), nil
}

// overshoot spends up to floor(phi*b/K) beyond credit without asking, only where the balance seen last was above
// phi*b, and again only when the owner has charged the last one.
func (e *Engine) overshoot(a *account, cost, now int64) bool {
	budget := a.limit.spec.Overshoot * float64(a.limit.spec.Burst)
	if budget == 0 || a.heard && a.known <= budget || e.weight(now) == 0 {
		return false
	}
	if allowance := int64(budget / float64(e.k)); a.left()-cost < -allowance {
		return false
	}
	a.gain(-cost)
	e.activate(a)
	if a.ask == nil && a.owner != e.self {
		r := a.report(now)
		r.want = saturatingAdd(r.c, r.r)
		e.send(a.owner, &message{reports: []report{r}}, now, false)
	}
	return true
}

// account finds or makes the account of a key.
func (e *Engine) account(l *Limit, key string) (*account, error) {
	p, _ := l.keys.Find(key)
	if a := e.accountIn(p, key); a != nil {
		return a, nil
	}
	now := e.now()
	if p != nil {
		e.unfold(l, p, now) // others are to know of the key
	}
	reserved := e.isShared(key, l.plan)
	if !e.roomForKey(l, accountBytes+int64(len(key)), reserved, now) {
		return nil, ErrOverflow
	}
	hash := e.hash(l, key)
	a := &account{limit: l, key: strings.Clone(key), hash: hash, part: e.partOf(hash)}
	a.as.Store(l)
	add := l.keys.Add
	if reserved {
		add = l.keys.AddReserved
	}
	p, _ = add(key, func(p *purse) {
		a.purse = p
		e.accounts.add(a)
		p.credit.reuse(0)
		p.balance.Store(0)
		p.state.Store(uint64(a.number))
		p.moment.Store(0)
	})
	if p == nil {
		e.giveRoom(a.size(), now)
		return nil, ErrOverflow
	}
	e.gen++
	a.gen = e.gen
	e.byGen[a.gen] = a
	if a.owner = e.ownerOf(a.part); a.owner != nil {
		a.ownerInc = a.owner.inc
	}
	return a, nil
}

// handle is the owner's side of a report or an ask; ok false: this node does not own the key.
func (e *Engine) handle(from *peer, inc uint64, m *report, now int64) (g grant, ok bool) {
	l, ok := e.limits.Load(m.limit)
	if !ok {
		return grant{gen: m.gen, flags: grantNoLimit}, true
	}
	l = l.planOf(m.plan, m.key)
	hash := e.hash(l, m.key)
	p := e.parts[e.partOf(hash)]
	if !p.owned {
		return g, false
	}
	e.settleShares(p, now)
	if m.g == 0 && m.c == 0 && m.u == 0 && m.want == 0 && m.was.number == 0 && e.stored(p, l, m.key, now) == nil {
		x := e.peekLedger(p, l, m.key, hash, now) // a look stores nothing
		return e.grantOf(p, x, &entry{gen: m.gen}, 0, now), true
	}
	x := e.ledger(p, l, m.key, hash, now)
	if x == nil && l.spec.permits() && m.c > m.u { // permits that are held: others must not be given them once there is room
		x = e.mustLedger(p, l, m.key, hash, now)
	}
	if x == nil {
		e.ownerFull()
		return grant{gen: m.gen, flags: grantContended | grantRefused | grantOverflow}, true // a rate of 0: how it is in a tick is not known, whatever the cost
	}
	defer e.weigh(p, x)
	if x.limit != l && x.requested(from.name, inc, m) { // the plan of the last request holds, not that of some node which still has credit
		p.retune(x, l, now)
	}
	p.refill(x, now)
	had := x.returned(from.name, inc, m.gen)
	n := e.settleReport(p, x, from.name, inc, m, now)
	if n == nil {
		return e.grantOf(p, x, &entry{gen: m.gen}, grantUnknown, now), true
	}
	known := !x.isPermits() || e.knowsHeld(p)
	if known {
		e.grantTo(p, x, n, m, now)
	}
	var flags uint64
	if m.want > n.g && !known {
		flags = grantHold
	} else if m.want > n.g {
		flags = e.refusing(p, x, n, m, now)
	} else if m.want > 0 { // a report that wants nothing does not end the denial that its sender holds
		n.refused = 0
	}
	e.changed(p, x)
	if n.r+n.u > had {
		e.tell(p, x)
	}
	g = e.grantOf(p, x, n, flags, now)
	e.namePlan(&g, x, l)
	return g, true
}

// requested says that a report tells of requests, and not only of credit that is held.
func (l *ledger) requested(lender string, inc uint64, m *report) bool {
	x := l.find(lender)
	return m.want > 0 || m.denied > 0 || x != nil && x.inc == inc && x.gen == m.gen && m.c > x.c
}

// grantOf is what a lender is told of its entry and of the key.
func (e *Engine) grantOf(p *partition, x *ledger, n *entry, flags uint64, now int64) grant {
	g := grant{gen: n.gen, g: n.g, c: n.c, r: n.r, u: n.u, bal: p.level(x, now), rate: e.gain(p, x.limit), out: int64(x.outstanding()), flags: flags}
	if x.m != nil {
		g.flags |= grantWaits
		g.waits = p.waits(x, n.refused, now)
	}
	return g
}

// gain is what a key's pool gains now, in tokens per second.
func (e *Engine) gain(p *partition, l *Limit) float64 { return l.perNs * 1e9 * p.era().fraction }

// refusing decides what goes with an answer that does not grant all that is wanted: while other nodes hold credit
// that they do not use, it is called back and the answer is put off; otherwise it is a denial.
func (e *Engine) refusing(p *partition, x *ledger, n *entry, m *report, now int64) uint64 {
	if x.limit.spec.Mode == Hybrid {
		came, coming := e.recall(p, x, n, now)
		if came {
			e.grantTo(p, x, n, m, now)
		}
		switch {
		case m.want <= n.g:
			return 0
		case coming:
			return grantHold
		}
	}
	n.refused = max(1, m.least-m.c-m.r)
	var demand float64
	for _, y := range x.entries {
		demand += e.wanted(y, now)
	}
	n.quietUntil = now + 10*e.tick
	n.told, n.toldAt = p.level(x, now), now
	if x.m != nil {
		n.quietUntil += min(ns(x.m.Wait(float64(n.refused))), int64(time.Hour))
	} else if rate := x.limit.perNs * p.era().fraction; rate > 0 {
		n.quietUntil += int64(min(max(0, float64(n.refused)-p.level(x, now))/rate, float64(time.Hour)))
	}
	if x.limit.spec.Mode == Hybrid {
		e.recallLater(p, x, now)
	}
	if demand > x.limit.perNs*p.era().fraction {
		return grantContended | grantRefused
	}
	return grantRefused
}

func (e *Engine) hash(l *Limit, key string) uint64 { return e.ringHash(l.def.Load().Name, key) }

// ledger finds or makes the ledger of a key; nil: there is no room for a new one.
func (e *Engine) ledger(p *partition, l *Limit, key string, hash uint64, now int64) *ledger {
	return e.ledgerOf(p, l, key, hash, false, now)
}

// mustLedger is ledger for what others have kept of a key, which is not forgotten for want of room.
func (e *Engine) mustLedger(p *partition, l *Limit, key string, hash uint64, now int64) *ledger {
	return e.ledgerOf(p, l, key, hash, true, now)
}

func (e *Engine) ledgerOf(p *partition, l *Limit, key string, hash uint64, must bool, now int64) *ledger {
	if x := e.stored(p, l, key, now); x != nil {
		return x
	}
	size := ledgerBytes + entryBytes + int64(len(key))
	if must {
		e.budget.Add(budget.Ledgers, size)
	} else if !e.roomForLedger(size, e.isShared(key, l.plan), now) {
		return nil
	}
	key = l.owned(key) // it may be part of a packet
	x := e.peekLedger(p, l, key, hash, now)
	e.store(p, x, size)
	return x
}

// stored is the ledger of a key, nil if it has none. A solo key gets one: somebody else has come.
func (e *Engine) stored(p *partition, l *Limit, key string, now int64) *ledger {
	k := ledgerKey{l.root, key}
	if e.nsolo > 0 {
		if q, _ := l.keys.Find(key); q != nil && q.credit.has(creditSolo) {
			e.unfold(l, q, now)
		}
	}
	return p.ledgers[k]
}

// peekLedger is the key's ledger at now, or what it would start from; it is not stored.
func (e *Engine) peekLedger(p *partition, l *Limit, key string, hash uint64, now int64) *ledger {
	if x := e.stored(p, l, key, now); x != nil {
		p.refill(x, now)
		return x
	}
	b := p.base(l)
	x := &ledger{limit: l, key: key, hash: hash, pool: b.pool, cap: b.cap, at: b.at, era: b.era, start: b.start, exact: b.exact}
	if b.m != nil {
		x.m = bucket.Clone(b.m)
	}
	p.refill(x, now)
	if l.plans.Load() != nil && l.spec.Fallback == FallbackWait {
		x.blind = now + p.fills(x, now)
	}
	return x
}

// growth is how many tokens per nanosecond a lender expects a refused key to gain by itself.
func (l *ledger) growth(p *partition) float64 {
	if l.m != nil {
		return 0 // it knows when to ask again
	}
	return l.limit.perNs * p.era().fraction
}

// eachLedger goes through the ledgers of a limit and of its plans.
func (e *Engine) eachLedger(p *partition, l *Limit, f func(*ledger)) {
	for k, x := range p.ledgers {
		if k.limit == l {
			f(x)
		}
	}
	for v, b := range p.bases {
		if v.root == l {
			f(b)
		}
	}
}

// tell puts a ledger on the list of those whose refused nodes are told, at the next tick, that tokens are there.
func (e *Engine) tell(p *partition, x *ledger) { e.tellOf(p, x, false) }

func (e *Engine) tellOf(p *partition, x *ledger, rate bool) {
	if x.telling != nil { // there is more: also for those who were refused since
		x.telling.ticks, x.telling.rate = tellTicks, x.telling.rate || rate
		return
	}
	for _, n := range x.entries {
		if n.refused > 0 {
			x.telling = &tell{p, x, tellTicks, rate}
			e.telling = append(e.telling, x.telling)
			return
		}
	}
}

// tellRate is for when the owner holds more of a limit than before: what nodes were told to wait is too long.
func (e *Engine) tellRate(p *partition) {
	for _, x := range p.ledgers {
		e.tellOf(p, x, true)
	}
}

const tellTicks = 5 // a message may be lost

type tell struct {
	p     *partition
	x     *ledger
	ticks int  // how often it is said: a message may be lost
	rate  bool // the pool fills faster now: of interest even if there is no more in it yet
}

// tellRefused queues the news for those who were refused: there is more now than they were told.
func (e *Engine) tellRefused(now int64) {
	keep := e.telling[:0]
	for _, t := range e.telling {
		if t.ticks--; t.ticks < 0 || !t.p.has(t.x) {
			t.x.telling = nil
			continue
		}
		keep = append(keep, t)
		e.settleShares(t.p, now)
		t.p.refill(t.x, now)
		for _, n := range t.x.entries {
			level := t.p.level(t.x, now)
			if n.refused == 0 || now > n.quietUntil {
				continue
			}
			if reckons := n.told + float64(now-n.toldAt)*t.x.growth(t.p); level < reckons+0.01 && !t.rate {
				continue // no more than the node expects by itself
			}
			e.newsTo(t.p, t.x, n, now)
		}
	}
	e.telling = keep
}

// newsTo tells a lender, with the next tick, how a key stands.
func (e *Engine) newsTo(p *partition, x *ledger, n *entry, now int64) {
	g := e.grantOf(p, x, n, grantNews, now)
	if n.lender == e.cfg.Node {
		if a := e.byGen[n.gen]; a != nil {
			e.answer(a, &g, 0, now)
		}
	} else if to := e.byName[n.lender]; to != nil && to.present && to.inc == n.inc {
		to.due = append(to.due, g)
	}
}

package hybrid

import (
	"math"
	"sync/atomic"
	"time"
)

// account is the lender's side of one key.
//
// What a local decision touches is in the purse. Every account with credit is on the engine's active list.
type account struct {
	*purse  // credit and what describes it
	hot     atomic.Pointer[hotCredit]
	reset   atomic.Int64            // ns from the owner's last answer until the key is as new, where the rule is not one token bucket
	refusal atomic.Pointer[refusal] // a denial that stands
	denied  atomic.Int64            // tokens refused locally since the last report
	as      atomic.Pointer[Limit]   // limit below, for who does not hold the lock

	// Everything below is under the engine's lock.
	limit  *Limit // or the plan of it that holds for the key
	key    string
	hash   uint64
	part   int
	number uint32 // in Engine.accounts
	live   bool   // on the active list
	expect int64  // what left would be if nobody had spent without the lock
	spent  int64  // so far without it

	owner    *peer
	ownerInc uint64
	gen      uint64
	g, r, u  int64
	held     int64      // tokens of credit that take-alls have set aside, see hold
	recalled bool       // the owner wanted it back meanwhile
	often    bool       // used again within idleTicks: its credit is worth holding for as long
	pinned   bool       // a take-all is at it: room for its other keys is not made here
	was      generation // of the owner before: credit that this owner may grant anew, if it was handed over
	ack      counters   // as the owner has echoed them
	sent     counters   // as reported last
	sentAt   int64
	until    int64 // own clock: the credit's lease
	usedAt   int64 // last tick in which C grew
	usedC    int64
	known    float64 // balance that the owner last told, tokens
	outAll   int64   // credit that was out then, of all nodes
	waits    waits   // as told then, where the rule is not one token bucket
	heard    bool
	planned  *Limit // the plan that the owner had for the key then; nil: nothing is known
	ask      *ask
	idleAt   int64
	fallback fallback

	asked     int64  // permits: own time of an ask that was not answered, so that what it granted is not known
	answered  int64  // permits: own time of the newest report that was answered
	confirmed uint64 // permits: the owner's epoch in which it last confirmed the generation
}

type counters struct{ c, r, u int64 }

// refusal is a denial from which later requests are refused locally.
type refusal struct {
	at      int64   // own clock
	bal     float64 // tokens at that time
	rate    float64 // tokens per nanosecond
	atLeast int64   // own clock: until then everything is refused that bal does not cover
	atMost  int64   // own clock: from then on the owner is asked again, in case it lost the news
	waits   *waits  // nil: bal and rate say it

	overflow bool // the owner has no room for the key
}

// refusalFor is how long a denial stands without asking again, however long the wait is.
const refusalFor = int64(30 * time.Second)

// permitsRefusedFor is the same for permits: nothing but the owner tells when one is free.
const permitsRefusedFor = int64(time.Second)

// wait is how long a cost must wait from now; 0: the denial says nothing about it any more.
func (d *refusal) wait(cost, now int64) int64 {
	if now >= d.atMost {
		return 0
	}
	short := float64(cost) - d.bal
	if short <= 0 {
		return 0
	}
	end := int64(math.MaxInt64)
	if w := d.waits; w != nil {
		if end = d.at + w.next; cost >= w.cost { // a larger cost waits at least as long
			end = d.at + max(w.next, w.refused)
		}
	} else if d.rate > 0 {
		if w := math.Ceil(short / d.rate); w < float64(math.MaxInt64-d.at) {
			end = d.at + int64(w)
		}
	}
	return max(0, max(end, d.atLeast)-now)
}

// mustWait is how long a cost must wait by the denial that stands; 0: there is none that speaks of it. The credit
// at hand is part of what covers the cost, and what is owed comes on top.
func (a *account) mustWait(cost, now int64) int64 {
	d := a.refusal.Load()
	if d == nil {
		return 0
	}
	return d.wait(cost-a.left(), now)
}

// left is the credit that is left, below zero what is owed.
func (a *account) left() int64 {
	if h := a.hot.Load(); h != nil {
		return h.load()
	}
	return a.credit.load()
}

// gain adds to the credit, under the engine's lock.
func (a *account) gain(n int64) {
	a.expect += n
	if h := a.hot.Load(); h != nil {
		h.add(n)
	} else {
		a.credit.add(n)
	}
}

// spend takes cost tokens of credit, if there are as many, under the engine's lock.
func (a *account) spend(cost int64) (left int64, ok bool) {
	if h := a.hot.Load(); h != nil {
		left, ok = h.spend(0, cost)
	} else {
		left, ok = a.credit.take(cost)
	}
	if ok {
		a.expect -= cost
	}
	return left, ok
}

// spendFree is spend without the lock: settleSpent finds it. w is the word as it was when the key was found.
func (a *account) spendFree(l *Limit, w uint64, cost int64) (left int64, ok bool) {
	if int64(w) < cost<<creditShift {
		return 0, false
	}
	l.several(cost, 1)
	left, first, ok := a.credit.spend(w, cost)
	if first {
		l.keys.Mark(a.purse)
	}
	switch {
	case !ok:
		l.several(cost, -1)
	case cost == 0:
		l.bulk.takes.Inc()
	}
	return left, ok
}

// settleSpent counts what was spent without the lock as decisions of the limit.
func (a *account) settleSpent() {
	if n := a.expect - a.left(); n != 0 {
		a.often = true
		a.expect -= n
		a.spent += n
		a.limit.root.spent += n
	}
}

// counters reads C, R and U as of now.
func (a *account) counters() counters {
	return counters{c: a.g - a.r - a.left() - a.held, r: a.r, u: a.u}
}

// missing is the most that a refund under l can give: the burst, of the largest plan that the key may have, and a debt on top of it as far as
// it is known here.
func (a *account) missing(l *Limit) int64 {
	debt := math.Ceil(max(0, -a.known)) // less than 2^53
	burst := max(a.limit.spec.most(), l.spec.most())
	if a.planned != nil {
		burst = max(burst, a.planned.spec.most())
	}
	return burst + int64(debt) - min(0, a.left())
}

// drain takes away the credit that is left, and returns how much that was.
func (a *account) drain() (n int64) {
	if h := a.hot.Load(); h != nil {
		n = h.drain()
	} else {
		n = a.credit.drain(0)
	}
	a.expect -= n
	return n
}

// renew burns what credit is left and begins the next generation. What was spent beyond credit and
// has not been charged goes along, so does a refund that nobody has been told of yet. A refund that was
// told and not confirmed does not: it may have been taken in, and giving it twice would admit too much.
func (e *Engine) renew(a *account) {
	a.release()
	left := a.drain()
	a.was = generation{number: a.gen, g: a.g, c: a.g - a.r - left, r: a.r, u: max(a.sent.u, a.ack.u)}
	if left == 0 {
		a.was = generation{}
	}
	e.gen++
	delete(e.byGen, a.gen)
	u := a.u - max(a.sent.u, a.ack.u)
	owed := -min(0, a.left())
	a.limit.top.used.Note(a.key, a.g-a.r-left+owed-a.usedC) // the tick has not seen it yet
	if a.limit.spec.permits() {
		owed, u = a.renewHeld(left), 0
		a.asked = max(1, e.lastTick) // the owner is told also when nothing is held: it may count credit that never arrived
	}
	a.gen, a.g, a.r, a.u = e.gen, 0, 0, u
	a.gain(-owed - a.left()) // a spend needs credit, and there is none
	a.ack, a.sent, a.sentAt, a.until = counters{}, counters{}, 0, 0
	a.often = e.again(a, e.lastTick)
	a.usedC, a.usedAt = owed, e.lastTick // what is owed has been counted as used
	e.byGen[a.gen] = a
	e.activate(a)
}

// activate puts the account on the list that the tick goes through.
func (e *Engine) activate(a *account) {
	if !a.live {
		a.live = true
		a.idleAt = 0
		e.active = append(e.active, a)
	}
}

// bind makes the account belong to the present owner of its key, in its present incarnation. Whenever either is
// another, credit granted by the one before is void.
func (e *Engine) bind(a *account) {
	o := e.ownerOf(a.part)
	if a.owner == o && (o == nil || a.ownerInc == o.inc) {
		return
	}
	if a.owner == o && a.ownerInc == 0 {
		a.ownerInc = o.inc // first word of an owner that nothing was asked of yet
		return
	}
	a.owner = o
	a.ownerInc = 0
	if o != nil {
		a.ownerInc = o.inc
	}
	a.fallback = fallback{}
	a.refusal.Store(nil)
	e.renew(a)
}

// report is what the owner is told of the account now.
func (a *account) report(now int64) report {
	k := a.counters()
	a.sent, a.sentAt = k, now
	m := report{limit: a.limit.spec.Name, plan: a.limit.plan, key: a.key, gen: a.gen, was: a.was, g: a.g, c: k.c, r: k.r, u: k.u, denied: a.denied.Swap(0)}
	if a.ask != nil {
		var want int64
		for _, w := range a.ask.waiters {
			want = saturatingAdd(want, w.cost)
		}
		if len(a.ask.waiters) > 0 && want > 0 {
			base := k.c + k.r + a.held // what is held is granted, and not for who waits now
			m.want = saturatingAdd(base, want)
			m.least = saturatingAdd(base, a.ask.waiters[0].cost)
		}
	}
	return m
}

// apply takes in a grant that answers what was sent at re (own clock). It says whether the owner still
// knows the account's generation.
func (e *Engine) apply(a *account, g *grant, re, now int64) {
	if g.flags&grantUnknown != 0 {
		e.renew(a)
		return
	}
	a.was = generation{}
	if d := g.g - a.g; d > 0 && re > 0 { // what answers nothing gives no lease
		a.g = g.g
		if now+e.tick > re+e.ttl { // so late that its lease is nearly over: no tick may come in time to void it
			a.r += d
		} else {
			a.gain(d)
		}
		e.activate(a)
	}
	a.ack.c, a.ack.r, a.ack.u = max(a.ack.c, g.c), max(a.ack.r, g.r), max(a.ack.u, g.u)
	if re > 0 {
		a.until = max(a.until, re+e.ttl)
		a.answered = max(a.answered, re)
		if re >= a.asked {
			a.asked = 0
		}
	}
	if now < a.moment.Load() || g.flags&grantOverflow != 0 { // the owner keeps nothing of the key
		return
	}
	a.known, a.outAll, a.heard = g.bal, g.out, true
	if re > 0 {
		e.plannedAs(a, g)
	}
	a.balance.Store(int64(math.Floor(g.bal)))
	if g.flags&grantWaits != 0 {
		a.waits = g.waits
		a.reset.Store(g.waits.reset)
	}
	a.moment.Store(now)
}

// refuse remembers a denial.
func (e *Engine) refuse(a *account, g *grant, now int64) {
	d := &refusal{at: now, bal: g.bal, rate: g.rate / float64(time.Second), atLeast: now, atMost: now + refusalFor}
	if a.limit.spec.permits() {
		d.atMost = now + permitsRefusedFor
	}
	switch {
	case g.rate == 0: // the owner holds no share now, which says nothing about a moment later
		d.rate, d.atLeast = math.Inf(1), now+e.tick
	case g.flags&grantContended != 0:
		d.atLeast = now + e.pace(a.limit)
	}
	if g.flags&grantWaits != 0 && g.rate > 0 {
		d.rate, d.waits = 0, new(g.waits) // a copy: g is read into again
	}
	d.overflow = g.flags&grantOverflow != 0
	a.refusal.Store(d)
}

// pace is how long a denial stands at least while demand exceeds the pool: an overload is refused in memory.
func (e *Engine) pace(l *Limit) int64 {
	if l.perNs == 0 {
		return e.tick
	}
	return int64(min(float64(e.tick), float64(l.spec.Burst)/l.perNs/4))
}

func saturatingAdd(a, b int64) int64 {
	if b > 0 && a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

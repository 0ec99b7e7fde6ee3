package hybrid

import (
	"math"
	"sync/atomic"
	"time"
)

// account is the lender's side of one key.
//
// credit is G - C - R - held, the one word that a local decision touches: a take lowers it by one
// compare-and-swap, so C needs no counter of its own. It is raised only under the engine's
// lock. Below zero it is what was spent beyond credit: owed to the owner. Every account with
// credit is on the engine's active list, so a take need not tell the tick about itself.
type account struct {
	credit  atomic.Int64
	balance atomic.Int64            // whole tokens in the pool when the owner last answered
	asOf    atomic.Int64            // own clock of that answer, 0: never
	reset   atomic.Int64            // ns from then until the key is as new, where the rule is not one token bucket
	refusal atomic.Pointer[refusal] // a denial that stands
	denied  atomic.Int64            // tokens refused locally since the last report
	as      atomic.Pointer[Limit]   // limit below, for who does not hold the lock

	// Everything below is under the engine's lock.
	limit *Limit // or the plan of it that holds for the key
	key   string
	hash  uint64
	part  int
	index int  // in Engine.accounts
	live  bool // on the active list

	owner    *peer
	ownerInc uint64
	gen      uint64
	g, r, u  int64
	held     int64      // tokens of credit that take-alls have set aside, see hold
	recalled bool       // the owner wanted it back meanwhile
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
	return d.wait(cost-a.credit.Load(), now)
}

// spend takes cost tokens of credit, if there are as many. It takes no lock and reads no clock.
func (a *account) spend(cost int64) (left int64, ok bool) {
	for {
		c := a.credit.Load()
		if c < cost {
			return c, false
		}
		if a.credit.CompareAndSwap(c, c-cost) {
			return c - cost, true
		}
	}
}

// counters reads C, R and U as of now.
func (a *account) counters() counters {
	return counters{c: a.g - a.r - a.credit.Load() - a.held, r: a.r, u: a.u}
}

// missing is the most that a refund under l can give: the burst, of the largest plan that the key may have, and a debt on top of it as far as
// it is known here.
func (a *account) missing(l *Limit) int64 {
	debt := math.Ceil(max(0, -a.known)) // less than 2^53
	burst := max(a.limit.spec.most(), l.spec.most())
	if a.planned != nil {
		burst = max(burst, a.planned.spec.most())
	}
	return burst + int64(debt) - min(0, a.credit.Load())
}

// drain takes away the credit that is left, and returns how much that was.
func (a *account) drain() int64 {
	for {
		c := a.credit.Load()
		if c <= 0 {
			return 0
		}
		if a.credit.CompareAndSwap(c, 0) {
			return c
		}
	}
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
	owed := -min(0, a.credit.Load())
	a.limit.top.used.Note(a.key, a.g-a.r-left+owed-a.usedC) // the tick has not seen it yet
	if a.limit.spec.permits() {
		owed, u = a.renewHeld(left), 0
		a.asked = max(1, e.lastTick) // the owner is told also when nothing is held: it may count credit that never arrived
	}
	a.gen, a.g, a.r, a.u = e.gen, 0, 0, u
	a.credit.Store(-owed) // under the lock: a spend needs credit, and there is none
	a.ack, a.sent, a.sentAt, a.until = counters{}, counters{}, 0, 0
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
			a.credit.Add(d)
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
	if now < a.asOf.Load() {
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
	a.asOf.Store(now)
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

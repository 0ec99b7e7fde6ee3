package hybrid

import (
	"context"
	"fmt"
	"time"

	"github.com/jatah-io/jatah/bucket"
)

// Take is one of several requests that are decided together. Cost is in tokens; 0 is a look, which is refused where the
// key is in debt.
type Take struct {
	Limit *Limit
	Key   string
	Cost  int64
}

// AllDecision is the answer to several requests that were decided together: all of them were charged, or none.
type AllDecision struct {
	OK         bool
	Violated   []string      // names of the limits known to refuse, parents too, each once
	RetryAfter time.Duration // the longest that a violated limit asks for; bucket.Never when no wait helps; 0 when OK
	Decisions  []Decision    // one per request. Where the whole was refused, what would have passed is OK and as if not taken
	Err        error         // the requests could not be decided, and nothing was taken; also in the Decision it comes from
}

// All is a take-all that BeginAll started. Finish must be called once: until then others cannot have what is held. Not for
// use by several goroutines.
type All struct {
	e     *Engine
	takes int
	parts []part
	links []link // which parts each take needs
	bare  int    // parts decided on bare buckets
	done  bool   // charged or given back
	ok    bool
}

// part is one key of a take-all, with the sum of what the takes want of it.
type part struct {
	l       *Limit
	s       *Spec
	key     string
	cost    int64
	bare    bool // alone or split: decided on a bare bucket
	decided bool
	taken   bool // from the bare bucket
	d       Decision
	w       *waiter // asked
	hold    hold
}

type link struct {
	take, part int
	cost       int64 // of the take; parts have the sum
}

// refused says that the part keeps the whole from passing.
func (p *part) refused() bool { return p.decided && (p.d.Err != nil || !p.d.OK && !p.s.DryRun) }

func (p *part) decide(d Decision) { p.d, p.decided = d, true }

// TakeAll decides several requests together: all are charged or none, also when their keys have different owners. A limit's
// parents are part of it. It waits at most the ask timeout, for all owners at once.
func (e *Engine) TakeAll(ctx context.Context, takes []Take) AllDecision {
	return e.BeginAll(takes).Finish(ctx)
}

// BeginAll starts several requests that are decided together by Finish. One limit and key twice count as the sum.
func (e *Engine) BeginAll(takes []Take) *All {
	x := &All{e: e, takes: len(takes), parts: make([]part, 0, len(takes)+1), links: make([]link, 0, len(takes)+1)}
	var index map[ledgerKey]int
	if len(takes) > 8 {
		index = make(map[ledgerKey]int, len(takes))
	}
	for i, t := range takes {
		x.addChain(i, t, index)
	}
	if x.any(func(p *part) bool { return p.d.Err != nil }) {
		return x
	}
	x.probeBare()
	if x.bare == len(x.parts) {
		return x
	}
	e.mu.Lock()
	defer e.unlock()
	now := e.now()
	x.hold(now)
	if x.bare == 0 && !x.any(func(p *part) bool { return !p.decided }) {
		x.close(now) // nobody is waited for: this visit to the lock is the only one
	}
	return x
}

// addChain adds a take on its limit and on the parents of that.
func (x *All) addChain(i int, t Take, index map[ledgerKey]int) {
	l, key := t.Limit, t.Key
	for depth := 0; l != nil; depth++ {
		p := x.add(i, l, key, t.Cost, index)
		up, err := l.up()
		if err == nil && up != nil && depth == MaxParents {
			err = fmt.Errorf("%w %q: it has more than %d parents", ErrSpec, t.Limit.Spec().Name, MaxParents)
		}
		if err != nil {
			p.decide(Decision{Mode: p.s.Mode, RetryAfter: x.e.cfg.Tick, Err: err})
			return
		}
		if l = up; l != nil {
			key = l.Spec().Name
		}
	}
}

func (x *All) add(take int, l *Limit, key string, cost int64, index map[ledgerKey]int) *part {
	l = l.For(key)
	k := ledgerKey{l.root, key}
	i, ok := index[k]
	if index == nil {
		for i = 0; i < len(x.parts) && !ok; i++ {
			ok = x.parts[i].l.root == l.root && x.parts[i].key == key
		}
		i--
	}
	if !ok {
		i = len(x.parts)
		s := l.def.Load()
		x.parts = append(x.parts, part{l: l, s: s, key: key, bare: x.e.alone() || s.Mode == Split})
		if x.parts[i].bare {
			x.bare++
		}
		if index != nil {
			index[k] = i
		}
	}
	x.links = append(x.links, link{take, i, cost})
	p := &x.parts[i]
	if p.decided && p.d.Err != nil {
		return p
	}
	if p.s.permits() {
		p.decide(p.s.noTokens())
	} else if d, ok := l.simple(p.s, cost); ok {
		p.decide(d)
	}
	p.cost = saturatingAdd(p.cost, max(0, cost))
	return p
}

// failed says that the whole is refused already.
func (x *All) failed() bool {
	return x.any((*part).refused)
}

func (x *All) any(is func(*part) bool) bool {
	for i := range x.parts {
		if is(&x.parts[i]) {
			return true
		}
	}
	return false
}

// probeBare looks at the bare buckets before anybody is asked: if one refuses, nobody need be. They are taken from last, so
// that nothing is missing from them while owners are waited for.
func (x *All) probeBare() {
	for i := range x.parts {
		p := &x.parts[i]
		if !p.bare || p.decided {
			continue
		}
		look := p.l.takeBucket(p.s, p.key, 0)
		if p.d = look; p.cost == 0 || look.Err != nil {
			p.decided = true
			continue
		}
		if look.OK && look.Remaining >= p.cost {
			continue
		}
		if d := p.l.takeBucket(p.s, p.key, p.cost); d.OK {
			p.refund()
		} else {
			p.decide(d)
		}
	}
}

func (p *part) refund() {
	p.taken = false
	p.l.Refund(context.Background(), p.key, p.cost) // on a bare bucket it waits for nobody
}

// hold sets aside what the parts need, or asks for it. While one part refuses by what is known here, no owner is asked
// for the others: a flood of requests that are refused in memory must not become one of messages.
func (x *All) hold(now int64) {
	e := x.e
	accounts := make([]*account, len(x.parts))
	for i := range x.parts {
		if p := &x.parts[i]; !p.bare && !p.decided {
			if accounts[i] = e.consider(p, now); accounts[i] != nil {
				accounts[i].pinned = true
			}
		}
	}
	for _, a := range accounts {
		if a != nil {
			a.pinned = false
		}
	}
	if x.failed() {
		x.lookAt(now)
		return
	}
	for i, a := range accounts {
		p := &x.parts[i]
		if a == nil {
			continue
		}
		if a.owner == nil || e.silent(a.owner, now) {
			e.stats.silent.Add(1)
			p.decide(e.fallInto(a, p.cost, &p.hold, now))
		} else if p.s.Mode == Hybrid {
			if left, ok := a.spend(p.cost); ok {
				a.setAside(&p.hold, p.cost, SourceLocal)
				p.decide(p.l.credited(p.s, a, left))
			}
		}
	}
	if x.failed() {
		x.lookAt(now)
		return
	}
	for i, a := range accounts {
		p := &x.parts[i]
		if a == nil || p.decided {
			continue
		}
		p.w = e.waitInto(a, p.cost, &p.hold, now)
		select {
		case d := <-p.w.done: // this node is the owner
			p.decide(d)
		default:
		}
	}
}

// consider decides a part that is refused, or looked at, by what is known here; otherwise it gives the account to hold it on.
func (e *Engine) consider(p *part, now int64) *account {
	if e.closed.Load() || p.l.gone.Load() {
		p.decide(Decision{Mode: p.s.Mode, RetryAfter: bucket.Never, Err: ErrClosed})
		return nil
	}
	if p.cost == 0 || p.cost > p.l.spec.Burst {
		d, _ := e.look(p.l, p.key, p.cost, now)
		p.decide(d)
		return nil
	}
	a, err := e.account(p.l, p.key)
	if err == ErrOverflow {
		policy := p.l.policy(p.s, p.key)
		e.overflowed(policy)
		switch policy {
		case OverflowAllow:
			p.decide(p.s.uncounted())
			return nil
		case OverflowShared:
			p.key = p.l.sharedKey(p.key)
			a, err = e.account(p.l, p.key)
		}
	}
	if err != nil {
		p.decide(Decision{Mode: p.s.Mode, RetryAfter: e.cfg.Tick, Err: err})
		return nil
	}
	if a.limit != p.l {
		e.replan(a, p.l)
	}
	e.bind(a)
	if p.s.Mode != Hybrid || a.left() < p.cost {
		if retry := a.mustWait(p.cost, now); retry > 0 {
			a.denied.Add(p.cost)
			if a.ownerFull() {
				p.decide(e.noRoomForPart(a))
				return nil
			}
			p.decide(a.denial(p.l, p.cost, retry, SourceLocal, now))
			return nil
		}
	}
	if !a.live && a.g > 0 && now-a.idleAt > 10*e.tick {
		e.renew(a) // as in begin
	}
	return a
}

// lookAt describes the parts that nobody was asked for, as far as is known here.
func (x *All) lookAt(now int64) {
	for i := range x.parts {
		if p := &x.parts[i]; !p.bare && !p.decided {
			d, _ := x.e.look(p.l, p.key, 0, now)
			d.OK, d.RetryAfter = true, 0 // nobody has refused it
			p.decide(d)
		}
	}
}

// Finish waits for the owners that were asked, and then charges all or gives back what was held.
func (x *All) Finish(ctx context.Context) AllDecision {
	x.finish(ctx)
	for range MaxParents {
		if !x.lostParent() {
			break
		}
		x = x.e.BeginAll(x.again())
		x.finish(ctx)
	}
	return x.result()
}

func (x *All) finish(ctx context.Context) {
	if x.done {
		return
	}
	defer x.end() // also when what follows panics
	x.await(ctx)
	x.takeBare()
	x.end()
}

// lostParent says that nothing was taken because a parent was removed meanwhile, though the limits that the takes name are there: these may have been put
// under another before, or under none.
func (x *All) lostParent() (lost bool) {
	if x.ok || x.e.closed.Load() {
		return false
	}
	for i := range x.parts {
		lost = lost || x.parts[i].l.gone.Load()
	}
	if !lost {
		return false
	}
	for _, t := range x.again() {
		if t.Limit.gone.Load() {
			return false
		}
	}
	return true
}

// again are the takes, to be tried once more.
func (x *All) again() (takes []Take) {
	for _, k := range x.links {
		if k.take == len(takes) { // its own key comes first
			takes = append(takes, Take{x.parts[k.part].l, x.parts[k.part].key, k.cost})
		}
	}
	return takes
}

func (x *All) await(ctx context.Context) {
	for i := range x.parts {
		p := &x.parts[i]
		if p.w == nil || p.decided {
			continue
		}
		select {
		case d := <-p.w.done:
			p.decide(d)
		case <-ctx.Done():
			x.abandon(ctx.Err())
			return
		}
	}
}

// abandon waits no more: what the owners answer from here on is for others.
func (x *All) abandon(err error) {
	x.e.mu.Lock()
	defer x.e.mu.Unlock()
	for i := range x.parts {
		p := &x.parts[i]
		if p.w == nil || p.decided {
			continue
		}
		select {
		case d := <-p.w.done:
			p.decide(d)
		default:
			p.w.cost, p.w.hold = 0, nil
			p.decide(Decision{Mode: p.s.Mode, Source: SourceDeny, Err: err})
		}
	}
}

// takeBare takes from the bare buckets, one take-all at a time: two that want the same of two keys must not refuse each other.
func (x *All) takeBare() {
	if x.bare == 0 || x.failed() {
		return
	}
	x.e.bareMu.Lock()
	defer x.e.bareMu.Unlock()
	for i := range x.parts {
		p := &x.parts[i]
		if !p.bare || p.decided {
			continue
		}
		d := p.l.takeBucket(p.s, p.key, p.cost)
		p.taken = d.OK
		p.decide(d)
		if p.refused() {
			break
		}
	}
	if x.failed() {
		x.refundBare()
	}
}

// refundBare gives back what was taken from bare buckets.
func (x *All) refundBare() {
	for i := range x.parts {
		if p := &x.parts[i]; p.taken {
			p.refund()
			p.decide(p.l.takeBucket(p.s, p.key, 0))
			p.d.OK, p.d.RetryAfter = true, 0
		}
	}
}

// end charges all parts or gives them back, unless that was done.
func (x *All) end() {
	if x.done {
		return
	}
	if x.bare == len(x.parts) {
		x.ok, x.done = x.passed(), true
	} else {
		x.abandon(context.Canceled) // nobody, unless it panicked
		x.e.mu.Lock()
		x.close(x.e.now())
		x.e.unlock()
	}
	if !x.ok {
		x.refundBare()
	}
}

// passed says that every part has what it needs.
func (x *All) passed() bool {
	return !x.any(func(p *part) bool { return !p.decided || p.refused() })
}

// close charges all parts in this moment, or gives all back: if one refused, or what it held is void.
func (x *All) close(now int64) {
	e := x.e
	x.ok, x.done = x.passed(), true
	for i := range x.parts {
		p := &x.parts[i]
		if x.ok && p.hold.a != nil && !e.stands(&p.hold, now) {
			d := p.hold.a.decision(false, SourceLocal, now)
			if d.RetryAfter = e.cfg.Tick; e.closed.Load() || p.l.gone.Load() {
				d.Err = ErrClosed
			}
			p.decide(d)
		}
	}
	x.ok = x.ok && !x.failed()
	for i := range x.parts {
		switch p := &x.parts[i]; {
		case p.hold.a == nil:
		case x.ok:
			e.commit(&p.hold, now)
		default:
			e.cancel(&p.hold, &p.d, now)
		}
	}
}

package hybrid

import (
	"runtime"

	"github.com/jatah-io/jatah/bucket"
	"github.com/jatah-io/jatah/internal/budget"
)

// While this node is the only member, nobody else can have credit of a key or want to know of it: neither an account nor a ledger is needed, and
// its purse is all that there is of it. The arithmetic is that of the bare bucket: a TAT that counts all that was used. Credit is a part
// of the level that takes may spend without a clock. What they spent is found when the tick comes by, or a take that finds no
// credit, and counts as of then: later than it was, so that refill is never counted too high.
//
// Whenever anything needs more of such a key, or another member comes, the key is unfolded: its credit goes back to the pool, and what
// is left of it is a ledger, unless it is full.

// gonePurse is a purse whose key is not in the table any more. It is used again two ticks later: until then a take may have its word.
type gonePurse struct {
	l *Limit
	p *purse
}

// isSolo says that nobody else is there, or reckons with a share.
func (e *Engine) isSolo(now int64) bool {
	return e.k == 1 && len(e.view.Alive) == 1 && e.started && e.weight(now) == 1 && !e.leaving && !e.retired && len(e.handing) == 0 && !e.pendings && !e.closed.Load()
}

// maySolo says that a limit's keys can be solo.
func (l *Limit) maySolo() bool {
	return l.spec.Mode == Hybrid && l.alg == nil && l.perNs > 0 && l.plans.Load() == nil && !l.gone.Load()
}

// takeSolo decides a take of at least one token that may be of a solo key, ok false: it is not.
func (e *Engine) takeSolo(l *Limit, key string, cost, now int64) (d Decision, ok bool) {
	if !e.solo {
		return d, false
	}
	p, _ := l.keys.Find(key)
	if p == nil {
		if !e.becomesSolo(l, key, now) {
			return d, false
		}
		reserved := e.isShared(key, l.plan)
		if !e.roomForKey(l, 0, reserved, now) {
			return e.noRoom(&l.spec), true
		}
		add := l.keys.Add
		if reserved {
			add = l.keys.AddReserved
		}
		p, _ = add(key, func(p *purse) {
			p.credit.reuse(creditSolo)
			p.balance.Store(0)
			p.state.Store(0)
			p.moment.Store(0)
		})
		if p == nil {
			e.giveRoom(0, now)
			return e.noRoom(&l.spec), true
		}
		e.nsolo++
	} else if !p.credit.has(creditSolo) {
		return d, false
	}
	had := p.credit.drain(creditBusy | creditRecent)
	l.settleSolo(p, had, now)
	tat := p.state.Load()
	level := l.params.Level(tat, now)
	d = Decision{Mode: l.spec.Mode, Source: SourceOwner, MaxExcess: l.maxExcess()}
	left := had
	if d.OK = level >= cost; d.OK {
		tat = l.params.Used(tat, now, cost)
		l.top.used.Note(key, cost)
		level -= cost
		left = min(level, max(had-cost, l.spare()))
	} else {
		d.RetryAfter = l.params.WaitFor(tat, now, cost)
	}
	d.Remaining, d.ResetAfter = max(0, level), l.params.FullIn(tat, now)
	p.moment.Store(left)
	p.state.Store(tat)
	p.balance.Store(level - left)
	p.credit.add(left)
	p.credit.flags(0, creditBusy)
	return d, true
}

// becomesSolo says that a key of which nothing is stored can be solo.
func (e *Engine) becomesSolo(l *Limit, key string, now int64) bool {
	if !l.maySolo() {
		return false
	}
	p := e.parts[e.partOf(e.hash(l, key))]
	if !p.owned || p.fresh || p.heir != nil || p.ledgers[ledgerKey{l.root, key}] != nil {
		return false
	}
	e.ownShare(p, now) // a tick that is late says nothing here
	e.settleShares(p, now)
	b := p.base(l)
	p.refill(b, now)
	return p.era().whole && p.isFull(b, now)
}

// spare is how much credit a solo key gets: so little that the rest of the pool goes on refilling while it is out.
func (l *Limit) spare() int64 { return max(1, l.spec.Burst/4) }

func (l *Limit) maxExcess() int64 { return int64(l.spec.Overshoot * float64(l.spec.Burst)) }

// settleSolo takes in what was spent since somebody looked last; has is the credit now. The order is for refuseSolo: what was spent is never counted twice.
func (l *Limit) settleSolo(p *purse, has, now int64) (used int64) {
	if used = p.moment.Load() - has; used <= 0 {
		return 0
	}
	p.moment.Store(has)
	tat := p.state.Load()
	if l.params.IsFull(tat, now) {
		now = max(now, l.e.now()) // the caller's may be from before it waited for the lock: what was spent since must not refill from then on
	}
	p.state.Store(l.params.Used(tat, now, used))
	l.root.spent += used
	if n := l.top.used.Sample(used); n > 0 {
		l.e.scratch = l.keys.AppendKey(l.e.scratch[:0], p)
		l.top.used.AddBytes(l.e.scratch, n)
	}
	return used
}

// refuseSolo denies what the level of a solo key cannot cover yet, without the lock: a flood of refused requests must cost next to nothing.
// found is the word as it was when the key was found.
func (l *Limit) refuseSolo(s *Spec, p *purse, found uint64, cost, now int64) (d Decision, ok bool) {
	q := l.quick.Load()
	if q == nil || cost < 1 || cost > q.burst {
		return d, false
	}
	params := q.params
	tat, seen := p.state.Load(), p.moment.Load()
	w := p.credit.word.Load()
	used := seen - int64(w)>>creditShift
	if (w^found)&versions != 0 || w&creditSolo == 0 || w&creditBusy != 0 || used < 0 || p.state.Load() != tat || p.moment.Load() != seen {
		return d, false
	}
	tat = params.Used(tat, now, used)
	level := params.Level(tat, now)
	if level >= cost {
		return d, false
	}
	return Decision{Mode: s.Mode, Source: SourceLocal, Remaining: max(0, level), RetryAfter: params.WaitFor(tat, now, cost),
		ResetAfter: params.FullIn(tat, now), MaxExcess: int64(s.Overshoot * float64(s.Burst))}, true
}

// lookSolo answers a request that takes nothing of a solo key.
func (e *Engine) lookSolo(l *Limit, key string, cost, now int64) (d Decision, ok bool) {
	p, _ := l.keys.Find(key)
	if p == nil || !p.credit.has(creditSolo) {
		return d, false
	}
	l.settleSolo(p, p.credit.load(), now)
	level := l.params.Level(p.state.Load(), now)
	d = Decision{OK: true, Mode: l.spec.Mode, Remaining: max(0, level), ResetAfter: l.params.FullIn(p.state.Load(), now), MaxExcess: l.maxExcess()}
	if cost > l.spec.Burst {
		d.OK, d.RetryAfter = false, bucket.Never
	}
	return d, true
}

// unfold makes an ordinary key of a solo one: a ledger, unless it is full.
func (e *Engine) unfold(l *Limit, p *purse, now int64) {
	if !p.credit.has(creditSolo) {
		return
	}
	l = l.root
	had := p.credit.drain(creditBusy)
	l.settleSolo(p, had, now)
	key := l.keys.Key(p)
	tat := p.state.Load()
	e.nsolo--
	e.dropPurse(l, p)
	if l.params.IsFull(tat, now) || l.gone.Load() {
		return
	}
	hash := e.hash(l, key)
	q := e.parts[e.partOf(hash)]
	if !q.owned {
		return
	}
	// It is what it would have become as a ledger: not in bookkeeping of shares, since all of them were here all the time.
	x := &ledger{limit: l, key: key, hash: hash, pool: l.params.Tokens(tat, now), cap: float64(l.spec.Burst), at: now, era: q.era().id, granted: true}
	e.budget.Add(budget.Ledgers, x.bytes()) // beyond the bound if need be: what was used is not forgotten
	e.store(q, x, x.bytes())
	e.changed(q, x)
}

// dropPurse takes a key's purse out of the table.
func (e *Engine) dropPurse(l *Limit, p *purse) {
	l.keys.Delete(p)
	e.budget.DropKey()
	e.gone[0] = append(e.gone[0], gonePurse{l, p})
}

// dropSolo forgets all solo keys of a limit that was removed.
func (e *Engine) dropSolo(l *Limit) {
	l.keys.All(func(p *purse) {
		if p.credit.has(creditSolo) {
			p.credit.drain(creditBusy)
			e.nsolo--
			e.dropPurse(l, p)
		}
	})
}

// dissolve unfolds all solo keys, of one limit or nil of all.
func (e *Engine) dissolve(l *Limit, now int64) {
	if e.nsolo == 0 {
		return
	}
	of := func(l *Limit) {
		l.keys.All(func(p *purse) { e.unfold(l, p, now) })
	}
	if l != nil {
		of(l)
		return
	}
	e.limits.Range(func(_ string, l *Limit) bool {
		of(l)
		return true
	})
}

// soloStep is how many keys are looked at before the lock is released for a moment.
const soloStep = 500

// endSolo unfolds all keys because the view changes, a few at a time, so that requests go on meanwhile.
func (e *Engine) endSolo(now int64) {
	e.mu.Lock()
	defer e.unlock()
	if e.nsolo == 0 {
		return
	}
	e.solo = false // no new ones
	n := 0
	e.limits.Range(func(_ string, l *Limit) bool {
		l.keys.All(func(p *purse) {
			e.unfold(l, p, max(now, e.lastTick))
			if n++; n%soloStep == 0 {
				e.breathe()
				e.solo = false // a tick may have come, for which nobody else is there yet
			}
		})
		return true
	})
}

// breathe lets others have the lock for a moment. Who waits for it is only woken by unlock, and would find it locked again.
func (e *Engine) breathe() {
	e.unlock()
	runtime.Gosched()
	e.mu.Lock()
}

// tickKeys takes in what was spent on credit since the last tick, and forgets solo keys that are full. It takes the lock for some keys at a time.
func (e *Engine) tickKeys(now int64) {
	e.mu.Lock()
	end := now + e.tick/2 // where many want the lock, each turn takes long: the rest must not make the next tick late
	for n := 0; e.settleSpent(now, soloStep) && n < spentPerTick && e.now() < end; n += soloStep {
		e.breathe()
	}
	e.limits.Range(func(_ string, l *Limit) bool {
		if l.keys.Len() == 0 {
			return true
		}
		n := uint64(l.keys.Places())
		for budget := int(e.ticks*n/sweepTicks - (e.ticks-1)*n/sweepTicks); budget > 0 && e.nsolo > 0; budget -= soloStep {
			e.sweepSolo(l, now, min(budget, soloStep), false)
			if e.breathe(); e.now() >= end { // some of it is done in any case
				break
			}
		}
		return true
	})
	free := e.gone[2]
	e.gone = [3][]gonePurse{nil, e.gone[0], e.gone[1]}
	e.unlock()
	for _, g := range free { // there may be as many as there are keys
		g.l.keys.Free(g.p)
	}
}

// spentPerTick bounds the keys that a tick takes in, and so what it costs: some milliseconds. The rest is for the next ticks. Until then their pools refill less
// than they could, and nothing else: a take that finds no credit looks for itself.
const spentPerTick = 1 << 15

// sweepTicks is in how many ticks the sweep looks at all solo keys: one that was not used between two visits gives its credit back.
const sweepTicks = idleTicks

// settleSpent takes in what was spent on credit, of some keys; more says that there are others. It comes to a limit again when it has been through all: so one
// whose keys are spent from faster than they are taken in does not keep it from the rest.
func (e *Engine) settleSpent(now int64, n int) (more bool) {
	for ; e.spentAt < len(e.all); e.spentAt++ {
		l := e.all[e.spentAt]
		if l.keys.Len() == 0 {
			continue
		}
		if l.keys.Marked(n, func(p *purse) {
			n--
			if p.credit.has(creditSolo) {
				p.credit.flags(creditRecent, creditDirty)
				e.topUp(l, p, now)
				return
			}
			p.credit.flags(0, creditDirty)
			if a := e.accounts.get(p.state.Load()); a != nil && a.purse == p {
				a.settleSpent()
			}
		}) {
			return true
		}
	}
	e.spentAt = 0
	return false
}

// topUp settles a solo key, and gives it new credit if there is not much left, so that the next take finds some.
func (e *Engine) topUp(l *Limit, p *purse, now int64) {
	has := p.credit.load()
	l.settleSolo(p, has, now)
	if has >= l.spare()/2 || !e.solo || e.closed.Load() {
		return
	}
	level := l.params.Level(p.state.Load(), now)
	if more := min(level, l.spare()) - has; more > 0 {
		p.credit.add(more)
		p.moment.Store(has + more)
		has += more
	}
	p.balance.Store(level - has)
}

// sweepSolo looks at so many places of a limit's table at most. A solo key that was not used since it came by gives its credit back, and is forgotten if it is full. With
// pressed even one that was used is forgotten, if it is full. It returns how many places it looked at.
func (e *Engine) sweepSolo(l *Limit, now int64, budget int, pressed bool) int {
	return l.keys.Walk(budget, func(p *purse) {
		if !p.credit.has(creditSolo) {
			return
		}
		if p.credit.has(creditRecent) && !pressed {
			p.credit.flags(0, creditRecent)
			return
		}
		has := p.credit.drain(creditBusy)
		l.settleSolo(p, has, now)
		p.moment.Store(0)
		tat := p.state.Load()
		if l.params.IsFull(tat, now) {
			e.nsolo--
			e.dropPurse(l, p)
			e.stats.swept.Add(1)
			return
		}
		p.balance.Store(l.params.Level(tat, now))
		p.credit.flags(0, creditBusy)
	})
}

// makeRoom forgets solo keys that are full, having looked at so many places at most, those of l first, and of the others one after the other.
func (e *Engine) makeRoom(l *Limit, now int64, budget int) {
	if e.nsolo == 0 {
		return
	}
	budget -= e.sweepSolo(l.root, now, budget/2, true)
	for n := min(len(e.all), roomLimits); n > 0 && budget > 0; n-- {
		if e.roomFrom >= len(e.all) {
			e.roomFrom = 0
		}
		if l := e.all[e.roomFrom]; l.keys.Len() > 0 {
			if budget -= e.sweepSolo(l, now, budget, true); budget <= 0 {
				break // it has more
			}
		}
		e.roomFrom++
	}
}

// roomLimits is how many limits are looked at for room at most: there may be ten thousand.
const roomLimits = 64

// saveSolo adds the solo keys to a snapshot. What is unfolded while it goes on may be in it twice, as a ledger too: of two records the lower counts.
func (e *Engine) saveSolo(s *saved, exact bool, now int64) {
	e.mu.Lock()
	defer e.unlock()
	n := 0
	e.limits.Range(func(_ string, l *Limit) bool {
		l.keys.All(func(p *purse) {
			if p.credit.has(creditSolo) {
				e.saveSoloKey(s, l, p, exact, now)
			}
			if n++; n%soloStep == 0 { // not before: p might be gone then
				e.breathe()
			}
		})
		return true
	})
}

func (e *Engine) saveSoloKey(s *saved, l *Limit, p *purse, exact bool, now int64) {
	if exact { // a take that began before the end must not spend what is written here
		l.settleSolo(p, p.credit.drain(creditBusy), now)
		p.moment.Store(0)
	} else {
		l.settleSolo(p, p.credit.load(), now)
	}
	tat := p.state.Load()
	if l.params.IsFull(tat, now) {
		return
	}
	key := l.keys.Key(p)
	lineage := e.parts[e.partOf(e.hash(l, key))].lineage
	if lineage == 0 {
		lineage = e.inc
	}
	s.records = append(s.records, savedRecord{def: l.saved(), key: key, lineage: lineage, exact: exact, level: bucket.LevelOf(bound(l.params.Tokens(tat, now)))})
}

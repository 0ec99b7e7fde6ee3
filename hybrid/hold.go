package hybrid

// hold is what one key of a take-all has set aside until all of its keys have answered. Nobody else can spend it, and the
// owner is told that it is credit still, so that giving it back says nothing that has to be unsaid. It is only as good as
// the credit it came from: when that is void, so is the hold. Fields are under the engine's lock.
type hold struct {
	a     *account // nil: nothing is held
	cost  int64
	gen   uint64 // generation that the credit belongs to
	kind  Source // SourceLocal: credit that was here; SourceOwner: credit asked for; else by fallback
	since int64  // when that fallback began
}

// setAside turns credit that was just spent into a hold.
func (a *account) setAside(h *hold, cost int64, kind Source) {
	a.held += cost
	*h = hold{a: a, cost: cost, gen: a.gen, kind: kind}
}

// release makes all that is held credit again, when the credit is about to be void: the holds are void with it, and a
// hand-off may bring the tokens along as it does with other credit.
func (a *account) release() {
	a.gain(a.held)
	a.held, a.recalled = 0, false
}

// fallInto is fall for a waiter: with h, what is taken can be given back. Spending ahead is credit below zero, held: the owner
// hears of it when it has been used.
func (e *Engine) fallInto(a *account, cost int64, h *hold, now int64) Decision {
	d := e.fall(a, cost, now)
	if h == nil || cost == 0 || !d.OK {
		a.usedByFallback(d.OK, d.Source, cost)
		return d
	}
	if *h = (hold{a: a, cost: cost, gen: a.gen, kind: d.Source, since: a.fallback.started}); d.Source == SourceAhead {
		a.held += cost
	}
	return d
}

// stands says that what is held may still be spent: its lease has not run out, and the key has no other owner by now.
func (e *Engine) stands(h *hold, now int64) bool {
	a := h.a
	if e.closed.Load() || a.limit.gone.Load() {
		return false
	}
	switch h.kind {
	case SourceAllow:
		return true
	case SourceShare:
		return e.sameFallback(a, h)
	case SourceAhead:
		return a.gen == h.gen
	}
	return a.gen == h.gen && (a.owner == e.self || now < a.until)
}

// sameFallback says that the fallback which a hold took from goes on: the share was not lent since.
func (e *Engine) sameFallback(a *account, h *hold) bool {
	f := &a.fallback
	return f.active && f.started == h.since && e.lend[a.part].last <= f.started
}

// commit spends what is held; stands has just said that it may be.
func (e *Engine) commit(h *hold, now int64) {
	a := h.a
	h.a = nil
	if h.kind == SourceAllow || h.kind == SourceShare {
		a.usedByFallback(true, h.kind, h.cost)
		return
	}
	a.drop(h.cost)
	e.activate(a)
	if h.kind == SourceOwner {
		e.tellSpent(a, now)
	}
}

// drop ends a hold.
func (a *account) drop(cost int64) {
	if a.held -= cost; a.held == 0 {
		a.recalled = false
	}
}

// cancel gives back what is held. d, the decision that went with it, then describes the key as if nothing had been taken.
func (e *Engine) cancel(h *hold, d *Decision, now int64) {
	a := h.a
	h.a = nil
	switch {
	case a == nil || h.kind == SourceAllow:
		return
	case h.kind == SourceShare:
		e.unfall(a, h, d, now)
		return
	case a.gen != h.gen:
		return // void, and with it the hold
	case a.limit.gone.Load() || e.closed.Load():
		a.drop(h.cost) // nobody may find it as credit
		return
	}
	wanted := a.recalled
	a.drop(h.cost)
	a.gain(h.cost)
	if h.kind == SourceAhead {
		e.unfall(a, h, d, now)
		return
	}
	*d = a.decision(true, h.kind, now)
	if wanted || h.kind == SourceOwner {
		e.handBack(a, h.cost, now)
	}
}

// unfall gives back what fall took.
func (e *Engine) unfall(a *account, h *hold, d *Decision, now int64) {
	k := e.weight(now)
	if !e.sameFallback(a, h) || k == 0 {
		return
	}
	top := float64(wholeShare(a.limit.spec.Burst, k, e.rank(a.hash)))
	if f := &a.fallback; h.kind == SourceShare && f.m != nil {
		f.m.Return(float64(h.cost), 0)
	} else if h.kind == SourceShare {
		f.own = min(top, f.own+float64(h.cost))
	} else {
		f.ahead += float64(h.cost)
	}
	d.Remaining += h.cost
}

// handBack returns credit to the owner that was asked for in vain, or called back meanwhile: others may want it, and were
// refused while it was held. Whoever waits here for tokens of the key gets it first.
func (e *Engine) handBack(a *account, cost, now int64) {
	if a.ask != nil {
		return
	}
	if _, ok := a.spend(cost); !ok {
		return // a take was faster
	}
	a.r += cost
	if d := a.refusal.Load(); d != nil { // it counts on the pool now, no longer on the credit
		more := *d
		more.bal += float64(cost)
		a.refusal.Store(&more)
	}
	e.say(a, now)
}

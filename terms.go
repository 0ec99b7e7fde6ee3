package jatah

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/jatah-io/jatah/hybrid"
)

// Terms are what holds for requests of a key: see Limiter.For. They are shared by all who ask, and must not be changed.
type Terms struct {
	Limit        // with the amounts that hold, and neither Plans nor Overrides
	Plan  string // whose amounts these are; "": the limit's or an override's own

	of    *hybrid.Limit
	spec  *hybrid.Spec // of which they were made
	table *costTable
}

// termsCache remembers the terms that a Limiter gave. The zero value is ready.
type termsCache struct {
	own    atomic.Pointer[Terms] // where nothing but the handle decides which hold
	others sync.Map              // of *hybrid.Limit to *Terms: of plans and overrides, which keep their place when they are changed
}

// Terms are what For tells, without a copy. As long as nothing is defined anew, one handle gives the same pointer for all keys with the same
// plan: what is made of the terms can be remembered by it. Handles of different plans give different ones.
func (l *Limiter) Terms(key string) *Terms {
	h := l.l.For(key)
	if h == l.l {
		if t := l.cache.own.Load(); t != nil && t.hold(l, h) {
			return t
		}
		t := l.newTerms(h)
		l.cache.own.Store(t)
		return t
	}
	if t, ok := l.cache.others.Load(h); ok && t.(*Terms).hold(l, h) {
		return t.(*Terms)
	}
	t := l.newTerms(h)
	l.cache.others.Store(h, t)
	return t
}

// hold says that nothing was defined anew since they were made.
func (t *Terms) hold(l *Limiter, h *hybrid.Limit) bool {
	return t.of == h && t.spec == h.Current() && t.table == l.costs.Load()
}

func (l *Limiter) newTerms(h *hybrid.Limit) *Terms {
	t := &Terms{of: h, spec: h.Current(), table: l.costs.Load(), Plan: namedPlan(h.PlanName())}
	s := *t.spec
	s.Plans, s.Overrides = nil, nil
	t.Limit = limitOf(s)
	t.Costs = t.table.costs
	return t
}

// For is the definition as it holds for a request of this key by this handle: with the amounts of the key's override, or else of the handle's
// plan, or else of the limit. plan is the name of the plan that has them, "" if they are the limit's or an override's own. The definition has
// neither Plans nor Overrides.
func (l *Limiter) For(key string) (holds Limit, plan string) {
	t := l.Terms(key)
	holds = t.Limit
	holds.Rates = slices.Clone(holds.Rates)
	return holds, t.Plan
}

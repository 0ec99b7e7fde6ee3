package hybrid

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/jatah-io/jatah/bucket"
)

// Amounts are the tokens of one plan of a limit, under the limit's mode and fallback. The fields mean what they mean in Spec.
type Amounts struct {
	Rate  bucket.Rate
	Burst int64
	Rule  *bucket.Spec
}

// Override names the plan that holds for some keys, whatever plan a caller names.
type Override struct {
	Key    string // this one, or with Prefix all that begin with it; the longest that fits counts, a whole key before any
	Prefix bool
	Plan   string
}

// Own is the name of a plan for the keys of this override alone; no other plan can have it.
func (o Override) Own() string {
	if o.Prefix {
		return "prefix:" + o.Key
	}
	return "key:" + o.Key
}

// A plan of a limit is a Limit too: it has the same name, keys, counters and table, and amounts of its own. An account and a ledger
// belong to one plan at a time, that of the last request; a change of plan keeps what was used.

// planTable says which plan holds for a key. Immutable.
type planTable struct {
	byName   map[string]*Limit
	exact    map[string]*Limit
	prefixes []prefixed // longest first
}

type prefixed struct {
	prefix string
	l      *Limit
}

// pick is the plan that holds for a key if the caller names l.
func (t *planTable) pick(l *Limit, key string) *Limit {
	if v := t.exact[key]; v != nil {
		return v
	}
	for _, p := range t.prefixes {
		if strings.HasPrefix(key, p.prefix) {
			return p.l
		}
	}
	return l
}

// Plan is the limit with the amounts of one of its plans; "" is the limit itself. It stays valid: of a plan that no longer exists it has the
// limit's amounts.
func (l *Limit) Plan(name string) (*Limit, bool) {
	if name == "" {
		return l.root, true
	}
	if t := l.root.plans.Load(); t != nil && t.byName[name] != nil {
		return t.byName[name], true
	}
	return nil, false
}

// For is the limit as it holds for a key.
func (l *Limit) For(key string) *Limit {
	if t := l.root.plans.Load(); t != nil {
		return t.pick(l, key)
	}
	return l
}

// PlanName is the name of the plan that this is, "": the limit itself.
func (l *Limit) PlanName() string { return l.plan }

// planOf is the plan that a message names, as it holds for the key here.
func (l *Limit) planOf(name, key string) *Limit {
	if v, ok := l.Plan(name); ok {
		return v.For(key)
	}
	return l.For(key)
}

// planHash stands for a plan in an answer: names can be as long as keys.
func (e *Engine) planHash(name string) uint64 { return e.ringHash("plan", name) }

// namePlan says in the answer to a report which plan the key has, where that is not l, which the report names: a request at another
// node has changed it.
func (e *Engine) namePlan(g *grant, x *ledger, l *Limit) {
	if x.limit != l {
		g.flags |= grantPlan
		g.plan = e.planHash(x.limit.plan)
	}
}

// plannedAs notes which plan the key has by an answer of its owner.
func (e *Engine) plannedAs(a *account, g *grant) {
	a.planned = a.limit
	if g.flags&grantPlan == 0 {
		return
	}
	for _, v := range a.limit.all() {
		if e.planHash(v.plan) == g.plan {
			a.planned = v
		}
	}
}

// copied is the plan that a copy of a ledger belongs to.
func (l *Limit) copied(c *copyOf) *Limit {
	if !c.base {
		return l.planOf(c.plan, c.key)
	}
	if v, ok := l.Plan(c.key); ok {
		return v
	}
	return l
}

// all is the limit and its plans.
func (l *Limit) all() []*Limit {
	ls := []*Limit{l.root}
	if t := l.plans.Load(); t != nil {
		for _, v := range t.byName {
			ls = append(ls, v)
		}
		slices.SortFunc(ls, func(a, b *Limit) int { return cmp.Compare(a.plan, b.plan) })
	}
	return ls
}

// validatePlans says what is wrong with the plans of a definition.
func (s Spec) validatePlans() error {
	for name, a := range s.Plans {
		if name == "" {
			return fmt.Errorf("%w %q: a plan without a name", ErrSpec, s.Name)
		}
		if (a.Rule == nil) != (s.Rule == nil) { // a key that goes from one to the other is in one table
			return fmt.Errorf("%w %q: plan %q has a rule and the limit has none, or the other way round", ErrSpec, s.Name, name)
		}
		if err := s.with(a).Validate(); err != nil {
			return fmt.Errorf("plan %q: %w", name, err)
		}
	}
	for _, o := range s.Overrides {
		if _, ok := s.Plans[o.Plan]; !ok && o.Plan != "" {
			return fmt.Errorf("%w %q: the override of key %q names plan %q, which does not exist", ErrSpec, s.Name, o.Key, o.Plan)
		}
	}
	return nil
}

// with is the definition of one plan.
func (s Spec) with(a Amounts) Spec {
	s.Rate, s.Burst, s.Rule = a.Rate, a.Burst, a.Rule
	s.Plans, s.Overrides = nil, nil
	return s
}

// compiled is a definition with its arithmetic.
type compiled struct {
	spec   Spec
	perNs  float64
	params *bucket.Params
	alg    *bucket.Algorithm
}

func compile(s Spec) (c compiled, err error) {
	if s.queues() && s.Mode == Hybrid {
		s.Mode = Strict // departures are in the order of arrival, which only the owner knows
	}
	c.spec = s
	if s.Rate.Per > 0 {
		c.perNs = float64(s.Rate.Count) / float64(s.Rate.Per)
	}
	if c.params, err = s.params(); err == nil {
		c.alg, err = s.compile()
	}
	if err != nil {
		err = fmt.Errorf("%w %q: %w", ErrSpec, s.Name, err)
	}
	return c, err
}

// compilePlans compiles a definition and each of its plans.
func compilePlans(s Spec) (own compiled, plans map[string]compiled, err error) {
	if own, err = compile(s); err != nil || len(s.Plans) == 0 {
		return own, nil, err
	}
	plans = map[string]compiled{}
	for name, a := range s.Plans {
		if plans[name], err = compile(s.with(a)); err != nil {
			return own, nil, err
		}
	}
	return own, plans, nil
}

// newPlan makes a plan of l. Everything but the amounts is shared.
func (l *Limit) newPlan(name string) *Limit {
	return &Limit{e: l.e, root: l, plan: name, keys: l.keys, bulk: l.bulk, buckets: l.buckets, meters: l.meters, plans: l.plans, gone: l.gone, parent: l.parent,
		counts: l.counts, dryRun: l.dryRun, near: l.near, top: l.top}
}

// family is the limit and its plans, in an order that does not change, each with what it is to become. A plan that is no longer defined
// gets the limit's own amounts: there may be handles on it.
func (l *Limit) family(own compiled, plans map[string]compiled) (all []*Limit, next map[*Limit]compiled) {
	next = map[*Limit]compiled{l: own}
	all = []*Limit{l}
	t := l.plans.Load()
	names := map[string]bool{}
	for name := range plans {
		names[name] = true
	}
	if t != nil {
		for name := range t.byName {
			names[name] = true
		}
	}
	for _, name := range sorted(names) {
		var v *Limit
		if t != nil {
			v = t.byName[name]
		}
		if v == nil {
			v = l.newPlan(name)
		}
		c, ok := plans[name]
		if !ok {
			c = own
			c.spec.Plans, c.spec.Overrides = nil, nil
		}
		next[v] = c
		all = append(all, v)
	}
	return all, next
}

func sorted(set map[string]bool) []string {
	var names []string
	for name := range set {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// publish makes the plans known to requests.
func (l *Limit) publish(all []*Limit) {
	if len(all) == 1 && len(l.spec.Overrides) == 0 {
		return
	}
	t := &planTable{byName: map[string]*Limit{}, exact: map[string]*Limit{}}
	for _, v := range all[1:] {
		t.byName[v.plan] = v
	}
	for _, o := range l.spec.Overrides {
		v := l
		if o.Plan != "" {
			v = t.byName[o.Plan]
		}
		if o.Prefix {
			t.prefixes = append(t.prefixes, prefixed{o.Key, v})
		} else {
			t.exact[o.Key] = v
		}
	}
	slices.SortStableFunc(t.prefixes, func(a, b prefixed) int { return cmp.Compare(len(b.prefix), len(a.prefix)) })
	l.plans.Store(t)
}

// become takes over a definition. Called with the engine's lock held, or before anybody knows the limit.
func (l *Limit) become(c compiled, planned bool) {
	l.spec, l.perNs, l.params, l.alg = c.spec, c.perNs, c.params, c.alg
	s := c.spec
	l.def.Store(&s)
	l.whole.Store(nil)
	if planned {
		sh := &splitShare{k: 1, floor: c.params.KeepUsed()}
		if c.alg != nil {
			sh.byRank = []*bucket.Algorithm{c.alg.KeepUsed()}
		}
		l.whole.Store(sh)
	}
	l.split.Store(nil)
}

// replan moves an account to the plan of the request that came now.
func (e *Engine) replan(a *account, l *Limit) {
	a.limit = l
	a.as.Store(l)
	a.refusal.Store(nil)
	a.fallback = fallback{}
	e.activate(a)
}

// retune moves a ledger to another plan: what was used stays used.
func (p *partition) retune(x *ledger, l *Limit, now int64) {
	p.refill(x, now)
	level, before := p.level(x, now), x.limit
	if now < x.blind {
		defer func() { p.keepLevel(x, level, now) }()
	}
	x.limit = l
	x.start = min(x.start, float64(l.spec.Burst))
	if x.m != nil && l.alg != nil {
		x.m = bucket.Move(x.m, l.alg)
	} else if x.m != nil || l.alg != nil {
		x.limit = before // for what remeter reckons from
		x.remeter(l.alg, level, p.era().fraction, now)
		x.limit = l
	}
	x.fullEra = 0
	if full := x.fullIn(p.era()); x.m == nil {
		x.pool, x.at = min(level+full-x.cap, full-x.outstanding()), now
		x.cap = full
	}
}

// fills is how long it takes until a ledger has nothing to remember.
func (p *partition) fills(x *ledger, now int64) int64 {
	if x.m != nil {
		return ns(x.m.Reset())
	}
	missing := float64(x.limit.spec.Burst) - p.level(x, now)
	if missing <= 0 || x.limit.perNs == 0 {
		return 0
	}
	return int64(min(missing/x.limit.perNs, float64(forever)))
}

// keepLevel undoes what a change of plan did to the tokens of a ledger that may lack what nobody used: with fallback wait, an owner that was told
// nothing counts a key as used up by the plan that it knows, and the key may have used as much as another plan allows.
func (p *partition) keepLevel(x *ledger, level float64, now int64) {
	if x.m == nil {
		x.pool, x.at = min(level, x.cap-x.outstanding()), now
	} else if more := x.m.Free() - level; more > 0 {
		x.m.Use(more, x.outstanding())
	} else if more < 0 {
		x.m.Return(-more, x.outstanding())
	}
	x.blind = max(x.blind, now+p.fills(x, now))
}

package hybrid

import (
	"context"
	"fmt"
	"math"
	"reflect"
	"slices"
	"sync/atomic"
	"time"

	"github.com/puzpuzpuz/xsync/v4"

	"github.com/jatah-io/jatah/bucket"
	"github.com/jatah-io/jatah/internal/keytable"
)

// Limit is a handle on one limit of an engine. Get it from Engine.Define; safe for any number of
// goroutines; must not be copied.
type Limit struct {
	e        *Engine
	root     *Limit                     // of a plan: the limit it belongs to; else itself
	plan     string                     // "": the limit itself
	plans    *atomic.Pointer[planTable] // nil: neither plans nor overrides
	whole    atomic.Pointer[splitShare] // where this node is alone and there are plans
	spec     Spec                       // changed only with all of Engine.mu; read through def on the way without it
	perNs    float64
	params   *bucket.Params // of one token bucket
	def      atomic.Pointer[Spec]
	keys     *keytable.Table[purse] // of all keys that this node has credit or an account of, or that are solo
	quick    atomic.Pointer[quick]
	buckets  *bucket.Table                      // alone and split: the bare bucket
	alg      *bucket.Algorithm                  // nil: a token bucket; changed only with all of Engine.mu
	meters   *atomic.Pointer[bucket.MeterTable] // alone and split, where it is another rule
	split    atomic.Pointer[splitShare]
	counts   [2][Sources]*xsync.Counter // decisions: denied, allowed; without those on credit
	spent    int64                      // tokens spent on credit without the lock: decisions, but for bulk. Under Engine.mu; of the root
	bulk     *bulkCount                 // shared with the plans
	onCredit uint64                     // decisions on credit that were reported last, under Engine.mu
	dryRun   *xsync.Counter
	near     *xsync.Counter // decisions that left little, see nearly
	top      *top           // shared with the plans
	gone     *atomic.Bool
	parent   *atomic.Pointer[Limit]
	warned   atomic.Bool // that an owner does not know the limit
	crowded  atomic.Bool // it was said that a log is too small
}

// Validate says what is wrong with a definition.
func (s Spec) Validate() error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w %q: %s", ErrSpec, s.Name, fmt.Sprintf(format, args...))
	}
	if err := s.Rate.Validate(); err != nil {
		return bad("%v", err)
	}
	switch {
	case s.Rate.Count > 0 && s.Burst < 1:
		return bad("burst is %d; it must be at least 1", s.Burst)
	case s.Burst < 0 || s.Burst > maxBurst:
		return bad("burst is %d; it must be between 0 and %d", s.Burst, int64(maxBurst))
	case int(s.Mode) >= len(modeNames):
		return bad("mode %d does not exist", s.Mode)
	case int(s.Fallback) >= len(fallbackNames):
		return bad("fallback %d does not exist", s.Fallback)
	case !(s.Overshoot >= 0 && s.Overshoot <= 1):
		return bad("overshoot is %v; it is a part of the burst, from 0 to 1", s.Overshoot)
	}
	if s.TTL != 0 && !s.permits() {
		return bad("ttl is %v; only permits of concurrency have one, leave it out", s.TTL)
	}
	if s.Rule != nil {
		alg, err := s.compile()
		switch {
		case err != nil:
			return bad("%v", err)
		case s.permits() && s.TTL < time.Millisecond:
			return bad("ttl is %v; a permit lives for at least 1ms", s.TTL)
		case s.permits() && s.Overshoot != 0:
			return bad("overshoot has no meaning for concurrency; leave it out")
		case s.permits() && (s.Rate.Count == 0 || s.Burst != alg.Limit()):
			return bad("rate is %v and burst %d; of permits they must be any rate and the max %d", s.Rate, s.Burst, alg.Limit())
		case s.permits():
			return nil
		case alg.DenyAll() != (s.Rate.Count == 0) || !alg.DenyAll() && (s.Rate != s.Rule.Rates[0] || s.Burst != alg.Limit()):
			return bad("rate and burst are %v and %d; they must be the rule's first rate and its capacity %d", s.Rate, s.Burst, alg.Limit())
		}
		return s.validatePlans()
	}
	if _, err := bucket.NewParams(s.Rate, s.Burst); err != nil {
		return bad("%v", err)
	}
	return s.validatePlans()
}

// maxBurst leaves room for debts and sums in whole tokens that a float64 holds exactly.
const maxBurst = 1 << 50

// Define makes a limit, or changes the one of the same name while it is in use: what was used stays used.
func (e *Engine) Define(s Spec) (*Limit, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	own, plans, err := compilePlans(s)
	if err != nil {
		return nil, err
	}
	e.mu.Lock()
	defer e.unlock()
	parent, err := e.findParent(&s)
	if err != nil {
		return nil, err
	}
	now := e.now()
	l, ok := e.limits.Load(s.Name)
	if !ok {
		l = &Limit{e: e, keys: keytable.NewIn[purse](e.budget), bulk: newBulkCount(), buckets: bucket.NewTableIn(own.params, e.budget), dryRun: xsync.NewCounter(), near: xsync.NewCounter(),
			meters: &atomic.Pointer[bucket.MeterTable]{}, plans: &atomic.Pointer[planTable]{}, gone: &atomic.Bool{}, parent: &atomic.Pointer[Limit]{}, top: newTop(now)}
		l.root = l
		for i := range l.counts {
			for j := range l.counts[i] {
				l.counts[i][j] = xsync.NewCounter()
			}
		}
		all, next := l.family(own, plans)
		for _, v := range all {
			v.become(next[v], len(all) > 1)
		}
		l.newTable(own.params, now)
		l.publish(all)
		l.parent.Store(parent)
		l.setQuick()
		e.defined(l, now)
		e.limits.Store(s.Name, l)
		e.all = append(e.all, l)
		if s.permits() {
			e.permitLimits++
		}
		return l, nil
	}
	if err := checkChange(&l.spec, &s); err != nil {
		return nil, err
	}
	l.parent.Store(parent)
	if !reflect.DeepEqual(l.spec, own.spec) {
		e.redefine(l, own, plans, now)
	}
	l.setQuick()
	return l, nil
}

// redefine changes a limit: tokens that are there stay, down to a lower burst; a raised burst gives none. In windows what was
// used stays used.
func (e *Engine) redefine(l *Limit, own compiled, plans map[string]compiled, now int64) {
	e.dissolve(l, now)
	all, next := l.family(own, plans)
	each := func(f func(p *partition, x *ledger)) {
		for _, p := range e.parts {
			if p.owned {
				e.eachLedger(p, l, func(x *ledger) { f(p, x) })
			}
		}
	}
	for _, p := range e.parts {
		if p.owned {
			e.settleShares(p, now)
		}
	}
	each(func(p *partition, x *ledger) {
		p.refill(x, now)
		x.pool, x.at, x.fullEra = p.level(x, now), now, 0
		x.remeter(next[x.limit].alg, x.pool, p.era().fraction, now)
		x.recallUntil = 0
	})
	for _, v := range all {
		v.become(next[v], len(all) > 1)
	}
	l.publish(all)
	for _, v := range all {
		if v.spec.Mode == Split && !e.alone() {
			_, _ = v.makeSplit(now) // it is compiled already, so it succeeds
		}
	}
	l.newTable(own.params, now)
	each(func(p *partition, x *ledger) {
		x.cap = x.fullIn(p.era())
		if x.start = min(x.start, float64(x.limit.spec.Burst)); x.m == nil {
			x.pool = min(x.pool, x.cap-x.outstanding())
		}
		e.tellOf(p, x, true)
	})
	e.eachAccount(l, func(a *account) {
		a.refusal.Store(nil)
		a.waits = waits{}
		a.redefineFallback()
	})
}

// Remove forgets a limit and all its keys. Requests through an old handle are refused.
func (e *Engine) Remove(name string) bool {
	e.mu.Lock()
	defer e.unlock()
	l, ok := e.limits.LoadAndDelete(name)
	if !ok {
		return false
	}
	l.gone.Store(true)
	l.setQuick()
	e.dropSolo(l)
	if i := slices.Index(e.all, l); i < e.spentAt {
		e.all, e.spentAt = slices.Delete(e.all, i, i+1), e.spentAt-1
	} else {
		e.all = slices.Delete(e.all, i, i+1)
	}
	if l.spec.permits() {
		e.permitLimits--
		e.permits.removeAll(l)
	}
	for _, p := range e.parts {
		if !p.owned {
			continue
		}
		for k, x := range p.ledgers {
			if k.limit == l {
				e.unstore(p, k, x)
				p.notMissing(x)
			}
		}
		for v := range p.bases {
			if v.root == l {
				delete(p.bases, v)
			}
		}
	}
	e.forgetRecords(name)
	if !e.alone() {
		e.removed = append(e.removed, removedLimit{name, e.now()})
	}
	e.eachAccount(l, func(a *account) { a.drain() })
	l.forgetTables()
	return true
}

// Lookup finds a limit by name.
func (e *Engine) Lookup(name string) (*Limit, bool) { return e.limits.Load(name) }

// Spec is the limit's present definition.
func (l *Limit) Spec() Spec { return *l.def.Load() }

// Take decides a request of the given cost, in tokens, for one key. It waits at most the ask timeout for
// the key's owner, and not at all on credit or on a denial that stands.
func (l *Limit) Take(ctx context.Context, key string, cost int64) (d Decision) {
	if l.OnCredit(&d, key, cost) {
		return d
	}
	return l.NotOnCredit(ctx, key, cost)
}

// NotOnCredit is Take for who has just heard from OnCredit that there is none.
func (l *Limit) NotOnCredit(ctx context.Context, key string, cost int64) Decision {
	l = l.For(key)
	s := l.def.Load()
	switch {
	case s.permits():
		return s.noTokens()
	case l.e.alone():
		if d, ok := l.simple(s, cost); ok {
			return l.count(s, key, d)
		}
		if s.Rule != nil || l.plans.Load() != nil {
			return l.countBare(s, key, cost, l.takeBucket(s, key, cost))
		}
		if r := l.buckets.Take(key, l.e.now(), cost); !r.Overflow {
			return l.countBare(s, key, cost, l.fromBucket(s, r, nil))
		}
		return l.countBare(s, key, cost, l.takeBucket(s, key, cost))
	}
	d, w := l.start(s, key, cost)
	if w == nil {
		return d
	}
	return l.Finish(ctx, w)
}

// Pending is a request that waits for the owner.
type Pending = waiter

// Begin starts a request. Either it is decided at once and the Pending is nil, or Finish waits for the answer. So many
// requests can be started before the first is waited for.
func (l *Limit) Begin(key string, cost int64) (d Decision, w *Pending) {
	if l.OnCredit(&d, key, cost) {
		return d, nil
	}
	return l.BeginNotOnCredit(key, cost)
}

// BeginNotOnCredit is Begin as NotOnCredit is Take.
func (l *Limit) BeginNotOnCredit(key string, cost int64) (Decision, *Pending) {
	l = l.For(key)
	s := l.def.Load()
	if s.permits() {
		return s.noTokens(), nil
	}
	return l.start(s, key, cost)
}

// noTokens refuses what is done to tokens where there are permits.
func (s *Spec) noTokens() Decision {
	return Decision{Mode: s.Mode, RetryAfter: bucket.Never, Err: fmt.Errorf("%w: %q", ErrConcurrency, s.Name)}
}

// start is Begin for tokens and permits.
func (l *Limit) start(s *Spec, key string, cost int64) (Decision, *Pending) {
	p, word := l.keys.Find(key)
	a := l.e.accountIn(p, key)
	if a != nil && a.as.Load() != l {
		a = nil // it has another plan yet
	}
	if a != nil && cost > 0 && s.Mode == Hybrid && s.Rate.Count != 0 { // rate 0 denies also what credit covers
		if left, ok := a.spendFree(l, word, cost); ok {
			d := l.credited(s, a, left)
			if d.Remaining < nearly(s.Burst) {
				l.near.Inc()
			}
			return d, nil
		}
	}
	if d, ok := l.simple(s, cost); ok {
		return l.count(s, key, d), nil
	}
	if l.e.alone() || s.Mode == Split {
		return l.countBare(s, key, cost, l.takeBucket(s, key, cost)), nil
	}
	now := l.e.now()
	if p != nil && word&creditSolo != 0 {
		if d, ok := l.refuseSolo(s, p, word, cost, now); ok {
			return l.count(s, key, d), nil
		}
	}
	if a != nil && cost > 0 {
		if retry := a.mustWait(cost, now); retry > 0 {
			a.denied.Add(cost)
			if a.ownerFull() {
				return l.overflow(s, key, cost, l.e.noRoom(s))
			}
			return l.count(s, key, a.denial(l, cost, retry, SourceLocal, now)), nil
		}
	}
	if p == nil && cost > 0 && cost <= s.Burst && l.e.crowded(now) && !l.e.isShared(key, l.plan) {
		return l.overflow(s, key, cost, l.e.noRoom(s)) // a flood of new keys ends here
	}
	d, w := l.e.begin(now, l, key, cost)
	if w == nil && d.Err == ErrOverflow {
		return l.overflow(s, key, cost, d)
	}
	if w == nil {
		return l.count(s, key, d), nil
	}
	return d, w
}

// Finish waits for a request that Begin started.
func (l *Limit) Finish(ctx context.Context, w *Pending) Decision {
	s := l.def.Load()
	select {
	case d := <-w.done:
		return l.finished(ctx, s, w, d)
	case <-ctx.Done():
		select {
		case d := <-w.done:
			return l.finished(ctx, s, w, d)
		default:
		}
		l.e.stats.canceled.Add(1)
		return l.count(s, w.key, Decision{Mode: s.Mode, Source: SourceDeny, Err: ctx.Err()})
	}
}

// finished counts the answer to a request that waited. Where the owner had no room for the key it goes on as the policy says.
func (l *Limit) finished(ctx context.Context, s *Spec, w *Pending, d Decision) Decision {
	if d.Err != ErrOverflow {
		return l.count(s, w.key, d)
	}
	l = l.For(w.key)
	d, next := l.overflow(l.def.Load(), w.key, w.cost, d)
	if next == nil {
		return d
	}
	l.e.mu.Lock()
	next.until = min(next.until, w.until) // all together no longer than one
	l.e.mu.Unlock()
	return l.Finish(ctx, next)
}

// simple decides what needs no state.
func (l *Limit) simple(s *Spec, cost int64) (d Decision, ok bool) {
	if cost >= 0 && s.Rate.Count != 0 && !l.gone.Load() && !l.e.closed.Load() {
		return d, false
	}
	d = Decision{Mode: s.Mode, RetryAfter: bucket.Never}
	switch {
	case cost < 0:
		d.Err = fmt.Errorf("%w: %d", ErrNegativeCost, cost)
	case l.gone.Load() || l.e.closed.Load():
		d.Err = ErrClosed
	}
	return d, true
}

func (l *Limit) count(s *Spec, key string, d Decision) Decision {
	if d.Err != nil {
		return d
	}
	i, near := 0, false
	if d.OK {
		i, near = 1, d.Remaining < nearly(s.Burst)
	} else {
		l.top.refused.Note(key, 1)
	}
	l.counts[i][d.Source].Inc()
	if near {
		l.near.Inc() // after it: Stats reads them the other way round
	}
	if !d.OK && s.DryRun {
		l.dryRun.Inc()
		d.OK, d.DryRun = true, true
	}
	return d
}

// nearly is what a key that is near its limit has less than: a fifth of the burst, so that four fifths are used.
func nearly(burst int64) int64 { return (burst + 4) / 5 }

// credited describes a request that credit covered.
func (l *Limit) credited(s *Spec, a *account, left int64) Decision {
	rest := min(max(0, a.balance.Load())+left, s.Burst)
	reset := time.Duration(0)
	if s.Rule != nil {
		reset = wait(a.reset.Load())
	} else {
		reset = s.fill(float64(s.Burst - rest))
	}
	return Decision{OK: true, Remaining: rest, ResetAfter: reset, Mode: s.Mode,
		asOf: l.e.unix(a.moment.Load()), MaxExcess: int64(s.Overshoot * float64(s.Burst))}
}

// fill is how long the whole limit takes to gain some tokens.
func (l *Limit) fill(tokens float64) time.Duration { return l.def.Load().fill(tokens) }

func (s *Spec) fill(tokens float64) time.Duration {
	if tokens <= 0 {
		return 0
	}
	if ns := math.Ceil(tokens * float64(s.Rate.Per) / float64(s.Rate.Count)); ns < math.MaxInt64 {
		return time.Duration(ns)
	}
	return bucket.Never
}

// decision describes the account after the owner's answer.
func (a *account) decision(ok bool, src Source, now int64) Decision {
	s := a.limit.def.Load()
	rest := min(max(0, int64(math.Floor(a.known))+max(0, a.left())), s.Burst)
	d := Decision{OK: ok, Remaining: rest, Mode: s.Mode, Source: src, MaxExcess: int64(s.Overshoot * float64(s.Burst))}
	d.ResetAfter = a.resetAfter(s, a.known+float64(max(0, a.left())), now)
	if at := a.moment.Load(); at > 0 && at != now {
		d.asOf = a.limit.e.unix(at)
	}
	return d
}

// denial is a refusal that ends after retry.
func (a *account) denial(l *Limit, cost, retry int64, src Source, now int64) Decision {
	s := l.def.Load()
	d := Decision{Mode: s.Mode, Source: src, RetryAfter: wait(retry), MaxExcess: int64(s.Overshoot * float64(s.Burst))}
	if cost > s.Burst {
		d.RetryAfter = bucket.Never
	}
	bal := 0.0
	if r := a.refusal.Load(); r != nil {
		if bal = r.bal; now > r.at && !math.IsInf(r.rate, 0) {
			bal += float64(now-r.at) * r.rate
		}
		if r.at != now {
			d.asOf = l.e.unix(r.at)
		}
	}
	bal += float64(a.left())
	d.Remaining = min(max(0, int64(math.Floor(bal))), s.Burst)
	if d.ResetAfter = max(s.fill(float64(s.Burst)-bal), 0); s.Rule != nil {
		d.ResetAfter = wait(max(0, a.reset.Load()-(now-a.moment.Load())))
	}
	return d
}

// resetAfter is how long it takes until the key is as new, from the balance or as the owner told it.
func (a *account) resetAfter(s *Spec, level float64, now int64) time.Duration {
	if s.Rule != nil {
		return wait(max(0, a.waits.reset-(now-a.moment.Load())))
	}
	return s.fill(float64(s.Burst) - level)
}

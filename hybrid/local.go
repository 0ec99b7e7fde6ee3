package hybrid

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/jatah-io/jatah/bucket"
)

// splitShare is a node's share of a limit in split mode: the rate over K, and the floor or the ceiling of the
// burst over K, depending on the key. It is made anew when K changes.
type splitShare struct {
	k           int
	ranked      bool // the members counted are known, and so is this node's rank among them
	counted     []string
	floor, ceil *bucket.Params
	byRank      []*bucket.Algorithm // where the rule is not one token bucket
}

// op is what is done to a key of a table.
type op int

const (
	opTake op = iota
	opPeek
	opRefund
	opCharge
)

// takeBucket decides without anybody else: on the whole limit where this node is alone, on its share in split mode.
func (l *Limit) takeBucket(s *Spec, key string, cost int64) Decision {
	r, err := l.onTable(opTake, key, cost)
	return l.fromBucket(s, r, err)
}

// onTable does something to a key that this node alone decides about. Overflow with OK is what is admitted without being counted.
func (l *Limit) onTable(o op, key string, n int64) (bucket.Result, error) {
	s := l.def.Load()
	if (o == opRefund || o == opPeek) && l.e.full.Load() && l.policy(s, key) == OverflowShared && !l.hasKey(key) {
		return l.onTableKey(o, l.sharedKey(key), n, claimOrdinary) // where it may have been taken
	}
	r, err := l.onTableKey(o, key, n, claimOrdinary)
	if !r.Overflow || err != nil {
		return r, err
	}
	if l.gone.Load() { // meanwhile: a table that is closed has no room
		return r, ErrClosed
	}
	if l.e.makeRoomInTables() {
		if r, err = l.onTableKey(o, key, n, claimOrdinary); !r.Overflow || err != nil {
			return r, err
		}
	}
	policy := l.policy(s, key)
	l.e.overflowed(policy)
	switch policy {
	case OverflowAllow:
		r = bucket.Result{OK: true, Overflow: true}
	case OverflowShared:
		if r, err = l.onTableKey(o, l.sharedKey(key), n, claimReserved); r.Overflow {
			l.e.overflowed(OverflowDeny)
		}
	}
	return r, err
}

// tableClaim says what a new key of a table may take.
type tableClaim uint8

const (
	claimOrdinary tableClaim = iota
	claimReserved            // as a shared key
	claimBeyond              // in any case; for charges only
)

func (l *Limit) onTableKey(o op, key string, n int64, how tableClaim) (bucket.Result, error) {
	now := l.e.now()
	var sh *splitShare
	rank := 0
	if !l.e.alone() {
		if sh = l.split.Load(); sh == nil || sh.k != int(l.e.splitK.Load()) {
			var err error
			if sh, err = l.newSplit(now); err != nil {
				return bucket.Result{RetryAfter: l.e.cfg.Tick}, err
			}
		}
		if sh.k > 1 {
			rank = rankOf(sh.counted, l.e.cfg.Node, l.e.hash(l, key), sh.ranked)
		}
	} else {
		sh = l.whole.Load()
	}
	if t := l.meters.Load(); t != nil {
		var a *bucket.Algorithm
		if sh != nil && len(sh.byRank) > 0 { // the definition may have changed just now
			a = sh.byRank[min(rank, len(sh.byRank)-1)]
		}
		switch how {
		case claimReserved:
			return reservedOnMeters(t, o, key, a, l.e.wall(now), n), nil
		case claimBeyond:
			return t.ChargeBeyond(key, a, l.e.wall(now), n), nil
		}
		r := onMeters(t, o, key, a, l.e.wall(now), n)
		if r.Overflow && l.meters.Load() != t { // another table took its place, and this one was closed
			return l.onTableKey(o, key, n, how)
		}
		return r, nil
	}
	var p *bucket.Params
	if sh != nil {
		if p = sh.floor; sh.ceil != nil && int64(rank) < l.def.Load().Burst%int64(sh.k) {
			p = sh.ceil
		}
	}
	switch how {
	case claimReserved:
		return reservedOnBuckets(l.buckets, o, key, p, now, n), nil
	case claimBeyond:
		return l.buckets.ChargeBeyond(key, p, now, n), nil
	}
	return onBuckets(l.buckets, o, key, p, now, n), nil
}

// onBuckets is for the token bucket; p nil: the whole limit.
func onBuckets(t *bucket.Table, o op, key string, p *bucket.Params, now, n int64) bucket.Result {
	switch {
	case o == opTake && p == nil:
		return t.Take(key, now, n)
	case o == opTake:
		return t.TakeWith(key, p, now, n)
	case o == opPeek && p == nil:
		return t.Peek(key, now)
	case o == opPeek:
		return t.PeekWith(key, p, now)
	case o == opRefund && p == nil:
		return t.Refund(key, now, n)
	case o == opRefund:
		return t.RefundWith(key, p, now, n)
	case p == nil:
		return t.Charge(key, now, n)
	}
	return t.ChargeWith(key, p, now, n)
}

// onMeters is for all other rules; a nil: the whole limit.
func onMeters(t *bucket.MeterTable, o op, key string, a *bucket.Algorithm, now, n int64) bucket.Result {
	switch {
	case o == opTake && a == nil:
		return t.Take(key, now, n)
	case o == opTake:
		return t.TakeWith(key, a, now, n)
	case o == opPeek && a == nil:
		return t.Peek(key, now)
	case o == opPeek:
		return t.PeekWith(key, a, now)
	case o == opRefund && a == nil:
		return t.Refund(key, now, n)
	case o == opRefund:
		return t.RefundWith(key, a, now, n)
	case a == nil:
		return t.Charge(key, now, n)
	}
	return t.ChargeWith(key, a, now, n)
}

// newSplit compiles the share for the present K.
func (l *Limit) newSplit(now int64) (*splitShare, error) {
	l.e.mu.Lock()
	defer l.e.mu.Unlock()
	return l.makeSplit(now)
}

// makeSplit is newSplit for those who hold the lock.
func (l *Limit) makeSplit(now int64) (*splitShare, error) {
	e := l.e
	s, k := l.spec, max(1, e.k)
	sh := &splitShare{k: k, counted: e.counted.names, ranked: e.counted.print != 0}
	var err error
	if l.alg != nil {
		for rank := range k {
			a, err := l.alg.Share(k, rank)
			if err != nil {
				return nil, err
			}
			if l.plans.Load() != nil {
				a = a.KeepUsed()
			}
			sh.byRank = append(sh.byRank, a)
		}
	} else {
		if sh.floor, err = bucket.NewShare(s.Rate, 1, int64(k), s.Burst/int64(k)); err != nil {
			return nil, err
		}
		if s.Burst%int64(k) != 0 {
			if sh.ceil, err = bucket.NewShare(s.Rate, 1, int64(k), s.Burst/int64(k)+1); err != nil {
				return nil, err
			}
		}
	}
	if l.plans.Load() != nil && sh.floor != nil {
		sh.floor = sh.floor.KeepUsed()
		if sh.ceil != nil {
			sh.ceil = sh.ceil.KeepUsed()
		}
	}
	e.splitK.Store(int64(k))
	l.split.Store(sh)
	return sh, nil
}

func (l *Limit) fromBucket(s *Spec, r bucket.Result, err error) Decision {
	d := Decision{OK: r.OK, Remaining: r.Remaining, RetryAfter: r.RetryAfter, ResetAfter: r.ResetAfter, Delay: r.Delay, Mode: s.Mode, Err: err}
	switch {
	case r.Overflow && r.OK:
		d = s.uncounted()
	case r.Overflow:
		d.Err = ErrOverflow
	}
	return d
}

// Refund gives n tokens back to a key, never above the burst. Where the owner cannot be reached now, it is told later.
func (l *Limit) Refund(ctx context.Context, key string, n int64) Decision {
	return l.adjust(ctx, key, n, 0)
}

// Charge takes n tokens of a key after the fact, whether they are there or not: the key may go into debt.
func (l *Limit) Charge(ctx context.Context, key string, n int64) Decision {
	return l.adjust(ctx, key, 0, n)
}

func (l *Limit) adjust(ctx context.Context, key string, refund, charge int64) Decision {
	l = l.For(key)
	s := l.def.Load()
	if d, ok := l.simple(s, refund+charge); ok {
		return d
	}
	if s.permits() {
		return s.noTokens()
	}
	if l.e.alone() || s.Mode == Split {
		o := opCharge
		if refund > 0 {
			o = opRefund
		}
		r, err := l.onTable(o, key, refund+charge)
		d := l.fromBucket(s, r, err)
		if d.OK = d.Err == nil; d.OK {
			d.RetryAfter = 0
			l.top.used.Note(key, charge)
		}
		return d
	}
	d, err := l.owner(ctx, key, refund, charge)
	if err == ErrOverflow {
		policy := l.policy(s, key)
		l.e.overflowed(policy)
		switch policy {
		case OverflowAllow:
			return s.uncounted() // there is nothing that it could be counted on
		case OverflowShared:
			d, err = l.owner(ctx, l.sharedKey(key), refund, charge)
		}
	}
	if errors.Is(err, ErrUnreachable) {
		err = nil // it is owed: the owner is told when it answers again
	}
	if d.Err, d.OK = err, err == nil; d.OK {
		d.RetryAfter = 0
	}
	return d
}

// owner tells the key's owner of a refund or charge, and waits for the balance.
func (l *Limit) owner(ctx context.Context, key string, refund, charge int64) (Decision, error) {
	now := l.e.now()
	a, w, err := l.e.sync(now, l, key, refund, charge)
	if err != nil {
		return Decision{Mode: l.def.Load().Mode, RetryAfter: l.e.cfg.Tick}, err
	}
	if w == nil {
		return l.e.describe(a, true, SourceShare, now), ErrUnreachable
	}
	select {
	case d := <-w.done:
		return d, d.Err
	case <-ctx.Done():
		return l.e.describe(a, false, SourceLocal, l.e.now()), ctx.Err()
	}
}

// describe is account.decision for those who do not hold the lock.
func (e *Engine) describe(a *account, ok bool, src Source, now int64) Decision {
	e.mu.Lock()
	defer e.mu.Unlock()
	return a.decision(ok, src, now)
}

// Reset makes a key full again. It is a refund of what is missing at its owner; credit that nodes hold stays with them.
func (l *Limit) Reset(ctx context.Context, key string) error {
	if l.gone.Load() || l.e.closed.Load() {
		return ErrClosed
	}
	if s := l.def.Load(); s.permits() {
		return s.noTokens().Err
	}
	if l.e.alone() || l.def.Load().Mode == Split {
		if t := l.meters.Load(); t != nil {
			t.Reset(key)
		} else {
			l.buckets.Reset(key)
		}
		return nil
	}
	st, err := l.peek(ctx, key, false) // a shared key is not for one of those who share it to reset
	if err != nil {
		return err
	}
	missing := float64(st.Burst) - st.Balance - float64(st.Outstanding)
	if l.def.Load().Rule != nil { // the tightest rate may be full, and others not
		missing = max(0, -st.Balance)
		for _, v := range l.all() { // and the key may have any of the plans
			missing = max(missing, float64(v.def.Load().most())+max(0, -st.Balance))
		}
	}
	if missing > 0 {
		_, err = l.owner(ctx, key, int64(math.Ceil(missing)), 0)
	}
	return err
}

// Peek looks at a key without changing it, at its owner: exact at the moment the owner answered.
func (l *Limit) Peek(ctx context.Context, key string) (State, error) { return l.peek(ctx, key, true) }

// peek is Peek; shared: a key that there is no room for is decided on a shared key, and that is looked at.
func (l *Limit) peek(ctx context.Context, key string, shared bool) (State, error) {
	l = l.For(key)
	e, s := l.e, l.def.Load()
	st := State{Limit: s.Name, Key: key, Mode: s.Mode, Burst: s.Burst, Plan: l.plan, Owner: e.cfg.Node}
	if l.gone.Load() || e.closed.Load() {
		return st, ErrClosed
	}
	if e.alone() || s.Mode == Split {
		r, err := l.onTable(opPeek, key, 0)
		st.Remaining, st.ResetAfter = r.Remaining, r.ResetAfter
		if s.permits() {
			st.Held = s.Burst - r.Remaining
		}
		if s.Rule != nil {
			if st.Balance = float64(r.Remaining); r.Remaining < 1 {
				st.RetryAfter = max(r.RetryAfter, 1)
			}
			return st, err
		}
		if st.Balance = float64(s.Burst); s.Rate.Count > 0 {
			st.Balance -= float64(r.ResetAfter) * float64(s.Rate.Count) / float64(s.Rate.Per)
		}
		if st.Balance < 1 {
			st.RetryAfter = l.fill(1 - st.Balance)
		}
		return st, err
	}
	d, err := l.owner(ctx, key, 0, 0)
	if err == ErrOverflow && shared && l.policy(s, key) == OverflowShared {
		key = l.sharedKey(key)
		d, err = l.owner(ctx, key, 0, 0)
	}
	if err != nil && !errors.Is(err, ErrUnreachable) {
		return st, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	st.Owner, st.Source = "", d.Source
	if a := e.accountOf(l, key); a != nil {
		a.describe(l, &st, e.now())
	}
	return st, err
}

// describe tells what is known of the account's key, under l unless it has another plan.
func (a *account) describe(l *Limit, st *State, now int64) {
	s := l.def.Load()
	if a.owner != nil {
		st.Owner = a.owner.name
	}
	if a.planned != nil { // what follows is of the plan that the key has, whatever the caller names
		l = a.planned
		s = l.def.Load()
		st.Burst, st.Plan = s.Burst, l.plan
	}
	st.Balance, st.Outstanding, st.Credit = a.known, a.outAll, max(0, a.left())
	if at := a.moment.Load(); at > 0 {
		st.Age = time.Duration(now - at)
	}
	if s.permits() {
		st.Held = a.waits.held
	}
	whole := st.Balance + float64(st.Outstanding)
	st.Remaining = min(max(0, int64(math.Floor(whole))), s.Burst)
	if st.ResetAfter = a.resetAfter(s, whole, now); whole < 1 {
		if st.RetryAfter = s.fill(1 - whole); s.Rule != nil {
			st.RetryAfter = wait(max(0, a.waits.next-int64(st.Age)))
		}
	}
}

// sweepBuckets forgets full buckets where this node is alone.
func (e *Engine) sweepBuckets(now int64) {
	e.limits.Range(func(_ string, l *Limit) bool {
		l.buckets.Sweep(now, 1000)
		if t := l.meters.Load(); t != nil {
			t.Sweep(e.wall(now), 1000)
			if t.Algorithm().Coalesced() > 0 && l.crowded.CompareAndSwap(false, true) {
				e.log.Warn("a key used more of a sliding_log than it remembers: neighbours are merged, so that usage ages late, never early; raise max_log, or choose sliding_window", "limit", l.def.Load().Name)
			}
		}
		return true
	})
}

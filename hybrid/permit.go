package hybrid

import (
	"container/heap"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jatah-io/jatah/bucket"
	"github.com/jatah-io/jatah/internal/budget"
)

// Errors of permits.
var (
	// ErrPermit says that a permit is not held: it was released or has expired, or its node is gone.
	ErrPermit = errors.New("hybrid: unknown permit: it was released or has expired, or the node that gave it is gone")
	// ErrConcurrency says that tokens were asked of a limit that counts permits.
	ErrConcurrency = errors.New("hybrid: the limit counts permits; use Acquire and Release")
	// ErrNotConcurrency says that a permit was asked of a limit that counts tokens.
	ErrNotConcurrency = errors.New("hybrid: the limit gives no permits; use Take")
	// ErrTTL says that a permit was asked for a time that its limit does not give.
	ErrTTL = errors.New("hybrid: the time to live of a permit is out of range")
)

// DefaultTTL is the longest life of a permit that is not renewed, where a limit does not say.
const DefaultTTL = time.Minute

// Permit is one of the permits of a concurrency limit: held from Acquire until it is released, expires, or the node or
// its limit is closed; it is given back exactly once. Safe for any number of goroutines. A nil Permit holds nothing.
type Permit struct {
	id      string
	l       *Limit
	key     string
	bare    bool  // taken of a table that this node alone decides about
	counted bool  // false in dry run, where there was none to take
	expires int64 // the table's clock
	index   int   // in the queue
}

// ID names the permit in the whole cluster: 128 random bits and the node that holds it.
func (p *Permit) ID() string {
	if p == nil {
		return ""
	}
	return p.id
}

// Release gives the permit back. It does not depend on ctx, so that `defer p.Release(ctx)` also works after a panic or when the
// context has ended. The error is ErrPermit if it was not held any more; nil for a nil Permit.
func (p *Permit) Release(context.Context) error {
	if p == nil {
		return nil
	}
	return p.l.e.releaseHere(p.l, p.key, p.id)
}

// Renew lets the permit live for ttl from now, 0 for the limit's; it returns for how long it now lives at least: less than asked while the
// owner of its key does not answer. Errors: ErrPermit, ErrTTL.
func (p *Permit) Renew(_ context.Context, ttl time.Duration) (time.Duration, error) {
	if p == nil {
		return 0, ErrPermit
	}
	return p.l.e.renewHere(p.l, p.key, p.id, ttl)
}

// permitTable is the permits that this node holds.
type permitTable struct {
	mu    sync.Mutex
	byID  map[string]*Permit
	queue permitQueue // by time of expiry, which is looked at again when it comes up: renewing only moves it on
	slept int64       // how long the machine was suspended, which the engine's clock does not show

	budget *budget.Budget
}

type permitQueue []*Permit

func (q permitQueue) Len() int           { return len(q) }
func (q permitQueue) Less(i, j int) bool { return q[i].expires < q[j].expires }
func (q permitQueue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].index, q[j].index = i, j
}

func (q *permitQueue) Push(x any) {
	p := x.(*Permit)
	p.index = len(*q)
	*q = append(*q, p)
}

func (q *permitQueue) Pop() any {
	old := *q
	p := old[len(old)-1]
	old[len(old)-1] = nil
	*q = old[:len(old)-1]
	return p
}

// add stores a permit; false: the table is full.
func (t *permitTable) add(p *Permit, now int64, ttl time.Duration, most int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.byID) >= most || !t.budget.Take(budget.Permits, p.bytes(), false) {
		return false
	}
	if t.byID == nil {
		t.byID = map[string]*Permit{}
	}
	p.expires = saturatingAdd(now+t.slept, int64(ttl))
	t.byID[p.id] = p
	heap.Push(&t.queue, p)
	return true
}

// remove takes a permit out: whoever gets it gives it back, and nobody else does.
func (t *permitTable) remove(l *Limit, key, id string) *Permit {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.byID[id]
	if p == nil || p.l != l || p.key != key {
		return nil
	}
	t.forget(p)
	heap.Remove(&t.queue, p.index)
	return p
}

func (t *permitTable) forget(p *Permit) {
	delete(t.byID, p.id)
	t.budget.Add(budget.Permits, -p.bytes())
}

func (p *Permit) bytes() int64 { return permitBytes + int64(len(p.key)) }

// expired takes out what is over at now.
func (t *permitTable) expired(now int64) (over []*Permit) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(t.queue) > 0 && t.queue[0].expires <= now+t.slept {
		p := heap.Pop(&t.queue).(*Permit)
		t.forget(p)
		over = append(over, p)
	}
	return over
}

// removeAll takes out all permits of a limit; nil: of all.
func (t *permitTable) removeAll(l *Limit) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.queue = slices.DeleteFunc(t.queue, func(p *Permit) bool {
		gone := l == nil || p.l == l
		if gone {
			t.forget(p)
		}
		return gone
	})
	for i, p := range t.queue {
		p.index = i
	}
	heap.Init(&t.queue)
}

func (t *permitTable) sleep(d time.Duration) {
	t.mu.Lock()
	t.slept += int64(max(d, 0))
	t.mu.Unlock()
}

// extend lets a permit live until at least now+ttl, but not for long beyond most; it returns for how long.
func (t *permitTable) extend(l *Limit, key, id string, now int64, ttl time.Duration, most int64) (time.Duration, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.byID[id]
	if p == nil || p.l != l || p.key != key || p.expires <= now+t.slept {
		return 0, false
	}
	p.expires = max(p.expires, min(saturatingAdd(now, int64(ttl)), most)+t.slept)
	heap.Fix(&t.queue, p.index)
	return time.Duration(p.expires - now - t.slept), true
}

// Permits is how many permits this node holds.
func (e *Engine) Permits() int {
	e.permits.mu.Lock()
	defer e.permits.mu.Unlock()
	return len(e.permits.byID)
}

// held is the number of permits of one limit.
func (t *permitTable) held(l *Limit) (n int) {
	if !l.def.Load().permits() {
		return 0
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, p := range t.byID {
		if p.l == l {
			n++
		}
	}
	return n
}

// Acquire takes a permit of a concurrency limit for one key, if one is free: it does not wait for one, but for the key's owner as Take
// does. It lives for ttl, 0 for the limit's TTL, which is also the most. The Permit is nil if the Decision is not OK.
func (l *Limit) Acquire(ctx context.Context, key string, ttl time.Duration) (*Permit, Decision) {
	s := l.def.Load()
	d, ok := l.simple(s, 1)
	if ok {
		return nil, l.count(s, key, d)
	}
	ttl, err := s.life(ttl)
	if err != nil {
		return nil, Decision{Mode: s.Mode, RetryAfter: bucket.Never, Err: err}
	}
	p := &Permit{l: l, key: key, bare: l.e.alone() || s.Mode == Split}
	var w *Pending
	if d, w = l.start(s, key, 1); w != nil {
		d = l.finishHeld(ctx, key, w)
	}
	return l.keep(p, d, ttl)
}

// keep makes a decision a permit.
func (l *Limit) keep(p *Permit, d Decision, ttl time.Duration) (*Permit, Decision) {
	e := l.e
	switch {
	case d.Err != nil:
		return nil, d
	case !d.OK:
		d.RetryAfter, d.ResetAfter = e.cfg.Tick, bucket.Never // a permit may come back at any time
		return nil, d
	}
	d.ResetAfter = bucket.Never // what is held does not come back by itself; the owner's answer to a first question says nothing of it
	p.counted, p.id = !d.DryRun, e.newPermitID()
	switch {
	case !e.permits.add(p, e.now(), ttl, e.cfg.MaxKeys):
		e.giveUpPermit(p)
		return nil, Decision{Mode: d.Mode, RetryAfter: e.cfg.Tick, Err: ErrOverflow}
	case l.gone.Load() || e.closed.Load(): // meanwhile
		e.permits.remove(l, p.key, p.id)
		return nil, Decision{Mode: d.Mode, RetryAfter: bucket.Never, Err: ErrClosed}
	}
	return p, d
}

// life checks how long a permit shall live.
func (s *Spec) life(ttl time.Duration) (time.Duration, error) {
	switch {
	case !s.permits():
		return 0, fmt.Errorf("%w: %q", ErrNotConcurrency, s.Name)
	case ttl == 0:
		return s.TTL, nil
	case ttl < 0 || ttl > s.TTL:
		return 0, fmt.Errorf("%w: %v; ask for more than 0 and at most the %v of the limit, and renew", ErrTTL, ttl, s.TTL)
	}
	return ttl, nil
}

func (e *Engine) newPermitID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails, see crypto/rand
	return base64.RawURLEncoding.EncodeToString(b[:]) + "@" + e.cfg.Node
}

// holderOf is the node that a permit's id names.
func holderOf(id string) string {
	_, node, _ := strings.Cut(id, "@")
	return node
}

// finishHeld is Finish for a permit: who no longer waits must not get one.
func (l *Limit) finishHeld(ctx context.Context, key string, w *Pending) Decision {
	s := l.def.Load()
	select {
	case d := <-w.done:
		return l.count(s, key, d)
	case <-ctx.Done():
	}
	e := l.e
	e.mu.Lock()
	defer e.unlock()
	select {
	case d := <-w.done:
		return l.count(s, key, d)
	default:
	}
	if a := e.accountOf(l, key); a != nil && a.ask != nil {
		if a.ask.waiters = slices.DeleteFunc(a.ask.waiters, func(x *waiter) bool { return x == w }); len(a.ask.waiters) == 0 {
			e.endAsk(a)
		}
	}
	return Decision{Mode: s.Mode, Source: SourceDeny, Err: ctx.Err()}
}

// giveUpPermit gives back what a permit stood for. The permit is in no table any more.
func (e *Engine) giveUpPermit(p *Permit) {
	l := p.l
	if !p.counted || l.gone.Load() || e.closed.Load() {
		return
	}
	if p.bare {
		_, _ = l.onTable(opRefund, p.key, 1) // an error says that this node is closed
		return
	}
	e.mu.Lock()
	defer e.unlock()
	a := e.accountOf(l, p.key)
	if a == nil || a.holds() <= 0 {
		return
	}
	a.u++
	a.refusal.Store(nil)
	e.bind(a)
	e.activate(a)
	// Others may wait for it. Where there are plenty the tick will do.
	if a.owner == e.self || a.known < float64(l.spec.Burst)/2 {
		e.say(a, e.now())
	}
}

// expirePermits gives back what has expired. late is how long the machine was suspended since the last time.
func (e *Engine) expirePermits(now int64, late time.Duration) {
	if late > e.cfg.Tick { // less is how far two clocks differ that are read one after the other
		e.permits.sleep(late)
	}
	for _, p := range e.permits.expired(now) {
		e.giveUpPermit(p)
	}
}

// Release gives a permit back by its id, at whichever node it is held. The error is ErrPermit if it is not held: a permit is released
// once. ErrUnreachable: the node that holds it did not answer; it expires there if the release did not arrive.
func (l *Limit) Release(ctx context.Context, key, id string) error {
	if _, err := l.def.Load().life(0); err != nil {
		return err
	}
	if to := holderOf(id); to != l.e.cfg.Node {
		_, err := l.e.forward(ctx, to, forwarded{op: opRelease, limit: l.def.Load().Name, key: key, permit: id})
		return err
	}
	return l.e.releaseHere(l, key, id)
}

// Renew is Permit.Renew by its id, at whichever node it is held.
func (l *Limit) Renew(ctx context.Context, key, id string, ttl time.Duration) (time.Duration, error) {
	if _, err := l.def.Load().life(ttl); err != nil {
		return 0, err
	}
	if to := holderOf(id); to != l.e.cfg.Node {
		return l.e.forward(ctx, to, forwarded{op: opRenew, limit: l.def.Load().Name, key: key, permit: id, ttl: int64(ttl)})
	}
	return l.e.renewHere(l, key, id, ttl)
}

func (e *Engine) releaseHere(l *Limit, key, id string) error {
	e.expirePermits(e.now(), 0)
	p := e.permits.remove(l, key, id)
	if p == nil {
		return ErrPermit
	}
	e.giveUpPermit(p)
	return nil
}

func (e *Engine) renewHere(l *Limit, key, id string, ttl time.Duration) (time.Duration, error) {
	s := l.def.Load()
	ttl, err := s.life(ttl)
	if err != nil {
		return 0, err
	}
	now := e.now()
	most := now + int64(s.TTL)
	if !e.alone() && s.Mode != Split {
		e.mu.Lock()
		if a := e.accountOf(l, key); a != nil {
			most = a.renewable(e, now)
		}
		e.mu.Unlock()
	}
	left, ok := e.permits.extend(l, key, id, now, ttl, most)
	if !ok {
		return 0, ErrPermit
	}
	return left, nil
}

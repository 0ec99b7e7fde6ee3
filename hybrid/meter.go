package hybrid

import (
	"math"
	"time"

	"github.com/jatah-io/jatah/bucket"
)

// Where a limit's rule is not one token bucket, the ledger of a key holds a bucket.Meter instead of a pool in tokens. The
// rest of the protocol is the same: shares, loans, credit, generations. What differs is how time gives tokens back, and that a denial
// cannot be continued by rate and balance: the owner says how long to wait.

// wall is the engine's clock as Unix time, from which windows are counted: the wall clock as it was when the process started, or
// woke up, and from then on the monotonic one.
func (e *Engine) wall(now int64) int64 { return e.anchor.Load() + now }

// reanchor reads the wall clock anew: while a machine is suspended the monotonic clock stands still.
func (e *Engine) reanchor(now int64) {
	if e.wallClock != nil {
		e.anchor.Store(e.wallClock() - now)
	}
}

// compile prepares the rule of a definition; nil: a token bucket.
func (s *Spec) compile() (*bucket.Algorithm, error) {
	if s.Rule == nil {
		return nil, nil
	}
	r := *s.Rule
	// What is cut off from a share with fallback wait must never be more than the whole.
	// Of permits it is: there a node that is cut off rounds its share down, so that all of them make no more than the whole.
	r.RoundUp = s.Fallback != FallbackWait || s.permits()
	return bucket.Compile(r)
}

// params are those of the table for token buckets, which a limit with another rule does not use.
func (s *Spec) params() (*bucket.Params, error) {
	if s.Rule != nil {
		return bucket.NewParams(bucket.Per(1, time.Second), 1)
	}
	return bucket.NewParams(s.Rate, s.Burst)
}

// newTable makes or changes the tables of keys for who decides alone, or on a share. From one kind of table to the other what
// was used is carried over, down to an empty key. Requests go on meanwhile, and find keys full that are not moved yet: then that is debt.
func (l *Limit) newTable(params *bucket.Params, now int64) {
	t := l.meters.Load()
	switch {
	case l.alg == nil && t == nil:
		l.buckets.SetParams(params, now)
	case l.alg == nil:
		l.buckets.SetParams(params, now)
		l.meters.Store(nil)
		t.Used(l.e.wall(now), func(key string, n int64) { l.move(key, n) })
		t.Close()
	case t == nil:
		l.meters.Store(bucket.NewMeterTableIn(l.alg, l.e.budget))
		l.buckets.Used(now, func(key string, n int64) {
			l.buckets.Reset(key)
			l.move(key, n)
		})
		l.buckets.SetParams(params, now)
	default:
		t.SetAlgorithm(l.alg, l.e.wall(now))
	}
}

// logged says that the rule remembers each request.
func (l *Limit) logged() bool { return l.spec.Rule.Algorithm == "sliding_log" }

// move charges a key with what was used of it under another rule. Called with the engine's lock held, so that the share, which a limit
// that is in mode split no longer has not got yet, must not be made by onTable: that would take the lock again.
func (l *Limit) move(key string, n int64) {
	if sh := l.split.Load(); !l.e.alone() && (sh == nil || sh.k != int(l.e.splitK.Load())) {
		if _, err := l.makeSplit(l.e.now()); err != nil {
			return // nothing passes on such a share: there is nothing to charge
		}
	}
	r, err := l.onTableKey(opPeek, key, 0, claimOrdinary)
	if n = min(n, r.Remaining); err == nil && n > 0 {
		_, _ = l.onTableKey(opCharge, key, n, claimBeyond) // what was used is not forgotten, whether there is room or not
	}
}

// growth is how many tokens per nanosecond a key gains by itself as far as a lender can tell.
func (l *Limit) growth() float64 {
	if l.alg != nil {
		return 0
	}
	return l.perNs
}

// most is the most that a key can have used within the limit. With several rates that is more than the burst; and with sliding windows
// what was used in the one before is still there in part.
func (s *Spec) most() int64 {
	n := s.Burst
	if s.Rule != nil {
		for _, r := range s.Rule.Rates {
			n = max(n, 2*r.Count)
		}
	}
	return n
}

// queues says that requests may be granted a later departure.
func (s *Spec) queues() bool { return s.Rule != nil && (s.Rule.Queue > 0 || s.Rule.MaxWait > 0) }

// newMeter is the meter of a key of which nothing is known: it starts with no share, so that what shares bring is counted as
// used up unless somebody says otherwise.
func (l *Limit) newMeter(at int64) bucket.Meter {
	if l.alg == nil {
		return nil
	}
	m := l.alg.New()
	m.Advance(l.e.wall(at), 0, 0)
	return m
}

// advanceMeter is advance for a ledger with a meter.
func (p *partition) advanceMeter(l *ledger, end int64) {
	out, wall := l.outstanding(), l.limit.e.wall
	for i := p.index(l.era); ; i++ {
		l.era = p.first + uint64(i)
		if i == len(p.eras)-1 || p.eras[i+1].from > end {
			l.m.Advance(wall(end), p.eras[i].fraction, out)
			l.at = max(l.at, end)
			return
		}
		next := &p.eras[i+1]
		l.m.Advance(wall(next.from), next.fraction, out)
		// A log cannot tell a share that comes back from one that was used elsewhere; others keep account of it themselves. Who
		// lost a share cannot use it within a period: elsewhere too it counts as used up at first.
		if back := next.back - next.brought; back > 0 && l.limit.logged() && next.from-next.since < int64(l.limit.spec.Rate.Per) {
			bucket.Bring(l.m, back, out)
		}
		if w := next.brought; w > 0 && l.start > 0 && !l.isPermits() && (l.limit.spec.Fallback != FallbackWait || l.exact) {
			bucket.Bring(l.m, w, out)
		}
	}
}

// give adds tokens that were returned or refunded, spend takes some away, into debt if need be. The counters of the
// entries say already what is out afterwards.
func (l *ledger) give(n float64) {
	if l.m == nil {
		l.pool += n
		return
	}
	if l.isPermits() {
		l.recount()
		return
	}
	l.spent = max(0, l.spent-n)
	l.m.Return(n, l.outstanding())
}

func (l *ledger) spend(n float64) {
	if l.m == nil {
		l.pool -= n
		return
	}
	if l.isPermits() {
		l.recount()
		return
	}
	l.spent += n
	l.m.Use(n, l.outstanding())
}

// charged is what another owner's state does not know of a ledger that nothing was granted from: what was charged here, or a debt. That
// Free is below zero says nothing by itself: a log that was loaded before its shares came is there too.
func (l *ledger) charged() float64 {
	return max(l.spent, bucket.Taken(l.m)-float64(l.limit.spec.Burst), 0)
}

// loadMeter replaces the ledger's meter by one that another owner kept. What that one had out and this one does not know counts as
// spent. It says whether the bytes made sense.
func (p *partition) loadMeter(l *ledger, state []byte, at, now int64) bool {
	m := l.limit.alg.New()
	if len(state) == 0 || m.Load(state, l.limit.e.wall(at)) != nil {
		return false
	}
	m.Advance(l.limit.e.wall(now), p.era().fraction, l.outstanding())
	l.m, l.at, l.era = m, now, p.first+uint64(len(p.eras)-1)
	return true
}

// waits are what a grant says where balance and rate do not: for how long the refused cost and one token more than there are must
// wait, until the key is as new, and when what was granted last may depart.
type waits struct {
	cost                        int64 // that was refused, in tokens
	refused, next, reset, delay int64 // ns
	held                        int64 // permits that are held, of all nodes
}

func (p *partition) waits(l *ledger, cost int64, now int64) (w waits) {
	w.cost = cost
	w.refused = p.waitFor(l, float64(cost), now)
	w.next = p.waitFor(l, min(max(1, math.Floor(l.m.Free())+1), float64(l.limit.spec.Burst)), now)
	w.reset = ns(l.m.Reset())
	if d, ok := l.m.(bucket.Delayer); ok {
		w.delay = ns(d.Delay())
	}
	if l.isPermits() {
		for _, x := range l.entries {
			w.held += max(0, x.g-x.r-x.u-x.out())
		}
	}
	return w
}

// waitFor is how long n tokens must be waited for. Credit that is out is taken to be spent now, where otherwise no wait would help: to
// be told so would keep a node from asking when a window ends that others have begun with all that it has. Where the shares that are
// held do not suffice, the others are back or given up when grace is over.
func (p *partition) waitFor(l *ledger, n float64, now int64) int64 {
	d := l.m.Wait(n)
	if d == bucket.Never && l.outstanding() > 0 {
		m := bucket.Clone(l.m)
		m.Advance(l.limit.e.wall(now), p.era().fraction, 0)
		d = m.Wait(n)
	}
	if grace := l.limit.e.grace(); d == bucket.Never && p.era().fraction < 1 && grace > 0 {
		d = grace
	}
	return ns(d)
}

// ns keeps a wait within what can be added to a time; what is longer stands for never.
func ns(d time.Duration) int64 { return int64(min(d, forever)) }

const forever = time.Duration(math.MaxInt64 / 2)

// wait is ns the other way round.
func wait(ns int64) time.Duration {
	if ns >= int64(forever) {
		return bucket.Never
	}
	return time.Duration(ns)
}

// remeter changes the ledger of a limit whose definition changes: what was used stays used.
func (l *ledger) remeter(alg *bucket.Algorithm, level, part float64, now int64) {
	switch {
	case alg == nil:
		l.m = nil
	case l.m != nil:
		l.m = bucket.Resize(l.m, alg)
	default:
		out := l.outstanding()
		used := max(0, float64(l.limit.spec.Burst)*part-level-out)
		l.m = alg.New()
		l.m.Advance(l.limit.e.wall(now), part, 0)
		l.m.Use(used+out, out)
	}
}

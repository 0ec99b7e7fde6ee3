package hybrid

import (
	"sync/atomic"
	"time"
)

// counts are the engine's counters; they only grow, but for tick.
type counts struct {
	asks, resent, timedOut         atomic.Uint64
	sent, unsent, malformed, stale atomic.Uint64
	debt, pauses                   atomic.Uint64
	ownerFull, swept               atomic.Uint64
	overflowed                     [Overflows]atomic.Uint64
	handOffsIn, handOffsOut        atomic.Uint64
	handOffsLost                   atomic.Uint64
	tick                           atomic.Int64 // ns that the last one took
	silent, canceled               atomic.Uint64
	asking, ticking                durations
}

// init names the bounds of the classic histograms: an ask takes a round trip, a tick grows with what there is to say.
func (c *counts) init() {
	const us, ms = time.Microsecond, time.Millisecond
	c.asking.init(50*us, 100*us, 200*us, 500*us, ms, 2*ms, 5*ms, 10*ms, 20*ms, 50*ms, 100*ms)
	c.ticking.init(100*us, 200*us, 500*us, ms, 2*ms, 5*ms, 10*ms, 20*ms, 50*ms, 100*ms, 200*ms, 500*ms, time.Second)
}

// Stats is a snapshot of an engine's counters. All but the gauges named as such only grow.
type Stats struct {
	Limits []LimitStats

	Asks, Resent, TimedOut uint64 // messages, repeats, requests that were not answered in time
	Silent                 uint64 // requests decided by fallback, since the owner of their key was silent: not asked, or given up before their time was over
	Canceled               uint64 // requests whose context ended before the owner answered
	InFlight               int    // gauge
	AskLatency             Histogram

	Accounts, Active, Ledgers, Buckets int // gauges
	Evictions, Overflows               uint64
	Memory                             Memory
	Debt                               uint64 // tokens spent beyond credit, learned of by this node as owner
	Pauses                             uint64
	HandOffsIn, HandOffsOut            uint64
	HandOffsLost                       uint64
	MessagesOut, Unsent                uint64
	Malformed, Stale                   uint64
	Tick                               time.Duration // gauge: what the last tick took
	Ticks                              Histogram
}

// LimitStats counts the decisions of one limit by result and source.
type LimitStats struct {
	Name            string
	Mode            Mode
	Allowed, Denied [Sources]uint64
	DryRun          uint64 // denials that dry run turned into admissions
	Near            uint64 // of Allowed, those that left less than a fifth of the burst, by what Decision.Remaining said
	Keys            int    // gauge
	Merged          uint64 // sliding logs that were full, so that neighbours were merged
	Permits         int    // gauge: permits that this node holds
}

// Stats returns the counters.
func (e *Engine) Stats() Stats {
	s := Stats{Asks: e.stats.asks.Load(), Resent: e.stats.resent.Load(), TimedOut: e.stats.timedOut.Load(),
		Overflows: e.stats.ownerFull.Load() + e.stats.overflowed[OverflowDeny].Load(), Memory: e.Memory(), Evictions: e.stats.swept.Load(), Debt: e.stats.debt.Load(), Pauses: e.stats.pauses.Load(),
		HandOffsIn: e.stats.handOffsIn.Load(), HandOffsOut: e.stats.handOffsOut.Load(), HandOffsLost: e.stats.handOffsLost.Load(),
		MessagesOut: e.stats.sent.Load(), Unsent: e.stats.unsent.Load(), Malformed: e.stats.malformed.Load(), Stale: e.stats.stale.Load(),
		Silent: e.stats.silent.Load(), Canceled: e.stats.canceled.Load(),
		Tick: time.Duration(e.stats.tick.Load()), Ticks: e.stats.ticking.histogram(), AskLatency: e.stats.asking.histogram()}
	near := map[string]uint64{} // before the decisions that they are a part of
	e.limits.Range(func(name string, l *Limit) bool {
		near[name] = uint64(l.near.Value())
		return true
	})
	e.mu.Lock()
	for rounds := 0; rounds < 2; { // the first may have been under way
		if !e.settleSpent(e.now(), soloStep) {
			rounds++
		}
		e.breathe()
	}
	for _, a := range e.hot {
		a.settleSpent() // it is not marked
	}
	s.InFlight, s.Accounts, s.Active, s.Ledgers = len(e.asks), e.accounts.n+e.nsolo, len(e.active), e.nledgers+e.nsolo
	onCredit := map[*Limit]uint64{}
	e.limits.Range(func(_ string, l *Limit) bool {
		l.onCredit = max(l.onCredit, uint64(max(0, l.spent+l.bulk.beyond())))
		onCredit[l] = l.onCredit
		return true
	})
	e.mu.Unlock()
	e.limits.Range(func(name string, l *Limit) bool {
		x := LimitStats{Name: name, Mode: l.Spec().Mode, DryRun: uint64(l.dryRun.Value()), Near: near[name], Keys: l.keys.Len() + l.buckets.Len(), Permits: e.permits.held(l)}
		if t := l.meters.Load(); t != nil {
			x.Keys += t.Len()
			x.Merged = t.Algorithm().Coalesced()
			s.Buckets += t.Len()
			m := t.Stats()
			s.Evictions += uint64(m.Evictions)
		}
		for i := range x.Allowed {
			x.Denied[i], x.Allowed[i] = uint64(l.counts[0][i].Value()), uint64(l.counts[1][i].Value())
		}
		x.Allowed[SourceLocal] += onCredit[l]
		b := l.buckets.Stats()
		s.Buckets += l.buckets.Len()
		s.Evictions += uint64(b.Evictions)
		s.Limits = append(s.Limits, x)
		return true
	})
	return s
}

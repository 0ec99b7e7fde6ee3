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
	latency                        [len(latencyBounds) + 1]atomic.Uint64
	latencySum                     atomic.Int64
}

// latencyBounds are upper bounds of the buckets of the ask latency.
var latencyBounds = [...]time.Duration{50 * time.Microsecond, 100 * time.Microsecond, 200 * time.Microsecond, 500 * time.Microsecond,
	time.Millisecond, 2 * time.Millisecond, 5 * time.Millisecond, 10 * time.Millisecond, 20 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond}

func (c *counts) askTime(ns int64) {
	i := 0
	for i < len(latencyBounds) && time.Duration(ns) > latencyBounds[i] {
		i++
	}
	c.latency[i].Add(1)
	c.latencySum.Add(ns)
}

// Histogram is a distribution of durations. Counts has one element more than Bounds, and is not cumulative.
type Histogram struct {
	Bounds []time.Duration
	Counts []uint64
	Sum    time.Duration
	Count  uint64
}

// Stats is a snapshot of an engine's counters. All but the gauges named as such only grow.
type Stats struct {
	Limits []LimitStats

	Asks, Resent, TimedOut uint64 // messages, repeats, requests that were not answered in time
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
}

// LimitStats counts the decisions of one limit by result and source.
type LimitStats struct {
	Name            string
	Mode            Mode
	Allowed, Denied [Sources]uint64
	DryRun          uint64 // denials that dry run turned into admissions
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
		Tick: time.Duration(e.stats.tick.Load())}
	s.AskLatency = Histogram{Bounds: latencyBounds[:], Sum: time.Duration(e.stats.latencySum.Load())}
	for i := range e.stats.latency {
		n := e.stats.latency[i].Load()
		s.AskLatency.Counts = append(s.AskLatency.Counts, n)
		s.AskLatency.Count += n
	}
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
		n := l.bulk.Value() // before their tokens: see several
		l.onCredit = max(l.onCredit, uint64(max(0, l.spent+n-l.bulkTokens.Value())))
		onCredit[l] = l.onCredit
		return true
	})
	e.mu.Unlock()
	e.limits.Range(func(name string, l *Limit) bool {
		x := LimitStats{Name: name, Mode: l.Spec().Mode, DryRun: uint64(l.dryRun.Value()), Keys: l.keys.Len() + l.buckets.Len(), Permits: e.permits.held(l)}
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

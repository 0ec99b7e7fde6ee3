package edge

import (
	"errors"
	"sync/atomic"
)

// RuleStats are the counters of one rule, since the first edge was made that had a rule of this name and was followed by this one: see
// Config.Before.
type RuleStats struct {
	Rule        string
	Admitted    uint64 // also those that pass only because of a dry run or because nothing could be decided
	Refused     uint64
	WouldRefuse uint64 // admitted in dry run only
	Undecided   uint64 // the node could not decide: refused, or admitted with Config.FailOpen
	BadRequests uint64 // refused with 400
	Soft        uint64 // admitted with the softer step, also in dry run
	Paused      uint64 // refused by a growing pause, without asking the limit; in dry run those that would have been
	Dropped     uint64 // refused, and the connection ended without an answer
}

type counters struct {
	admitted, refused, wouldRefuse, undecided, bad, soft, paused, dropped atomic.Uint64
}

func (c *counters) note(v *Verdict) {
	switch {
	case v.Err == nil && v.OK && !v.rule.DryRun:
	case errors.Is(v.Err, ErrRequest):
		c.bad.Add(1)
	case v.Undecided():
		c.undecided.Add(1)
	}
	switch {
	case v.OK:
		c.admitted.Add(1)
	case v.Err == nil && !v.Undecided():
		c.refused.Add(1)
	}
	if v.WouldRefuse {
		c.wouldRefuse.Add(1)
	}
	if v.Paused {
		c.paused.Add(1)
	}
}

// Stats are the counters of the rules, in their order.
func (e *Edge) Stats() []RuleStats {
	all := make([]RuleStats, len(e.rules))
	for i, r := range e.rules {
		c := r.counts
		all[i] = RuleStats{
			Rule: r.Name, Admitted: c.admitted.Load(), Refused: c.refused.Load(), WouldRefuse: c.wouldRefuse.Load(),
			Undecided: c.undecided.Load(), BadRequests: c.bad.Load(), Soft: c.soft.Load(), Paused: c.paused.Load(), Dropped: c.dropped.Load(),
		}
	}
	return all
}

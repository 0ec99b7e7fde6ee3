package jatah

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/jatah-io/jatah/hybrid"
)

// What nodes tell each other of their counters, written and read as in top_wire.go: a reader leaves out fields that it does not know.

const (
	statsTopic = ownTopics + "stats"
	// statsBytes is what the limits in an answer may take.
	statsBytes = MaxAnswer * 3 / 4
	// mostCounted is above all that is counted: sums of it for many members do not overflow.
	mostCounted = 1 << 54
	// mostLists bounds lists that a version of this package writes with a handful of elements.
	mostLists = 64
)

type statsAnswer struct {
	Ready   bool
	K       int
	Weight  float64
	Limits  []wireLimit
	Omitted int
	Ask     wireAsk
	Gauges  []uint64 // in the order of gaugesOf; later versions have more
}

type wireLimit struct {
	Name   string
	Mode   int
	Counts []uint64 // by source in its order: allowed, refused, allowed, ...
	DryRun uint64
	Keys   uint64
	Merged uint64
	Held   uint64
}

// size is the most that it takes.
func (l *wireLimit) size() int { return len(l.Name) + 2 + 9*(len(l.Counts)+6) }

type wireAsk struct {
	Sent, Resent, TimedOut, InFlight, Sum uint64
	Bounds                                []uint64 // ns
	Counts                                []uint64
}

// gaugesOf are the counters that are one number each.
func gaugesOf(s *Stats) []*uint64 {
	return []*uint64{&s.Evictions, &s.Overflows, &s.Debt, &s.Pauses, &s.HandOffsIn, &s.HandOffsOut, &s.HandOffsLost, &s.PacketsIn, &s.PacketsOut, &s.BytesIn, &s.BytesOut,
		&s.Ask.Silent, &s.Ask.Canceled, &s.Rejoins, &s.RejoinErrors, &s.LookupErrors}
}

// levelsOf are those that may fall. They stand before gaugesOf.
func levelsOf(s *Stats) []*int {
	return []*int{&s.Members, &s.MembersFailed, &s.Accounts, &s.Active, &s.Ledgers, &s.Buckets}
}

func wireOf(n *NodeStats) statsAnswer {
	s := &n.Stats
	a := statsAnswer{Ready: n.Ready, K: n.K, Weight: n.Weight, Omitted: n.Omitted}
	for _, v := range levelsOf(s) {
		a.Gauges = append(a.Gauges, uint64(max(0, *v)))
	}
	a.Gauges = append(a.Gauges, uint64(max(0, s.Tick)))
	for _, v := range gaugesOf(s) {
		a.Gauges = append(a.Gauges, *v)
	}
	h := &s.Ask.Latency
	a.Ask = wireAsk{Sent: s.Ask.Sent, Resent: s.Ask.Resent, TimedOut: s.Ask.TimedOut, InFlight: uint64(max(0, s.Ask.InFlight)), Sum: uint64(max(0, h.Sum)), Counts: h.Counts}
	for _, d := range h.Bounds {
		a.Ask.Bounds = append(a.Ask.Bounds, uint64(d))
	}
	for _, l := range s.Limits {
		w := wireLimit{Name: l.Name, Mode: int(l.Mode), Counts: make([]uint64, 2*hybrid.Sources), DryRun: l.DryRun, Keys: uint64(max(0, l.Keys)), Merged: l.Merged, Held: uint64(max(0, l.Permits))}
		for _, d := range l.Decisions {
			i := 2 * int(d.Source)
			if !d.Allowed {
				i++
			}
			w.Counts[i] = d.Count
		}
		a.Limits = append(a.Limits, w)
	}
	return a
}

func (r *topReader) stats() (a statsAnswer) {
	r.record(7, func() {
		a.Ready, a.K, a.Weight = topField(r, r.d.DecodeBool), r.level(), topField(r, r.d.DecodeFloat64)
		a.Limits = topList(r, r.statsLimit)
		a.Omitted, a.Ask, a.Gauges = r.level(), r.ask(), r.counters()
	})
	return a
}

func (r *topReader) statsLimit() (l wireLimit) {
	r.record(7, func() {
		l.Name, l.Mode, l.Counts = topField(r, r.d.DecodeString), r.level(), r.counters()
		l.DryRun, l.Keys, l.Merged, l.Held = r.count64(), r.count64(), r.count64(), r.count64()
	})
	return l
}

func (r *topReader) ask() (a wireAsk) {
	r.record(7, func() {
		a.Sent, a.Resent, a.TimedOut, a.InFlight = r.count64(), r.count64(), r.count64(), r.count64()
		a.Sum = r.upTo(math.MaxInt64) // asks that wait side by side add up to more than any clock shows
		a.Bounds, a.Counts = r.counters(), r.counters()
	})
	return a
}

// count64 reads a number that is not negative, and not so large that sums overflow.
func (r *topReader) count64() uint64 { return r.upTo(mostCounted) }

func (r *topReader) upTo(most uint64) uint64 {
	v := topField(r, r.d.DecodeUint64)
	if v > most {
		r.err = fmt.Errorf("a count of %d", v)
		return 0
	}
	return v
}

// level is count64 of something that there is a number of.
func (r *topReader) level() int { return int(min(r.count64(), math.MaxInt32)) }

func (r *topReader) counters() []uint64 {
	list := topList(r, r.count64)
	if r.err == nil && len(list) > mostLists {
		r.err = fmt.Errorf("%d counters", len(list))
	}
	return list
}

var errStats = errors.New("its counters cannot be read")

// readStats reads what answerStats wrote, and refuses what it cannot have written.
func readStats(node string, b []byte) (NodeStats, error) {
	r := newTopReader(b)
	a := r.stats()
	if r.err != nil {
		return NodeStats{}, fmt.Errorf("%w: %w: %w", ErrAnswer, errStats, r.err)
	}
	n := NodeStats{Node: node, Ready: a.Ready, K: a.K, Weight: a.Weight, Omitted: a.Omitted}
	if math.IsNaN(a.Weight) || a.Weight < 0 || a.Weight > 1 || len(a.Ask.Counts) != len(a.Ask.Bounds)+1 || !slices.IsSorted(a.Ask.Bounds) {
		return NodeStats{}, fmt.Errorf("%w: %w", ErrAnswer, errStats)
	}
	s := &n.Stats
	s.Ask = AskStats{Sent: a.Ask.Sent, Resent: a.Ask.Resent, TimedOut: a.Ask.TimedOut, InFlight: int(min(a.Ask.InFlight, math.MaxInt32))}
	s.Ask.Latency = Histogram{Counts: a.Ask.Counts, Sum: time.Duration(a.Ask.Sum)}
	for _, d := range a.Ask.Bounds {
		s.Ask.Latency.Bounds = append(s.Ask.Latency.Bounds, time.Duration(d))
	}
	for _, c := range a.Ask.Counts {
		s.Ask.Latency.Count += c
	}
	// A version that knows fewer leaves the rest at zero.
	at := 0
	next := func() (v uint64) {
		if at < len(a.Gauges) {
			v = a.Gauges[at]
		}
		at++
		return v
	}
	for _, v := range levelsOf(s) {
		*v = int(min(next(), math.MaxInt))
	}
	s.Tick = time.Duration(next())
	for _, v := range gaugesOf(s) {
		*v = next()
	}
	return n, n.readLimits(a.Limits)
}

func (n *NodeStats) readLimits(limits []wireLimit) error {
	slices.SortFunc(limits, func(x, y wireLimit) int { return cmp.Compare(x.Name, y.Name) })
	for i, l := range limits {
		if l.Name == "" || len(l.Name) > maxEventWord || i > 0 && l.Name == limits[i-1].Name {
			return fmt.Errorf("%w: %w: limit %.80q", ErrAnswer, errStats, l.Name)
		}
		x := LimitStats{Name: l.Name, Mode: Mode(l.Mode), DryRun: l.DryRun, Keys: int(min(l.Keys, math.MaxInt32)), Merged: l.Merged, Permits: int(min(l.Held, math.MaxInt32))}
		for j, c := range l.Counts {
			if c > 0 && j < 2*int(hybrid.Sources) { // of sources that this version knows
				x.Decisions = append(x.Decisions, DecisionCount{Allowed: j%2 == 0, Source: Source(j / 2), Count: c})
			}
		}
		n.Stats.Limits = append(n.Stats.Limits, x)
	}
	return nil
}

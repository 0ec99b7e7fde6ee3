package jatah

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jatah-io/jatah/cluster"
	"github.com/jatah-io/jatah/hybrid"
)

// States of a member.
const (
	Alive  = "alive"
	Failed = "failed"
	Left   = "left"
)

// Info is a node's view of its cluster.
type Info struct {
	Node       string
	Ready      bool
	Reason     string // why it is not ready
	Members    []MemberInfo
	Partitions int
	K          int           // members among whom limits are divided
	Weight     float64       // this node's part of every limit: 1/K; 0 until it has settled
	Settle     time.Duration // how long a change of membership is given to reach everybody
	Settling   time.Duration // until this node has a share; 0: it has
	Grace      time.Duration // how long a failed member's share stays reserved; Never: for ever
	Handing    int           // hand-offs in flight
}

// MemberInfo is one member as this node sees it.
type MemberInfo struct {
	Name, Addr, HTTP, Version string
	State                     string // Alive, Failed or Left
	Incarnation               string // hexadecimal; a new one for each start of the process
	Self                      bool
	Since                     time.Time     // when it failed or left
	Partitions                int           // that it owns
	LendsTo                   int           // partitions of which this node lends it its share now
	LentBy                    int           // partitions of which it lends this node its share now
	Share                     float64       // what it lends this node, as a part of a limit
	Silent                    bool          // has not answered this node for three sync intervals
	Heard                     time.Duration // since it last answered
	Reserved                  time.Duration // how long its share stays reserved though it is gone; Never: until Forget
	Protocol                  int           // the newest that it and this node speak; 0: it is gone, or this node is alone
	Secrets                   []string      // fingerprints of the secrets it accepts, the one it uses first; see Fingerprint. None: it does not tell, or has none
}

// Info describes the cluster as this node sees it.
func (n *Node) Info() Info {
	h := n.e.Info()
	i := Info{Node: n.cfg.Node, Partitions: h.Partitions, K: h.K, Weight: h.Weight, Settle: h.Settle, Settling: h.Settling, Grace: forever(h.Grace), Handing: h.Handing}
	if err := n.Ready(); err != nil {
		i.Reason = strings.TrimPrefix(err.Error(), ErrNotReady.Error()+": ")
	} else {
		i.Ready = true
	}
	if n.c == nil {
		i.Members = []MemberInfo{{Name: n.cfg.Node, HTTP: n.cfg.HTTP, Version: n.cfg.Version, State: Alive, Self: true,
			Incarnation: fmt.Sprintf("%016x", h.Incarnation), Partitions: h.Partitions, Share: 1}}
		return i
	}
	v := n.c.View()
	for _, m := range h.Members {
		i.Members = append(i.Members, n.member(v, m))
	}
	slices.SortStableFunc(i.Members, func(a, b MemberInfo) int { return strings.Compare(a.Name, b.Name) })
	return i
}

func (n *Node) member(v *cluster.View, m hybrid.MemberInfo) MemberInfo {
	x := MemberInfo{Name: m.Name, State: Alive, Self: m.Name == n.cfg.Node, Partitions: m.Partitions, LendsTo: m.LendsTo, LentBy: m.LentBy,
		Share: m.Share, Silent: m.Silent, Heard: m.HeardAgo, Reserved: forever(m.Reserved)}
	if c, ok := v.Member(m.Name); ok {
		x.Addr, x.HTTP, x.Version, x.Incarnation = c.Addr, c.HTTP, c.Version, fmt.Sprintf("%016x", c.Incarnation)
		x.Protocol, x.Secrets = int(c.Protocol), c.Secrets()
	}
	if m.Lost {
		x.State = Failed
		if m.Left {
			x.State = Left
		}
		if j := slices.IndexFunc(v.Lost, func(l cluster.Lost) bool { return l.Name == m.Name }); j >= 0 {
			x.Addr, x.Since, x.Incarnation = v.Lost[j].Addr, v.Lost[j].Since, fmt.Sprintf("%016x", v.Lost[j].Incarnation)
		}
	}
	return x
}

func forever(d time.Duration) time.Duration {
	if d < 0 {
		return Never
	}
	return d
}

// Stats is a snapshot of a node's counters. All but what is called a gauge only grow.
type Stats struct {
	Limits []LimitStats // sorted by name
	Ask    AskStats

	Members, MembersFailed int // gauges

	Accounts int // gauge: keys known here, as lender
	Active   int // gauge: of these, with credit, debt or something to report
	Ledgers  int // gauge: keys owned here that are not full
	Buckets  int // gauge: keys decided on a bare bucket

	Evictions, Overflows uint64 // keys forgotten; requests refused because the table was full
	Memory               MemoryStats
	Debt                 uint64 // tokens spent beyond credit, learned of afterwards by this node as owner
	Pauses               uint64 // times that this node noticed it had been paused
	HandOffsIn           uint64
	HandOffsOut          uint64
	HandOffsLost         uint64

	PacketsIn, PacketsOut uint64
	BytesIn, BytesOut     uint64
	StateWrites           uint64            // of the file in Config.StateDir
	StateFailures         uint64            // attempts to write it that failed
	Dropped               map[string]uint64 // packets dropped, by reason
	Tick                  time.Duration     // gauge: what the last sync took
	Ticks                 Histogram         // what syncs took
	Rejoins, RejoinErrors uint64            // attempts to reach seeds and lost members after the start; those that failed
	LookupErrors          uint64            // names in Config.Join that could not be looked up
}

// MemoryStats is what keys take of this node's memory. Keys and bytes are gauges; a bound of 0 is none. Parts are the bytes by what they are for:
// records, accounts, ledgers, standby, meters, permits. Overflowed counts requests of new keys that found no room, by the policy that decided them: an
// index is an Overflow. Full: some found none in the last seconds.
type MemoryStats = hybrid.Memory

// LimitStats counts the decisions of one limit.
type LimitStats struct {
	Name      string
	Mode      Mode
	Decisions []DecisionCount // every combination that occurred
	DryRun    uint64          // denials that dry run turned into admissions
	Near      uint64          // admissions that left less than a fifth of the burst, as far as this node knew: by Decision.Remaining
	Keys      int             // gauge
	Merged    uint64          // sliding logs that were full, so that neighbours were merged: raise MaxLog if that matters
	Permits   int             // gauge: permits that this node holds
}

// DecisionCount is a number of decisions of one kind.
type DecisionCount struct {
	Allowed bool
	Source  Source
	Count   uint64
}

// AskStats is about requests that waited for an owner.
type AskStats struct {
	Sent, Resent, TimedOut uint64 // messages; repeats among them; requests given up
	Silent                 uint64 // requests decided by fallback because the owner was silent: not asked, or given up before their time was over
	Canceled               uint64 // requests whose context ended before the owner answered
	InFlight               int    // gauge
	Latency                Histogram
}

// Histogram is a distribution of durations: Counts[i] are those up to Bounds[i], the last those above; Fine has them by finer bounds. Neither is
// cumulative. For the fields: go doc github.com/jatah-io/jatah/hybrid.Histogram
type Histogram = hybrid.Histogram

// Stats returns the counters.
func (n *Node) Stats() Stats {
	h := n.e.Stats()
	s := Stats{Ask: AskStats{h.Asks, h.Resent, h.TimedOut, h.Silent, h.Canceled, h.InFlight, h.AskLatency}, Members: 1,
		Accounts: h.Accounts, Active: h.Active, Ledgers: h.Ledgers, Buckets: h.Buckets, Evictions: h.Evictions, Overflows: h.Overflows, Memory: h.Memory,
		Debt: h.Debt, Pauses: h.Pauses, HandOffsIn: h.HandOffsIn, HandOffsOut: h.HandOffsOut, HandOffsLost: h.HandOffsLost, Tick: h.Tick, Ticks: h.Ticks,
		Dropped: map[string]uint64{"malformed": h.Malformed, "stale": h.Stale, "unsent": h.Unsent}}
	for _, l := range h.Limits {
		x := LimitStats{Name: l.Name, Mode: l.Mode, DryRun: l.DryRun, Near: l.Near, Keys: l.Keys, Merged: l.Merged, Permits: l.Permits}
		for src := range hybrid.Sources {
			for _, d := range []DecisionCount{{true, Source(src), l.Allowed[src]}, {false, Source(src), l.Denied[src]}} {
				if d.Count > 0 {
					x.Decisions = append(x.Decisions, d)
				}
			}
		}
		s.Limits = append(s.Limits, x)
	}
	if n.state != nil {
		s.StateWrites, s.StateFailures = n.state.writes.Load(), n.state.failures.Load()
	}
	slices.SortFunc(s.Limits, func(a, b LimitStats) int { return strings.Compare(a.Name, b.Name) })
	if n.c == nil {
		return s
	}
	c := n.c.Stats()
	s.Members = c.Members
	for _, l := range n.c.View().Lost {
		if !l.Left {
			s.MembersFailed++
		}
	}
	s.PacketsIn, s.PacketsOut, s.BytesIn, s.BytesOut = uint64(c.PacketsIn), uint64(c.PacketsOut), uint64(c.BytesIn), uint64(c.BytesOut)
	s.Rejoins, s.RejoinErrors, s.LookupErrors = uint64(c.Rejoins), uint64(c.RejoinErrors), uint64(c.LookupErrors)
	s.Dropped["unknown"] = uint64(c.DropUnknown)
	s.Dropped["stale"] += uint64(c.DropStale)
	s.Dropped["malformed"] += uint64(c.DropMalformed)
	s.Dropped["foreign"] = uint64(c.DropForeign)
	s.Dropped["busy"] = uint64(c.DropBusy)
	s.Dropped["newer"] = uint64(c.DropNewer)
	return s
}

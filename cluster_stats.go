package jatah

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
)

// ClusterStats are the counters of all members.
type ClusterStats struct {
	Nodes   []NodeStats // of those that answered, sorted by name
	Missing []string    // members that did not answer in time, or failed less than the grace ago, sorted
	Unknown []string    // members of a version that cannot tell, sorted
}

// NodeStats are the counters of one member.
type NodeStats struct {
	Node    string
	Ready   bool
	K       int     // members among whom it divides limits; nodes that differ in it do not agree yet
	Weight  float64 // its part of every limit
	Omitted int     // limits that did not fit into its answer, of those that were used least
	// Stats are without what is that node's own business: Memory, Ticks, StateWrites, StateFailures, Dropped, Near of limits, Fine of histograms.
	Stats Stats
}

// ClusterStats asks every member for its counters. It returns when all have answered or ctx has ended, at the latest after 2 s if ctx has no
// deadline, with what it got. Counters start anew with each process: compare them for each node, not their sum. About 3000 limits of a node
// fit into its answer. Error: ErrClosed.
func (n *Node) ClusterStats(ctx context.Context) (ClusterStats, error) {
	if n.leaving.Load() {
		return ClusterStats{}, ErrClosed
	}
	var c ClusterStats
	for _, r := range n.AskAll(ctx, statsTopic, nil) {
		if r.Err == nil {
			var s NodeStats
			if s, r.Err = readStats(r.Node, r.Answer); r.Err == nil {
				c.Nodes = append(c.Nodes, s)
				continue
			}
		}
		if errors.Is(r.Err, ErrUnknownTopic) {
			c.Unknown = append(c.Unknown, r.Node)
		} else {
			c.Missing = append(c.Missing, r.Node)
		}
	}
	return c, nil
}

// NodeStats are this node's own, as ClusterStats has them of each, but complete.
func (n *Node) NodeStats() NodeStats {
	h := n.e.Info()
	return NodeStats{Node: n.cfg.Node, Ready: n.Ready() == nil, K: h.K, Weight: h.Weight, Stats: n.Stats()}
}

// answerStats tells another node what this one counts. There is nothing in the question that it knows; later versions may ask for less.
func (n *Node) answerStats(context.Context, string, []byte) ([]byte, error) {
	s := n.NodeStats()
	a := wireOf(&s)
	busy := func(l *wireLimit) (all uint64) {
		for _, c := range l.Counts {
			all += c
		}
		return all
	}
	size := 0
	for i := range a.Limits {
		size += a.Limits[i].size()
	}
	if size > statsBytes {
		slices.SortStableFunc(a.Limits, func(x, y wireLimit) int { return cmp.Compare(busy(&y), busy(&x)) })
		size = 0
		for i := range a.Limits {
			if size += a.Limits[i].size(); size > statsBytes {
				a.Omitted, a.Limits = len(a.Limits)-i, a.Limits[:i]
				break
			}
		}
	}
	b, err := packTop(&a)
	if err != nil {
		return nil, fmt.Errorf("jatah: the counters: %w", err)
	}
	return b, nil
}

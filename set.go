package jatah

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/jatah-io/jatah/hybrid"
)

// LimitError says of one limit of a set why it is refused. A plain value.
type LimitError struct {
	Limit string // its name, which may be what is wrong
	Err   error  // wraps ErrLimit
}

func (e *LimitError) Error() string { return e.Err.Error() }

func (e *LimitError) Unwrap() error { return e.Err }

// SetLimits makes these the limits of this program, in place of all that Limit and SetLimits defined before, while they are in use: as Limit
// does for those that stay or are new, in any order of parents and children, and then as RemoveLimit for those that are not among them. None
// of those that stay is missing at any moment; requests meanwhile are decided by the old or by the new definition of each limit.
//
// All or none: what Limit would refuse of any of them is found first, and then nothing is changed. The error has a *[LimitError], which wraps ErrLimit,
// for each of the refused, in their order (errors.Join); a name that is given twice is one too. ErrClosed: the node is closed.
func (n *Node) SetLimits(limits ...Limit) error {
	specs, err := specsOf(limits)
	if err != nil {
		return err
	}
	n.defining.Lock()
	defer n.defining.Unlock()
	if n.leaving.Load() {
		return ErrClosed
	}
	gone := n.notAmong(specs)
	missing := slices.DeleteFunc(slices.Clone(gone), func(name string) bool { return n.pub.defs[name] != nil }) // of others a published one takes the place
	var way []string
	for i := range specs {
		if n.mustMakeWay(&specs[i]) {
			way = append(way, specs[i].Name)
		}
	}
	if errs := n.e.CheckAll(specs, append(missing, way...)); errs != nil {
		return joinLimits(limits, errs)
	}
	n.makeWay(way...)
	for _, i := range parentsFirst(specs) {
		if _, err := n.define(specs[i], limits[i].Costs); err != nil {
			return &LimitError{limits[i].Name, err}
		}
	}
	// At the end, because a child that stays may have been under one of them until now.
	for _, name := range gone {
		n.release(name)
	}
	n.adopt(slices.Collect(maps.Keys(n.own))...)
	return nil
}

func specsOf(limits []Limit) ([]hybrid.Spec, error) {
	specs, errs := make([]hybrid.Spec, len(limits)), make([]error, len(limits))
	seen := make(map[string]bool, len(limits))
	bad := false
	for i, l := range limits {
		if specs[i], errs[i] = l.spec(); errs[i] == nil && seen[l.Name] {
			errs[i] = fmt.Errorf("%w %q: the name is given twice; give one of the limits another, or leave it out", ErrLimit, l.Name)
		}
		seen[l.Name] = true
		bad = bad || errs[i] != nil
	}
	if bad {
		return nil, joinLimits(limits, errs)
	}
	return specs, nil
}

// joinLimits makes one error of those of each limit.
func joinLimits(limits []Limit, errs []error) error {
	var all []error
	for i, err := range errs {
		if err != nil {
			all = append(all, &LimitError{limits[i].Name, err})
		}
	}
	return errors.Join(all...)
}

// notAmong are the limits of this program that a new set does not have, sorted.
func (n *Node) notAmong(specs []hybrid.Spec) (gone []string) {
	stay := make(map[string]bool, len(specs))
	for i := range specs {
		stay[specs[i].Name] = true
	}
	for name := range n.own {
		if !stay[name] {
			gone = append(gone, name)
		}
	}
	slices.Sort(gone)
	return gone
}

// parentsFirst is an order in which each definition stands behind its parent, if that is among them. So whatever is above a limit is what it
// is to be when the limit gets its parent, and no circle can arise on the way from one set without circles to another.
func parentsFirst(specs []hybrid.Spec) []int {
	index := make(map[string]int, len(specs))
	for i := range specs {
		index[specs[i].Name] = i
	}
	order, depth := make([]int, len(specs)), make([]int, len(specs))
	for i := range specs {
		order[i] = i
		for up := i; depth[i] <= len(specs); depth[i]++ {
			parent, ok := index[specs[up].Parent]
			if !ok {
				break
			}
			up = parent
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(depth[a], depth[b]) })
	return order
}

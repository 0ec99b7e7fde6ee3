package jatah

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jatah-io/jatah/cluster"
	"github.com/jatah-io/jatah/hybrid"
)

// ErrDefined: this node's program or file defines the limit, which counts there; change it there.
var ErrDefined = errors.New("jatah: this node's own program or file defines the limit")

// ErrFull: there are too many published limits, or one is too large.
var ErrFull = cluster.ErrFull

// announceWait is how long Publish and Unpublish wait for the members to have heard of it. Who is cut off hears of it later.
const announceWait = time.Second

// published is what a node knows of limits that were defined for the whole cluster. The register has them all. Which of them are in use here
// follows from the register and from what this node defines itself, and not from the order in which it heard of them, so that all
// nodes use the same. But for the register it is guarded by Node.defining.
type published struct {
	reg   *cluster.Register
	defs  map[string]*definition // what the register has
	under map[string]bool        // of these, those that have a parent
	used  map[string]*definition // are in use on this node
	told  map[string]string      // what the log has said about them, so that it says so once

	writing sync.Mutex // guards what follows, and the file
	failed  time.Time  // the last time that the log said so
	due     bool       // it could not be written
	ended   bool
	changes chan struct{} // room for one: there is something to be written
}

// definition is a published limit as it was read. Never changed.
type definition struct {
	limit Limit
	spec  hybrid.Spec
	err   error // this version cannot read it
}

func newPublished(n *Node) *published {
	p := &published{defs: map[string]*definition{}, under: map[string]bool{}, used: map[string]*definition{}, told: map[string]string{},
		changes: make(chan struct{}, 1)}
	p.reg = cluster.NewRegister(func(names []string) {
		n.defining.Lock()
		if n.e != nil { // else there is nothing yet that could use them: openState adopts all that there are
			n.adopt(names...)
		}
		n.defining.Unlock()
		p.changed()
	})
	return p
}

// Publish defines a limit on all nodes of the cluster, or changes it there: as [Node.Limit] does on one. Nodes that join later and those that are
// cut off now have it as soon as they can be reached; of two changes that did not know of each other one wins, the same
// everywhere. With Config.StateDir it outlasts a stop of the whole cluster. It is in use on this node when Publish
// returns, and on all members that can be reached; for those that do not answer it waits a second, or until ctx ends, which is no error.
//
// A node whose program defines a limit of the same name goes by its own definition, until it is removed. Where its Parent is not
// there yet it is in use as soon as that is. Two nodes that cannot hear of each other may publish limits that go together with nothing, such as
// each other's parents: those are in use nowhere until one of them is changed, and the log of each node says so.
//
// Nothing is changed with an error: ErrLimit, ErrDefined if this node defines the name itself, ErrFull, ErrClosed.
func (n *Node) Publish(ctx context.Context, l Limit) (*Limiter, error) {
	s, err := l.spec()
	if err != nil {
		return nil, err
	}
	value, err := encodeLimit(l)
	if err != nil {
		return nil, err
	}
	x, err := n.publish(s, l, value)
	if err != nil {
		return nil, err
	}
	n.announce(ctx, s.Name)
	return x, nil
}

func (n *Node) publish(s hybrid.Spec, l Limit, value []byte) (*Limiter, error) {
	name := s.Name
	n.defining.Lock()
	defer n.defining.Unlock()
	switch {
	case n.leaving.Load():
		return nil, ErrClosed
	case n.own[name]:
		return nil, fmt.Errorf("%w: %q; change it there, or remove it there first", ErrDefined, name)
	}
	was := n.pub.defs[name]
	if err := n.allowed(name, &definition{limit: l, spec: s}); err != nil {
		return nil, err
	}
	if was == nil || was.err != nil || !was.limit.Equal(l) {
		if err := n.pub.reg.Put(name, value); err != nil {
			return nil, err
		}
		n.adopt(name)
	}
	x, ok := n.limiters.Load(name)
	if !ok { // another node has removed it, or its parent, at this moment
		return nil, fmt.Errorf("%w: %q was removed meanwhile", ErrUnknownLimit, name)
	}
	return x, nil
}

// allowed says whether a definition can be published: it fits, and no other that fits now would not.
func (n *Node) allowed(name string, next *definition) error {
	p := n.pub
	var fit []string
	for other := range p.under {
		if _, err := n.fits(p.defs[other]); err == nil && !n.own[other] {
			fit = append(fit, other)
		}
	}
	was, had := p.defs[name]
	defer func() {
		if delete(p.defs, name); had {
			p.defs[name] = was
		}
	}()
	p.defs[name] = next
	if _, err := n.fits(next); err != nil {
		return err
	}
	slices.Sort(fit)
	for _, other := range fit {
		if _, err := n.fits(p.defs[other]); err != nil && other != name {
			return fmt.Errorf("%w %q: the published limit %q could then not be used: %w", ErrLimit, name, other, err)
		}
	}
	return nil
}

// Unpublish removes a limit that was published, and all its keys, on all nodes: as [Node.RemoveLimit] does on one. Where a program defines the
// name too that stays. The removal is remembered for a week; a node that was away for longer, with its StateDir, brings the limit back. It
// waits as Publish does. Errors: ErrUnknownLimit, ErrDefined, ErrParent if a published limit has it as Parent, ErrClosed.
func (n *Node) Unpublish(ctx context.Context, name string) error {
	if err := n.unpublish(name); err != nil {
		return err
	}
	n.announce(ctx, name)
	return nil
}

func (n *Node) unpublish(name string) error {
	n.defining.Lock()
	defer n.defining.Unlock()
	switch {
	case n.leaving.Load():
		return ErrClosed
	case n.own[name]:
		return fmt.Errorf("%w: %q; remove it there", ErrDefined, name)
	}
	for _, child := range slices.Sorted(maps.Keys(n.pub.under)) {
		if n.pub.used[child] != nil && n.pub.defs[child].limit.Parent == name {
			return fmt.Errorf("%w: %q is that of %q; remove or change that first", ErrParent, name, child)
		}
	}
	if !n.pub.reg.Delete(name) {
		return fmt.Errorf("%w: %q", ErrUnknownLimit, name)
	}
	n.adopt(name)
	return nil
}

// Published says whether the limit of this name that is in use on this node was published, and not defined by its own program.
func (n *Node) Published(name string) bool {
	n.defining.Lock()
	defer n.defining.Unlock()
	return n.pub.used[name] != nil
}

// announce keeps a change and tells the members.
func (n *Node) announce(ctx context.Context, name string) {
	if n.state != nil {
		_ = n.state.writeLimits() // which has logged it
	}
	if n.c == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, announceWait)
	defer cancel()
	if err := n.c.Announce(ctx, name); err != nil {
		n.cfg.Logger.Info("a published limit is not known everywhere yet", "limit", name, "err", err)
	}
}

// adopt makes the limits of this node what they have to be after these names have changed in the register, or in what this node
// defines itself. Called with the lock defining held.
func (n *Node) adopt(names ...string) {
	p := n.pub
	todo := make(map[string]bool, len(names)+len(p.under))
	for _, name := range names {
		p.read(name)
		todo[name] = true
	}
	maps.Copy(todo, p.under)
	type fitting struct {
		name  string
		depth int
	}
	var use []fitting
	for name := range todo {
		if d := n.judge(name); d != nil {
			depth, _ := n.fits(d)
			use = append(use, fitting{name, depth})
		}
	}
	// Parents first, so that above each limit all is as it is to be.
	slices.SortFunc(use, func(a, b fitting) int { return cmp.Or(cmp.Compare(a.depth, b.depth), strings.Compare(a.name, b.name)) })
	for _, u := range use {
		if err := n.usePublished(p.defs[u.name]); err != nil {
			p.tell(n, u.name, notInUse, err)
		}
	}
}

const notInUse = "a published limit is not in use on this node"

// judge returns the definition of a name that is to be in use, if that is another than now. What must not be in use it takes away.
func (n *Node) judge(name string) *definition {
	p := n.pub
	d := p.defs[name]
	var err error
	switch {
	case n.own[name]:
		if delete(p.used, name); d != nil {
			p.tell(n, name, "a limit is published that this node defines itself; its own definition counts here", ErrDefined)
		} else {
			delete(p.told, name)
		}
		return nil
	case d == nil:
		delete(p.told, name)
	case d.err != nil:
		p.tell(n, name, notInUse, d.err) // what was stays
		return nil
	default:
		if _, err = n.fits(d); err == nil {
			if delete(p.told, name); p.used[name] == d {
				return nil
			}
			return d
		}
		p.tell(n, name, notInUse, err)
	}
	if p.used[name] != nil {
		n.remove(name)
		delete(p.used, name)
	}
	return nil
}

// read takes what the register has.
func (p *published) read(name string) {
	delete(p.under, name)
	value, live := p.reg.Get(name)
	if !live {
		delete(p.defs, name)
		return
	}
	d := &definition{}
	if d.limit, d.err = decodeLimit(value); d.err == nil {
		d.spec, d.err = d.limit.spec()
	}
	if d.err == nil && d.limit.Name != name {
		d.err = fmt.Errorf("%w: it is the definition of %q", errUnreadable, d.limit.Name)
	}
	if was := p.defs[name]; was != nil && was.err == nil && d.err == nil && was.limit.Equal(d.limit) {
		d = was
	}
	if p.defs[name] = d; d.err == nil && d.limit.Parent != "" {
		p.under[name] = true
	}
}

// fits says whether a definition goes with those above it, and how many these are: by what is defined here and what is published.
func (n *Node) fits(d *definition) (depth int, err error) {
	child := d.spec
	for child.Parent != "" {
		depth++
		parent := child.Parent
		var s hybrid.Spec
		switch up := n.pub.defs[parent]; {
		case parent == d.spec.Name:
			return 0, fmt.Errorf("%w %q: its parents lead back to itself", ErrLimit, d.spec.Name)
		case depth > hybrid.MaxParents:
			return 0, fmt.Errorf("%w %q: it has more than %d parents", ErrLimit, d.spec.Name, hybrid.MaxParents)
		case n.own[parent]:
			if x, ok := n.limiters.Load(parent); ok {
				s = x.l.Spec()
			}
		case up != nil && up.err == nil:
			s = up.spec
		default:
			return 0, fmt.Errorf("%w %q: the parent %q of %q is not defined on this node; define it first", ErrLimit, d.spec.Name, parent, child.Name)
		}
		if countsPermits(s) {
			return 0, fmt.Errorf("%w %q: the parent %q counts permits, not tokens", ErrLimit, d.spec.Name, parent)
		}
		child = s
	}
	return depth, nil
}

// usePublished defines a limit as it was published. Called with the lock defining held.
func (n *Node) usePublished(d *definition) error {
	if was, ok := n.limiters.Load(d.spec.Name); ok && countsPermits(was.l.Spec()) != countsPermits(d.spec) {
		n.remove(d.spec.Name) // as it was elsewhere, or it could not have been made anew
	}
	_, err := n.define(d.spec, d.limit.Costs)
	delete(n.own, d.spec.Name)
	if err != nil {
		n.remove(d.spec.Name)
		delete(n.pub.used, d.spec.Name)
		return err
	}
	n.pub.used[d.spec.Name] = d
	return nil
}

func countsPermits(s hybrid.Spec) bool { return s.Rule != nil && s.Rule.Algorithm == Concurrency }

// mustMakeWay says whether a published limit has to be removed before a definition of this program can take its place, since it cannot
// become that. Called with the lock defining held.
func (n *Node) mustMakeWay(s *hybrid.Spec) bool {
	was, ok := n.limiters.Load(s.Name)
	return ok && n.pub.used[s.Name] != nil && countsPermits(was.l.Spec()) != countsPermits(*s)
}

// makeWay removes published limits, and all that was used of them. Call it when nothing can come in between any more, with the lock
// defining held.
func (n *Node) makeWay(names ...string) {
	for _, name := range names {
		n.remove(name)
		delete(n.pub.used, name)
	}
}

// tell logs something about a limit, unless that was the last thing it said about it.
func (p *published) tell(n *Node, name, text string, err error) {
	if what := text + err.Error(); p.told[name] != what {
		p.told[name] = what
		n.cfg.Logger.Warn(text, "limit", name, "err", err)
	}
}

// changed has the register written soon.
func (p *published) changed() {
	select {
	case p.changes <- struct{}{}:
	default:
	}
}

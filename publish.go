package jatah

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
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

// published is what a node knows of limits that were defined for the whole cluster. The register has them all; the rest says what became of
// them here, and is guarded by Node.defining.
type published struct {
	reg     *cluster.Register
	used    map[string]bool   // are limits of this node now
	waiting map[string]error  // are not, and why: their parent is not there yet, or this version cannot read them
	told    map[string]string // what the log has said about them, so that it says so once

	writing sync.Mutex // guards what follows, and the file
	failed  time.Time  // the last time that the log said so
	ended   bool
	changes chan struct{} // room for one: there is something to be written
}

func newPublished(n *Node) *published {
	p := &published{used: map[string]bool{}, waiting: map[string]error{}, told: map[string]string{}, changes: make(chan struct{}, 1)}
	p.reg = cluster.NewRegister(func(names []string) {
		n.defining.Lock()
		n.adopt(names...)
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
// A node whose program defines a limit of the same name goes by its own definition, until it is removed. A limit whose Parent is not there yet
// is in use as soon as it is. Nothing is changed with an error: ErrLimit, ErrDefined if this node defines the name itself, ErrFull, ErrClosed.
func (n *Node) Publish(ctx context.Context, l Limit) (*Limiter, error) {
	s, err := l.spec()
	if err != nil {
		return nil, err
	}
	value, err := encodeLimit(l)
	if err != nil {
		return nil, err
	}
	x, err := n.publish(s.Name, l, value)
	if err != nil {
		return nil, err
	}
	n.announce(ctx, s.Name)
	return x, nil
}

func (n *Node) publish(name string, l Limit, value []byte) (*Limiter, error) {
	n.defining.Lock()
	defer n.defining.Unlock()
	switch {
	case n.leaving.Load():
		return nil, ErrClosed
	case n.own[name]:
		return nil, fmt.Errorf("%w: %q; change it there, or remove it there first", ErrDefined, name)
	}
	_, err := n.usePublished(l)
	if was, ok := n.pub.reg.Get(name); err == nil && !(ok && sameLimit(was, value)) {
		err = n.pub.reg.Put(name, value)
	}
	n.adopt(name) // also what was before, if it is not to be changed
	if err != nil {
		return nil, err
	}
	x, ok := n.limiters.Load(name)
	if !ok { // another node has removed it at this moment
		return nil, fmt.Errorf("%w: %q was removed meanwhile", ErrUnknownLimit, name)
	}
	return x, nil
}

// Unpublish removes a limit that was published, and all its keys, on all nodes: as [Node.RemoveLimit] does on one. Where a program defines the
// name too that stays. The removal is remembered for a week; a node that was away for longer, with its StateDir, brings the limit back. It
// waits as Publish does. Errors: ErrUnknownLimit, ErrDefined, ErrClosed.
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
	case !n.pub.reg.Delete(name):
		return fmt.Errorf("%w: %q", ErrUnknownLimit, name)
	}
	n.adopt(name)
	return nil
}

// Published says whether the limit of this name that is in use on this node was published, and not defined by its own program.
func (n *Node) Published(name string) bool {
	n.defining.Lock()
	defer n.defining.Unlock()
	return n.pub.used[name]
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

// adopt makes the limits of this node what the register says of these names, and then of those that could not be used before. Called with
// the lock defining held.
func (n *Node) adopt(names ...string) {
	for _, name := range names {
		n.adoptOne(name)
	}
	for again := true; again; { // one that is in use now may be the parent of others
		again = false
		for _, name := range slices.Sorted(maps.Keys(n.pub.waiting)) {
			again = n.adoptOne(name) || again
		}
	}
	for name, err := range n.pub.waiting {
		n.pub.tell(n, name, "a published limit is not in use on this node", err)
	}
}

// adoptOne says whether a limit is in use now that was not.
func (n *Node) adoptOne(name string) bool {
	p := n.pub
	value, live := p.reg.Get(name)
	delete(p.waiting, name)
	switch {
	case n.own[name]:
		if delete(p.used, name); live {
			p.tell(n, name, "a limit is published that this node defines itself; its own definition counts here", ErrDefined)
		} else {
			delete(p.told, name)
		}
		return false
	case !live:
		if delete(p.told, name); p.used[name] {
			n.remove(name)
			delete(p.used, name)
		}
		return false
	}
	l, err := decodeLimit(value)
	if err == nil && l.Name != name {
		err = fmt.Errorf("%w: it is the definition of %q", errUnreadable, l.Name)
	}
	var new bool
	if err == nil {
		new, err = n.usePublished(l)
	}
	if err != nil {
		p.waiting[name] = err // meanwhile it is what it was
		return false
	}
	delete(p.told, name)
	return new
}

// usePublished defines a limit as it was published. It says whether there was none of the name before. Called with the lock defining held.
func (n *Node) usePublished(l Limit) (new bool, err error) {
	s, err := l.spec()
	if err != nil {
		return false, err
	}
	was, known := n.limiters.Load(l.Name)
	if known && !changeable(was.l.Spec(), s) {
		// It was removed and made anew elsewhere, as it has to be here; but only if it then can be.
		asNew := s
		asNew.Name = "new " + s.Name // no limit has a space in its name
		if errs := n.e.CheckAll([]hybrid.Spec{asNew}, nil); errs != nil {
			return false, errs[0]
		}
		n.remove(l.Name)
		known = false
	}
	if _, err := n.define(s, l.Costs); err != nil {
		if !known {
			delete(n.pub.used, l.Name)
		}
		return false, err
	}
	delete(n.own, l.Name)
	n.pub.used[l.Name] = true
	return !known, nil
}

// changeable says that a limit can become another while it is in use: permits are not tokens.
func changeable(was, next hybrid.Spec) bool {
	permits := func(s hybrid.Spec) bool { return s.Rule != nil && s.Rule.Algorithm == Concurrency }
	return permits(was) == permits(next)
}

// makeWay removes a published limit whose place a definition of this program takes, if it cannot become that. Call adopt if nothing
// comes of it. Called with the lock defining held.
func (n *Node) makeWay(s *hybrid.Spec) {
	if was, ok := n.limiters.Load(s.Name); ok && n.pub.used[s.Name] && !changeable(was.l.Spec(), *s) {
		n.remove(s.Name)
		delete(n.pub.used, s.Name)
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

package hybrid

import (
	"errors"
	"fmt"
)

// ErrParent says that the parent of a limit has been removed: nothing passes under the limit until it is defined again.
var ErrParent = errors.New("hybrid: the parent of the limit is not defined any more")

// MaxParents is how long a chain of parents may be.
const MaxParents = 8

// Parent is the limit that this one is under, nil: none. A take is then the same take on both, of the parent's one key that all
// children share: the parent's name.
func (l *Limit) Parent() *Limit { return l.parent.Load() }

// BeginUnder starts a take of a limit that has a parent: the same take on both, charged together or not at all. Finish gives one
// Decision.
func (l *Limit) BeginUnder(key string, cost int64) *All { return l.e.BeginAll([]Take{{l, key, cost}}) }

// up is Parent, found anew where the parent was removed and defined again.
func (l *Limit) up() (*Limit, error) {
	for {
		p := l.parent.Load()
		if p == nil || !p.gone.Load() {
			return p, nil
		}
		s := l.def.Load()
		if q, ok := l.e.Lookup(s.Parent); ok {
			l.parent.CompareAndSwap(p, q)
			return q, nil
		}
		if l.parent.Load() == p { // else the limit was put under another, or none, and then p was removed
			return nil, fmt.Errorf("%w: %q under %q", ErrParent, s.Name, s.Parent)
		}
	}
}

// findParent is the parent of a limit that is about to be defined; all parents above must be known and none may be the limit.
func (e *Engine) findParent(s *Spec) (first *Limit, err error) {
	if err := checkParents(s, e.specOf); err != nil || s.Parent == "" {
		return nil, err
	}
	first, _ = e.limits.Load(s.Parent)
	return first, nil
}

// specOf is the definition of a limit now, nil: there is none.
func (e *Engine) specOf(name string) *Spec {
	if l, ok := e.limits.Load(name); ok {
		return l.def.Load()
	}
	return nil
}

// checkParents says what is wrong with the parents of a limit, whose definitions spec knows.
func checkParents(s *Spec, spec func(name string) *Spec) error {
	path := fmt.Sprintf("%q", s.Name)
	child := s.Name
	for name, n := s.Parent, 1; name != ""; n++ {
		path += fmt.Sprintf(" under %q", name)
		if name == s.Name {
			return fmt.Errorf("%w %q: its parents lead back to itself: %s", ErrSpec, s.Name, path)
		}
		if n > MaxParents {
			return fmt.Errorf("%w %q: it has more than %d parents: %s", ErrSpec, s.Name, MaxParents, path)
		}
		p := spec(name)
		if p == nil {
			return fmt.Errorf("%w %q: the parent %q of %q is not defined on this node; define it first", ErrSpec, s.Name, name, child)
		}
		if p.permits() {
			return fmt.Errorf("%w %q: the parent %q counts permits, not tokens", ErrSpec, s.Name, name)
		}
		child, name = name, p.Parent
	}
	return nil
}

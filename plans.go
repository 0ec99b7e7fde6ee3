package jatah

import (
	"fmt"
	"strings"

	"github.com/puzpuzpuz/xsync/v4"

	"github.com/jatah-io/jatah/hybrid"
)

// Plan is the limit as it is for those who have one of its Plans; "" is the limit itself. It stays valid while the definition changes: of a
// plan that no longer exists it has the limit's own amounts. The error wraps ErrUnknownPlan.
func (l *Limiter) Plan(name string) (*Limiter, error) {
	if l.root != nil {
		l = l.root
	}
	p, err := planOf(l.l, name)
	if err != nil {
		return nil, err
	}
	if name == "" {
		return l, nil
	}
	if x, ok := l.plans.Load(name); ok {
		return x, nil
	}
	x, _ := l.plans.LoadOrCompute(name, func() (*Limiter, bool) {
		x := &Limiter{l: p, root: l, now: l.now, slack: l.slack, queues: xsync.NewMap[string, *queue]()}
		x.costs.Store(l.costs.Load())
		x.shut.Store(l.shut.Load())
		return x, false
	})
	return x, nil
}

// namedPlan leaves out the names that the plans of overrides with amounts of their own have.
func namedPlan(name string) string {
	if ownPlan(name) {
		return ""
	}
	return name
}

// ownPlan says that a plan is that of one override. No name that a plan can be given has a colon in it.
func ownPlan(name string) bool { return strings.Contains(name, ":") }

// each is the limiter with those of its plans.
func (l *Limiter) each(f func(*Limiter)) {
	f(l)
	l.plans.Range(func(_ string, x *Limiter) bool {
		f(x)
		return true
	})
}

// planOf finds a plan by the name that a caller gives. One that the definition no longer has is not found, though handles on it go on.
func planOf(l *hybrid.Limit, name string) (*hybrid.Limit, error) {
	if name == "" {
		return l, nil
	}
	s := l.Spec()
	if _, ok := s.Plans[name]; ok && !ownPlan(name) {
		if p, ok := l.Plan(name); ok {
			return p, nil
		}
	}
	return l, fmt.Errorf("%w: limit %q has no plan %.80q", ErrUnknownPlan, s.Name, name)
}

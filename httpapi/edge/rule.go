package edge

import (
	"fmt"

	"github.com/jatah-io/jatah"
)

// Rule says for whom it is, what is counted, and how it refuses.
type Rule struct {
	// Name is the rule's name in metrics, logs and reports. "": its place, "rule-1".
	Name string
	// When are the conditions, all of which must hold. None: always.
	When []Condition
	// Uses are what a request takes, all or none. None: whoever the rule is for is exempt.
	Uses []Use
	// DryRun counts and reports what would be refused, and refuses nothing.
	DryRun bool
	// Answer says how the rule refuses; nil: Config.Answer.
	Answer *Answer
}

// Use is what a request takes of one limit.
type Use struct {
	// Limit is the limit's name. It must be defined on the node before the edge is made.
	Limit string
	// Plan names the plan of who asks, "" for none; nil: none. A plan that the limit does not have counts as none.
	Plan func(*Request) string
	// Key are the parts of the key, at least one. Where one cannot be made the rule is not for the request.
	Key []Part
	// Cost is what the request costs in tokens, before it is served; nil: the cost of its path in Limit.Costs, which is 1 for what is
	// not named there. A concurrency limit has none.
	Cost Cost
	// Counts says by the status of the response whether the request counts: if not, what was taken comes back. So who fails is charged, and one
	// who is blocked is refused before any work is done. Nil: every request counts.
	Counts func(status int) bool
	// After is what the request costs besides, known only when it is over: charged then, as debt.
	After []After
}

// use is a Use with what is found out once.
type use struct {
	Use
	limiter *jatah.Limiter
	permits bool
}

// rule is a Rule that has been checked.
type rule struct {
	Rule
	tokens  []int // of uses: those that take tokens
	permits []int // those that hold permits
	uses    []use
	answer  *Answer
}

func (e *Edge) compile(i int, r Rule) (*rule, error) {
	c := &rule{Rule: r, answer: r.Answer}
	if c.Name == "" {
		c.Name = fmt.Sprintf("rule-%d", i+1)
	}
	if c.answer == nil {
		c.answer = &e.cfg.Answer
	}
	for _, u := range r.Uses {
		l, ok := e.node.Lookup(u.Limit)
		if !ok {
			return nil, fmt.Errorf("%w: rule %q uses the limit %q, which is not defined: define it on the node first", ErrConfig, c.Name, u.Limit)
		}
		if len(u.Key) == 0 {
			return nil, fmt.Errorf("%w: rule %q has no key for the limit %q: say whose usage counts, for example by Address()", ErrConfig, c.Name, u.Limit)
		}
		permits := l.Limit().Algorithm == jatah.Concurrency
		if permits && (u.Cost != nil || u.Counts != nil || u.After != nil) {
			return nil, fmt.Errorf("%w: rule %q has a cost for the limit %q, which counts requests in flight: remove it", ErrConfig, c.Name, u.Limit)
		}
		if permits {
			c.permits = append(c.permits, len(c.uses))
		} else {
			c.tokens = append(c.tokens, len(c.uses))
		}
		c.uses = append(c.uses, use{Use: u, limiter: l, permits: permits})
	}
	return c, nil
}

// match finds the rule for a request and makes its keys, or returns nil.
func (e *Edge) match(q *Request) (*rule, []string) {
next:
	for _, r := range e.rules {
		for _, holds := range r.When {
			if !holds(q) {
				continue next
			}
		}
		keys := make([]string, len(r.uses))
		for i := range r.uses {
			key, ok := keyOf(q, r.uses[i].Key)
			if !ok {
				continue next
			}
			keys[i] = key
		}
		return r, keys
	}
	return nil, nil
}

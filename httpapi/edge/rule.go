package edge

import (
	"fmt"
	"slices"
	"sync/atomic"

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
	// Pause makes refusals by one of the limits last longer for a key that goes on. Nil: none.
	Pause *Pause
	// Soft is a softer step before refusal. Nil: none.
	Soft *Soft
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
	// Candidates are names of limits that are measured beside Limit: each gets what this one does, under the same key, and what it says changes
	// nothing; see [Edge.Candidates]. They must be defined on the node, take tokens, have no parent and be used for nothing else.
	Candidates []string
}

// rule is a Rule that has been checked.
type rule struct {
	Rule
	tokens  []int // the uses that take tokens
	permits []int // the uses that hold permits
	timed   bool  // something depends on how long the handler took
	// observed says that something depends on what the handler answers.
	observed bool
	answer   *Answer
	pageType []string // of Answer.Page, as a header has it
	counts   *counters
	pause    *pause
	// candidates are those of each use; nil: none has any.
	candidates [][]*candidate
	warned     atomic.Bool // that it counts those who are known by their address
}

// warnAddress says once that a rule counts somebody who is known by the address: an office behind one address would share what is
// meant for one visitor.
func (e *Edge) warnAddress(r *rule) {
	if r.warned.Swap(true) {
		return
	}
	e.log.Warn("a rule counts accounts that are known by their address, so that all behind one address share one key: "+
		"put a rule for the known before it, or give it the condition Anonymous (for: anonymous); all is well if that is meant", "rule", r.Name)
}

func (e *Edge) compile(i int, r Rule) (*rule, error) {
	c := &rule{Rule: r, answer: r.Answer}
	if c.Name == "" {
		c.Name = fmt.Sprintf("rule-%d", i+1)
	}
	if c.answer == nil {
		c.answer = &e.cfg.Answer
	}
	for i, u := range r.Uses {
		l, ok := e.node.Lookup(u.Limit)
		if !ok {
			return nil, fmt.Errorf("%w: rule %q uses the limit %q, which is not defined: define it on the node first", ErrConfig, c.Name, u.Limit)
		}
		if len(u.Key) == 0 {
			return nil, fmt.Errorf("%w: rule %q has no key for the limit %q: say whose usage counts, for example Address()", ErrConfig, c.Name, u.Limit)
		}
		if slices.ContainsFunc(r.Uses[:i], func(other Use) bool { return other.Limit == u.Limit && l.Limit().Algorithm == jatah.Concurrency }) {
			return nil, fmt.Errorf("%w: rule %q uses the limit %q twice: a request is in flight once", ErrConfig, c.Name, u.Limit)
		}
		if l.Limit().Algorithm != jatah.Concurrency {
			c.tokens = append(c.tokens, i)
			c.timed = c.timed || len(u.After) > 0
			continue
		}
		if u.Cost != nil || u.Counts != nil || u.After != nil || u.Plan != nil || u.Candidates != nil {
			return nil, fmt.Errorf("%w: rule %q has a cost, plan or candidate for the limit %q, which counts requests in flight: remove it", ErrConfig, c.Name, u.Limit)
		}
		c.permits = append(c.permits, i)
	}
	if err := e.compileAnswer(c); err != nil {
		return nil, err
	}
	if err := e.addCandidates(c); err != nil {
		return nil, err
	}
	return c, c.addPause()
}

// find finds the rule for a request, as the path is read at present, and makes its keys; nil: there is none.
func (v *Verdict) find(rules []*rule) *rule {
next:
	for _, r := range rules {
		if !v.request.asks(r) {
			continue
		}
		for _, holds := range r.When {
			if !holds(v.request) {
				continue next
			}
		}
		v.Takes = v.inline[:0]
		v.request.named, v.request.located = false, false
		for i := range r.Uses {
			key, ok := keyOf(v.request, r.Uses[i].Key)
			if !ok {
				continue next
			}
			v.Takes = append(v.Takes, Taken{Name: r.Uses[i].Limit, Key: key})
		}
		return r
	}
	return nil
}

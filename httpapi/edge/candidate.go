package edge

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/jatah-io/jatah"
)

// maxMeasuring is how many candidates may be asked at the same time. What comes while so many are under way is counted as missed: a silent
// owner of keys must cost neither the requests nor the memory anything.
const maxMeasuring = 256

// candidate is a limit that is measured beside one that decides.
type candidate struct {
	limit                           string
	requests, refused, live, missed atomic.Uint64
}

// CandidateReport says what a candidate would have done: see Use.Candidates. It counts since the edge was made.
type CandidateReport struct {
	Rule, Limit string // the limit that decides
	Candidate   string // the limit that is measured
	Requests    uint64 // of the rule that were measured
	Refused     uint64 // of these, those the candidate would have refused
	RefusedLive uint64 // of these, those that the limit that decides, or its pause, refused or in a dry run would have
	Missed      uint64 // requests that are in none of these counts: the candidate could not be asked, or too many were being asked
}

// Percent is the part of the requests that the candidate would have refused, and the part that the limit that decides refused.
func (r CandidateReport) Percent() (candidate, live float64) {
	if r.Requests == 0 {
		return 0, 0
	}
	return 100 * float64(r.Refused) / float64(r.Requests), 100 * float64(r.RefusedLive) / float64(r.Requests)
}

// String is such as "rule api: with api-50 3.1 % of 20000 requests would have been refused; with api it is 0.4 %".
func (r CandidateReport) String() string {
	candidate, live := r.Percent()
	var b strings.Builder
	fmt.Fprintf(&b, "rule %s: with %s %.1f %% of %d requests would have been refused; with %s it is %.1f %%", r.Rule, r.Candidate, candidate, r.Requests, r.Limit, live)
	if r.Missed > 0 {
		fmt.Fprintf(&b, " (%d were not measured)", r.Missed)
	}
	return b.String()
}

// Candidates are the reports on all candidates, in the order of the rules.
func (e *Edge) Candidates() (all []CandidateReport) {
	for _, r := range e.rules {
		for i, cs := range r.candidates {
			for _, c := range cs {
				all = append(all, CandidateReport{
					Rule: r.Name, Limit: r.Uses[i].Limit, Candidate: c.limit, Requests: c.requests.Load(), Refused: c.refused.Load(),
					RefusedLive: c.live.Load(), Missed: c.missed.Load(),
				})
			}
		}
	}
	return all
}

// addCandidates checks the candidates of a rule's uses.
func (e *Edge) addCandidates(r *rule) error {
	for i := range r.Uses {
		all, err := e.candidatesOf(r.Name, &r.Uses[i])
		if err != nil {
			return err
		}
		if r.candidates == nil && all != nil {
			r.candidates = make([][]*candidate, len(r.Uses))
		}
		if all != nil {
			r.candidates[i] = all
		}
	}
	return nil
}

func (e *Edge) candidatesOf(rule string, u *Use) (all []*candidate, err error) {
	bad := func(name, format string, args ...any) error {
		return fmt.Errorf("%w: rule %q cannot measure %q beside the limit %q: %s", ErrConfig, rule, name, u.Limit, fmt.Sprintf(format, args...))
	}
	for i, name := range u.Candidates {
		l, ok := e.node.Lookup(name)
		switch {
		case !ok:
			return nil, bad(name, "it is not defined: define it on the node first")
		case name == u.Limit:
			return nil, bad(name, "it is the limit that decides: define another one")
		case slices.Contains(u.Candidates[:i], name):
			return nil, bad(name, "it is named twice")
		case l.Limit().Algorithm == jatah.Concurrency:
			return nil, bad(name, "it counts requests in flight: use it in the rule and set it to dry_run")
		case l.Limit().Parent != "":
			return nil, bad(name, "it has a parent, from which it would take what others need: define it without")
		}
		all = append(all, &candidate{limit: name})
	}
	return all, nil
}

// late says that what a request costs by a use is known only when it is over.
func (u *Use) late() bool { return u.Counts != nil || len(u.After) > 0 }

// measureNow asks the candidates about a request whose cost is known when it is decided: all but those that pass and may cost something else
// in the end, which settleCosts measures.
func (v *Verdict) measureNow(passed bool) {
	if v.rule.candidates == nil || v.Err != nil {
		return
	}
	if v.Paused && !v.priced { // the pause came before the cost
		if !v.price() {
			v.Err = nil
			return
		}
	}
	for _, i := range v.rule.tokens {
		if !passed || !v.rule.Uses[i].late() {
			v.measure(i, v.Takes[i].Cost)
		}
	}
}

// measure asks the candidates of a use, beside the request, which does not wait for the answer.
func (v *Verdict) measure(i int, actual int64) {
	t, e := &v.Takes[i], v.edge
	live := t.refused || t.Decision.DryRun
	for _, c := range v.rule.candidates[i] {
		select {
		case e.measuring <- struct{}{}:
			go func(key, plan string, cost int64) {
				defer func() { <-e.measuring }()
				c.ask(e.node, key, plan, cost, actual, live)
			}(t.Key, t.Plan, t.Cost)
		default:
			c.missed.Add(1)
		}
	}
}

// ask takes from the candidate what the request took, and settles that at what it has cost.
func (c *candidate) ask(node *jatah.Node, key, plan string, cost, actual int64, live bool) {
	l, ok := node.Lookup(c.limit)
	if !ok {
		c.missed.Add(1)
		return
	}
	if of, err := l.Plan(plan); err == nil {
		l = of
	}
	ctx := context.Background() // the request may be over
	r, d := l.Reserve(ctx, key, cost)
	if d.Err != nil {
		c.missed.Add(1)
		return
	}
	c.requests.Add(1)
	if live {
		c.live.Add(1)
	}
	if !d.OK || d.DryRun {
		c.refused.Add(1)
		return
	}
	r.Commit(ctx, actual)
}

package edge

import (
	"fmt"
	"net/http"
	"slices"
)

// Ahead is nil if all rules are done with a request when they have decided it, as who does not see its end needs, forward auth for one. Else the
// error (ErrConfig) names a rule that holds permits, or charges, returns or waits afterwards.
func (e *Edge) Ahead() error {
	for _, r := range e.rules {
		for _, u := range r.Uses {
			l, ok := e.node.Lookup(u.Limit)
			switch {
			case ok && l.Limit().Queued():
				return fmt.Errorf("%w: rule %q uses the limit %q, which has a queue, and a proxy does not wait: use a limit without", ErrConfig, r.Name, u.Limit)
			case u.Counts != nil || len(u.After) > 0:
				return fmt.Errorf("%w: rule %q charges for the limit %q when a request is over, which forward auth does not see: use the middleware", ErrConfig, r.Name, u.Limit)
			}
		}
		if len(r.permits) > 0 {
			return fmt.Errorf("%w: rule %q uses the limit %q, which counts requests in flight, and forward auth does not see when one is over: "+
				"use a limit that has a rate, or the middleware", ErrConfig, r.Name, r.Uses[r.permits[0]].Limit)
		}
	}
	return nil
}

// FromProxy says whether a request comes directly from a trusted proxy, so that what it says about others may be believed.
func (e *Edge) FromProxy(r *http.Request) bool { return e.client.Trusted(r) }

// Rules are the names of the rules, in their order.
func (e *Edge) Rules() []string {
	names := make([]string, len(e.rules))
	for i, r := range e.rules {
		names[i] = r.Name
	}
	return names
}

// Only leaves rules of these names to decide a request, in the order in which the edge has them. None: all.
func (q *Request) Only(names ...string) { q.only = names }

func (q *Request) asks(r *rule) bool { return len(q.only) == 0 || slices.Contains(q.only, r.Name) }

package edge

import (
	"fmt"
	"net/url"
	"path"
	"strings"
)

// way is one of the ways in which programs read a path; 0: as it is cleaned.
type way uint8

const (
	asSent  way = 1 << iota // .. is an element like any other, as to routers that do not clean paths
	encoded                 // %2F is part of an element, as to http.ServeMux, and not a slash, as to those who look at url.URL.Path
)

// ways says which of the ways make a difference.
func (q *Request) ways() (all way) {
	if strings.Contains(q.Path, "/../") || strings.HasSuffix(q.Path, "/..") {
		all |= asSent
	}
	if q.rawPath != "" && (strings.Contains(q.rawPath, "%2F") || strings.Contains(q.rawPath, "%2f")) {
		all |= encoded
	}
	return all
}

// path is the path in the present way.
func (q *Request) path() string {
	p := q.Path
	if q.way&encoded != 0 {
		// Escaped once more it is left when the rest is unescaped.
		if s, err := url.PathUnescape(strings.NewReplacer("%2F", "%252F", "%2f", "%252F").Replace(q.rawPath)); err == nil {
			p = s
		}
	}
	if q.way&asSent == 0 {
		return cleaned(p)
	}
	var b strings.Builder
	for element := range strings.SplitSeq(p, "/") {
		if element != "" && element != "." {
			b.WriteString("/" + element)
		}
	}
	return b.String()
}

// dearest is the most that a path costs in any of the ways, and without a slash at its end: to many programs it is the same then.
func (q *Request) dearest(cost func(path string) int64) (most int64) {
	all := q.ways()
	for w := way(0); w <= all; w++ {
		if w&^all != 0 {
			continue
		}
		q.way = w
		p := q.path()
		most = max(most, cost(p))
		if short := strings.TrimSuffix(p, "/"); short != p && short != "" {
			most = max(most, cost(short))
		}
	}
	q.way = 0
	return most
}

// match finds the rule for a request. Which one that is must not depend on how the program behind reads the path, or a client could choose a
// rule for what is served to it under another: where it does, the request is refused, unless none of the rules limits.
func (v *Verdict) match(rules []*rule) {
	first := v.find(rules)
	all, strictest, differ := v.request.ways(), first, false
	for w := way(1); w <= all; w++ {
		if w&^all != 0 {
			continue
		}
		v.request.way = w
		r := v.find(rules)
		differ = differ || r != first
		if r.strictness() > strictest.strictness() {
			strictest = r
		}
	}
	v.request.way = 0
	if differ && strictest.strictness() > 0 {
		v.Takes = v.inline[:0]
		for _, u := range strictest.Uses { // nothing is taken
			v.Takes = append(v.Takes, Taken{Name: u.Limit})
		}
		v.rule, v.Rule = strictest, strictest.Name
		v.Err = fmt.Errorf("%w: its path has an element .. or an encoded slash, and it is limited in one way or another depending on how that is read", ErrRequest)
		return
	}
	if all != 0 {
		first = v.find(rules) // for its keys
	}
	if v.rule = first; first == nil {
		v.Takes = nil
		return
	}
	v.Rule = first.Name
	if q := v.request; q.Account != "" && q.located && !q.named {
		v.edge.warnAddress(first)
	}
}

// strictness is 0 of a rule that does not limit, and of none.
func (r *rule) strictness() int {
	switch {
	case r == nil || len(r.Uses) == 0:
		return 0
	case r.DryRun:
		return 1
	}
	return 2
}

// cleaned is a path without empty, . and .. elements. A slash at its end stays, as of /a/. and /a/..
func cleaned(p string) string {
	if p == "" {
		return "/"
	}
	if !strings.Contains(p, "//") && !strings.Contains(p, "/.") {
		return p
	}
	c := path.Clean("/" + p)
	if c != "/" && (strings.HasSuffix(p, "/") || strings.HasSuffix(p, "/.") || strings.HasSuffix(p, "/..")) {
		c += "/"
	}
	return c
}

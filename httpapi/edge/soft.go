package edge

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/textproto"
	"slices"
	"strings"
)

// SoftHeader is the header of a softer step, unless Soft.Header says another.
const SoftHeader = "Jatah-Soft"

// Soft is a softer step before refusal: from a part of a limit on, requests still pass, but the application is told, so that it can ask
// for a second factor, serve what is cached, or answer later.
type Soft struct {
	// From is the part of a limit, used up by the request or before it, from which on this is done: more than 0, less than 1. One limit of the
	// rule is enough.
	From float64
	// Header is the name of a header of the response, and of the request as the handler sees it, whose value are the names of those
	// limits. What a client sends by this name is removed from all requests. "": SoftHeader.
	Header string
	// Hook is called before the handler, by many goroutines at once; nil: none. It must not keep the verdict.
	Hook func(*Request, *Verdict)
}

// compileSoft checks the softer step of a rule, and notes its header.
func (e *Edge) compileSoft(c *rule) error {
	if c.Soft == nil {
		return nil
	}
	soft := *c.Soft
	c.Soft = &soft
	if !(soft.From > 0 && soft.From < 1) {
		return fmt.Errorf("%w: rule %q has a softer step from the part %v of a limit on: give a number between 0 and 1, such as 0.8", ErrConfig, c.Name, soft.From)
	}
	if soft.Header == "" {
		soft.Header = SoftHeader
	}
	if !token(soft.Header) {
		return fmt.Errorf("%w: rule %q has a softer step with the header %q: give a name of letters, digits and dashes", ErrConfig, c.Name, soft.Header)
	}
	soft.Header = textproto.CanonicalMIMEHeaderKey(soft.Header)
	if !slices.Contains(e.softHeaders, soft.Header) {
		e.softHeaders = append(e.softHeaders, soft.Header)
	}
	return nil
}

// token says whether s can be the name of a header.
func token(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') && r != '-' && r != '_'
	})
}

// withoutSoft removes what a client has made up. The request is of whoever called the middleware, and is left as it is.
func (e *Edge) withoutSoft(r *http.Request) *http.Request {
	for _, name := range e.softHeaders {
		if _, ok := r.Header[name]; !ok {
			continue
		}
		clean := *r
		clean.Header = maps.Clone(r.Header)
		for _, name := range e.softHeaders {
			delete(clean.Header, name)
		}
		return &clean
	}
	return r
}

// soften takes the softer step, if it is time for it. A rule in dry run only counts it.
func (v *Verdict) soften(ctx context.Context) {
	soft := v.rule.Soft
	if soft == nil {
		return
	}
	var near []string
	for i := range v.Takes {
		t := &v.Takes[i]
		most := t.terms().Capacity()
		if decided(&t.Decision) && most > 0 && float64(most-t.Decision.Remaining) >= soft.From*float64(most) && !slices.Contains(near, t.Name) {
			near = append(near, t.Name)
		}
	}
	if len(near) == 0 {
		return
	}
	v.Soft = true
	v.rule.counts.soft.Add(1)
	if v.rule.DryRun {
		return
	}
	v.near = strings.Join(near, ", ")
	if soft.Hook == nil {
		return
	}
	done := false
	defer func() {
		if !done { // it panics: nobody will serve the request
			v.Settle(ctx, Outcome{Failed: true})
		}
	}()
	soft.Hook(v.request, v)
	done = true
}

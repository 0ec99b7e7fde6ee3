package httpapi

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jatah-io/jatah/httpapi/edge"
)

const forwardAuthPath = "/v1/forward-auth"

// SetEdge lets proxies ask by forward auth, from now on by the rules of e; nil: no more. It is refused (edge.ErrConfig) if a rule has something
// left to do when a request is over, which forward auth does not see. It may be called while requests are answered, each of which
// is decided by one edge. What an edge counts of its own begins anew with another one, but pauses where that has this one as its
// edge.Config.Before; what was used of limits is the node's, and stays.
func (h *Handler) SetEdge(e *edge.Edge) error {
	if e != nil {
		if err := e.Ahead(); err != nil {
			return err
		}
	}
	h.edge.Store(e)
	return nil
}

// Edge is the present one, nil if there is none.
func (h *Handler) Edge() *edge.Edge { return h.edge.Load() }

// What a proxy says of the request that it asks about, in all the names that are in use. X-Forwarded-*: Caddy, Traefik, and what deploy/ has
// for the others; X-Original-*: usual for nginx.
var (
	askedMethod = []string{"X-Forwarded-Method", "X-Original-Method"}
	askedTarget = []string{"X-Forwarded-Uri", "X-Original-Uri", "X-Original-Url"}
	askedHost   = []string{"X-Forwarded-Host"}
)

// forwardAuth answers a proxy that asks whether a request may pass: 200, or the refusal that its client is to get.
func (h *Handler) forwardAuth(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	e := h.edge.Load()
	if e == nil {
		writeProblem(w, &problem{
			slug: "unknown-path", status: http.StatusNotFound,
			detail: "This node does not answer forward auth: configure it with rules, in the section edge.",
		})
		return
	}
	if !e.FromProxy(r) {
		h.untrusted(w, r)
		return
	}
	q, deny, p := h.asked(e, r)
	if p != nil {
		writeProblem(w, p)
		return
	}
	v := e.Decide(r.Context(), q)
	defer v.Settle(r.Context(), edge.Outcome{})
	if v.OK {
		v.SetHeaders(w.Header())
		w.WriteHeader(http.StatusOK)
		return
	}
	v.Refuse(&denying{ResponseWriter: w, status: deny}, r)
}

// untrusted answers who is not believed. If it were the client itself that asks, as far as anybody can tell, then all requests of a proxy
// would be counted for that proxy: nothing is decided, so that this is noticed.
func (h *Handler) untrusted(w http.ResponseWriter, r *http.Request) {
	if h.strange.comes(time.Now()) {
		h.cfg.Logger.Warn("forward auth asked by a peer that is not trusted: if it is a proxy of yours, add it to trusted_proxies", "peer", r.RemoteAddr)
	}
	// Neither 401 nor 403: proxies take those for the answer.
	writeProblem(w, &problem{
		slug: "untrusted-proxy", status: http.StatusBadRequest,
		detail: "Nobody but a trusted proxy may ask by forward auth: add the address of the proxy, which is in the log of this node, to trusted_proxies.",
	})
}

// asked reads the question: the request that it is about, and the status of a denial by tokens, 0 for that of the rule.
func (h *Handler) asked(e *edge.Edge, r *http.Request) (q *edge.Request, deny int, p *problem) {
	only, p := askedRules(e, r)
	if p != nil {
		return nil, 0, p
	}
	deny, p = askedDeny(r)
	if p != nil {
		return nil, 0, p
	}
	method, p := askedIn(r, askedMethod, true)
	if p != nil {
		return nil, 0, p
	}
	target, p := askedIn(r, askedTarget, true)
	if p != nil {
		return nil, 0, p
	}
	host, p := askedIn(r, askedHost, false)
	if p != nil {
		return nil, 0, p
	}
	q, err := e.Describe(r.Context(), method, host, target, r.RemoteAddr, r.Header)
	if err != nil {
		p := badQuestion(askedTarget[0], "%s is %s, which is no path with a query.", askedTarget[0], quote(target))
		if deny != 0 {
			p.status = deny // it is the client's, and not the proxy's as all else that is wrong with a question
		}
		return nil, 0, p
	}
	q.Only(only...)
	return q, deny, nil
}

func badQuestion(field, format string, args ...any) *problem {
	return &problem{slug: "bad-question", status: http.StatusBadRequest, field: field, detail: fmt.Sprintf(format, args...)}
}

// askedIn reads one thing that is said in headers. Only one of the names is set by the proxy; under the others, if it does not remove them, a
// client can say what it likes. So all must say the same.
func askedIn(r *http.Request, names []string, needed bool) (string, *problem) {
	var value, from string
	for _, name := range names {
		for _, v := range r.Header[name] {
			switch {
			case v == "":
			case from == "":
				value, from = v, name
			case v != value:
				return "", badQuestion(name, "%s says %s and %s says %s: let the proxy set one and remove the other.", from, quote(value), name, quote(v))
			}
		}
	}
	if from == "" && needed {
		return "", badQuestion(names[0], "%s is missing: let the proxy say which request it asks about, by %s.", names[0], strings.Join(names, " or "))
	}
	return value, nil
}

// askedDeny reads deny_status, 0 if there is none. Other parameters are not for us: some proxies leave the query of the client's request
// in their question. For that reason nothing that matters stands in the query; a client that changes the status of its own denial
// has gained nothing.
func askedDeny(r *http.Request) (int, *problem) {
	if r.URL.RawQuery == "" {
		return 0, nil
	}
	given, ok := r.URL.Query()["deny_status"]
	if !ok {
		return 0, nil
	}
	code, err := strconv.Atoi(given[0])
	if len(given) != 1 || err != nil || len(given[0]) != 3 || code/100 != 4 {
		return 0, badQuery("deny_status", "deny_status must be one status from 400 to 499, for example 403.")
	}
	return code, nil
}

// askedRules are the rules that the path names, none for all. Unlike the query the path is the proxy's own.
func askedRules(e *edge.Edge, r *http.Request) ([]string, *problem) {
	given := r.PathValue("rules")
	if given == "" {
		return nil, nil
	}
	rules, known := strings.Split(given, ","), e.Rules()
	for _, name := range rules {
		if !slices.Contains(known, name) {
			return nil, &problem{slug: "unknown-rule", status: http.StatusNotFound,
				detail: fmt.Sprintf("There is no rule %s; there are %s.", quote(name), strings.Join(known, ", "))}
		}
	}
	return rules, nil
}

// denying writes refusals with another status, for proxies that know one only.
type denying struct {
	http.ResponseWriter
	status int // 0: as it is
}

func (d *denying) WriteHeader(status int) {
	// 5xx is not a denial: nothing was decided. 400 is one: what a client sends must not look undecided to a proxy that lets pass what is.
	if d.status != 0 && status/100 == 4 {
		status = d.status
	}
	d.ResponseWriter.WriteHeader(status)
}

// occasion comes at most once a minute. The zero value is ready; safe for any number of goroutines.
type occasion struct{ last atomic.Int64 } // in Unix seconds

func (o *occasion) comes(now time.Time) bool {
	last := o.last.Load()
	return now.Unix()-last >= 60 && o.last.CompareAndSwap(last, now.Unix())
}

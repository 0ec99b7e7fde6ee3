package httpapi

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// TokenHeader carries a token where Authorization is not free, without "Bearer" before it: that of forward auth is the client's, which the proxy
// passes on. It beats Authorization.
const TokenHeader = "Jatah-Token"

// Access says who may call what. The zero value lets everybody who reaches the address take and read, and nobody but this machine do what needs
// [RoleAdmin]. It is not to be changed once it is in use.
type Access struct {
	// Tokens are those of which each call needs one with the right role. Nil: there are none.
	Tokens *Tokens
	// InsecureAdmin lets everybody who reaches the address do everything where there are no tokens, for a handler that has its
	// own authentication before it.
	InsecureAdmin bool
}

// AccessStats counts calls that were refused, since the start.
type AccessStats struct {
	Missing   uint64 // no token
	Unknown   uint64 // a token that is none, or no longer
	Forbidden uint64 // a token without the role, or for other limits
	NotLocal  uint64 // an admin call from elsewhere, where there are no tokens
	CrossSite uint64 // sent by a page of another site in somebody's browser
}

// gatekeeper keeps who may call what. Safe for concurrent use.
type gatekeeper struct {
	access atomic.Pointer[Access]
	log    *slog.Logger
	sites  http.CrossOriginProtection
	scoped atomic.Bool // there is, or was, a token for some limits only

	mu       sync.Mutex
	watching map[*func()]struct{} // to be called when access has changed

	missing, unknown, forbidden, notLocal, crossSite atomic.Uint64
	said                                             atomic.Int64 // when a refusal was last logged, in Unix seconds
	unsaid                                           atomic.Int64 // refusals since
}

// SetAccess changes who may call what, from now on. Streams of the dashboard end if whoever opened them may not any more.
func (h *Handler) SetAccess(a Access) { h.gate.set(a) }

// AccessStats are the refusals so far.
func (h *Handler) AccessStats() AccessStats {
	g := &h.gate
	return AccessStats{
		Missing: g.missing.Load(), Unknown: g.unknown.Load(), Forbidden: g.forbidden.Load(),
		NotLocal: g.notLocal.Load(), CrossSite: g.crossSite.Load(),
	}
}

// guard puts the gatekeeper before a route. Need 0: it is open to everybody.
func (h *Handler) guard(need Role, serve http.HandlerFunc) http.HandlerFunc {
	if need == 0 {
		return serve
	}
	return func(w http.ResponseWriter, r *http.Request) {
		if r, ok := h.admit(w, r, need); ok {
			serve(w, r)
		}
	}
}

// admit lets a request in, or has answered it. It is to be served as it comes back: it knows then for which limits it is.
func (h *Handler) admit(w http.ResponseWriter, r *http.Request, need Role) (*http.Request, bool) {
	token, p := h.gate.check(r, need)
	if p != nil {
		h.gate.note(r, p)
		refuse(w, r, p)
		return nil, false
	}
	if token != nil {
		if need == RoleAdmin {
			h.gate.log.Info("admin call", "call", r.Method+" "+r.URL.Path, "token", token.Name, "peer", r.RemoteAddr)
		}
		if len(token.Limits) > 0 {
			r = r.WithContext(context.WithValue(r.Context(), scopeKey{}, token))
		}
	}
	return r, true
}

// check finds out who sends a request and whether that may. The token is nil where there are none.
func (g *gatekeeper) check(r *http.Request, need Role) (*Token, *problem) {
	// Where a page of another site can make a browser send a request, being on the right machine means nothing. Forward auth has
	// the headers of somebody else's request.
	asked := isForwardAuth(r)
	if !asked {
		if err := g.sites.Check(r); err != nil {
			g.crossSite.Add(1)
			return nil, &problem{slug: "cross-site", status: http.StatusForbidden,
				detail: "A page of another site sent this by a browser; calls that change something come from no browser, or from a page of this address."}
		}
	}
	a := g.access.Load()
	if a.Tokens == nil {
		if need != RoleAdmin || a.InsecureAdmin {
			return nil, nil
		}
		if p := notLocal(r); p != nil {
			g.notLocal.Add(1)
			return nil, p
		}
		return nil, nil
	}
	sent, p := presented(r, asked)
	if p != nil {
		g.missing.Add(1)
		return nil, p.forProxy(asked)
	}
	token := a.Tokens.find(sent)
	switch {
	case token == nil:
		g.unknown.Add(1)
		p := &problem{slug: "unauthenticated", status: http.StatusUnauthorized, challenge: challenge + `, error="invalid_token"`,
			detail: "This node knows no such token; it may have been replaced. Send one that is in its tokens_file."}
		return nil, p.forProxy(asked)
	case !token.Roles.may(need):
		g.forbidden.Add(1)
		p := &problem{slug: "forbidden", status: http.StatusForbidden, challenge: challenge + `, error="insufficient_scope", scope="` + need.String() + `"`,
			detail: "This call needs a token with the role " + need.String() + "; that of " + quote(token.Name) + " has " + token.Roles.String() + "."}
		return nil, p.forProxy(asked)
	case asked && len(token.Limits) > 0:
		g.forbidden.Add(1)
		return nil, (&problem{slug: "forbidden", status: http.StatusForbidden,
			detail: "Forward auth decides by rules, which may use any limit; a token for some limits only cannot ask by it."}).forProxy(asked)
	}
	return token, nil
}

const challenge = `Bearer realm="jatah"`

// presented is the token that came with a request. A request with a header of them twice is refused: whoever is between may have read the other one.
func presented(r *http.Request, asked bool) (string, *problem) {
	own := r.Header[TokenHeader]
	if len(own) == 1 && own[0] != "" {
		return own[0], nil
	}
	if asked {
		return "", &problem{slug: "unauthenticated", status: http.StatusUnauthorized,
			detail: "This node wants a token with the role take: let the proxy set it in the header " + TokenHeader + "."}
	}
	if len(own) > 1 {
		return "", &problem{slug: "unauthenticated", status: http.StatusUnauthorized, challenge: challenge,
			detail: "There are several headers " + TokenHeader + ": send one, with one token."}
	}
	const scheme = "Bearer "
	if given := r.Header["Authorization"]; len(given) == 1 && len(given[0]) > len(scheme) && strings.EqualFold(given[0][:len(scheme)], scheme) {
		return strings.TrimLeft(given[0][len(scheme):], " "), nil
	}
	return "", &problem{slug: "unauthenticated", status: http.StatusUnauthorized, challenge: challenge,
		detail: "This node wants a token: send one header Authorization: Bearer ... with one that is in its tokens_file."}
}

// forProxy makes a problem one that proxies do not take for the answer to their question, as they do 401 and 403.
func (p *problem) forProxy(asked bool) *problem {
	if asked {
		p.status, p.challenge = http.StatusBadRequest, ""
	}
	return p
}

// passedOn are headers of which a request has one if it came through a proxy that says so.
var passedOn = []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-Ip", "Via", "True-Client-Ip", "Cf-Connecting-Ip"}

// notLocal refuses an admin call that was not sent on this machine, or that a browser may have been tricked into: a page whose name was made to
// mean 127.0.0.1 comes from the right address and from its own site, but it asks for that name.
func notLocal(r *http.Request) *problem {
	why := ""
	switch name, _, _ := strings.Cut(strings.ToLower(hostOf(r.Host)), "%"); {
	case !isLoopback(hostOf(r.RemoteAddr)):
		why = "it comes from another machine"
	case name != "localhost" && !strings.HasSuffix(name, ".localhost") && !isAddress(name):
		why = "it asks for the name " + quote(name) + " and not for an address or localhost"
	}
	for _, name := range passedOn {
		if len(r.Header[name]) > 0 {
			why = "a proxy has passed it on (" + name + ")"
		}
	}
	if why == "" {
		return nil
	}
	return &problem{slug: "admin-is-local", status: http.StatusForbidden,
		detail: "Without tokens an admin call is answered on the node's own machine only, and " + why +
			": call it there by http://127.0.0.1, or give the node a tokens_file and send a token with the role admin. " +
			"Where all who reach the address may do everything, the node's setting insecure_admin says so."}
}

// hostOf is an address without its port and brackets.
func hostOf(addr string) string {
	if host, _, err := net.SplitHostPort(addr); err == nil {
		return host
	}
	return strings.Trim(addr, "[]")
}

func isAddress(host string) bool {
	_, err := netip.ParseAddr(host)
	return err == nil
}

func isLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}

func isForwardAuth(r *http.Request) bool { return strings.HasPrefix(r.URL.Path, forwardAuthPath) }

// scopeKey is the place in a context of a token that is for some limits only.
type scopeKey struct{}

// scopeOf is the token of a request if that is for some limits only.
func scopeOf(ctx context.Context) *Token {
	token, _ := ctx.Value(scopeKey{}).(*Token)
	return token
}

// outOfScope refuses a limit that the caller's token is not for.
func (h *Handler) outOfScope(ctx context.Context, limit []byte) *problem {
	if !h.gate.scoped.Load() {
		return nil // the usual case, without a look at the context
	}
	token := scopeOf(ctx)
	if token == nil || token.covers(string(limit)) {
		return nil
	}
	h.gate.forbidden.Add(1)
	return &problem{slug: "forbidden", status: http.StatusForbidden, field: "limit",
		detail: "The token of " + quote(token.Name) + " is not for the limit " + quote(string(limit)) + "; it is for " + strings.Join(token.Limits, ", ") + "."}
}

// note logs who was refused, at most one line a second: whoever tries tokens is not to fill the disk.
func (g *gatekeeper) note(r *http.Request, p *problem) {
	now, last := time.Now().Unix(), g.said.Load()
	if now == last || !g.said.CompareAndSwap(last, now) {
		g.unsaid.Add(1)
		return
	}
	g.log.Warn("call refused", "reason", p.slug, "call", r.Method+" "+quote(r.URL.Path), "peer", r.RemoteAddr, "others", g.unsaid.Swap(0))
}

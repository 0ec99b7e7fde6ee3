package edge

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
)

// Request is a request as rules see it: that of a net/http server, or what a proxy or another protocol says of one. Rules and their functions
// must not change it, nor keep it beyond their return. It is used by one goroutine.
type Request struct {
	Method string
	Path   string // unescaped, as url.URL.Path
	Host   string
	Header http.Header

	// HTTP is the request of a net/http server; nil for others, also behind forward auth: the proxy's question is not the request it asks about.
	HTTP *http.Request

	// Account is who is asking, as Config.Account says; "" is nobody known.
	Account string

	ctx      context.Context
	edge     *Edge
	only     []string // names of rules; empty: all
	rawPath  string   // as it was sent, where unescaping it loses something; else ""
	way      way      // in which it is read at present
	rawQuery string
	query    url.Values // parsed from rawQuery when first asked for
	peer     string
	client   netip.Addr
	resolved bool
	named    bool // the keys of the rule that is being tried name the account
	located  bool // they name the address
	served   bool // HTTP is the request itself, so that its body may be read
	body     *bodyPeek
}

// RequestOf describes a request of a net/http server.
func (e *Edge) RequestOf(r *http.Request) *Request {
	q := new(Request)
	e.describe(q, r)
	return q
}

func (e *Edge) describe(q *Request, r *http.Request) {
	*q = Request{
		Method: r.Method, Path: r.URL.Path, Host: r.Host, Header: r.Header, HTTP: r, ctx: r.Context(), edge: e, rawQuery: r.URL.RawQuery,
		rawPath: rawPath(r.URL),
		peer:    r.RemoteAddr, served: true,
	}
	q.identify()
}

// Describe describes a request that no net/http server has: of a proxy that asks about it, or of another protocol. target is its path and query,
// peer the address it comes from (host:port), header what came with it. The error says that target is not one.
func (e *Edge) Describe(ctx context.Context, method, host, target, peer string, header http.Header) (*Request, error) {
	u, err := url.ParseRequestURI(target)
	if err != nil {
		return nil, err
	}
	if strings.Contains(target, "#") {
		// Some servers end the path there and some do not; no client that means well sends it.
		return nil, errors.New("it has a fragment")
	}
	if header == nil {
		header = http.Header{}
	}
	q := &Request{Method: method, Path: u.Path, Host: host, Header: header, ctx: ctx, edge: e, rawQuery: u.RawQuery, peer: peer, rawPath: rawPath(u)}
	q.identify()
	return q, nil
}

// rawPath is empty for nearly all requests.
func rawPath(u *url.URL) string {
	if u.RawPath == "" {
		return ""
	}
	return u.EscapedPath() // which does not believe RawPath if Path was changed since
}

func (q *Request) identify() {
	if q.edge.cfg.Account != nil {
		q.Account = q.edge.cfg.Account(q)
	}
}

// headers are the lines of a header. Servers keep Host apart from the others.
func (q *Request) headers(name string) []string {
	if strings.EqualFold(name, "Host") {
		return []string{q.Host}
	}
	return q.Header.Values(name)
}

func (q *Request) header(name string) string {
	if lines := q.headers(name); len(lines) > 0 {
		return lines[0]
	}
	return ""
}

// Context is the request's context.
func (q *Request) Context() context.Context { return q.ctx }

// Client is the address of who sent the request, as Config.Client resolves it. It is not valid if that cannot be told.
func (q *Request) Client() netip.Addr {
	if !q.resolved {
		q.client, q.resolved = q.edge.client.AddrOf(q.peer, q.Header), true
	}
	return q.client
}

// FromProxy says whether the direct peer is a proxy that is trusted, so that headers which it sets may be believed.
func (q *Request) FromProxy() bool { return q.edge.client.TrustedPeer(q.peer) }

// Query is the query. Pairs that cannot be read are left out.
func (q *Request) Query() url.Values {
	if q.query == nil {
		q.query, _ = url.ParseQuery(q.rawQuery)
		if q.query == nil {
			q.query = url.Values{}
		}
	}
	return q.query
}

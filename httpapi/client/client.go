package client

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"
)

// Config says which nodes to ask, and how. Only Addrs is needed.
type Config struct {
	// Addrs are the addresses of the HTTP API of one or several nodes of a cluster, such as http://127.0.0.1:8080 or
	// https://n1.example:8443; http:// may be left out.
	Addrs []string
	// Token is sent with every request. TokenFile is a file that has it, and nothing else, instead: it is read again each minute and when a node
	// refuses what was in it, so that tokens can be replaced while the program runs. No redirect takes a token to another host.
	Token, TokenFile string
	// CAFile has the authorities, in PEM, of the nodes' certificates; "": those of the system. CertFile and KeyFile are the certificate that is
	// shown to nodes which want one; each new connection reads them again. With HTTP, set its TLSClientConfig instead.
	CAFile, CertFile, KeyFile string
	// HTTP sends the requests. Its Timeout should be 0. Nil: a client with a pool of its own and all else as
	// http.DefaultTransport, but it gives up dialling after 1 s.
	HTTP *http.Client
	// Header is sent with every request, for example for a proxy before the nodes. Authorization is the token's where there is one.
	Header http.Header
	// Timeout bounds one try; a node decides in milliseconds. 0: 5 s.
	Timeout time.Duration
	Retry   Retry
	Batch   Batch
}

// Client asks the nodes of one cluster. Use [New]. It is safe for concurrent use.
type Client struct {
	addrs   []string
	shown   []string // the same for errors, which end in logs: without passwords
	http    *http.Client
	header  http.Header
	timeout time.Duration
	retry   Retry
	at      atomic.Int32 // index of the address that is asked first
	token   *credential  // nil: none is sent
	batcher *batcher     // nil: takes are not shared
}

// New makes a client; it asks nobody yet. The error is ErrConfig.
func New(cfg Config) (*Client, error) {
	c := &Client{http: cfg.HTTP, header: cfg.Header.Clone(), timeout: cfg.Timeout}
	if len(cfg.Addrs) == 0 {
		return nil, fmt.Errorf("%w: Addrs is empty; name at least one node, such as http://127.0.0.1:8080", ErrConfig)
	}
	for _, addr := range cfg.Addrs {
		base, shown, err := baseOf(addr)
		if err != nil {
			return nil, err
		}
		c.addrs, c.shown = append(c.addrs, base), append(c.shown, shown)
	}
	switch {
	case c.timeout < 0:
		return nil, fmt.Errorf("%w: Timeout must not be negative; leave it 0 for 5 s", ErrConfig)
	case c.timeout == 0:
		c.timeout = 5 * time.Second
	}
	var err error
	if c.token, err = newCredential(&cfg); err != nil {
		return nil, err
	}
	if c.http == nil {
		pool, err := transport(&cfg)
		if err != nil {
			return nil, err
		}
		c.http = &http.Client{Transport: pool}
	} else if cfg.CAFile != "" || cfg.CertFile != "" || cfg.KeyFile != "" {
		return nil, fmt.Errorf("%w: CAFile, CertFile and KeyFile are for the client's own pool; with HTTP set the TLSClientConfig of its transport", ErrConfig)
	}
	if c.token != nil {
		c.http = withoutLeaks(c.http)
	}
	if c.retry, err = cfg.Retry.withDefaults(time.Minute); err != nil {
		return nil, err
	}
	if c.batcher, err = newBatcher(c, cfg.Batch); err != nil {
		return nil, err
	}
	c.at.Store(rand.Int32N(int32(len(c.addrs)))) // or all clients would ask the first
	return c, nil
}

// baseOf is an address without a slash at its end and with a scheme, and what may be shown of it.
func baseOf(addr string) (base, shown string, err error) {
	base = addr
	if !strings.Contains(base, "://") {
		base = "http://" + base
	}
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.RawQuery != "" || u.Fragment != "" {
		return "", "", fmt.Errorf("%w: Addrs: %q is no address of a node; write it as http://127.0.0.1:8080", ErrConfig, addr)
	}
	return strings.TrimRight(base, "/"), strings.TrimRight(u.Redacted(), "/"), nil
}

// newPool is http.DefaultTransport for few hosts and many callers. secure is nil for the system's authorities and no certificate.
func newPool(secure *tls.Config) http.RoundTripper {
	t, ok := http.DefaultTransport.(*http.Transport)
	switch {
	case ok:
		t = t.Clone()
	case secure == nil: // replaced by the program, which has its reasons
		return http.DefaultTransport
	default: // it has said more precisely what it wants
		t = &http.Transport{Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true, TLSHandshakeTimeout: 10 * time.Second}
	}
	if secure != nil {
		t.TLSClientConfig = secure
	}
	// A host that does not answer at all must be told from one that was asked, within the time of a try.
	t.DialContext = (&net.Dialer{Timeout: time.Second, KeepAlive: 15 * time.Second}).DialContext
	t.MaxIdleConnsPerHost = 64
	t.IdleConnTimeout = 30 * time.Second // sooner than the nodes, which wait 2 minutes
	return t
}

// Take decides a request: it is charged if it is allowed.
func (c *Client) Take(ctx context.Context, r Request) (Decision, error) {
	if c.batcher != nil {
		return c.batcher.take(ctx, r)
	}
	return c.decide(ctx, "/v1/take", r)
}

// Refund gives back, never above the burst. Allowed is true.
func (c *Client) Refund(ctx context.Context, r Request) (Decision, error) {
	return c.decide(ctx, "/v1/refund", r)
}

// Charge takes what was used already, also below zero. Allowed is true.
func (c *Client) Charge(ctx context.Context, r Request) (Decision, error) {
	return c.decide(ctx, "/v1/charge", r)
}

func (c *Client) decide(ctx context.Context, path string, r Request) (Decision, error) {
	body, err := appendRequest(nil, &r)
	if err != nil {
		return Decision{}, err
	}
	a, err := c.do(ctx, &call{method: http.MethodPost, path: path, body: body, once: c.onceKey(), denies: true})
	if err != nil {
		return Decision{}, err
	}
	b, err := readDecision(a)
	if err != nil {
		return Decision{}, err
	}
	return b.decision(r.Key), nil
}

// All is the answer to several requests together.
type All struct {
	Allowed   bool       // all are allowed and charged; otherwise none is charged
	Violated  []string   // names of the limits known to refuse, each once
	Decisions []Decision // of each request, in order. One that would have passed alone is Allowed.
}

// TakeAll decides several requests together: all are charged, or none.
func (c *Client) TakeAll(ctx context.Context, rs []Request) (All, error) {
	body, err := appendTakes(rs)
	if err != nil {
		return All{}, err
	}
	a, err := c.do(ctx, &call{method: http.MethodPost, path: "/v1/take-all", body: body, once: c.onceKey(), denies: true})
	if err != nil {
		return All{}, err
	}
	const what = "a decision about all takes"
	var b struct {
		Allowed  bool
		Violated []string
		Results  []decisionBody
	}
	if err := a.read(what, &b); err != nil {
		return All{}, err
	}
	if len(b.Results) != len(rs) {
		return All{}, notAn(a.addr, what, nil)
	}
	all := All{b.Allowed, b.Violated, make([]Decision, len(rs))}
	for i := range rs {
		if b.Results[i].Allowed == nil {
			return All{}, notAn(a.addr, what, nil)
		}
		all.Decisions[i] = b.Results[i].decision(rs[i].Key)
	}
	return all, nil
}

// onceKey is an Idempotency-Key for one call, if that may be tried more than once.
func (c *Client) onceKey() string {
	if c.retry.Attempts == 1 {
		return ""
	}
	return fmt.Sprintf("%016x%016x", rand.Uint64(), rand.Uint64())
}

// Response is an answer as it came: a result, which may be a denial.
type Response struct {
	Addr   string // of the node
	Status int
	Header http.Header
	Body   []byte
}

// Do is any call of the API, also one that has no method here. path begins with a slash and may have a query. body is nil, or the JSON itself as
// []byte, or is made to JSON. What is not a result is an error, as of the other methods.
//
// GET, HEAD, PUT and DELETE are tried again whatever happened to the last try; others only if nothing was done.
func (c *Client) Do(ctx context.Context, method, path string, body any) (Response, error) {
	k := &call{method: method, path: path, denies: true}
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPut, http.MethodDelete:
		k.safe = true
	}
	switch b := body.(type) {
	case nil:
	case []byte:
		k.body = b
	default:
		var err error
		if k.body, err = json.Marshal(body); err != nil {
			return Response{}, fmt.Errorf("client: the body of %s %s: %w", method, path, err)
		}
	}
	a, err := c.do(ctx, k)
	if err != nil {
		return Response{}, err
	}
	return Response{Addr: a.addr, Status: a.status, Header: a.head, Body: a.body}, nil
}

// get reads a result that is no decision.
func (c *Client) get(ctx context.Context, path, what string, into any) error {
	a, err := c.do(ctx, &call{method: http.MethodGet, path: path, safe: true})
	if err != nil {
		return err
	}
	return a.read(what, into)
}

// Ready is nil if a node may get requests: the current one, or else another of the addresses. It does not wait.
func (c *Client) Ready(ctx context.Context) error {
	k := &call{method: http.MethodGet, path: "/readyz", safe: true}
	var all []error
	for range c.addrs {
		at := int(c.at.Load())
		t := c.try(ctx, k, at)
		if t.fate == done && t.err == nil {
			return nil
		}
		all = append(all, t.err)
		c.leave(at)
	}
	return errors.Join(all...)
}

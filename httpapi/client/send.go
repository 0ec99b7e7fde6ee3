package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync/atomic"
	"time"
)

// maxAnswer bounds an answer, in bytes. Those to batches of long keys are the largest.
const maxAnswer = 16 << 20

// onceFor is for how long an Idempotency-Key is relied upon: nodes keep answers for a minute, and the last try needs some time. What may have been carried
// out is not tried again after it, or it could be carried out twice.
const onceFor = 50 * time.Second

// call is one call of the API, however many tries it takes.
type call struct {
	method, path string // path with the query
	body         []byte // nil: none
	once         string // Idempotency-Key; "": none
	safe         bool   // carried out twice is the same as once, at whichever node
	denies       bool   // 429 or 503 may be a decision
	already      error  // what a node says of a repeat of what was carried out; nil: the same again
}

// answer is a result.
type answer struct {
	addr   string
	status int
	head   http.Header
	body   []byte
}

// fate is what is known of a try.
type fate uint8

const (
	done    fate = iota // answered for good: a result or an error
	unsent              // it did not reach a node that decides; another may be asked at once
	refused             // it was answered that nothing was done; later may be better
	unknown             // it may have been carried out
)

// try is one request and what became of it.
type try struct {
	fate   fate
	at     int // index of the address
	answer answer
	err    error         // nil if there is a result
	after  time.Duration // that the other side asked to wait; 0: it did not
	shared bool          // in a request with other calls, which cannot be repeated
}

// do makes a call.
func (c *Client) do(ctx context.Context, k *call) (answer, error) {
	t := c.persist(ctx, k, func(at int, stay bool) try { return c.round(ctx, k, at, stay) })
	return t.answer, t.err
}

// persist tries until there is an answer or nothing more can be done. round makes one try at the address at, or if it may and need be, at others.
func (c *Client) persist(ctx context.Context, k *call, round func(at int, stay bool) try) try {
	at, begin := int(c.at.Load()), time.Now()
	lost, unsure := false, false // the answer to a try; and what that means
	fail := func(t try, err error) try {
		if t.err = err; unsure {
			t.err = fmt.Errorf("%w: %w", ErrUncertain, err)
		}
		return t
	}
	for n := 0; ; n++ {
		t := round(at, unsure)
		at = t.at
		if t.fate == done && lost && k.already != nil && errors.Is(t.err, k.already) {
			t.err = nil
		}
		if t.fate == done && t.err == nil {
			return t
		}
		lost = lost || t.fate == unknown
		unsure = lost && !k.safe
		switch {
		case t.fate == done:
			return fail(t, t.err)
		case ctx.Err() != nil:
			if !errors.Is(t.err, ctx.Err()) {
				t.err = fmt.Errorf("client: %w; the last try: %w", ctx.Err(), t.err)
			}
			return fail(t, t.err)
		case t.fate == unknown && !k.safe && (k.once == "" || t.shared), n+1 >= c.retry.Attempts:
			return fail(t, t.err)
		case t.after > c.retry.MaxRetryAfter:
			return fail(t, fmt.Errorf("%w for %v, which is more than is waited for: %w", ErrPaused, t.after, t.err))
		}
		if unsure && t.after > onceFor-time.Since(begin) {
			return fail(t, t.err)
		}
		if err := c.retry.pause(ctx, t.after, n, t.err); err != nil {
			return fail(t, err)
		}
		if unsure && time.Since(begin) > onceFor {
			return fail(t, t.err)
		}
		if k.safe {
			at = int(c.at.Load())
		}
	}
}

// round tries one address after the other until one can be reached. stay: only the first, since it may have carried out the call.
func (c *Client) round(ctx context.Context, k *call, at int, stay bool) (t try) {
	for range c.addrs {
		if err := ctx.Err(); err != nil { // net/http would not say that nothing was sent
			return try{fate: unsent, at: at, err: fmt.Errorf("client: %w", err)}
		}
		t = c.try(ctx, k, at)
		if t.fate == done || t.fate == refused || ctx.Err() == context.Canceled {
			return t
		}
		next := at
		if silent := t.answer.status == 0; silent || t.fate == unsent || k.safe {
			next = c.leave(at) // for all calls to come, also when this one has no time left
		}
		if stay || t.fate == unknown || ctx.Err() != nil {
			return t
		}
		at = next
	}
	return t
}

// leave says that an address does not answer, and which is the next.
func (c *Client) leave(at int) (next int) {
	next = (at + 1) % len(c.addrs)
	c.at.CompareAndSwap(int32(at), int32(next)) // or another call has done it
	return next
}

// try sends one request, and again if it was refused for a token that has been replaced: nothing was done then.
func (c *Client) try(ctx context.Context, k *call, at int) try {
	if c.token == nil {
		return c.send(ctx, k, at, nil)
	}
	head := c.token.header()
	t := c.send(ctx, k, at, head)
	if t.answer.status == http.StatusUnauthorized && c.token.renewed(head) {
		t = c.send(ctx, k, at, c.token.header())
	}
	return t
}

// send sends one request. token is the value of Authorization, nil for none.
func (c *Client) send(ctx context.Context, k *call, at int, token []string) try {
	t := try{at: at, answer: answer{addr: c.shown[at]}}
	limited, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	var w wire
	var body io.Reader
	if k.body != nil {
		body = bytes.NewReader(k.body)
	}
	req, err := http.NewRequestWithContext(httptrace.WithClientTrace(limited, w.trace()), k.method, c.addrs[at]+k.path, body)
	if err != nil {
		t.err = fmt.Errorf("client: %w", err)
		return t
	}
	maps.Copy(req.Header, c.header)
	if token != nil {
		req.Header["Authorization"] = token
	}
	if k.body != nil {
		req.Header["Content-Type"] = jsonType
	}
	if k.once != "" {
		req.Header["Idempotency-Key"] = []string{k.once}
	}
	resp, err := c.http.Do(req)
	if err != nil {
		t.fate = w.fateOf(err)
		if limited.Err() != nil && ctx.Err() == nil { // not the deadline that the caller knows of
			t.err = fmt.Errorf("client: no answer from %s within %v", t.answer.addr, c.timeout)
		} else {
			t.err = noAnswer(t.answer.addr, err)
		}
		return t
	}
	defer resp.Body.Close()
	t.answer.status, t.answer.head = resp.StatusCode, resp.Header
	t.answer.body, err = io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case err != nil:
		t.fate, t.err = unknown, fmt.Errorf("client: the answer of %s was cut off: %w", t.answer.addr, err)
	case len(t.answer.body) > maxAnswer:
		t.err = fmt.Errorf("%w: the answer of %s is larger than 16 MiB", ErrAnswer, t.answer.addr)
	default:
		t.judge(k)
	}
	return t
}

var jsonType = []string{"application/json"}

// judge says what an answer means.
func (t *try) judge(k *call) {
	a := &t.answer
	denial := a.status == http.StatusTooManyRequests || a.status == http.StatusServiceUnavailable // the owner is silent: fallback deny
	if a.status/100 == 2 || denial && k.denies && isDecision(a.body) {
		return
	}
	p := problemOf(a.addr, a.status, a.head, a.body)
	t.err, t.after = p, p.RetryAfter
	switch a.status {
	case http.StatusTooManyRequests: // of a proxy
		t.fate = refused
	case http.StatusServiceUnavailable:
		switch {
		case p.Is(ErrNotReady):
			t.fate = unsent
		case p.Is(ErrUndecided):
			t.fate = unknown
		default: // of a proxy that has nobody to ask
			t.fate = refused
		}
	case http.StatusBadGateway, http.StatusGatewayTimeout:
		t.fate = unknown
	}
}

// isDecision tells a denial from the 429 or 503 of a proxy.
func isDecision(body []byte) bool {
	return bytes.HasPrefix(bytes.TrimLeft(body, " \t\r\n"), []byte("{")) && bytes.Contains(body, []byte(`"allowed":`))
}

// wire sees whether a request got a connection.
type wire struct{ asked, got atomic.Bool }

func (w *wire) trace() *httptrace.ClientTrace {
	return &httptrace.ClientTrace{
		GetConn: func(string) { w.asked.Store(true) },
		GotConn: func(httptrace.GotConnInfo) { w.got.Store(true) },
	}
}

// fateOf says what an error of net/http means. Transports of others may not tell of connections; then only an error of dialling shows
// that nothing was sent.
func (w *wire) fateOf(err error) fate {
	if w.asked.Load() && !w.got.Load() {
		return unsent
	}
	var op *net.OpError
	var dns *net.DNSError
	if !w.got.Load() && (errors.As(err, &dns) || errors.As(err, &op) && (op.Op == "dial" || op.Op == "proxyconnect")) {
		return unsent
	}
	// In TLS 1.3 a client learns only with its first read that the other side does not like its certificate, or the lack of one. Nobody has looked
	// at the request then: it would have been read after the handshake.
	if errors.As(err, &op) && op.Op == "remote error" && strings.Contains(op.Err.Error(), "certificate") {
		return unsent
	}
	return unknown
}

// noAnswer describes an error of net/http without the address, which it would repeat with the query, and so the key.
func noAnswer(addr string, err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	return fmt.Errorf("client: no answer from %s: %w", addr, err)
}

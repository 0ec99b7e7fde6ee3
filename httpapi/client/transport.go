package client

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// Waiter lets requests pass as fast as a limit allows.
type Waiter interface {
	// Wait returns nil when the request may go, and an error when it may not, at the latest when ctx ends.
	Wait(ctx context.Context, key string, cost int64) error
}

// WaitFunc is a function as a [Waiter].
type WaitFunc func(ctx context.Context, key string, cost int64) error

// Wait calls the function.
func (f WaitFunc) Wait(ctx context.Context, key string, cost int64) error { return f(ctx, key, cost) }

// Waiting makes a [Waiter] of a method that returns a decision too, such as that of an embedded limit:
//
//	client.Waiting(limiter.Wait) // limiter is a *jatah.Limiter
//
// For a limit of a cluster that is asked over HTTP: [Limiter.Waiter].
func Waiting[D any](wait func(ctx context.Context, key string, cost int64) (D, error)) Waiter {
	return WaitFunc(func(ctx context.Context, key string, cost int64) error {
		_, err := wait(ctx, key, cost)
		return err
	})
}

// TransportConfig says how a [Transport] paces. The zero value only honours what remotes say.
type TransportConfig struct {
	// Limit paces the requests, also those that are tried again. Nil: nothing does.
	Limit Waiter
	// Key says of a request what is paced and paused together. Nil: its host, with the port if there is one.
	Key func(*http.Request) string
	// Cost is what a request costs at the limit. Nil: 1.
	Cost func(*http.Request) int64
	// Retry bounds tries and pauses.
	Retry Retry
	// MaxKeys bounds how many keys are remembered as paused. 0: 4096. Beyond that the one whose pause ends first is forgotten.
	MaxKeys int
}

// Transport is an http.RoundTripper that paces outgoing requests by a limit and honours 429 and 503 of the remote: these pause the key for as
// long as Retry-After says (seconds or a date) and a backoff; without the header, for 429 only, for a backoff that grows with each
// refusal in a row. While a key is paused all its requests wait.
//
// A request that was refused is sent again if it can be (it has no body or a GetBody, and its method is idempotent or it has an
// Idempotency-Key), up to Retry.Attempts; else, or if the pause is longer than its deadline allows or Retry.MaxRetryAfter, the response is
// returned as it came. Errors of the base are returned as they are.
//
// A request that would have to wait until after its deadline fails at once with ErrDeadline; one that would wait for longer than
// Retry.MaxRetryAfter with ErrPaused. An http.Client wraps them in a *url.Error. Use [NewTransport]. Safe for concurrent use.
type Transport struct {
	base   http.RoundTripper
	cfg    TransportConfig
	pauses *pauses
}

// NewTransport makes a transport over another one; nil is http.DefaultTransport. The error is ErrConfig.
func NewTransport(base http.RoundTripper, cfg TransportConfig) (*Transport, error) {
	if base == nil {
		base = http.DefaultTransport
	}
	if cfg.Key == nil {
		cfg.Key = hostOf
	}
	if cfg.Cost == nil {
		cfg.Cost = func(*http.Request) int64 { return 1 }
	}
	switch {
	case cfg.MaxKeys < 0:
		return nil, fmt.Errorf("%w: MaxKeys must not be negative; leave it 0 for 4096", ErrConfig)
	case cfg.MaxKeys == 0:
		cfg.MaxKeys = 4096
	}
	var err error
	if cfg.Retry, err = cfg.Retry.withDefaults(time.Hour); err != nil {
		return nil, err
	}
	return &Transport{base: base, cfg: cfg, pauses: newPauses(&cfg.Retry, cfg.MaxKeys)}, nil
}

func hostOf(r *http.Request) string { return strings.ToLower(r.URL.Host) }

// RoundTrip sends one request when it may go, and again if it was refused and may be sent again.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	key, cost := t.cfg.Key(r), t.cfg.Cost(r)
	for n := 1; ; n++ {
		if err := t.admit(r.Context(), key, cost); err != nil {
			closeBody(r)
			return nil, err
		}
		sent := time.Now()
		resp, err := t.base.RoundTrip(r)
		if err != nil {
			return nil, err
		}
		pause, refused := t.note(key, sent, resp)
		if !refused || n >= t.cfg.Retry.Attempts || !t.worthWaiting(r.Context(), pause) {
			return resp, nil
		}
		again := replay(r)
		if again == nil {
			return resp, nil
		}
		discard(resp)
		r = again
	}
}

// note pauses the key of a request that was refused; for how long about.
func (t *Transport) note(key string, sent time.Time, resp *http.Response) (pause time.Duration, refused bool) {
	now := time.Now()
	after, told := retryAfter(resp.Header, now)
	if resp.StatusCode != http.StatusTooManyRequests && (resp.StatusCode != http.StatusServiceUnavailable || !told) {
		t.pauses.passed(key, sent)
		return 0, false
	}
	return t.pauses.refused(key, sent, now, after), true
}

// worthWaiting says whether a request may wait for so long.
func (t *Transport) worthWaiting(ctx context.Context, pause time.Duration) bool {
	end, ends := ctx.Deadline()
	return pause <= t.pauses.longest() && (!ends || time.Until(end) > pause) && ctx.Err() == nil
}

// admit waits until nothing speaks against a request of the key.
func (t *Transport) admit(ctx context.Context, key string, cost int64) error {
	if err := t.pauses.wait(ctx, key); err != nil {
		return err
	}
	if t.cfg.Limit == nil {
		return nil
	}
	if err := t.cfg.Limit.Wait(ctx, key, cost); err != nil {
		return fmt.Errorf("client: pacing %q: %w", key, err)
	}
	return t.pauses.wait(ctx, key) // another request may have been refused meanwhile
}

// replay is a request to be sent again; nil if it cannot be.
func replay(r *http.Request) *http.Request {
	switch r.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodPut, http.MethodDelete:
	default:
		if r.Header["Idempotency-Key"] == nil && r.Header["X-Idempotency-Key"] == nil {
			return nil
		}
	}
	if r.Body == nil || r.Body == http.NoBody {
		return r
	}
	if r.GetBody == nil {
		return nil
	}
	body, err := r.GetBody()
	if err != nil {
		return nil
	}
	again := *r // a RoundTripper must not change the request that it got
	again.Body = body
	return &again
}

// CloseIdleConnections closes those of the base, if it can: http.Client.CloseIdleConnections asks for it.
func (t *Transport) CloseIdleConnections() {
	if c, ok := t.base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// discard reads the rest of a response, if it is short and comes at once, so that the connection can be used again.
func discard(resp *http.Response) {
	const most = 64 << 10
	if resp.ContentLength <= most {
		late := time.AfterFunc(time.Second, func() { resp.Body.Close() })
		defer late.Stop()
		_, _ = io.CopyN(io.Discard, resp.Body, most)
	}
	resp.Body.Close()
}

func closeBody(r *http.Request) {
	if r.Body != nil {
		r.Body.Close()
	}
}

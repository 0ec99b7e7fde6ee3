package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"
)

// Limiter is one limit of the cluster, perhaps under a plan. It is a value, may be copied, and is safe for concurrent use. Use [Client.Limiter].
// Its methods are those of the client with the limit filled in.
type Limiter struct {
	c           *Client
	limit, plan string
}

// Limiter names a limit. It asks nobody: if there is no such limit, the calls say so.
func (c *Client) Limiter(limit string) Limiter { return Limiter{c: c, limit: limit} }

// Plan is the limit for keys that have this plan of it.
func (l Limiter) Plan(name string) Limiter {
	l.plan = name
	return l
}

func (l Limiter) request(key Key, cost int64) Request {
	return Request{Limit: l.limit, Key: key, Cost: cost, Plan: l.plan}
}

// Take decides a request; see [Client.Take].
func (l Limiter) Take(ctx context.Context, key Key, cost int64) (Decision, error) {
	return l.c.Take(ctx, l.request(key, cost))
}

// TakeRoute is Take with the cost that the definition of the limit gives the route.
func (l Limiter) TakeRoute(ctx context.Context, key Key, route string) (Decision, error) {
	return l.c.Take(ctx, Request{Limit: l.limit, Key: key, Route: route, Plan: l.plan})
}

// Refund gives back; see [Client.Refund].
func (l Limiter) Refund(ctx context.Context, key Key, cost int64) (Decision, error) {
	return l.c.Refund(ctx, l.request(key, cost))
}

// Charge takes what was used already; see [Client.Charge].
func (l Limiter) Charge(ctx context.Context, key Key, cost int64) (Decision, error) {
	return l.c.Charge(ctx, l.request(key, cost))
}

// Wait waits until a request passes; see [Client.Wait].
func (l Limiter) Wait(ctx context.Context, key Key, cost int64) (Decision, error) {
	return l.c.Wait(ctx, l.request(key, cost))
}

// Peek looks at a key; see [Client.Peek].
func (l Limiter) Peek(ctx context.Context, key Key) (State, error) {
	return l.c.Peek(ctx, Request{Limit: l.limit, Key: key, Plan: l.plan})
}

// Reset makes a key full again; see [Client.Reset].
func (l Limiter) Reset(ctx context.Context, key Key) error { return l.c.Reset(ctx, l.limit, key) }

// Acquire takes a permit; see [Client.Acquire].
func (l Limiter) Acquire(ctx context.Context, key Key, ttl time.Duration) (*Permit, Decision, error) {
	return l.c.Acquire(ctx, l.limit, key, ttl)
}

// Waiter is the limit as a [Transport] wants it.
func (l Limiter) Waiter() Waiter {
	return WaitFunc(func(ctx context.Context, key string, cost int64) error {
		_, err := l.Wait(ctx, Key{key}, cost)
		return err
	})
}

// Wait takes like Take, and where that is denied again and again until the request passes: as late as each denial says, and a backoff as
// after failures on top, so that those who wait for the same tokens come apart. It waits out a Delay too. The error is nil exactly if the request
// passed. There is no queue: who waits longer has no precedence.
//
// When the next try would be after the deadline of ctx, Wait fails at once with ErrDeadline; the Decision is the last denial. ErrImpossible: no
// wait helps. With these two nothing was taken, nor where ctx ends between two tries; if it ends within one, the error is ErrUncertain too.
func (c *Client) Wait(ctx context.Context, r Request) (Decision, error) {
	for n := 0; ; n++ {
		d, err := c.Take(ctx, r)
		switch {
		case err != nil:
			return d, err
		case d.Allowed:
			return c.delayed(ctx, r, d)
		case d.final():
			return d, fmt.Errorf("%w: %s", ErrImpossible, d.Reason)
		}
		after := d.RetryAfter
		if after == Never { // of a fallback: until the owner answers
			after = 0
		}
		if err := c.retry.pause(ctx, after, n, errDenied); err != nil {
			return d, err
		}
	}
}

var errDenied = errors.New("client: denied")

// delayed waits until a request that has its place in a queue may go on. One that cannot gives the place back.
func (c *Client) delayed(ctx context.Context, r Request, d Decision) (Decision, error) {
	err := error(nil)
	if end, ends := ctx.Deadline(); ends && time.Until(end) < d.Delay {
		err = tooLate(d.Delay, time.Until(end), errQueue)
	} else if d.Delay > 0 {
		err = sleep(ctx, d.Delay)
	}
	if err == nil {
		return d, nil
	}
	r.Cost, r.Route = d.Cost, ""
	d.Allowed, d.RetryAfter = false, d.Delay
	if _, failed := c.Refund(context.WithoutCancel(ctx), r); failed != nil {
		err = fmt.Errorf("%w; its place in the queue could not be given back: %w", err, failed)
	}
	return d, err
}

var errQueue = errors.New("client: its place in the queue is so far back")

// State is what the owner of a key knows of it.
type State struct {
	Limit string
	Key   Key
	Plan  string // whose amounts these are; "": the limit's own, or an override's
	Owner string // the node that answered for the key
	Mode  string

	Burst       int64
	Remaining   int64   // what all nodes together may still admit at once
	Balance     float64 // tokens in the owner's pool; negative when in debt
	Outstanding int64   // tokens that left the pool for nodes, which spend them without asking
	Credit      int64   // of these, with the node that was asked
	Held        int64   // permits, of a limit that counts them

	RetryAfter time.Duration // for a cost of 1; Never: no wait helps
	ResetAfter time.Duration // until the key is full; Never if that is not known
	Age        time.Duration // since the node that was asked heard this
}

// Peek looks at a key, exactly, and changes nothing. Only Limit, Key and Plan of the request matter.
func (c *Client) Peek(ctx context.Context, r Request) (State, error) {
	var b struct {
		Limit, Plan, Owner, Mode              string
		Burst, Remaining, Outstanding, Credit int64
		Held                                  int64
		Balance                               float64
		RetryAfterMS                          *int64 `json:"retry_after_ms"`
		ResetAfterMS                          *int64 `json:"reset_after_ms"`
		AgeMS                                 int64  `json:"age_ms"`
	}
	if err := c.get(ctx, "/v1/peek?"+keyQuery(r.Limit, r.Key, r.Plan), "the state of a key", &b); err != nil {
		return State{}, err
	}
	return State{
		Limit: b.Limit, Key: r.Key, Plan: b.Plan, Owner: b.Owner, Mode: b.Mode,
		Burst: b.Burst, Remaining: b.Remaining, Balance: b.Balance, Outstanding: b.Outstanding, Credit: b.Credit, Held: b.Held,
		RetryAfter: wait(b.RetryAfterMS), ResetAfter: wait(b.ResetAfterMS), Age: wait(&b.AgeMS),
	}, nil
}

// Reset makes a key full again.
func (c *Client) Reset(ctx context.Context, limit string, key Key) error {
	_, err := c.do(ctx, &call{method: http.MethodDelete, path: "/v1/keys?" + keyQuery(limit, key, ""), safe: true})
	return err
}

func keyQuery(limit string, key Key, plan string) string {
	q := url.Values{"limit": {limit}, "key": key}
	if plan != "" {
		q.Set("plan", plan)
	}
	return q.Encode()
}

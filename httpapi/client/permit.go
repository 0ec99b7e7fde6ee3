package client

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"
)

// Permit is one of the permits of a limit of the algorithm concurrency. It is given back by Release or when it expires. A nil Permit
// holds nothing, and its Release does nothing. Safe for concurrent use.
type Permit struct {
	c        *Client
	limit    string
	key      Key
	id       string
	expires  atomic.Int64 // UnixNano
	released atomic.Bool
}

// Acquire takes a permit, if one is free for the key in the whole cluster; it does not wait for one. It lives for ttl, in whole
// milliseconds, 0 for the limit's ttl, unless it is renewed. The Permit is nil unless the Decision is Allowed.
//
//	p, d, err := uploads.Acquire(ctx, client.Key{user}, 0)
//	if err != nil || !d.Allowed {
//		...
//	}
//	defer p.Release(ctx) // also when what follows panics, or ctx ends
//
// With ErrUncertain a permit may be held that nobody knows of, until its time to live is over.
func (c *Client) Acquire(ctx context.Context, limit string, key Key, ttl time.Duration) (*Permit, Decision, error) {
	// Read before it is sent, so that the permit is not thought to live longer than it does.
	sent := time.Now()
	a, err := c.do(ctx, &call{method: http.MethodPost, path: "/v1/acquire", body: permitBody(limit, key, "", ttl), denies: true})
	if err != nil {
		return nil, Decision{}, err
	}
	b, err := readDecision(a)
	if err != nil {
		return nil, Decision{}, err
	}
	d := b.decision(key)
	if !d.Allowed {
		return nil, d, nil
	}
	if b.Permit == "" {
		return nil, Decision{}, notAn(a.addr, "a permit", nil)
	}
	p := &Permit{c: c, limit: limit, key: key, id: b.Permit}
	p.expires.Store(sent.Add(wait(&b.ExpiresInMS)).UnixNano())
	return p, d, nil
}

// permitBody is the body of the calls about permits. ttl is rounded up to what the API can say; a negative one is refused by the node.
func permitBody(limit string, key Key, id string, ttl time.Duration) []byte {
	b := appendLimitKey(nil, limit, key)
	if id != "" {
		b = append(b, `,"permit":`...)
		b = appendString(b, id)
	}
	if ttl != 0 {
		ms := ttl / time.Millisecond
		if ttl%time.Millisecond > 0 {
			ms++
		}
		b = append(b, `,"ttl_ms":`...)
		b = strconv.AppendInt(b, int64(ms), 10)
	}
	return append(b, '}')
}

// ID names the permit at every node of the cluster.
func (p *Permit) ID() string { return p.id }

// Expires is when the permit is given back if it is not renewed before; by this machine's clock, and not too late.
func (p *Permit) Expires() time.Time { return time.Unix(0, p.expires.Load()) }

// Renew lets the permit live for ttl from now, 0 for the limit's ttl. It returns for how long it lives at least: less than asked where the owner of
// the key does not answer. ErrUnknownPermit: it is not held any more.
func (p *Permit) Renew(ctx context.Context, ttl time.Duration) (time.Duration, error) {
	sent := time.Now()
	left, err := p.c.Renew(ctx, p.limit, p.key, p.id, ttl)
	if err == nil {
		p.expires.Store(sent.Add(left).UnixNano())
	}
	return left, err
}

// Release gives the permit back, once. It does so also if ctx has ended, and then takes as long as the tries take.
// ErrUnknownPermit: it had expired. After an error it may be called again.
func (p *Permit) Release(ctx context.Context) error {
	if p == nil || p.released.Swap(true) {
		return nil
	}
	if ctx.Err() != nil {
		ctx = context.WithoutCancel(ctx)
	}
	err := p.c.Release(ctx, p.limit, p.key, p.id)
	if err != nil && !errors.Is(err, ErrUnknownPermit) {
		p.released.Store(false)
	}
	return err
}

// Renew is Permit.Renew for a permit of which only the id is known.
func (c *Client) Renew(ctx context.Context, limit string, key Key, id string, ttl time.Duration) (time.Duration, error) {
	a, err := c.do(ctx, &call{method: http.MethodPost, path: "/v1/acquire", body: permitBody(limit, key, id, ttl), safe: true})
	if err != nil {
		return 0, err
	}
	var b struct {
		ExpiresInMS int64 `json:"expires_in_ms"`
	}
	err = a.read("a permit", &b)
	return wait(&b.ExpiresInMS), err
}

// Release gives back a permit by its id, through any node. ErrUnknownPermit: it is not held (any more). If an earlier try may have released it, that
// is no error.
func (c *Client) Release(ctx context.Context, limit string, key Key, id string) error {
	_, err := c.do(ctx, &call{
		method: http.MethodPost, path: "/v1/release", body: permitBody(limit, key, id, 0), safe: true, already: ErrUnknownPermit,
	})
	return err
}

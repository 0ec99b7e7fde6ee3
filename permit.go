package jatah

import (
	"context"
	"time"

	"github.com/jatah-io/jatah/hybrid"
)

// Permit is one of the permits of a Concurrency limit. It is given back exactly once: by Release, when it expires, or when the node is
// closed or its limit removed. A nil Permit holds nothing, and its Release does nothing. For the methods: go doc
// github.com/jatah-io/jatah/hybrid.Permit
type Permit = hybrid.Permit

// Acquire takes a permit of a Concurrency limit, if one of its Max is free for the key in the whole cluster. It lives for ttl, at most and by default
// (0) the limit's TTL, unless it is renewed. It does not wait for a permit, and blocks no longer than Take does.
// The Permit is nil if Decision.OK is false; errors are told in Decision.Err: as Take, ErrNotConcurrency, ErrTTL.
//
//	p, d := uploads.Acquire(ctx, user, 0)
//	if !d.OK {
//		return tooMany(d.RetryAfter)
//	}
//	defer p.Release(ctx) // also when what follows panics, or ctx ends
//
// A permit should live exactly as long as the work: release it when the work has ended, not when its client has gone. Work that may take
// longer than the TTL renews it. While the owner of the key is silent nobody gets more permits, but with FallbackShare, which may give up
// to Max once more, and FallbackAllow.
func (l *Limiter) Acquire(ctx context.Context, key string, ttl time.Duration) (*Permit, Decision) {
	if err := checkKey(key); err != nil {
		return nil, l.bad(err)
	}
	return l.l.Acquire(ctx, key, ttl)
}

// Release gives back a permit by its id, at whichever node of the cluster it is held. The error is ErrPermit if it is not held (any
// more); ErrUnreachable if the node that holds it does not answer: unless the release arrived, the permit expires there.
func (l *Limiter) Release(ctx context.Context, key, id string) error {
	if err := checkKey(key); err != nil {
		return err
	}
	return l.l.Release(ctx, key, id)
}

// Renew lets a permit live for ttl from now, 0 for the limit's TTL, at whichever node of the cluster it is held. It returns for how long
// it now lives at least: less than asked where the owner of the key does not answer. Errors: as Release, ErrTTL.
func (l *Limiter) Renew(ctx context.Context, key, id string, ttl time.Duration) (time.Duration, error) {
	if err := checkKey(key); err != nil {
		return 0, err
	}
	return l.l.Renew(ctx, key, id, ttl)
}

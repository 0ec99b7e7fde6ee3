package client

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Jitter says which part of a pause is random, so that clients that failed together do not come back together.
type Jitter uint8

const (
	FullJitter  Jitter = iota // all of it: from 0 to the whole pause
	EqualJitter               // half of it: from one half of the pause to the whole
)

// Retry says how often and when something that failed is tried again. The pause before try n+1 is random, up to min(Max, Base*2^(n-1));
// where the other side sent Retry-After it comes on top of that, so that nobody is early. Zero values mean the defaults.
type Retry struct {
	// Attempts is the most tries, the first included. 0: 4. 1: nothing is tried again, and calls carry no Idempotency-Key, which
	// spares nodes remembering their answers.
	Attempts int
	// Base is the longest pause after the first failure. 0: 50 ms.
	Base time.Duration
	// Max bounds the pauses that Base grows to. 0: 5 s.
	Max    time.Duration
	Jitter Jitter
	// MaxRetryAfter is the longest Retry-After that is waited for; who is told to wait longer fails at once.
	// 0: a minute in a Config, an hour in a TransportConfig.
	MaxRetryAfter time.Duration
}

func (r Retry) withDefaults(maxRetryAfter time.Duration) (Retry, error) {
	switch {
	case r.Attempts < 0 || r.Base < 0 || r.Max < 0 || r.MaxRetryAfter < 0:
		return r, fmt.Errorf("%w: Retry: nothing in it may be negative; leave it 0 for the default", ErrConfig)
	case r.Jitter > EqualJitter:
		return r, fmt.Errorf("%w: Retry.Jitter: %d is neither FullJitter nor EqualJitter", ErrConfig, r.Jitter)
	}
	if r.Attempts == 0 {
		r.Attempts = 4
	}
	if r.Base == 0 {
		r.Base = 50 * time.Millisecond
	}
	if r.Max == 0 {
		r.Max = max(5*time.Second, r.Base)
	}
	if r.MaxRetryAfter == 0 {
		r.MaxRetryAfter = maxRetryAfter
	}
	return r, nil
}

// backoff is a pause after n+1 failures.
func (r *Retry) backoff(n int) time.Duration {
	whole := r.Max
	if n < 63 && r.Base <= r.Max>>n {
		whole = r.Base << n
	}
	if r.Jitter == EqualJitter {
		return whole - whole/2 + random(whole/2)
	}
	return random(whole)
}

func random(d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	return rand.N(d)
}

// pause waits for what the other side asked for, after, and a backoff. cause is why; it is part of the error.
func (r *Retry) pause(ctx context.Context, after time.Duration, n int, cause error) error {
	backoff := r.backoff(n)
	if end, ends := ctx.Deadline(); ends {
		left := time.Until(end)
		if left <= after {
			return tooLate(after, left, cause)
		}
		backoff = min(backoff, (left-after)/2) // the next try wants some time too
	}
	if err := sleep(ctx, saturate(after, backoff)); err != nil {
		return fmt.Errorf("client: waiting for the next try: %w; the last one: %w", err, cause)
	}
	return nil
}

// sleep waits for d, or returns the error of a context that ends before.
func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// tooLate is ErrDeadline with its numbers.
func tooLate(needs, left time.Duration, cause error) error {
	return fmt.Errorf("%w: it needs at least %v, there are %v: %w", ErrDeadline, needs, max(0, left), cause)
}

func saturate(a, b time.Duration) time.Duration {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// retryAfter reads the header of that name, which is in seconds or a date. ok is false if there is none that can be read. A date is compared
// with the Date of the same answer, if it has one, so that clocks need not agree.
func retryAfter(head http.Header, now time.Time) (d time.Duration, ok bool) {
	text := strings.TrimSpace(head.Get("Retry-After"))
	if text == "" {
		return 0, false
	}
	if strings.Trim(text, "0123456789") == "" {
		seconds, err := strconv.ParseInt(text, 10, 64)
		if err != nil || seconds > int64(math.MaxInt64/time.Second) {
			return math.MaxInt64, true
		}
		return time.Duration(seconds) * time.Second, true
	}
	at, err := http.ParseTime(text)
	if err != nil {
		return 0, false
	}
	if sent, err := http.ParseTime(head.Get("Date")); err == nil {
		now = sent
	}
	return max(0, at.Sub(now)), true
}

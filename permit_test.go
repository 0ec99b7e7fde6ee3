package jatah_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jatah-io/jatah"
)

func permits(most int64, ttl time.Duration) jatah.Limit {
	return jatah.Limit{Name: "jobs", Algorithm: jatah.Concurrency, Max: most, TTL: ttl}
}

// lone is a node alone with one limit.
func lone(t *testing.T, l jatah.Limit) (*jatah.Node, *jatah.Limiter) {
	t.Helper()
	n, err := jatah.Start(t.Context(), jatah.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Close() })
	lim, err := n.Limit(l)
	if err != nil {
		t.Fatal(err)
	}
	return n, lim
}

// A slot lives exactly as long as its handler: not longer when it panics or a later check refuses, and not shorter when the
// client has gone.
func TestAPermitLivesAsLongAsItsHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, jobs := lone(t, permits(1, time.Minute))
		inFlight := func() int64 {
			st, err := jobs.Peek(t.Context(), "k")
			if err != nil {
				t.Fatal(err)
			}
			return st.Held
		}
		handle := func(ctx context.Context, work func(context.Context)) (ok bool) {
			defer func() { _ = recover() }()
			p, d := jobs.Acquire(ctx, "k", 0)
			if !d.OK {
				return false
			}
			defer p.Release(ctx)
			ok = true
			work(ctx)
			return true
		}
		handle(t.Context(), func(context.Context) { panic("the handler fails") })
		if n := inFlight(); n != 0 {
			t.Errorf("after a panic %d are in flight", n)
		}
		ctx, hangUp := context.WithCancel(t.Context())
		var done sync.WaitGroup
		done.Go(func() { handle(ctx, func(context.Context) { time.Sleep(1900 * time.Millisecond) }) })
		time.Sleep(100 * time.Millisecond)
		hangUp()
		time.Sleep(time.Second)
		if handle(t.Context(), func(context.Context) {}) {
			t.Error("a second handler ran beside the one whose client has gone")
		}
		done.Wait()
		if !handle(t.Context(), func(context.Context) {}) {
			t.Error("the permit did not come back with the end of the handler")
		}
		denied := 0
		for range 5 { // a check that comes after the permit refuses
			handle(t.Context(), func(context.Context) { denied++ })
		}
		if n := inFlight(); n != 0 || denied != 5 {
			t.Errorf("%d were refused afterwards, want 5; %d are in flight", denied, n)
		}
	})
}

func TestPermitsExpireAndAreRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, jobs := lone(t, permits(2, 10*time.Second))
		ctx := t.Context()
		a, d := jobs.Acquire(ctx, "k", 0)
		if !d.OK || d.Remaining != 1 {
			t.Fatalf("%+v", d)
		}
		b, d := jobs.Acquire(ctx, "k", time.Second)
		if !d.OK || d.Remaining != 0 || a.ID() == b.ID() || !strings.HasSuffix(b.ID(), "@"+n.Name()) {
			t.Fatalf("%s %s %+v", a.ID(), b.ID(), d)
		}
		if c, d := jobs.Acquire(ctx, "k", 0); c != nil || d.OK || d.Err != nil || d.RetryAfter == jatah.Never || d.RetryAfter <= 0 {
			t.Errorf("a third of two: %+v", d)
		}
		time.Sleep(1100 * time.Millisecond)
		if err := b.Release(ctx); !errors.Is(err, jatah.ErrPermit) {
			t.Errorf("it has expired: %v", err)
		}
		c, d := jobs.Acquire(ctx, "k", 0)
		if !d.OK {
			t.Fatalf("after one has expired: %+v", d)
		}
		time.Sleep(8 * time.Second)
		if left, err := a.Renew(ctx, 0); err != nil || left != 10*time.Second {
			t.Errorf("renewed for %v: %v", left, err)
		}
		if left, err := a.Renew(ctx, time.Second); err != nil || left != 10*time.Second {
			t.Errorf("a shorter life took away time: %v left, %v", left, err)
		}
		time.Sleep(9 * time.Second)
		if err := jobs.Release(ctx, "k", a.ID()); err != nil {
			t.Errorf("it was renewed: %v", err)
		}
		for _, id := range []string{a.ID(), c.ID(), "", "x", "x@nobody", strings.ToLower(a.ID())} {
			if err := jobs.Release(ctx, "k", id); !errors.Is(err, jatah.ErrPermit) {
				t.Errorf("%q: %v", id, err)
			}
		}
		if st, _ := jobs.Peek(ctx, "k"); st.Held != 0 || st.Remaining != 2 {
			t.Errorf("%+v", st)
		}
	})
}

func TestPermitsAreNotTokens(t *testing.T) {
	n, jobs := lone(t, permits(2, time.Minute))
	ctx := t.Context()
	for what, err := range map[string]error{"take": jobs.Take(ctx, "k", 1).Err, "look": jobs.Take(ctx, "k", 0).Err, "refund": jobs.Refund(ctx, "k", 1).Err,
		"charge": jobs.Charge(ctx, "k", 1).Err, "reset": jobs.Reset(ctx, "k"), "batch": n.Batch(ctx, []jatah.Request{{Limit: "jobs", Key: "k", Cost: 1}})[0].Err} {
		if !errors.Is(err, jatah.ErrConcurrency) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, ttl := range []time.Duration{-1, time.Minute + 1} {
		if _, d := jobs.Acquire(ctx, "k", ttl); !errors.Is(d.Err, jatah.ErrTTL) {
			t.Errorf("a life of %v: %+v", ttl, d)
		}
	}
	api, err := n.Limit(jatah.Limit{Name: "api", Rate: jatah.PerSecond(1)})
	if err != nil {
		t.Fatal(err)
	}
	if _, d := api.Acquire(ctx, "k", 0); !errors.Is(d.Err, jatah.ErrNotConcurrency) {
		t.Errorf("%+v", d)
	}
	if err := api.Release(ctx, "k", "x"); !errors.Is(err, jatah.ErrNotConcurrency) {
		t.Error(err)
	}
	var none *jatah.Permit
	if err := none.Release(ctx); err != nil || none.ID() != "" {
		t.Errorf("a nil permit: %v", err)
	}
	for says, l := range map[string]jatah.Limit{
		"max": {Name: "x", Algorithm: jatah.Concurrency}, "rate": {Name: "x", Algorithm: jatah.Concurrency, Max: 1, Rate: jatah.PerSecond(1)},
		"ttl": {Name: "x", Algorithm: jatah.Concurrency, Max: 1, TTL: -1}, "overshoot": {Name: "x", Algorithm: jatah.Concurrency, Max: 1, Overshoot: 0.1},
		"ttl is": {Name: "x", Rate: jatah.PerSecond(1), TTL: time.Second}, "max has": {Name: "x", Rate: jatah.PerSecond(1), Max: 1},
		"remove it first": {Name: "api", Algorithm: jatah.Concurrency, Max: 1},
	} {
		if _, err := n.Limit(l); !errors.Is(err, jatah.ErrLimit) || !strings.Contains(err.Error(), says) {
			t.Errorf("%+v: %v, which does not say %q", l, err, says)
		}
	}
	if l := jobs.Limit(); !l.Equal(permits(2, time.Minute)) {
		t.Errorf("the definition came back as %+v", l)
	}
	p, _ := jobs.Acquire(ctx, "k", 0)
	n.RemoveLimit("jobs")
	if err := p.Release(ctx); !errors.Is(err, jatah.ErrPermit) {
		t.Errorf("the limit has gone: %v", err)
	}
}

// In split mode each node gives its whole permits; in dry run everybody gets one, and it holds nothing beyond the limit.
func TestPermitsInSplitAndDryRun(t *testing.T) {
	l := permits(4, time.Minute)
	l.Mode = jatah.Split
	inBubble(t, 3, l, 1, func(b *bubble) {
		b.start(3)
		var held []*jatah.Permit
		for _, h := range b.up() {
			for range 4 {
				if p, d := h.life.Load().lim.Acquire(b.t.Context(), "k", 0); d.OK {
					held = append(held, p)
				}
			}
		}
		if len(held) != 4 {
			b.t.Errorf("three nodes gave %d of 4", len(held))
		}
		for _, p := range held {
			if err := p.Release(b.t.Context()); err != nil {
				b.t.Error(err)
			}
		}
	})
	l = permits(1, time.Minute)
	l.DryRun = true
	_, jobs := lone(t, l)
	a, _ := jobs.Acquire(t.Context(), "k", 0)
	c, d := jobs.Acquire(t.Context(), "k", 0)
	if !d.OK || !d.DryRun || c == nil {
		t.Fatalf("%+v", d)
	}
	if err := errors.Join(c.Release(t.Context()), a.Release(t.Context())); err != nil {
		t.Error(err)
	}
	if st, _ := jobs.Peek(t.Context(), "k"); st.Held != 0 || st.Remaining != 1 {
		t.Errorf("%+v", st)
	}
}

// acquireAll takes permits at the given hosts until none is free, in less than a second.
func (b *bubble) acquireAll(key string, hosts ...*host) (got []*jatah.Permit) {
	for range 8 {
		for _, h := range slices.Repeat(hosts, 6) {
			p, d := h.life.Load().lim.Acquire(b.t.Context(), key, 0)
			if d.Err != nil {
				b.t.Fatal(d.Err)
			}
			if d.ResetAfter != jatah.Never {
				b.t.Errorf("nobody knows when permits come back, and the answer says in %v: %+v", d.ResetAfter, d)
			}
			if d.OK {
				got = append(got, p)
			}
		}
		time.Sleep(100 * time.Millisecond)
	}
	return got
}

func TestPermitsOfACrashedNode(t *testing.T) {
	for _, mode := range []jatah.Mode{jatah.Hybrid, jatah.Strict} {
		for _, ttl := range []time.Duration{time.Second, 30 * time.Second} {
			l := permits(6, ttl)
			l.Mode = mode
			inBubble(t, 5, l, 1, func(b *bubble) {
				b.start(3)
				x := b.hosts[2] // its address is no seed, and so is not counted after grace
				key := "k"
				for b.find(key) == x {
					key += "k"
				}
				rest := b.others(x)
				held := b.acquireAll(key, x)
				if len(held) != 6 {
					b.t.Fatalf("%v: one node got %d of 6", mode, len(held))
				}
				if ttl > time.Second {
					if p, d := rest[0].life.Load().lim.Acquire(b.t.Context(), key, 0); p != nil || d.OK {
						b.t.Errorf("a seventh: %+v", d)
					}
				}
				x.crash()
				free := b.within(30*time.Second, "a permit of the crashed node is free", func() bool {
					p, d := rest[0].life.Load().lim.Acquire(b.t.Context(), key, 0)
					if d.OK {
						_ = p.Release(b.t.Context())
					} else {
						time.Sleep(50 * time.Millisecond)
					}
					return d.OK
				})
				b.t.Logf("%v, ttl %v: free after %v", mode, ttl, free)
				if ttl == time.Second && free > 3*time.Second {
					b.t.Errorf("%v: the permits have expired, but were free only after %v", mode, free)
				}
				// Without the share of the lost node until its grace is over, then with it.
				got := b.acquireAll(key, rest...)
				if len(got) < 4 && ttl > time.Second {
					b.t.Errorf("%v: %d permits are free, want 4 or more of 6", mode, len(got))
				}
				for _, p := range got {
					_ = p.Release(b.t.Context())
				}
				time.Sleep(40 * time.Second)
				if ttl > time.Second {
					if got = b.acquireAll(key, rest...); len(got) != 6 {
						b.t.Errorf("%v: after grace %d of 6 are free", mode, len(got))
					}
				}
			})
		}
	}
}

// A release and a renewal that arrive at another node than the holder are done there, once, also on a bad network.
func TestPermitsReleasedElsewhere(t *testing.T) {
	inBubble(t, 7, permits(3, 30*time.Second), 1, func(b *bubble) {
		b.start(3)
		b.weather(rough(0.05))
		ctx := b.t.Context()
		for round := range 10 {
			h, o := b.hosts[round%3], b.hosts[(round+1)%3]
			var p *jatah.Permit
			b.within(10*time.Second, "a permit", func() bool {
				var d jatah.Decision
				if p, d = h.life.Load().lim.Acquire(ctx, "k", 5*time.Second); p == nil {
					time.Sleep(50 * time.Millisecond)
				}
				return d.OK
			})
			if left, err := o.life.Load().lim.Renew(ctx, "k", p.ID(), 20*time.Second); err != nil || left < 19*time.Second {
				b.t.Errorf("renewed elsewhere: %v, %v", left, err)
			}
			if err := o.life.Load().lim.Release(ctx, "other", p.ID()); !errors.Is(err, jatah.ErrPermit) {
				b.t.Errorf("under another key: %v", err)
			}
			var wg sync.WaitGroup
			results := make([]error, 3)
			for i, at := range b.hosts {
				wg.Go(func() { results[i] = at.life.Load().lim.Release(ctx, "k", p.ID()) })
			}
			wg.Wait()
			done := 0
			for _, err := range results {
				if err == nil {
					done++
				} else if !errors.Is(err, jatah.ErrPermit) {
					b.t.Errorf("release: %v", err)
				}
			}
			if done != 1 {
				b.t.Errorf("released at three nodes at once, %d of them did it", done)
			}
		}
		b.weather(rough(0))
		time.Sleep(5 * time.Second)
		if got := b.acquireAll("k", b.hosts...); len(got) != 3 {
			b.t.Errorf("in the end %d of 3 are free", len(got))
		}
	})
}

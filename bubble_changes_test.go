package jatah_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jatah-io/jatah"
)

// eventually asks until a request passes or the time is over.
func (h *host) eventually(key string, limit time.Duration) (took time.Duration, ok bool) {
	for begin := h.b.now(); ; time.Sleep(5 * time.Millisecond) {
		if ok, took = h.take(key, 1).OK, h.b.now()-begin; ok || took > limit {
			return took, ok
		}
	}
}

// A node that refuses a key from memory hears within a tick that tokens are back, however long ago it was refused and
// whoever gives them back.
func TestRefusedNodesHearOfTokensWithinATick(t *testing.T) {
	const limit = 100*time.Millisecond + 10*time.Millisecond
	for _, since := range []time.Duration{10 * time.Millisecond, 500 * time.Millisecond, 5 * time.Second} {
		modes(t, func(t *testing.T, mode jatah.Mode) {
			t.Run(fmt.Sprint("refused ", since, " ago"), func(t *testing.T) {
				inBubble(t, 1, slow(20, mode, jatah.FallbackShare), 1, func(b *bubble) {
					b.start(3)
					key := b.keys[0]
					for i := range 9 {
						giver, asked := b.hosts[i%3], b.hosts[i/3]
						for _, h := range b.hosts {
							h.takes(key, 30)
						}
						// A token or so may be idle credit somewhere.
						if n, most := b.admitted(key), int64(20*(i+1)); n < most-3 || n > most {
							b.t.Fatalf("%d admitted, want %d", n, most)
						}
						time.Sleep(since)
						if d := giver.life.Load().lim.Refund(context.Background(), key, 20); !d.OK {
							b.t.Fatalf("refund: %+v", d)
						}
						if took, ok := asked.eventually(key, limit); !ok {
							t.Errorf("%s still refuses %v after a refund at %s", asked.name, took, giver.name)
							asked.eventually(key, time.Minute)
						}
					}
				})
			})
		})
	}
}

// What a charge takes, a refund and a reset give counts at every node, through whichever it is told.
func TestRefundChargeAndResetThroughAnyNode(t *testing.T) {
	modes(t, func(t *testing.T, mode jatah.Mode) {
		inBubble(t, 1, slow(100, mode, jatah.FallbackShare), 1, func(b *bubble) {
			b.start(3)
			ctx, key := context.Background(), b.keys[0]
			expect := func(what string, want float64) {
				t.Helper()
				for _, h := range b.hosts {
					st, err := h.life.Load().lim.Peek(ctx, key)
					if got := st.Balance + float64(st.Outstanding); err != nil || got < want-0.01 || got > want+0.01 {
						t.Errorf("%s, asked at %s: %+v, %v, want %v tokens in all", what, h.name, st, err, want)
					}
				}
			}
			for _, h := range b.hosts {
				l := h.life.Load().lim
				if d := l.Charge(ctx, key, 30); !d.OK {
					t.Errorf("charge: %+v", d)
				}
				expect("charged 30", 70)
				if d := l.Refund(ctx, key, 10); !d.OK {
					t.Errorf("refund: %+v", d)
				}
				expect("refunded 10", 80)
				if d := l.Charge(ctx, key, 130); !d.OK {
					t.Errorf("charge: %+v", d)
				}
				expect("in debt", -50)
				for _, o := range b.hosts {
					// Credit that is out is spent first; it is part of what the key has.
					time.Sleep(6 * time.Second)
					if d := o.take(key, 1); d.OK || d.RetryAfter < 50*24*time.Hour-time.Minute {
						t.Errorf("%s admits a key in debt: %+v", o.name, d)
					}
				}
				if err := l.Reset(ctx, key); err != nil {
					t.Error(err)
				}
				expect("reset", 100)
				if d := l.Refund(ctx, key, 50); !d.OK {
					t.Errorf("refund: %+v", d)
				}
				expect("refunded to a full key", 100)
			}
		})
	})
}

// A definition that changes on all nodes keeps what was used: a lower burst cuts what is there, a higher one gives nothing, and a
// new rate counts from then on.
func TestLimitChangesLiveOnAllNodes(t *testing.T) {
	modes(t, func(t *testing.T, mode jatah.Mode) {
		inBubble(t, 1, slow(100, mode, jatah.FallbackShare), 3, func(b *bubble) {
			b.start(3)
			change := func(rate jatah.Rate, burst int64) {
				b.limit.Rate, b.limit.Burst = rate, burst
				for _, h := range b.hosts {
					if _, err := h.node().Limit(b.limit); err != nil {
						b.t.Fatal(err)
					}
					time.Sleep(50 * time.Millisecond)
				}
			}
			spend := func(want int64) {
				t.Helper()
				time.Sleep(6 * time.Second) // credit comes back
				for i, key := range b.keys {
					var got int64
					for j := range b.hosts {
						got += b.hosts[(i+j)%3].takes(key, int(want)+20)
					}
					if got != want {
						t.Errorf("%s: %d admitted, want %d", key, got, want)
					}
				}
			}
			for i, key := range b.keys {
				if got := b.hosts[i].takes(key, 1); got != 1 {
					t.Errorf("%s: refused", key)
				}
			}
			time.Sleep(time.Second) // what was used is known
			change(jatah.PerDay(1), 10)
			spend(10) // 99 were there, 10 remain
			change(jatah.PerDay(1), 1000)
			spend(0)
			change(jatah.PerSecond(1000), 1000)
			time.Sleep(2 * time.Second)
			change(jatah.PerDay(1), 1000)
			spend(1000)
		})
	})
}

// Exhausted keys stay exhausted through a rolling restart of the whole cluster under load: only the refill passes.
func TestRollingRestartForgetsNothing(t *testing.T) {
	for _, fb := range []jatah.Fallback{jatah.FallbackShare, jatah.FallbackWait} {
		modes(t, func(t *testing.T, mode jatah.Mode) {
			t.Run(fb.String(), func(t *testing.T) {
				limit := jatah.Limit{Name: "api", Rate: jatah.PerHour(100), Burst: 100, Mode: mode, Fallback: fb}
				inBubble(t, 1, limit, 30, func(b *bubble) {
					b.start(3)
					for _, key := range b.keys {
						if fb == jatah.FallbackWait {
							b.fill(key)
						}
						for _, h := range b.hosts {
							h.takes(key, 150)
						}
						if n := b.admitted(key); n < 100 {
							t.Errorf("%s: %d of 100 admitted", key, n)
						}
					}
					b.generate()
					b.offer(600)
					for _, h := range b.hosts {
						h.leave()
						time.Sleep(500 * time.Millisecond)
						h.open()
						if err := h.node().Wait(context.Background()); err != nil {
							b.t.Fatal(err)
						}
						time.Sleep(2 * time.Second)
					}
					b.together(10*time.Second, 3)
					time.Sleep(5 * time.Second)
					if x := b.excess(); x > tolerance {
						t.Errorf("excess %v", x)
					}
					b.offer(0)
					var debt uint64
					for _, h := range b.hosts {
						debt += h.node().Stats().Debt
					}
					t.Logf("offered %d, by source %v, debt %d", b.offered, b.bySource, debt)
				})
			})
		})
	}
}

// Credit that the owner of a key grants itself is in its books for as long as it can be spent.
func TestOwnersOwnIdleCreditIsCounted(t *testing.T) {
	for _, idle := range []time.Duration{100 * time.Millisecond, time.Second, 4 * time.Second, 20 * time.Second} {
		limit := jatah.Limit{Name: "api", Rate: jatah.PerSecond(1000), Burst: 1000, Fallback: jatah.FallbackWait}
		inBubble(t, 1, limit, 1, func(b *bubble) {
			b.start(3)
			key := b.keys[0]
			o := b.owner(key)
			o.take(key, 1)
			time.Sleep(idle)
			all := b.others(o)[0].take(key, 1000)
			more := o.take(key, 50)
			if x := b.excess(); x > tolerance {
				t.Errorf("excess %v: after %v of quiet %+v elsewhere, and then %+v at the owner", x, idle, all, more)
			}
		})
	}
}

// Credit that is not used comes back and is not handed out again: a cluster that is left alone holds nothing.
func TestQuietClusterHoldsNothing(t *testing.T) {
	inBubble(t, 1, jatah.Limit{Name: "api", Rate: jatah.PerSecond(10), Burst: 50}, 20, func(b *bubble) {
		b.start(5)
		b.generate()
		b.offer(100)
		time.Sleep(3 * time.Second)
		b.offer(0)
		time.Sleep(15 * time.Second)
		for _, h := range b.hosts {
			if s := h.node().Stats(); s.Active != 0 || s.Ledgers != 0 {
				t.Errorf("%s: %d accounts hold credit or have something to report, and %d keys are not full", h.name, s.Active, s.Ledgers)
			}
		}
	})
}

// A look takes nothing, not even credit.
func TestPeekLeavesNoCreditBehind(t *testing.T) {
	inBubble(t, 1, jatah.Limit{Name: "api", Rate: jatah.PerSecond(10), Burst: 50}, 1, func(b *bubble) {
		b.start(3)
		for range 2 {
			for _, h := range b.hosts {
				st, err := h.life.Load().lim.Peek(context.Background(), "key-0")
				if err != nil || st.Outstanding != 0 || st.Credit != 0 || st.Remaining != 50 {
					t.Errorf("%s: %+v, %v", h.name, st, err)
				}
			}
			// Now for a key that was used and has come to rest.
			b.hosts[0].take("key-0", 1)
			time.Sleep(15 * time.Second)
		}
	})
}

// A denial at half the rate, because half of the cluster is gone, does not outlast that: when the whole rate is there again
// the tokens are given out as they come.
func TestDenialEndsWhenTheRateIsWholeAgain(t *testing.T) {
	modes(t, func(t *testing.T, mode jatah.Mode) {
		inBubble(t, 1, jatah.Limit{Name: "api", Rate: jatah.PerMinute(1), Burst: 10, Mode: mode}, 1, func(b *bubble) {
			b.tune = func(c *jatah.Config) { c.Join = []string{b.hosts[0].addr} } // two seeds would keep the shares at a half
			b.start(2)
			left, key := b.hosts[0], b.keys[0]
			b.hosts[1].crash()
			time.Sleep(10 * time.Second)
			b.fill(key)
			left.takes(key, 12)
			refused := b.now()
			took, ok := left.eventually(key, 2*time.Minute)
			// Grace is 20 s: until about then it gains 1 token per 2 minutes.
			if !ok || took > 100*time.Second {
				t.Errorf("refused for %v from %v on", took, refused)
			}
		})
	})
}

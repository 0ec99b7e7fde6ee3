package jatah_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jatah-io/jatah"
)

// alone runs f in virtual time with a node without a network and one limit, and checks that no waiter and no queue is left.
func alone(t *testing.T, limit jatah.Limit, f func(t *testing.T, n *jatah.Node, l *jatah.Limiter)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n, err := jatah.Start(t.Context(), jatah.Config{})
		if err != nil {
			t.Fatal(err)
		}
		l, err := n.Limit(limit)
		if err != nil {
			t.Fatal(err)
		}
		f(t, n, l)
		synctest.Wait()
		if q := jatah.Queues(l); q != 0 {
			t.Errorf("%d keys have a queue though nobody waits", q)
		}
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
}

// ms makes test tables short.
func ms(n int) time.Duration { return time.Duration(n) * time.Millisecond }

// visit is one call of Wait.
type visit struct {
	arrive time.Duration // since the begin of the test
	cost   int64
	end    time.Duration // deadline of its context; 0: none
	quit   time.Duration // when its context is cancelled; 0: never

	passed time.Duration // when it was granted; -1: it was not
	ended  time.Duration
	err    error
}

// play makes all visits, in the order of their arrival, and returns when each has ended.
func play(t *testing.T, l *jatah.Limiter, key string, visits []visit) {
	t.Helper()
	begin := time.Now()
	var all sync.WaitGroup
	for i := range visits {
		v := &visits[i]
		time.Sleep(v.arrive - time.Since(begin))
		ctx, cancel := context.WithCancel(t.Context())
		if v.end > 0 {
			ctx, cancel = context.WithDeadline(t.Context(), begin.Add(v.end))
		}
		if v.quit > 0 {
			time.AfterFunc(v.quit-v.arrive, cancel)
		}
		all.Go(func() {
			defer cancel()
			d, err := l.Wait(ctx, key, v.cost)
			v.ended, v.passed, v.err = time.Since(begin), -1, err
			if err == nil {
				v.passed = v.ended
			}
			if d.OK != (err == nil) || d.Err != err {
				t.Errorf("visit %d: decision %+v with error %v", i, d, err)
			}
		})
		synctest.Wait() // it has its place before the next comes
	}
	all.Wait()
}

// twin says when each visit passes: the exact and dumb one. A full bucket of burst tokens gains one each step, visits are served in
// their order, and one that cannot pass before it ends takes nothing. -1: it does not pass.
func twin(visits []visit, step time.Duration, burst int64) []time.Duration {
	out := make([]time.Duration, len(visits))
	full := time.Duration(0) // when the bucket would be full
	first := time.Duration(0)
	for i, v := range visits {
		at := max(v.arrive, first, full+time.Duration(v.cost-burst)*step)
		if quit := v.quit; quit > 0 && at >= quit {
			out[i] = -1
			first = max(first, min(quit, at)) // it held its place until then
			continue
		}
		if v.end > 0 && at > v.end {
			out[i] = -1
			continue
		}
		out[i], first = at, at
		full = max(full, at) + time.Duration(v.cost)*step
	}
	return out
}

// A hundred waiters of mixed costs pass in their order, each at the very nanosecond that an exact bucket says; who cannot make it is told at once.
func TestWaitersPassAsAnExactTwinSays(t *testing.T) {
	for seed := *firstSeed; seed < *firstSeed+6; seed++ {
		for _, kind := range []string{"patient", "deadlines", "cancels"} {
			t.Run(fmt.Sprintf("%s/seed%d", kind, seed), func(t *testing.T) {
				t.Parallel()
				rng := rand.New(rand.NewPCG(seed, uint64(len(kind))))
				visits := make([]visit, 100)
				at := time.Duration(0)
				for i := range visits {
					at += ms(1 + rng.IntN(40))
					v := visit{arrive: at, cost: 1 + rng.Int64N(12)}
					switch {
					case kind == "deadlines" && rng.IntN(3) > 0:
						v.end = at + ms(rng.IntN(3000)) + 500*time.Microsecond // never the moment of a grant: that would be a race
					case kind == "cancels" && rng.IntN(3) == 0:
						v.quit = at + ms(1+rng.IntN(2500)) + 500*time.Microsecond
					}
					visits[i] = v
				}
				const step, burst = 10 * time.Millisecond, 20
				want := twin(visits, step, burst)
				alone(t, jatah.Limit{Name: "api", Rate: jatah.PerSecond(100), Burst: burst}, func(t *testing.T, _ *jatah.Node, l *jatah.Limiter) {
					play(t, l, "k", visits)
				})
				passed, last := 0, time.Duration(0)
				for i, v := range visits {
					if v.passed != want[i] {
						t.Fatalf("visit %d %+v passed at %v, want %v", i, v, v.passed, want[i])
					}
					switch {
					case v.passed >= 0:
						if v.passed < last {
							t.Errorf("visit %d passed at %v, before an earlier one at %v", i, v.passed, last)
						}
						passed, last = passed+1, v.passed
					case v.end > 0:
						if !errors.Is(v.err, jatah.ErrDeadline) || v.ended != v.arrive {
							t.Errorf("visit %d %+v: %v; want ErrDeadline on arrival", i, v, v.err)
						}
					case !errors.Is(v.err, context.Canceled) || v.ended != v.quit:
						t.Errorf("visit %d %+v: %v; want the context's error when it was cancelled", i, v, v.err)
					}
				}
				if passed < 20 || kind != "patient" && passed == len(visits) {
					t.Errorf("%d of %d passed: the test shows nothing", passed, len(visits))
				}
			})
		}
	}
}

// A waiter that leaves makes room: whoever arrives after that counts only those who are left.
func TestALeavingWaiterShiftsTheOthers(t *testing.T) {
	visits := []visit{
		{cost: 1},                                // takes all
		{arrive: ms(1), cost: 1},                 // passes at 1 s
		{arrive: ms(2), cost: 1, quit: ms(10)},   // would pass at 2 s
		{arrive: ms(3), cost: 1, end: ms(2900)},  // would pass at 3 s
		{arrive: ms(20), cost: 1, end: ms(2900)}, // passes at 2 s
		{arrive: ms(30), cost: 1, end: ms(2900)},
	}
	alone(t, jatah.Limit{Name: "api", Rate: jatah.PerSecond(1), Burst: 1}, func(t *testing.T, _ *jatah.Node, l *jatah.Limiter) {
		play(t, l, "k", visits)
	})
	for i, want := range []time.Duration{0, ms(1000), -1, -1, ms(2000), -1} {
		if visits[i].passed != want {
			t.Errorf("visit %d: passed at %v, %v; want %v", i, visits[i].passed, visits[i].err, want)
		}
	}
	for _, i := range []int{3, 5} {
		if v := visits[i]; !errors.Is(v.err, jatah.ErrDeadline) || v.ended != v.arrive {
			t.Errorf("visit %d: %v at %v; want ErrDeadline on arrival", i, v.err, v.ended)
		}
	}
}

// When somebody else takes the tokens that waiters counted on, those who cannot make it any more are told then, and not when they end.
func TestWaitersAreToldWhenTheirDeadlineIsLost(t *testing.T) {
	alone(t, jatah.Limit{Name: "api", Rate: jatah.PerSecond(10), Burst: 1}, func(t *testing.T, _ *jatah.Node, l *jatah.Limiter) {
		time.AfterFunc(ms(50), func() { l.Charge(context.Background(), "k", 5) })
		visits := []visit{{cost: 1}, {arrive: ms(1), cost: 1}, {arrive: ms(2), cost: 1, end: ms(250)}, {arrive: ms(3), cost: 1, end: ms(750)}}
		play(t, l, "k", visits)
		for i, want := range []time.Duration{0, ms(600), -1, ms(700)} {
			if visits[i].passed != want {
				t.Errorf("visit %d: passed at %v, %v; want %v", i, visits[i].passed, visits[i].err, want)
			}
		}
		if v := visits[2]; !errors.Is(v.err, jatah.ErrDeadline) || v.ended != ms(100) {
			t.Errorf("%v at %v; want ErrDeadline at 100 ms, when the first was denied again", v.err, v.ended)
		}
	})
}

// So is the first of the queue, when its own next denial shows it.
func TestTheFirstIsToldWhenItsDeadlineIsLost(t *testing.T) {
	alone(t, jatah.Limit{Name: "api", Rate: jatah.PerSecond(10), Burst: 1}, func(t *testing.T, _ *jatah.Node, l *jatah.Limiter) {
		time.AfterFunc(ms(50), func() { l.Charge(context.Background(), "k", 5) })
		visits := []visit{{cost: 1}, {arrive: ms(1), cost: 1, end: ms(250)}}
		play(t, l, "k", visits)
		if v := visits[1]; !errors.Is(v.err, jatah.ErrDeadline) || v.ended != ms(100) {
			t.Errorf("%v at %v; want ErrDeadline at 100 ms", v.err, v.ended)
		}
	})
}

// What cannot pass, ever or in time, is refused at once, spends nothing and takes no place.
func TestWaitRefusesAtOnce(t *testing.T) {
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	for _, c := range []struct {
		name string
		rate jatah.Rate
		ctx  context.Context
		key  string
		cost int64
		want error
	}{
		{name: "above the burst", cost: 6, want: jatah.ErrImpossible},
		{name: "rate 0", rate: jatah.PerSecond(0), cost: 1, want: jatah.ErrImpossible},
		{name: "negative", cost: -1, want: jatah.ErrNegativeCost},
		{name: "no key", key: "-", cost: 1, want: jatah.ErrKeyEmpty},
		{name: "long key", key: string(make([]byte, jatah.MaxKey+1)), cost: 1, want: jatah.ErrKeyTooLong},
		{name: "an ended context", ctx: cancelled, cost: 1, want: context.Canceled},
	} {
		for _, busy := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/%v", c.name, busy), func(t *testing.T) {
				limit := jatah.Limit{Name: "api", Rate: jatah.PerSecond(1), Burst: 5}
				alone(t, limit, func(t *testing.T, n *jatah.Node, l *jatah.Limiter) {
					ctx, key := c.ctx, c.key
					switch key {
					case "":
						key = "k"
					case "-":
						key = ""
					}
					if ctx == nil {
						ctx = context.Background()
					}
					hold, release := context.WithCancel(t.Context())
					if busy { // somebody waits
						l.Charge(hold, "k", 100)
						go l.Wait(hold, "k", 1)
						synctest.Wait()
					}
					if c.rate != (jatah.Rate{}) {
						limit.Rate = c.rate
						if _, err := n.Limit(limit); err != nil {
							t.Fatal(err)
						}
					}
					before, _ := l.Peek(hold, "k")
					begin := time.Now()
					d, err := l.Wait(ctx, key, c.cost)
					if !errors.Is(err, c.want) || d.OK || d.Err != err || time.Since(begin) != 0 {
						t.Errorf("after %v: %+v, %v; want %v at once", time.Since(begin), d, err, c.want)
					}
					if after, _ := l.Peek(hold, "k"); after != before {
						t.Errorf("the key changed from %+v to %+v", before, after)
					}
					release()
				})
			})
		}
	}
}

// Removing the limit, and closing the node, wakes all who wait; nobody can wait after that.
func TestWaitersEndWithTheLimit(t *testing.T) {
	for name, end := range map[string]func(n *jatah.Node){
		"removed": func(n *jatah.Node) { n.RemoveLimit("api") },
		"closed":  func(n *jatah.Node) { _ = n.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			alone(t, jatah.Limit{Name: "api", Rate: jatah.PerDay(1), Burst: 1}, func(t *testing.T, n *jatah.Node, l *jatah.Limiter) {
				other, _ := n.Lookup("api")
				begin := time.Now()
				var all sync.WaitGroup
				for i := range 30 {
					key := fmt.Sprint(i % 3)
					l.Take(t.Context(), key, 1)
					all.Go(func() {
						if d, err := []*jatah.Limiter{l, other}[i%2].Wait(t.Context(), key, 1); !errors.Is(err, jatah.ErrClosed) {
							t.Errorf("%+v, %v; want ErrClosed", d, err)
						}
					})
				}
				time.Sleep(time.Minute)
				end(n)
				all.Wait()
				if took := time.Since(begin); took != time.Minute {
					t.Errorf("they were told after %v, want at the end", took)
				}
				if _, err := l.Wait(t.Context(), "0", 1); !errors.Is(err, jatah.ErrClosed) {
					t.Errorf("a wait after the end: %v; want ErrClosed", err)
				}
			})
		})
	}
}

// A limit that is removed and defined again is another one: nobody waits for the old one's tokens.
func TestALimitDefinedAnewHasItsOwnQueues(t *testing.T) {
	limit := jatah.Limit{Name: "api", Rate: jatah.PerDay(1), Burst: 1}
	alone(t, limit, func(t *testing.T, n *jatah.Node, l *jatah.Limiter) {
		n.RemoveLimit("api")
		again, err := n.Limit(limit)
		if err != nil || again == l {
			t.Fatalf("the removed limit's handle is given out again, %v", err)
		}
		if d, err := again.Wait(t.Context(), "k", 1); err != nil {
			t.Errorf("%+v, %v", d, err)
		}
		if same, ok := n.Lookup("api"); !ok || same != again {
			t.Error("Lookup gives another handle than Limit")
		}
	})
}

// Tokens that come early are used early: a refund, a reset, a higher rate, and what no one told the first waiter of.
func TestWaitersUseTokensThatComeEarly(t *testing.T) {
	limit := jatah.Limit{Name: "api", Rate: jatah.PerHour(1), Burst: 10}
	for name, c := range map[string]struct {
		early func(n *jatah.Node, l *jatah.Limiter)
		want  time.Duration // after the event
	}{
		"refund": {func(_ *jatah.Node, l *jatah.Limiter) { l.Refund(context.Background(), "k", 10) }, 0},
		"reset":  {func(_ *jatah.Node, l *jatah.Limiter) { _ = l.Reset(context.Background(), "k") }, 0},
		"a higher rate": {func(n *jatah.Node, _ *jatah.Limiter) {
			higher := limit
			higher.Rate = jatah.PerSecond(1)
			_, _ = n.Limit(higher)
		}, 10 * time.Second},
		"dry run": {func(n *jatah.Node, _ *jatah.Limiter) {
			dry := limit
			dry.DryRun = true
			_, _ = n.Limit(dry)
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			alone(t, limit, func(t *testing.T, n *jatah.Node, l *jatah.Limiter) {
				l.Take(t.Context(), "k", 10)
				begin := time.Now()
				var all sync.WaitGroup
				for range 10 {
					all.Go(func() {
						if d, err := l.Wait(t.Context(), "k", 1); err != nil {
							t.Errorf("%+v, %v", d, err)
						}
					})
				}
				time.Sleep(ms(3300))
				c.early(n, l)
				all.Wait()
				if took := time.Since(begin) - ms(3300); took < c.want-ms(1) || took > c.want+10*time.Millisecond {
					t.Errorf("all had passed %v after the event, want %v", took, c.want)
				}
			})
		})
	}
}

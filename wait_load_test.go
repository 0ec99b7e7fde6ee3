package jatah_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jatah-io/jatah"
)

// Ten thousand waiters, some of whom give up, leave nothing behind, and together take what the limit allows.
func TestTenThousandWaitersLeaveNothingBehind(t *testing.T) {
	seed := *firstSeed
	rng := rand.New(rand.NewPCG(seed, 7))
	const keys, burst = 8, 50
	alone(t, jatah.Limit{Name: "api", Rate: jatah.PerSecond(20), Burst: burst}, func(t *testing.T, _ *jatah.Node, l *jatah.Limiter) {
		begin := time.Now()
		var mu sync.Mutex
		passed := map[string][]time.Duration{}
		fates := map[string]int{}
		var all sync.WaitGroup
		for range 10_000 {
			key, stay, kind := fmt.Sprint("key-", rng.IntN(keys)), ms(rng.IntN(20_000))+500*time.Microsecond, rng.IntN(3) // never at the moment of a grant
			all.Go(func() {
				ctx, cancel := context.WithCancel(t.Context())
				switch kind {
				case 1:
					ctx, cancel = context.WithTimeout(t.Context(), stay)
				case 2:
					time.AfterFunc(stay, cancel)
				}
				defer cancel()
				_, err := l.Wait(ctx, key, 1)
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err == nil:
					fates["passed"]++
					passed[key] = append(passed[key], time.Since(begin))
				case errors.Is(err, jatah.ErrDeadline):
					fates["too late"]++
				case kind > 0 && errors.Is(err, ctx.Err()):
					fates["gave up"]++
				default:
					t.Errorf("seed %d: %v", seed, err)
				}
			})
		}
		all.Wait()
		for key, at := range passed {
			slices.Sort(at)
			for i, x := range at {
				if want := ms(50 * max(0, i+1-burst)); x != want {
					t.Fatalf("seed %d: %s: number %d passed at %v, want %v", seed, key, i, x, want)
				}
			}
		}
		if len(passed) != keys || fates["too late"] < 1000 || fates["gave up"] < 1000 || fates["passed"] < 3000 {
			t.Errorf("seed %d: %v over %d keys: the test shows nothing", seed, fates, len(passed))
		}
	})
}

// Whatever happens at once to keys that many wait for, everybody gets an answer and nothing is left.
func TestWaitersInAStorm(t *testing.T) {
	seed := *firstSeed
	limit := jatah.Limit{Name: "api", Rate: jatah.PerSecond(200), Burst: 20}
	alone(t, limit, func(t *testing.T, n *jatah.Node, l *jatah.Limiter) {
		var all sync.WaitGroup
		var passed, refused atomic.Int64
		for w := range 40 {
			rng := rand.New(rand.NewPCG(seed, uint64(w)))
			all.Go(func() {
				for range 60 {
					key := fmt.Sprint(rng.IntN(2))
					switch rng.IntN(12) {
					case 0:
						l.Refund(t.Context(), key, rng.Int64N(20))
					case 1:
						l.Charge(t.Context(), key, rng.Int64N(40))
					case 2:
						_ = l.Reset(t.Context(), key)
					case 3:
						other := limit
						other.Rate, other.Burst = jatah.PerSecond(50+rng.Int64N(300)), 10+rng.Int64N(20)
						if _, err := n.Limit(other); err != nil {
							t.Error(err)
						}
					case 4:
						l.Take(t.Context(), key, 1)
					default:
						ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rng.Int64N(int64(time.Second))))
						if rng.IntN(3) == 0 {
							time.AfterFunc(ms(rng.IntN(50)), cancel)
						}
						begin := time.Now()
						_, err := l.Wait(ctx, key, 1+rng.Int64N(12))
						switch {
						case err == nil:
							passed.Add(1)
						case errors.Is(err, jatah.ErrDeadline), errors.Is(err, jatah.ErrImpossible), errors.Is(err, ctx.Err()):
							refused.Add(1)
						default:
							t.Errorf("seed %d: %v", seed, err)
						}
						if took := time.Since(begin); took > time.Second {
							t.Errorf("seed %d: a wait with a context of at most a second took %v", seed, took)
						}
						cancel()
					}
					time.Sleep(time.Duration(rng.Int64N(int64(ms(5)))))
				}
			})
		}
		all.Wait()
		if passed.Load() < 100 || refused.Load() < 100 {
			t.Errorf("seed %d: %d passed, %d were refused: the test shows nothing", seed, passed.Load(), refused.Load())
		}
	})
}

// Who can wait need not poll, and learns at once when waiting is in vain.
func ExampleLimiter_Wait() {
	node, err := jatah.Start(context.Background(), jatah.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer node.Close()
	mail, err := node.Limit(jatah.Limit{Name: "mail", Rate: jatah.PerSecond(100), Burst: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for range 3 {
		if _, err := mail.Wait(ctx, "smtp", 1); err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println("sent")
	}
	reports, err := node.Limit(jatah.Limit{Name: "reports", Rate: jatah.PerHour(1), Burst: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = reports.Wait(ctx, "daily", 1)
	fmt.Println("made:", err == nil)
	_, err = reports.Wait(ctx, "daily", 1) // the next is due in an hour, ctx ends within a minute
	fmt.Println("in vain:", errors.Is(err, jatah.ErrDeadline))
	// Output:
	// sent
	// sent
	// sent
	// made: true
	// in vain: true
}

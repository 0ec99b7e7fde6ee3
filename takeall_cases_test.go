package jatah_test

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jatah-io/jatah"
)

// Two limits that all must agree to: what one of them refuses costs the other nothing, whatever their order and however many
// ask at once.
func TestRefusedTogetherCostsNothing(t *testing.T) {
	minute := jatah.Limit{Name: "minute", Rate: jatah.Per(10, time.Minute), Algorithm: jatah.FixedWindow}
	half := jatah.Limit{Name: "half-hour", Rate: jatah.Per(30, 30*time.Minute), Algorithm: jatah.FixedWindow}
	for name, order := range map[string][]string{"as defined": {"minute", "half-hour"}, "the other way": {"half-hour", "minute"}} {
		for _, at := range []int{1, 64} { // goroutines
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					node, err := jatah.Start(t.Context(), jatah.Config{})
					if err != nil {
						t.Fatal(err)
					}
					defer node.Close()
					for _, l := range []jatah.Limit{minute, half} {
						if _, err := node.Limit(l); err != nil {
							t.Fatal(err)
						}
					}
					var reqs []jatah.Request
					for _, l := range order {
						reqs = append(reqs, jatah.Request{Limit: l, Key: "u", Cost: 1})
					}
					left := func(r jatah.Result, limit string) int64 { return r.Decisions[slices.Index(order, limit)].Remaining }
					var passed atomic.Int64
					var wait sync.WaitGroup
					for range at {
						wait.Go(func() {
							for range 31 {
								r := node.TakeAll(t.Context(), reqs)
								if r.OK {
									passed.Add(1)
								} else if r.Err != nil || !slices.Equal(r.Violated, []string{"minute"}) {
									t.Errorf("refused by %v, %v; want minute alone", r.Violated, r.Err)
								}
							}
						})
					}
					wait.Wait()
					if passed.Load() != 10 {
						t.Errorf("%d passed in the first minute, want 10", passed.Load())
					}
					time.Sleep(time.Minute)
					if r := node.TakeAll(t.Context(), reqs); !r.OK || left(r, "minute") != 9 || left(r, "half-hour") != 19 {
						t.Errorf("in the next minute: %v, %d and %d left, want 9 and 19", r.OK, left(r, "minute"), left(r, "half-hour"))
					}
				})
			})
		}
	}
}

// A cost that one limit can never cover is refused, and the other has all that it had.
func TestImpossibleTogetherCostsNothing(t *testing.T) {
	node, err := jatah.Start(t.Context(), jatah.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer node.Close()
	for _, l := range []jatah.Limit{{Name: "requests", Rate: jatah.PerSecond(100)}, {Name: "bytes", Rate: jatah.PerSecond(4000)}} {
		if _, err := node.Limit(l); err != nil {
			t.Fatal(err)
		}
	}
	r := node.TakeAll(t.Context(), []jatah.Request{{Limit: "requests", Key: "u", Cost: 1}, {Limit: "bytes", Key: "u", Cost: 5000}})
	if r.OK || !slices.Equal(r.Violated, []string{"bytes"}) || r.RetryAfter != jatah.Never || r.Decisions[0].Remaining != 100 {
		t.Errorf("%+v, want it refused by bytes for ever, and 100 requests left", r)
	}
}

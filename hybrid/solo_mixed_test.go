package hybrid

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jatah-io/jatah/bucket"
)

// TestSoloKeysWhateverIsDoneToThem: takes, charges, refunds, take-alls, penalties by charge, looks, peeks, changes of the definition, a member that comes and goes, and
// heat, side by side. The clock nearly stands still, so the tokens must add up: what was admitted and charged, less what was given back, is what is missing.
func TestSoloKeysWhateverIsDoneToThem(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	const burst, keys = 4_000, 12
	spec := Spec{Name: "api", Rate: bucket.Per(1, time.Hour), Burst: burst}
	b := newBare(t, 1, spec, 0)
	e := b.engines[b.names[0]]
	e.parallel = 4
	var now atomic.Int64
	now.Store(b.now)
	e.clock = now.Load
	l, _ := e.Lookup("api")
	ctx := context.Background()
	var used [keys]atomic.Int64
	var decided atomic.Int64
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(g)))
			for range 20_000 {
				i := rng.IntN(keys)
				key := fmt.Sprint("key-", i)
				switch rng.IntN(400) {
				case 0:
					if d := l.Charge(ctx, key, 3); d.Err != nil {
						t.Error(d.Err)
					}
					used[i].Add(3)
				case 1: // only what was taken before is given back: above the burst it would be lost
					cost := int64(5)
					decided.Add(1)
					if l.Take(ctx, key, cost).OK {
						if d := l.Refund(ctx, key, cost); d.Err != nil {
							t.Error(d.Err)
						}
					}
				case 2:
					l.heat(key)
				case 3:
					if _, err := l.Peek(ctx, key); err != nil {
						t.Error(err)
					}
				case 4:
					s := spec
					s.DryRun = false
					s.Overshoot = float64(rng.IntN(2)) / 1e9 // another definition, which changes nothing
					if _, err := e.Define(s); err != nil {
						t.Error(err)
					}
				case 5:
					e.Stats()
				case 6:
					e.Snapshot(now.Load(), time.Unix(1e9, 0))
				default:
					cost := rng.Int64N(3)
					decided.Add(1)
					if l.Take(ctx, key, cost).OK {
						used[i].Add(cost)
					}
				}
			}
		})
	}
	done := make(chan struct{})
	var stop atomic.Bool
	go func() {
		defer close(done)
		var last uint64
		for !stop.Load() {
			e.Tick(now.Add(tick/1000), 0)
			var sum uint64
			for _, s := range e.Stats().Limits {
				for i := range s.Allowed {
					sum += s.Allowed[i] + s.Denied[i]
				}
			}
			if sum < last {
				t.Errorf("%d decisions were counted, and then %d", last, sum)
			}
			last = sum
		}
	}()
	wg.Wait()
	stop.Store(true)
	<-done
	for range 20 {
		e.Tick(now.Add(tick), 0)
	}
	for i := range keys {
		st, err := l.Peek(ctx, fmt.Sprint("key-", i))
		if want := burst - used[i].Load(); err != nil || st.Remaining != max(0, want) {
			t.Errorf("key %d: %d remain, it should be %d: %v", i, st.Remaining, want, err)
		}
	}
	var counted int64
	for _, s := range e.Stats().Limits {
		for i := range s.Allowed {
			counted += int64(s.Allowed[i] + s.Denied[i])
		}
	}
	if counted != decided.Load() {
		t.Errorf("%d decisions were counted, there were %d", counted, decided.Load())
	}
}

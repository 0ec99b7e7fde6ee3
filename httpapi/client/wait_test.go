package client_test

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jatah-io/jatah"
	"github.com/jatah-io/jatah/httpapi/client"
)

func TestWaitPassesWhenTheLimitLetsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := cluster(t, client.Config{}, perSecond("api", 1, 2)).Limiter("api")
		begin := time.Now()
		for i, earliest := range []time.Duration{0, 0, time.Second, 2 * time.Second} {
			d, err := api.Wait(t.Context(), key("u"), 1)
			if took := time.Since(begin); err != nil || !d.Allowed || took < earliest || took > earliest+100*ms {
				t.Errorf("%d: after %v, %+v, %v", i, took, d, err)
			}
		}
	})
}

func TestWaitFailsAtOnceWhenItCannotSucceed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := cluster(t, client.Config{}, perSecond("api", 1, 10)).Limiter("api")
		begin := time.Now()
		if d, err := api.Wait(t.Context(), key("u"), 11); !errors.Is(err, client.ErrImpossible) || d.Reason == "" {
			t.Errorf("%+v, %v", d, err)
		}
		api.Take(t.Context(), key("u"), 10)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		if d, err := api.Wait(ctx, key("u"), 5); !errors.Is(err, client.ErrDeadline) || d.RetryAfter != 5*time.Second {
			t.Errorf("%+v, %v", d, err)
		}
		if time.Since(begin) != 0 {
			t.Errorf("it took %v", time.Since(begin))
		}
		if d, err := api.Take(ctx, key("u"), 0); err != nil || d.Remaining != 0 {
			t.Errorf("%+v, %v", d, err)
		}
		time.AfterFunc(time.Second, cancel)
		if _, err := api.Wait(ctx, key("u"), 2); !errors.Is(err, context.Canceled) || time.Since(begin) != time.Second {
			t.Errorf("%v after %v", err, time.Since(begin))
		}
		if _, err := api.Wait(t.Context(), key(""), 1); err == nil {
			t.Error("a problem is an error")
		}
	})
}

// A denial of a fallback has no end that is known, but ends when the owner answers.
func TestWaitOutlastsAFallback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		const body = `{"allowed":false,"limit":"api","key":"u1","cost":1,"remaining":0,"retry_after_ms":null,"reset_after_ms":null,"mode":"hybrid","source":"deny"}`
		s := &script{steps: []http.HandlerFunc{says(429, body), says(429, body), denied("700"), yes}}
		l.serve("n1", s)
		if d, err := l.client(client.Config{}, "n1").Limiter("api").Wait(t.Context(), key("u1"), 1); err != nil || !d.Allowed {
			t.Errorf("%+v, %v", d, err)
		}
		got := s.requests()
		pausesOf(t, got, [2]time.Duration{0, 50 * ms}, [2]time.Duration{0, 100 * ms}, [2]time.Duration{700 * ms, 900 * ms})
		if got[0].repeat == got[1].repeat {
			t.Error("a new take has the Idempotency-Key of the last")
		}
	})
}

// All who wait for one key pass in the end, no faster than the limit lets them.
func TestManyWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := cluster(t, client.Config{Batch: client.Batch{Max: 20}}, perSecond("api", 10, 1)).Limiter("api")
		begin := time.Now()
		var wg sync.WaitGroup
		for range 30 {
			wg.Go(func() {
				if d, err := api.Wait(t.Context(), key("u"), 1); err != nil || !d.Allowed {
					t.Errorf("%+v, %v", d, err)
				}
			})
		}
		wg.Wait()
		if took := time.Since(begin); took < 2900*ms || took > 20*time.Second {
			t.Errorf("30 at 10 per second took %v", took)
		}
	})
}

func TestWaitWaitsOutADelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := cluster(t, client.Config{}, jatah.Limit{Name: "calls", Algorithm: jatah.LeakyBucket, Rate: jatah.Per(1, time.Second), Queue: 5}).Limiter("calls")
		begin := time.Now()
		for i := range 2 {
			if d, err := calls.Take(t.Context(), key("u"), 1); err != nil || !d.Allowed || d.Delay != time.Duration(i)*time.Second {
				t.Errorf("%+v, %v", d, err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if d, err := calls.Wait(ctx, key("u"), 1); !errors.Is(err, client.ErrDeadline) || d.Allowed || d.RetryAfter != 2*time.Second || time.Since(begin) != 0 {
			t.Errorf("%+v, %v after %v", d, err, time.Since(begin))
		}
		// It gave its place back, so this one has it.
		if d, err := calls.Wait(t.Context(), key("u"), 1); err != nil || !d.Allowed || time.Since(begin) != 2*time.Second {
			t.Errorf("%+v, %v after %v", d, err, time.Since(begin))
		}
	})
}

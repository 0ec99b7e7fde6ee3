package jatah

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/jatah-io/jatah/bucket"
)

// What waiters are told is a lower bound under every algorithm: nobody behind a waiting head passes before it, however the
// key was used until then.
func TestNobodyPassesSoonerThanToldUnderAnyAlgorithm(t *testing.T) {
	rate := PerSecond(20)
	for _, spec := range []bucket.Spec{
		{Algorithm: "token_bucket", Burst: 20}, {Algorithm: "token_bucket", Burst: 7},
		{Algorithm: "fixed_window"}, {Algorithm: "fixed_window", Calendar: "month"},
		{Algorithm: "sliding_window"}, {Algorithm: "sliding_log"},
		{Algorithm: "leaky_bucket", Burst: 20},
	} {
		t.Run(spec.Algorithm+spec.Calendar, func(t *testing.T) {
			rate := rate
			if spec.Calendar != "" {
				rate = Per(20, 30*24*time.Hour)
			}
			spec.Rates = []Rate{rate}
			a, err := bucket.Compile(spec)
			if err != nil {
				t.Fatal(err)
			}
			p := pace{uint64(rate.Count), uint64(rate.Per), uint64(max(spec.Burst, rate.Count)), spec.Algorithm}
			if spec.Burst > 0 {
				p.burst = uint64(spec.Burst)
			}
			told := 0
			for seed := range uint64(400) {
				rng := rand.New(rand.NewPCG(seed, 3))
				m, now, unit := a.New(), int64(1e18)+rng.Int64N(1e15), int64(rate.Per)/20
				m.Advance(now, 1, 0)
				pass := func(cost float64) bool {
					if m.Free() < cost {
						return false
					}
					m.Use(cost, 0)
					return true
				}
				cost := func() float64 { return float64(1 + rng.IntN(int(min(p.burst, 12)))) }
				for range rng.IntN(40) { // a past
					now += rng.Int64N(2 * unit)
					m.Advance(now, 1, 0)
					pass(cost())
				}
				head := cost()
				for m.Free() >= head {
					pass(head)
				}
				since := now + int64(m.Wait(head))
				m.Advance(since, 1, 0)
				if !pass(head) {
					t.Fatalf("seed %d: the head is denied when it was told to come back", seed)
				}
				now = since
				behind := uint64(0)
				for range 30 {
					c := cost()
					behind += uint64(c)
					if m.Free() < c {
						now += int64(m.Wait(c))
						m.Advance(now, 1, 0)
					}
					if !pass(c) {
						t.Fatalf("seed %d: denied when it was told to come back", seed)
					}
					at := p.soonest(since, uint64(head), behind)
					if at > now {
						t.Fatalf("seed %d: %d tokens behind a head of %v at %d passed %v later; told not before %v", seed, behind, head, since, time.Duration(now-since), time.Duration(at-since))
					}
					if at > since {
						told++
					}
					if spec.Algorithm == "token_bucket" && now-at > 2 {
						t.Fatalf("seed %d: the bound is %v too low, want it exact", seed, time.Duration(now-at))
					}
				}
			}
			if (told > 1000) != (spec.Algorithm != "leaky_bucket") {
				t.Errorf("%d of the bounds said anything", told)
			}
		})
	}
}

// Ends at the edges of int64 neither wrap nor refuse who may pass.
func TestSoonestSaturates(t *testing.T) {
	const far = 1<<63 - 1
	slow := pace{1, uint64(1 << 62), 1 << 50, TokenBucket}
	fast := pace{uint64(MaxPerSecond), uint64(time.Second), 1 << 50, TokenBucket}
	for _, c := range []struct {
		p            pace
		since        int64
		head, behind uint64
		want         int64
	}{
		{slow, 5, 1, 0, 5},
		{slow, 5, 1, 1, 5 + 1<<62 - 1},
		{slow, 5, 1, 2, far},
		{slow, 5, 1, 1 << 62, far},
		{fast, 1 << 40, 1, 0, 1 << 40},
		{fast, far, 1, 1, far},
		{pace{0, 1, 0, TokenBucket}, 5, 0, 1, far},
	} {
		if got := c.p.soonest(c.since, c.head, c.behind); got != c.want {
			t.Errorf("%+v: %d, want %d", c, got, c.want)
		}
	}
}

// A deadline lost says how much time was missing, and matches ErrDeadline.
func TestTooLateIsErrDeadline(t *testing.T) {
	err := tooLate(Decision{RetryAfter: time.Second}, int64(time.Millisecond))
	if !errors.Is(err, ErrDeadline) || fmt.Sprint(err) != ErrDeadline.Error()+": it needs at least 1s, there are 1ms" {
		t.Error(err)
	}
}

package jatah_test

import (
	"fmt"
	"io"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"
	_ "time/tzdata" // calendars are tested in real zones

	"github.com/jatah-io/jatah"
)

// These tests ask one node that is alone. The clock of a bubble begins at 2000-01-01T00:00:00Z, with which a minute, an hour, a day, a month
// and a year begin.

// inAlone runs f in virtual time, with a node that is alone.
func inAlone(t *testing.T, f func(node *jatah.Node)) {
	t.Helper()
	inAloneFor(t, 0, f)
}

// inAloneFor is inAlone with another time between ticks, for tests of months.
func inAloneFor(t *testing.T, tick time.Duration, f func(node *jatah.Node)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		node, err := jatah.Start(t.Context(), jatah.Config{SyncInterval: tick, Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
		if err != nil {
			t.Fatal(err)
		}
		defer node.Close()
		f(node)
	})
}

func mustLimit(t *testing.T, node *jatah.Node, l jatah.Limit) *jatah.Limiter {
	t.Helper()
	if l.Name == "" {
		l.Name = "api"
	}
	api, err := node.Limit(l)
	if err != nil {
		t.Fatal(err)
	}
	return api
}

// sleepUntil moves the clock of the bubble to a time after its begin.
func sleepUntil(after time.Duration) {
	time.Sleep(time.Until(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).Add(after)))
}

// passes asks n times for one token and returns how many passed, and the last answer.
func passes(t *testing.T, api *jatah.Limiter, n int) (ok int, last jatah.Decision) {
	t.Helper()
	for range n {
		if last = api.Take(t.Context(), "u", 1); last.Err != nil {
			t.Fatal(last.Err)
		}
		if last.OK {
			ok++
		}
	}
	return ok, last
}

// Requests that come at the end of a window and at the begin of the next: twice the limit within a tenth of a second.
func TestAWindowBeginsAnewWithTheMinute(t *testing.T) {
	inAlone(t, func(node *jatah.Node) {
		api := mustLimit(t, node, jatah.Limit{Algorithm: jatah.FixedWindow, Rate: jatah.PerMinute(100)})
		sleepUntil(59*time.Second + 900*time.Millisecond)
		if ok, d := passes(t, api, 101); ok != 100 || d.Remaining != 0 || d.RetryAfter != 100*time.Millisecond || d.ResetAfter != 100*time.Millisecond {
			t.Errorf("at 59.9 s %d pass, then %+v", ok, d)
		}
		sleepUntil(time.Minute)
		if ok, d := passes(t, api, 101); ok != 100 || d.RetryAfter != time.Minute {
			t.Errorf("at 60 s %d pass, then %+v", ok, d)
		}
	})
}

func TestASlidingWindowHasNoSeam(t *testing.T) {
	inAlone(t, func(node *jatah.Node) {
		api := mustLimit(t, node, jatah.Limit{Algorithm: jatah.SlidingWindow, Rate: jatah.PerMinute(100)})
		sleepUntil(59*time.Second + 900*time.Millisecond)
		if ok, _ := passes(t, api, 101); ok != 100 {
			t.Errorf("at 59.9 s %d pass", ok)
		}
		sleepUntil(time.Minute)
		if ok, d := passes(t, api, 100); ok != 0 || d.RetryAfter != 600*time.Millisecond {
			t.Errorf("at 60 s %d pass, then %+v", ok, d)
		}
		sleepUntil(90 * time.Second) // half of the window before is in sight
		if ok, _ := passes(t, api, 100); ok != 50 {
			t.Errorf("at 90 s %d pass, want 50", ok)
		}
	})
}

// Who goes on asking while refused is not kept out for longer.
func TestRefusedRequestsLeaveNoTrace(t *testing.T) {
	for _, algorithm := range jatah.Algorithms() {
		if algorithm == jatah.Concurrency { // nothing passes by waiting
			continue
		}
		l := jatah.Limit{Algorithm: algorithm, Rate: jatah.PerMinute(10)}
		if algorithm == jatah.BurstAverage {
			l.Burst, l.BurstRate, l.BurstThreshold, l.BurstTime = 10, jatah.PerMinute(15), jatah.PerMinute(5), 4*time.Minute
		}
		inAlone(t, func(node *jatah.Node) {
			api := mustLimit(t, node, l)
			for _, key := range []string{"patient", "pushy"} {
				if d := api.Take(t.Context(), key, 10); !d.OK {
					t.Fatalf("%s: %+v", algorithm, d)
				}
			}
			for range 295 {
				time.Sleep(time.Second / 10)
				if d := api.Take(t.Context(), "pushy", 10); d.OK || d.RetryAfter == 0 || d.RetryAfter == jatah.Never {
					t.Fatalf("%s: %+v", algorithm, d)
				}
			}
			if a, b := api.Take(t.Context(), "patient", 1), api.Take(t.Context(), "pushy", 1); a != b {
				t.Errorf("%s: after 295 refusals %+v, without them %+v", algorithm, b, a)
			}
		})
	}
}

func TestADayIsThatOfItsTimeZone(t *testing.T) {
	inAlone(t, func(node *jatah.Node) {
		for zone, turn := range map[string]time.Duration{"": 24 * time.Hour, "UTC": 24 * time.Hour, "Europe/Berlin": 23 * time.Hour, "Asia/Kolkata": 18*time.Hour + 30*time.Minute, "America/New_York": 5 * time.Hour} {
			api := mustLimit(t, node, jatah.Limit{Name: "in/" + zone, Algorithm: jatah.FixedWindow, Rate: jatah.PerDay(5), Calendar: "day", Timezone: zone})
			if ok, d := passes(t, api, 6); ok != 5 || d.RetryAfter != turn || d.ResetAfter != turn {
				t.Errorf("%q: %d pass, then %+v; want the day to end after %v", zone, ok, d, turn)
			}
		}
	})
}

// On 2000-03-26 the clocks of Berlin go forward, on 2000-10-29 back.
func TestDaysWithAChangeOfTheClocksAreShorterAndLonger(t *testing.T) {
	inAloneFor(t, time.Hour, func(node *jatah.Node) {
		berlin, err := time.LoadLocation("Europe/Berlin")
		if err != nil {
			t.Fatal(err)
		}
		api := mustLimit(t, node, jatah.Limit{Algorithm: jatah.FixedWindow, Rate: jatah.PerDay(5), Calendar: "day", Timezone: "Europe/Berlin"})
		for _, day := range []struct {
			month  time.Month
			day    int
			length time.Duration
		}{{3, 25, 24 * time.Hour}, {3, 26, 23 * time.Hour}, {3, 27, 24 * time.Hour}, {10, 28, 24 * time.Hour}, {10, 29, 25 * time.Hour}, {10, 30, 24 * time.Hour}} {
			midnight := time.Date(2000, day.month, day.day, 0, 0, 0, 0, berlin)
			time.Sleep(time.Until(midnight.Add(-time.Second)))
			passes(t, api, 5) // the rest of the day before
			if ok, d := passes(t, api, 1); ok != 0 || d.RetryAfter != time.Second {
				t.Errorf("a second before %v: %+v", midnight, d)
			}
			time.Sleep(time.Second)
			if ok, d := passes(t, api, 6); ok != 5 || d.RetryAfter != day.length {
				t.Errorf("at %v %d pass, then %+v; want a day of %v", midnight, ok, d, day.length)
			}
			time.Sleep(day.length - 2*time.Second)
			if ok, _ := passes(t, api, 1); ok != 0 {
				t.Errorf("two seconds before the end of %v one passes", midnight)
			}
		}
	})
}

// 5 a minute with five places: one starts each 12 seconds, whoever would be the seventh is refused at once.
func TestAQueueTellsEachWhenToStart(t *testing.T) {
	inAlone(t, func(node *jatah.Node) {
		api := mustLimit(t, node, jatah.Limit{Algorithm: jatah.LeakyBucket, Rate: jatah.PerMinute(5), Queue: 5})
		for i := range 6 {
			if d := api.Take(t.Context(), "u", 1); !d.OK || d.Delay != time.Duration(i)*12*time.Second || d.RetryAfter != 0 {
				t.Errorf("request %d: %+v, want it to start after %d s", i, d, 12*i)
			}
		}
		for range 3 {
			if d := api.Take(t.Context(), "u", 1); d.OK || d.Delay != 0 || d.RetryAfter != 12*time.Second || d.Remaining != 0 {
				t.Errorf("the seventh: %+v", d)
			}
		}
		// Who does not wait after all can give the place back.
		if d := api.Refund(t.Context(), "u", 1); !d.OK || d.Delay != 0 {
			t.Errorf("a place given back: %+v", d)
		}
		if d := api.Take(t.Context(), "u", 1); !d.OK || d.Delay != time.Minute {
			t.Errorf("the one who gets it: %+v", d)
		}
		if l := api.Limit(); l.Mode != jatah.Strict {
			t.Errorf("a queue is in mode %v", l.Mode)
		}
	})
}

// Places for ten, but nobody waits for more than 4 s. Who would have to takes no place from those behind.
func TestAQueueTurnsAwayWhoWouldWaitTooLong(t *testing.T) {
	inAlone(t, func(node *jatah.Node) {
		api := mustLimit(t, node, jatah.Limit{Algorithm: jatah.LeakyBucket, Rate: jatah.PerSecond(1), Queue: 10, MaxWait: 4 * time.Second})
		for i := range 5 {
			if d := api.Take(t.Context(), "u", 1); !d.OK || d.Delay != time.Duration(i)*time.Second {
				t.Errorf("request %d: %+v", i, d)
			}
		}
		if ok, d := passes(t, api, 3); ok != 0 || d.RetryAfter != time.Second {
			t.Errorf("%d more pass, then %+v", ok, d)
		}
		time.Sleep(time.Second)
		if d := api.Take(t.Context(), "u", 1); !d.OK || d.Delay != 4*time.Second {
			t.Errorf("a second later: %+v, want it to depart at 5 s", d)
		}
	})
}

// Two rates: ten at once, and not more than twelve within the hour. What the second refuses does not count for the first.
func TestSeveralRatesHoldTogether(t *testing.T) {
	inAlone(t, func(node *jatah.Node) {
		api := mustLimit(t, node, jatah.Limit{Algorithm: jatah.FixedWindow, Rates: []jatah.Rate{jatah.PerSecond(10), jatah.PerHour(12)}})
		if ok, d := passes(t, api, 11); ok != 10 || d.RetryAfter != time.Second || d.Remaining != 0 {
			t.Errorf("at once %d pass, then %+v", ok, d)
		}
		sleepUntil(time.Second)
		if ok, d := passes(t, api, 11); ok != 2 || d.RetryAfter != time.Hour-time.Second {
			t.Errorf("a second later %d pass, then %+v", ok, d)
		}
		sleepUntil(time.Hour)
		if ok, _ := passes(t, api, 11); ok != 10 {
			t.Errorf("in the next hour %d pass", ok)
		}
	})
}

// From idle 8/s for 2 s, then 2/s: what routers promise with max-limit 2, burst-limit 8, burst-threshold 1, burst-time 16 s.
func TestABurstLastsUntilItsAverageIsReached(t *testing.T) {
	inAlone(t, func(node *jatah.Node) {
		api := mustLimit(t, node, jatah.Limit{Algorithm: jatah.BurstAverage, Rate: jatah.PerSecond(2),
			BurstRate: jatah.PerSecond(8), BurstThreshold: jatah.PerSecond(1), BurstTime: 16 * time.Second})
		per := make([]int, 6)
		for s := range per {
			for i := range 100 {
				sleepUntil(time.Duration(s)*time.Second + time.Duration(i)*10*time.Millisecond)
				ok, _ := passes(t, api, 1)
				per[s] += ok
			}
		}
		if got, want := fmt.Sprint(per), "[8 8 2 2 2 2]"; got != want && got != "[8 9 2 2 2 2]" && got != "[9 8 2 2 2 2]" {
			t.Errorf("%v pass in each second, want about %s", got, want)
		}
	})
}

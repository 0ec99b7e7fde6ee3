package bucket

import (
	"testing"
	"time"
	_ "time/tzdata" // calendars are tested in real zones
)

const second = int64(time.Second)

// t0 is 2023-11-14T00:00:00Z, a multiple of a day.
const t0 = 1699920000 * second

func mustCompile(t testing.TB, s Spec) *Algorithm {
	t.Helper()
	a, err := Compile(s)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// spend takes n tokens if they are there.
func spend(m Meter, now int64, n float64) bool {
	m.Advance(now, 1, 0)
	if m.Free() < n {
		return false
	}
	m.Use(n, 0)
	return true
}

// spendMany tells how many of so many takes of one token pass.
func spendMany(m Meter, now int64, times int) (allowed int) {
	for range times {
		if spend(m, now, 1) {
			allowed++
		}
	}
	return allowed
}

func TestFixedWindowPassesTwiceTheLimitAroundItsEnd(t *testing.T) {
	m := mustCompile(t, Spec{Algorithm: "fixed_window", Rates: []Rate{Per(100, time.Minute)}}).New()
	at := t0 + 59_900_000_000
	if got := spendMany(m, at, 101); got != 100 {
		t.Errorf("%d pass before the end of the window", got)
	}
	if w := m.Wait(1); w != 100*time.Millisecond {
		t.Errorf("wait %v", w)
	}
	if got := spendMany(m, t0+60*second, 101); got != 100 {
		t.Errorf("%d pass after the end of the window", got)
	}
	if w := m.Wait(1); w != time.Minute {
		t.Errorf("wait %v", w)
	}
}

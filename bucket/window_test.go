package bucket

import (
	"testing"
	"time"
)

func TestASlidingWindowWeighsTheWindowBefore(t *testing.T) {
	m := mustCompile(t, specMinute("sliding_window", 100)).New()
	if got := spendMany(m, t0+59_900_000_000, 100); got != 100 {
		t.Errorf("%d pass", got)
	}
	if got := spendMany(m, t0+60*second, 100); got != 0 || m.Free() != 0 || m.Wait(1) != 600*time.Millisecond {
		t.Errorf("at the turn %d pass, %v free, wait %v", got, m.Free(), m.Wait(1))
	}
	if got := spendMany(m, t0+60_600_000_000, 2); got != 1 {
		t.Errorf("%d pass 0.6 s later", got)
	}
}

func TestASlidingWindowOfOneKeepsItsDistance(t *testing.T) {
	m := mustCompile(t, Spec{Algorithm: "sliding_window", Rates: []Rate{Per(1, time.Second)}}).New()
	for _, step := range []struct {
		ms int64
		ok bool
	}{{0, true}, {1001, false}, {1999, false}, {2000, true}} {
		if got := spend(m, t0+step.ms*int64(time.Millisecond), 1); got != step.ok {
			t.Errorf("at %d ms: %v", step.ms, got)
		}
	}
}

func TestASlidingLogCountsEachEventForItsPeriod(t *testing.T) {
	m := mustCompile(t, specMinute("sliding_log", 100)).New()
	spendMany(m, t0+59_900_000_000, 100)
	if got := spendMany(m, t0+60*second, 100); got != 0 || m.Wait(1) != 59_900*time.Millisecond {
		t.Errorf("%d pass, wait %v", got, m.Wait(1))
	}
	if got := spendMany(m, t0+60_600_000_000, 2); got != 0 {
		t.Errorf("%d pass", got)
	}
	one := mustCompile(t, Spec{Algorithm: "sliding_log", Rates: []Rate{Per(1, time.Second)}}).New()
	if !spend(one, t0, 1) || !spend(one, t0+1_001_000_000, 1) {
		t.Error("1.001 s after the other it does not pass")
	}
}

func TestDenialsAreNotCounted(t *testing.T) {
	for _, c := range []struct {
		name    string
		waits   [2]time.Duration
		at60    bool
		free60  float64
		retry60 time.Duration
	}{
		{"sliding_window", [2]time.Duration{65 * time.Second, 64 * time.Second}, false, 0, 6 * time.Second},
		{"sliding_log", [2]time.Duration{59 * time.Second, 58 * time.Second}, true, 9, 0},
		{"fixed_window", [2]time.Duration{59 * time.Second, 58 * time.Second}, true, 9, 0},
	} {
		m := mustCompile(t, specMinute(c.name, 10)).New()
		if got := spendMany(m, t0, 10); got != 10 {
			t.Errorf("%s: %d pass", c.name, got)
		}
		for i := range int64(59) {
			if spend(m, t0+(i+1)*second, 1) {
				t.Errorf("%s: passes after %d s", c.name, i+1)
			}
			if i < 2 && m.Wait(1) != c.waits[i] {
				t.Errorf("%s: wait %v, want %v", c.name, m.Wait(1), c.waits[i])
			}
		}
		if ok := spend(m, t0+60*second, 1); ok != c.at60 || m.Free() != c.free60 || m.Wait(1) != c.retry60 {
			t.Errorf("%s: at 60 s %v, %v free, wait %v", c.name, ok, m.Free(), m.Wait(1))
		}
		if c.name == "sliding_window" {
			if spend(m, t0+65_900_000_000, 1) || !spend(m, t0+66*second, 1) || m.Free() != 0 {
				t.Errorf("it does not pass at 66 s and not before: %v free", m.Free())
			}
		}
	}
}

func TestAFullLogMergesEventsOnTheSafeSide(t *testing.T) {
	rnd := source(t)
	s := specMinute("sliding_log", 50)
	s.MaxLog = 8
	a := mustCompile(t, s)
	m := a.New()
	var log []event
	now := int64(t0)
	passed := 0
	for range 5000 {
		now += rnd.Int64N(2 * second)
		if spend(m, now, 1) {
			passed++
			log = append(log, event{now, 1})
		}
		if l := m.(*slidingLog); len(l.log)-l.gone > 8 {
			t.Fatalf("%d events are kept", len(l.log)-l.gone)
		}
	}
	for i := range log {
		if i >= 50 && log[i].at-log[i-50].at < int64(time.Minute) {
			t.Fatalf("51 within %v", time.Duration(log[i].at-log[i-50].at))
		}
	}
	if a.Coalesced() == 0 || passed < 2000 {
		t.Errorf("%d pass, merged %d times", passed, a.Coalesced())
	}
}

func wall(t *testing.T, s string) int64 {
	t.Helper()
	at, err := time.Parse(time.RFC3339, s)
	if err != nil {
		t.Fatal(err)
	}
	return at.UnixNano()
}

func TestDaysInBerlinLast23And25Hours(t *testing.T) {
	m := mustCompile(t, Spec{Algorithm: "fixed_window", Rates: []Rate{Per(10, day)}, Calendar: "day", Timezone: "Europe/Berlin"}).New()
	step := func(at string, times, allowed int, free float64, reset, retry int64) {
		t.Helper()
		if got := spendMany(m, wall(t, at), times); got != allowed {
			t.Errorf("%s: %d pass", at, got)
		}
		if m.Free() != free || m.Reset() != time.Duration(reset)*time.Second || m.Wait(1) != time.Duration(retry)*time.Second {
			t.Errorf("%s: %v free, reset %v, wait %v", at, m.Free(), m.Reset(), m.Wait(1))
		}
	}
	step("2024-03-30T23:30:00Z", 1, 1, 9, 81000, 0)
	step("2024-10-26T22:30:00Z", 9, 9, 1, 88200, 0)
	step("2024-10-27T00:30:00Z", 1, 1, 0, 81000, 81000)
	step("2024-10-27T01:30:00Z", 1, 0, 0, 77400, 77400)
	step("2024-10-27T23:00:00Z", 1, 1, 9, 86400, 0)
}

func TestCalendarWindows(t *testing.T) {
	for _, c := range []struct{ unit, zone, now, start, end string }{
		{"hour", "", "2024-05-05T10:59:59.9Z", "2024-05-05T10:00:00Z", "2024-05-05T11:00:00Z"},
		{"hour", "Asia/Kolkata", "2024-05-05T10:00:00Z", "2024-05-05T09:30:00Z", "2024-05-05T10:30:00Z"},
		{"hour", "Australia/Lord_Howe", "2024-04-06T15:10:00Z", "2024-04-06T15:00:00Z", "2024-04-06T15:30:00Z"}, // 2:00 back to 1:30
		{"day", "America/Sao_Paulo", "2018-11-04T12:00:00Z", "2018-11-04T03:00:00Z", "2018-11-05T02:00:00Z"},    // no midnight
		{"day", "America/Sao_Paulo", "2018-11-04T02:59:59Z", "2018-11-03T03:00:00Z", "2018-11-04T03:00:00Z"},
		{"day", "America/Sao_Paulo", "2018-02-18T02:30:00Z", "2018-02-17T02:00:00Z", "2018-02-18T03:00:00Z"}, // 23:00 twice
		{"day", "Pacific/Apia", "2011-12-31T09:59:00Z", "2011-12-30T10:00:00Z", "2011-12-31T10:00:00Z"},      // the 30th did not exist
		{"day", "Pacific/Apia", "2011-12-30T09:59:00Z", "2011-12-29T10:00:00Z", "2011-12-30T10:00:00Z"},
		{"week", "", "2024-12-31T12:00:00Z", "2024-12-30T00:00:00Z", "2025-01-06T00:00:00Z"},
		{"week", "Europe/Berlin", "2024-03-31T21:59:00Z", "2024-03-24T23:00:00Z", "2024-03-31T22:00:00Z"}, // Sunday
		{"month", "", "2024-02-29T23:59:59Z", "2024-02-01T00:00:00Z", "2024-03-01T00:00:00Z"},
		{"month", "America/New_York", "2024-11-30T12:00:00Z", "2024-11-01T04:00:00Z", "2024-12-01T05:00:00Z"},
		{"year", "Europe/Berlin", "2024-12-31T23:30:00Z", "2024-12-31T23:00:00Z", "2025-12-31T23:00:00Z"},
		{"day", "Europe/Berlin", "2052-12-31T23:30:00Z", "2052-12-31T23:00:00Z", "2053-01-01T23:00:00Z"},  // ZoneBounds errs here
		{"hour", "Europe/Berlin", "2052-12-31T23:00:11Z", "2052-12-31T23:00:00Z", "2053-01-01T00:00:00Z"}, // and here
		{"day", "Asia/Gaza", "2020-10-23T21:40:00Z", "2020-10-23T21:00:00Z", "2020-10-24T22:00:00Z"},      // 1:00 back to midnight
	} {
		zone, err := loadZone(c.zone)
		if err != nil {
			t.Fatal(err)
		}
		w := calendarWindows{c.unit, zone}.at(wall(t, c.now))
		if w.start != wall(t, c.start) || w.end != wall(t, c.end) {
			t.Errorf("%s in %q at %s: %v to %v", c.unit, c.zone, c.now, time.Unix(0, w.start).UTC(), time.Unix(0, w.end).UTC())
		}
	}
}

// TestCalendarWindowsCoverAllTime walks from window to window in zones with odd rules, and looks at random times.
func TestCalendarWindowsCoverAllTime(t *testing.T) {
	rnd := source(t)
	for _, name := range []string{"UTC", "Europe/Berlin", "America/Sao_Paulo", "Australia/Lord_Howe", "Pacific/Apia", "America/St_Johns", "Asia/Tehran", "Africa/Casablanca", "America/Toronto", "Asia/Gaza"} {
		zone, err := loadZone(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, unit := range []string{"hour", "day", "week", "month", "year"} {
			ws := calendarWindows{unit, zone}
			for range 8 {
				now := rnd.Int64N(100 * int64(year))
				for range 10 {
					w := ws.at(now)
					if now < w.start || now >= w.end {
						t.Fatalf("%s in %s: %d is not in [%d, %d)", unit, name, now, w.start, w.end)
					}
					inside := w.start + rnd.Int64N(w.end-w.start)
					if got := ws.at(inside); got != w {
						t.Fatalf("%s in %s: %d lies in %v, but %d in %v", unit, name, now, w, inside, got)
					}
					if s, ok := ws.start(ws.number(w)); !ok || s != w.start {
						t.Fatalf("%s in %s: window %v has number %d, which starts at %d", unit, name, w, ws.number(w), s)
					}
					if next := ws.at(w.end); next.start != w.end {
						t.Fatalf("%s in %s: %v is followed by %v", unit, name, w, next)
					}
					now = w.end
				}
			}
		}
	}
}

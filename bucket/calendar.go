package bucket

import (
	"math"
	"time"
)

// calendarWindows are the hours, days, weeks (from Monday, as in ISO 8601), months or years of a
// time zone. Days with a change of the clocks last 23 or 25 hours. They all start at the first
// instant that has their date, which is not midnight where the clocks skip it.
type calendarWindows struct {
	unit string
	zone *time.Location
}

// nominal is the Per of a rate that goes with a calendar unit, as ParseRate reads it.
func nominal(unit string) (time.Duration, bool) {
	switch unit {
	case "hour":
		return time.Hour, true
	case "day":
		return day, true
	case "week":
		return week, true
	case "month":
		return month, true
	case "year":
		return year, true
	}
	return 0, false
}

// loadZone finds a time zone. The package does not embed the database of zones, so that
// programs that have it on disk are not 450 KB larger; import time/tzdata to embed it.
func loadZone(name string) (*time.Location, error) {
	if name == "" || name == "UTC" {
		return time.UTC, nil
	}
	if name == "Local" {
		return nil, specError("timezone Local may differ between nodes; name the zone, such as Europe/Berlin")
	}
	loc, err := time.LoadLocation(name)
	if err != nil {
		return nil, specError("timezone %q: %v; use a name such as Europe/Berlin (a program without zone files must import time/tzdata)", name, err)
	}
	return loc, nil
}

// maxCalendar keeps ends of windows within the range of nanoseconds.
const maxCalendar = math.MaxInt64 - int64(2*year)

func (c calendarWindows) at(now int64) window {
	if now > maxCalendar {
		return window{maxCalendar, math.MaxInt64}
	}
	t := time.Unix(0, now).In(c.zone)
	if c.unit == "hour" {
		return hourOf(t)
	}
	y, m, d := t.Date()
	start, end := c.dates(y, m, d)
	// Where the clocks went back across midnight an hour of the day before follows the start
	// of a day; it belongs to that day.
	if !end.After(t) {
		y, m, d = end.Date()
		if _, e := c.dates(y, m, d); e.After(t) {
			start, end = end, e
		}
	}
	return window{max(start.UnixNano(), 0), end.UnixNano()}
}

// dates returns the window that a date lies in.
func (c calendarWindows) dates(y int, m time.Month, d int) (start, end time.Time) {
	switch c.unit {
	case "week":
		d -= (int(time.Date(y, m, d, 12, 0, 0, 0, time.UTC).Weekday()) + 6) % 7
		return midnight(y, m, d, c.zone), midnight(y, m, d+7, c.zone)
	case "month":
		return midnight(y, m, 1, c.zone), midnight(y, m+1, 1, c.zone)
	case "year":
		return midnight(y, 1, 1, c.zone), midnight(y+1, 1, 1, c.zone)
	}
	return midnight(y, m, d, c.zone), midnight(y, m, d+1, c.zone)
}

// midnight returns the first instant whose local date is this one or later. time.Date will not do: where the clocks
// skip a midnight or show it twice it gives one of two instants. So look at each span between two
// changes of the clocks, from well before.
func midnight(y int, m time.Month, d int, zone *time.Location) time.Time {
	local := time.Date(y, m, d, 0, 0, 0, 0, time.UTC)
	for t := local.Add(-48 * time.Hour).In(zone); ; {
		_, offset := t.Zone()
		first := local.Add(-time.Duration(offset) * time.Second).In(zone)
		from, to := bounds(t)
		if first.Before(from) {
			first = from
		}
		if first.Before(to) || t.Sub(local) > 48*time.Hour {
			return first
		}
		t = to
	}
}

// bounds returns a span around t, up to a day each way, in which the clocks do not change: from <= t < to.
// Time.ZoneBounds says for the last day of leap years that the span is over (seen up to Go 1.26).
func bounds(t time.Time) (from, to time.Time) {
	from, to = t.Add(-day), t.Add(day)
	start, end := t.ZoneBounds()
	if start.After(from) && !start.After(t) {
		from = start
	}
	if end.Before(to) && end.After(t) {
		to = end
	}
	return from, to
}

// hourOf returns the hour of the wall clock, cut where the clocks change.
func hourOf(t time.Time) window {
	_, off := t.Zone()
	o := int64(off) * int64(time.Second)
	local := t.UnixNano() + o
	h := local % int64(time.Hour)
	if h < 0 {
		h += int64(time.Hour)
	}
	w := window{local - h - o, local - h - o + int64(time.Hour)}
	from, to := bounds(t)
	w.start = max(w.start, from.UnixNano(), 0)
	w.end = min(w.end, to.UnixNano())
	return w
}

// number is the start in seconds of Unix time: all changes of clocks happen at whole seconds.
func (c calendarWindows) number(w window) int64 { return w.start / int64(time.Second) }

func (c calendarWindows) start(n int64) (int64, bool) {
	if n < 0 || n > maxCalendar/int64(time.Second) {
		return 0, false
	}
	return n * int64(time.Second), true
}

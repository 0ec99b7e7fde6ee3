package main

import (
	"fmt"
	"slices"
	"time"
)

// sameLoad has a panel for each algorithm: what was asked, and what passed.
func sameLoad(results []result, phases []phase) []byte {
	const (
		columns, width           = 2, 900
		left, right, top, bottom = 44, 16, 96, 12
		gap, cell                = 44, 176
	)
	rows := (len(results) + columns - 1) / columns
	d := newDrawing(width, top+rows*cell+bottom, "The same requests, eight algorithms",
		fmt.Sprintf("For each algorithm the requests per second that came and that passed; of %d requests in all.", results[0].asked))
	d.text("head", "start", left-30, 28, "The same %d requests, eight algorithms of 10/s in the long run", results[0].asked)
	d.text("", "start", left-30, 48, "Requests per second over time. 8/s for 3 s, 60/s for 1 s, a pause, then 40/s from 8.5 s to 20 s; windows end at 5, 10, 15 s.")
	legend(d, left-30, 64)
	asked := arrivals(phases)
	panel := float64(width-left-right-gap) / columns
	for i, r := range results {
		x := left + float64(i%columns)*(panel+gap)
		y := float64(top + i/columns*cell)
		f := frame{x: x, y: y + 42, w: panel, h: 96, x0: 0, x1: 25, top: 60}
		d.text("head", "start", x, y+16, "%s", r.name)
		d.text("", "start", x, y+33, "%s", r.text)
		d.text("ink", "end", x+panel, y+16, "%d of %d", len(r.passed), r.asked)
		d.text("", "end", x+panel, y+33, "at most %d in 5 s%s", r.most(busiest), waits(r))
		d.axes(f, 5, 20, " s")
		d.bars(f, 0.5, asked, r.passed)
		d.segment("rule", f.at(0, speed).x, f.at(0, speed).y, f.at(25, speed).x, f.at(25, speed).y)
	}
	return d.bytes()
}

func waits(r result) string {
	if r.longest == 0 {
		return ""
	}
	return ", waits to " + wait(r.longest)
}

func legend(d *drawing, x, y float64) {
	d.rect("asked", x, y, 12, 12)
	d.text("", "start", x+18, y+10, "asked")
	d.rect("passed", x+66, y, 12, 12)
	d.text("", "start", x+84, y+10, "passed")
	d.segment("rule", x+140, y+6, x+164, y+6)
	d.text("", "start", x+170, y+10, "10/s")
}

// boundary adds up what four of them let through while the overload crosses the end of a window.
func boundary(results []result) []byte {
	const width, height = 900, 420
	const from, to = 8.0, 16.0
	d := newDrawing(width, height, "What a window's end does", "Requests passed since 8 s, added up, under 40/s from 8.5 s on, for four algorithms.")
	d.text("head", "start", 14, 28, "Passed since 8 s: 40/s come from 8.5 s on, and windows of 50/5s end at 10 s and 15 s")
	f := frame{x: 44, y: 52, w: 700, h: 320, x0: from, x1: to, top: 150}
	d.axes(f, 1, 50, " s")
	for _, x := range []float64{10, 15} {
		low, high := f.at(x, 0), f.at(x, f.top)
		d.segment("rule", low.x, low.y, high.x, high.y)
		d.text("", "middle", high.x, high.y-6, "window ends")
	}
	for _, l := range []struct{ name, class string }{
		{"fixed_window", "red"}, {"token_bucket", "blue"}, {"sliding_window", "orange"}, {"sliding_log", "green"},
	} {
		i := slices.IndexFunc(results, func(r result) bool { return r.name == l.name })
		points := []point{f.at(from, 0)}
		n := 0.0
		for _, t := range results[i].passed {
			x := float64(t) / 1e9
			if x < from || x >= to {
				continue
			}
			points = append(points, f.at(x, n), f.at(x, n+1))
			n++
		}
		end := f.at(to, n)
		d.polyline(l.class, append(points, end))
		d.segment("line "+l.class, end.x+6, end.y, end.x+20, end.y)
		d.text("ink", "start", end.x+26, end.y+4, "%s %g", l.name, n)
	}
	return d.bytes()
}

// burstAverage shows the formula at work: the bars, and the average that decides.
func burstAverage(r result, phases []phase) []byte {
	const width, height, end = 900, 330, 56
	d := newDrawing(width, height, "burst_average", "Requests per second that came and passed, and the average of the last 16 s with its threshold.")
	d.text("head", "start", 14, 28, "burst_average: %s", r.text)
	d.text("", "start", 14, 48, "From idle a full load passes at 8/s for T = threshold * time / burst_rate = 1/s * 16 s / 8/s = 2 s, then at 2/s.")
	d.rect("asked", 14, 62, 12, 12)
	d.text("", "start", 32, 72, "asked")
	d.rect("passed", 80, 62, 12, 12)
	d.text("", "start", 98, 72, "passed, per second")
	d.segment("line orange", 224, 68, 248, 68)
	d.text("", "start", 254, 72, "average of the last 16 s")
	d.segment("rule", 414, 68, 438, 68)
	d.text("", "start", 444, 72, "threshold")
	f := frame{x: 44, y: 92, w: 836, h: 200, x0: 0, x1: end, top: 16}
	d.axes(f, 4, 4, " s")
	d.bars(f, 1, arrivals(phases), r.passed)
	d.segment("rule", f.at(0, 1).x, f.at(0, 1).y, f.at(end, 1).x, f.at(end, 1).y)
	var points []point
	for t := time.Duration(0); t <= end*time.Second; t += 250 * time.Millisecond {
		n := between(r.passed, int64(t-16*time.Second), int64(t))
		points = append(points, f.at(t.Seconds(), float64(n)/16))
	}
	d.polyline("orange", points)
	return d.bytes()
}

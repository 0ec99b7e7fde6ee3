package demo

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// draw shows the state until ctx ends; a picture is then brought up to date.
func (s *show) draw(ctx context.Context) {
	interval := time.Second // a line each time
	if s.Terminal {
		interval = 200 * time.Millisecond
	}
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			s.screen.show(s.picture())
		case <-ctx.Done():
			if s.Terminal {
				s.screen.show(s.picture())
				s.screen.settle()
			}
			return
		}
	}
}

// picture is what can be seen at one moment.
type picture struct {
	elapsed, total time.Duration
	rows           []row
	hot            gauge
	fallbacks      int // decisions of the last second that a fallback made
	lost           int64
}

// row is one node over the last second.
type row struct {
	name, state string
	note        string
	last        summary
}

// gauge is what the hot key was admitted against the most that it may be.
type gauge struct {
	user       string
	admitted   int
	allowed    float64
	lastSecond int
	rate       string
}

func (s *show) picture() picture {
	now := s.journal.now()
	from := max(0, now-time.Second)
	recent := s.journal.since(from)
	inLast := func(r record) bool { return r.done >= from }
	pic := picture{elapsed: now, total: max(now, s.Duration), lost: s.load.lost.Load()}

	s.mu.Lock()
	states := s.states
	s.mu.Unlock()
	for i, p := range s.processes {
		r := row{name: p.name, state: states[i]}
		if i == s.busy {
			r.note = "90 % of the load"
		}
		if i == s.victim {
			r.note = "owns " + users[0]
			if states[i] != "up" {
				r.note = ""
			}
		}
		r.last = summarize(recent, func(r record) bool { return r.node == i && inLast(r) })
		pic.rows = append(pic.rows, r)
	}
	for _, r := range recent {
		if inLast(r) && r.elsewhere {
			pic.fallbacks++
		}
	}
	isHot := func(r record) bool { return r.key == 0 }
	pic.hot = gauge{
		user:       users[0],
		admitted:   summarize(s.journal.all(), isHot).admitted,
		allowed:    float64(burst(s.Limit)) + perSecond(s.Limit.Rate)*now.Seconds(),
		lastSecond: summarize(recent, func(r record) bool { return isHot(r) && inLast(r) }).admitted,
		rate:       s.Limit.Rate.String(),
	}
	return pic
}

// bar draws a part of a whole with blocks.
func bar(part float64, width int) string {
	full := min(max(int(part*float64(width)+0.5), 0), width)
	return strings.Repeat("█", full) + strings.Repeat("░", width-full)
}

// short prints a latency in milliseconds, which is what there is room for.
func short(d time.Duration) string {
	if d == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond))
}

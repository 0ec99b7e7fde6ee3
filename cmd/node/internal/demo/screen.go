package demo

import (
	"fmt"
	"io"
	"strings"
	"sync"
)

// screen shows the run. Safe for concurrent use.
type screen interface {
	// show replaces the last picture.
	show(picture)
	// note adds a line that stays.
	note(string)
	// settle leaves the last picture as it is; notes go below it.
	settle()
	// close makes the terminal as it was.
	close()
}

func newScreen(out io.Writer, terminal bool) screen {
	if terminal {
		return &terminalScreen{out: out}
	}
	return &plainScreen{out: out}
}

// plainScreen writes one line a second and no escape codes.
type plainScreen struct {
	mu  sync.Mutex
	out io.Writer
}

func (s *plainScreen) settle() {}
func (s *plainScreen) close()  {}

func (s *plainScreen) note(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintln(s.out, line)
}

func (s *plainScreen) show(p picture) {
	var b strings.Builder
	fmt.Fprintf(&b, "%5.1f s  %s admitted %d, limit allows %.0f, last second %d", p.elapsed.Seconds(), p.hot.user, p.hot.admitted, p.hot.allowed, p.hot.lastSecond)
	for _, r := range p.rows {
		fmt.Fprintf(&b, " | %s %s: %d in, %d ok, %d no, p99 %s", r.name, r.state, r.last.offered(), r.last.admitted, r.last.refused, short(r.last.p99))
	}
	s.note(b.String())
}

// terminalScreen redraws the picture in place, below the lines that stay. It
// uses the normal screen, so that all of it is still there afterwards.
type terminalScreen struct {
	mu    sync.Mutex
	out   io.Writer
	drawn int // lines of the last picture, with the cursor below them
	last  string
}

const (
	hideCursor = "\x1b[?25l"
	showCursor = "\x1b[?25h"
	clearLine  = "\x1b[K"
	clearBelow = "\x1b[J"
	bold       = "\x1b[1m"
	faint      = "\x1b[2m"
	red        = "\x1b[31m"
	green      = "\x1b[32m"
	yellow     = "\x1b[33m"
	normal     = "\x1b[0m"
)

func (s *terminalScreen) settle() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last, s.drawn = "", 0
}

func (s *terminalScreen) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	io.WriteString(s.out, normal+showCursor)
}

// note writes the line where the picture was, and the picture below it again.
func (s *terminalScreen) note(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	io.WriteString(s.out, s.up()+line+clearLine+"\n"+clearBelow+s.last)
	s.drawn = strings.Count(s.last, "\n")
}

func (s *terminalScreen) show(p picture) {
	lines := drawPicture(p)
	s.mu.Lock()
	defer s.mu.Unlock()
	text := strings.Join(lines, clearLine+"\n") + clearLine + "\n"
	// One write for the whole picture, or a terminal may show half of it.
	io.WriteString(s.out, hideCursor+s.up()+text)
	s.last, s.drawn = text, len(lines)
}

// up moves the cursor to where the picture began.
func (s *terminalScreen) up() string {
	if s.drawn == 0 {
		return ""
	}
	return fmt.Sprintf("\r\x1b[%dA", s.drawn)
}

// drawPicture is the picture as lines of at most 80 columns.
func drawPicture(p picture) []string {
	lines := []string{
		"",
		fmt.Sprintf("%s%-4s %-8s %8s %8s %8s %9s %9s%s  in the last second", bold, "node", "", "requests", "admitted", "refused", "p50", "p99", normal),
	}
	for _, r := range p.rows {
		color := yellow
		switch r.state {
		case "up":
			color = green
		case "killed":
			color = red
		}
		lines = append(lines, fmt.Sprintf("%-4s %s%-8s%s %8d %8d %8d %9s %9s  %s%s%s", r.name, color, r.state, normal,
			r.last.offered(), r.last.admitted, r.last.refused, short(r.last.p50), short(r.last.p99), faint, r.note, normal))
	}
	h := p.hot
	lines = append(lines, "",
		fmt.Sprintf("%s%s%s  admitted %s%d%s of at most b + r·t = %.0f; last second %d, r is %s",
			bold, h.user, normal, bold, h.admitted, normal, h.allowed, h.lastSecond, h.rate),
		fmt.Sprintf("%s %5.1f %%", bar(float64(h.admitted)/h.allowed, 60), 100*float64(h.admitted)/h.allowed),
		"",
		fmt.Sprintf("%stime%s %s %.0f of %.0f s%s", faint, normal+faint, bar(p.elapsed.Seconds()/p.total.Seconds(), 40), p.elapsed.Seconds(), p.total.Seconds(), normal),
	)
	fallback, lost := "", "" // always there, so that the picture keeps its height
	if p.fallbacks > 0 {
		fallback = fmt.Sprintf("%s%d decisions of the last second without the owner (fallback)%s", yellow, p.fallbacks, normal)
	}
	if p.lost > 0 {
		lost = fmt.Sprintf("%d requests not sent: this machine is too busy", p.lost)
	}
	return append(lines, fallback, lost)
}

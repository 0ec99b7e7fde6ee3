package refusals

import (
	"bytes"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jatah-io/jatah"
)

// page is a log in a buffer, each line with the second in which it came.
type page struct {
	mu    sync.Mutex
	begin time.Time
	lines []string
}

func (p *page) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lines = append(p.lines, fmt.Sprintf("%v %s", time.Since(p.begin), bytes.TrimSpace(b)))
	return len(b), nil
}

func newPage() (*page, *slog.Logger) {
	p := &page{begin: time.Now()}
	return p, slog.New(slog.NewTextHandler(p, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey || a.Key == slog.LevelKey {
			return slog.Attr{}
		}
		return a
	}}))
}

// read gives the lines so far.
func (p *page) read() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.lines)
}

func expect(t *testing.T, lines []string, want ...string) {
	t.Helper()
	if got := strings.Join(lines, "\n"); got != strings.Join(want, "\n") {
		t.Errorf("the log has\n%s\nwant\n%s", got, strings.Join(want, "\n"))
	}
}

// TestOneLineASecond: the first at once, the others in sum, and nothing is lost when they end.
func TestOneLineASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, logger := newPage()
		l := New(logger, 0)
		for i := range 100 {
			l.Note("api", fmt.Sprint("user ", i), 1500*time.Microsecond)
			l.Note("sms", "b", jatah.Never)
			time.Sleep(24 * time.Millisecond) // never at the moment of a line
		}
		time.Sleep(time.Hour)
		l.mu.Lock()
		if len(l.recent) != 0 {
			t.Errorf("%d limits are remembered", len(l.recent))
		}
		l.mu.Unlock()
		l.Note("api", "late", 0)
		time.Sleep(time.Minute)
		lines := p.read()
		for i, line := range lines { // both limits have a line at the same moment, in either order
			if i%2 == 0 && i+1 < len(lines) && strings.Contains(line, "sms") {
				lines[i], lines[i+1] = lines[i+1], lines[i]
			}
		}
		expect(t, lines,
			`0s msg=refused limit=api key="user 0" retry_after=2ms`,
			`0s msg=refused limit=sms key=b retry_after=never`,
			`1s msg=refused limit=api key="user 1" retry_after=2ms requests=41`,
			`1s msg=refused limit=sms key=b retry_after=never requests=41`,
			`2s msg=refused limit=api key="user 42" retry_after=2ms requests=42`,
			`2s msg=refused limit=sms key=b retry_after=never requests=42`,
			`3s msg=refused limit=api key="user 84" retry_after=2ms requests=16`,
			`3s msg=refused limit=sms key=b retry_after=never requests=16`,
			`1h0m2.4s msg=refused limit=api key=late retry_after=0s`)
	})
}

func TestFloodsOfRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, logger := newPage()
		l := New(logger, 10*time.Second)
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for i := range 10_000 {
					l.Note("api", fmt.Sprint(i), time.Second)
				}
			})
		}
		wg.Wait()
		time.Sleep(time.Minute)
		if lines := p.read(); len(lines) != 2 || !strings.HasPrefix(lines[1], "10s ") || !strings.HasSuffix(lines[1], "requests=79999") {
			t.Errorf("%q", lines)
		}
		if n := testing.AllocsPerRun(1000, func() { l.Note("api", "a", 0) }); n != 0 {
			t.Errorf("a refusal allocates %v times", n)
		}
		time.Sleep(time.Minute)
	})
}

// TestKeysAreHarmless: whatever a key contains, the log has one line for it, without control characters.
func TestKeysAreHarmless(t *testing.T) {
	for _, c := range []struct{ key, want string }{
		{"user:42", "user:42"},
		{"a\nmsg=forged\x1b[31m", `a\nmsg=forged\x1b[31m`},
		{"\u202eevil\u0000", `\u202eevil\x00`},
		{"<b>ü</b>", "<b>ü</b>"},
		{"\xff", `\xff`},
		{jatah.Key("a", "b\n", ""), `[a, b\n, ]`},
		{strings.Repeat("x", 1000), strings.Repeat("x", 80) + "..."},
		{jatah.Key(strings.Repeat("x", 500), "y"), "[" + strings.Repeat("x", 79) + "..., ...]"},
	} {
		if got := show(c.key); got != c.want {
			t.Errorf("%q is shown as %q, want %q", c.key, got, c.want)
		}
	}
}

func TestNilLogsNothing(t *testing.T) {
	var l *Log
	l.Note("api", "a", time.Second)
}

func BenchmarkNote(b *testing.B) {
	_, logger := newPage()
	l := New(logger, time.Hour)
	b.ReportAllocs()
	for b.Loop() {
		l.Note("api", "user:42", time.Second)
	}
}

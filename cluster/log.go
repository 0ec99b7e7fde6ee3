package cluster

import (
	"bytes"
	"context"
	"log"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// quietFor is how long a line like one that was logged is kept back.
const quietFor = time.Minute

// logBridge makes slog records of memberlist's lines, "[LEVEL] memberlist: text". Of lines that
// differ in names, addresses and numbers only, one a minute is passed on: memberlist
// repeats some for every packet.
type logBridge struct {
	to *slog.Logger

	mu   sync.Mutex
	seen map[string]*repeats
}

type repeats struct {
	at   time.Time
	more int
}

func newLogBridge(to *slog.Logger) *log.Logger {
	return log.New(&logBridge{to: to, seen: make(map[string]*repeats)}, "", 0)
}

// Write takes one line; log.Logger calls it once per line.
func (l *logBridge) Write(b []byte) (int, error) {
	level, text := logLevel(string(bytes.TrimSpace(b)))
	if !l.to.Enabled(context.Background(), level) {
		return len(b), nil
	}
	more := 0
	if level > slog.LevelDebug {
		var ok bool
		if more, ok = l.allow(lineClass(text), time.Now()); !ok {
			return len(b), nil
		}
	}
	if more > 0 {
		l.to.Log(context.Background(), level, text, "like_it_since", more)
	} else {
		l.to.Log(context.Background(), level, text)
	}
	return len(b), nil
}

// allow says whether a line of this class may be logged now, and how many were kept back.
func (l *logBridge) allow(class string, now time.Time) (more int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.seen[class]
	switch {
	case r == nil:
		if len(l.seen) >= 256 { // classes are few; this only guards against a surprise
			clear(l.seen)
		}
		l.seen[class] = &repeats{at: now}
		return 0, true
	case now.Sub(r.at) < quietFor:
		r.more++
		return 0, false
	}
	more = r.more
	*r = repeats{at: now}
	return more, true
}

// expected are beginnings of lines that belong to an ordinary restart, departure or partition, and
// that memberlist logs as warnings or errors. What matters of them this package logs itself.
var expected = []string{
	"Got ping for unexpected node", "Refuting a", "ignoring alive message", "Failed UDP ping",
	"Failed fallback TCP ping", "Push/Pull with", "Failed push/pull merge", "Failed to send gossip",
	"Was able to connect", "Suspect ", "Marking ", "Updating address",
	"Failed to send",
}

// logLevel takes the level off a line. memberlist's errors are warnings to us: none of
// them ends anything.
func logLevel(line string) (slog.Level, string) {
	level := slog.LevelInfo
	if rest, ok := strings.CutPrefix(line, "["); ok {
		if tag, text, ok := strings.Cut(rest, "]"); ok {
			line = strings.TrimSpace(text)
			switch tag {
			case "DEBUG":
				level = slog.LevelDebug
			case "WARN", "ERR", "ERROR":
				level = slog.LevelWarn
			}
		}
	}
	line = strings.TrimPrefix(line, "memberlist: ")
	for _, e := range expected {
		if strings.HasPrefix(line, e) {
			return slog.LevelDebug, line
		}
	}
	return level, line
}

// lineClass is the line up to the first name, address or number.
func lineClass(text string) string {
	if i := strings.IndexAny(text, "0123456789'\"%:("); i > 0 {
		text = text[:i]
	}
	words := strings.Fields(text)
	return strings.Join(words[:min(len(words), 3)], " ")
}

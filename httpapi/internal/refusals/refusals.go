// Package refusals logs who is refused, at a rate that no flood can raise: at most one line for each limit in a while.
//
// The first refusal of a limit is logged at once. Those that come within the interval after a line are counted, and told of in one
// line at its end, with the first of their keys as an example. Keys are escaped and cut: who is refused chooses them.
package refusals

import (
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jatah-io/jatah"
)

// Interval is between two lines of one limit, where New is given none.
const Interval = time.Second

// longestKey is how much of a key is shown, in bytes before they are escaped.
const longestKey = 80

// Log writes the lines. A nil Log writes nothing, and costs nothing. Safe for any number of goroutines; it has nothing to close.
type Log struct {
	logger *slog.Logger
	every  time.Duration

	mu     sync.Mutex
	recent map[string]*recent // by limit: those that had a line within the interval
}

// recent is what came since the last line of a limit.
type recent struct {
	n     int
	key   string // of the first
	retry time.Duration
}

// New returns a Log that writes to logger, one line for each limit in every, 0: Interval.
func New(logger *slog.Logger, every time.Duration) *Log {
	if every <= 0 {
		every = Interval
	}
	return &Log{logger: logger, every: every, recent: map[string]*recent{}}
}

// Note tells of a refusal. limit must be a name of the configuration, not one of a request: each takes memory for an interval. retry is
// Decision.RetryAfter.
func (l *Log) Note(limit, key string, retry time.Duration) {
	if l == nil {
		return
	}
	l.mu.Lock()
	if r := l.recent[limit]; r != nil {
		if r.n++; r.n == 1 {
			r.key, r.retry = show(key), retry
		}
		l.mu.Unlock()
		return
	}
	l.recent[strings.Clone(limit)] = &recent{}
	l.mu.Unlock()
	l.later(limit)
	l.logger.Info("refused", "limit", limit, "key", show(key), "retry_after", wait(retry))
}

// later tells of what comes in the interval that begins, when it ends.
func (l *Log) later(limit string) {
	time.AfterFunc(l.every, func() {
		l.mu.Lock()
		r := *l.recent[limit]
		if r.n == 0 {
			delete(l.recent, limit)
		} else {
			l.recent[limit] = &recent{}
		}
		l.mu.Unlock()
		if r.n > 0 {
			l.later(limit)
			l.logger.Info("refused", "limit", limit, "key", r.key, "retry_after", wait(r.retry), "requests", r.n)
		}
	})
}

func wait(d time.Duration) string {
	if d == jatah.Never {
		return "never"
	}
	return d.Round(time.Millisecond).String()
}

// show is a key for a reader: cut, and without characters that a terminal or a log would obey. The parts of a joined key are in brackets.
func show(key string) string {
	parts := jatah.SplitKey(key)
	if len(parts) == 1 {
		return escape(parts[0], longestKey)
	}
	var b strings.Builder
	b.WriteByte('[')
	for i, p := range parts {
		if i > 0 {
			b.WriteString(", ")
		}
		if b.Len() >= longestKey {
			b.WriteString("...")
			break
		}
		b.WriteString(escape(p, longestKey-b.Len()))
	}
	b.WriteByte(']')
	return b.String()
}

// escape is quoting without the quotes: handlers of logs add those that they need.
func escape(s string, most int) string {
	end := ""
	if len(s) > most {
		s, end = s[:most], "..."
	}
	q := strconv.Quote(s)
	return q[1:len(q)-1] + end
}

package demo

import (
	"slices"
	"sync"
	"time"
)

// journal collects every decision. Safe for concurrent use.
type journal struct {
	start time.Time
	keys  []string

	mu      sync.Mutex
	records []record // in the order in which the answers came
}

func newJournal(keys []string) *journal { return &journal{start: time.Now(), keys: keys} }

func (j *journal) now() time.Duration { return time.Since(j.start) }

// keyIndex is -1 for a user who is not of the load, such as one who tries a
// service by hand.
func (j *journal) keyIndex(key string) int { return slices.Index(j.keys, key) }

func (j *journal) add(r record) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.records = append(j.records, r)
}

// since are the decisions that were there after a moment.
func (j *journal) since(from time.Duration) []record {
	j.mu.Lock()
	defer j.mu.Unlock()
	i := len(j.records)
	// Answers are recorded out of order by no more than a moment.
	for i > 0 && j.records[i-1].done >= from-50*time.Millisecond {
		i--
	}
	return slices.Clone(j.records[i:])
}

func (j *journal) all() []record { return j.since(0) }

// summary counts decisions. Latencies are those of answered requests.
type summary struct {
	admitted, refused, failed int
	p50, p99, slowest         time.Duration
}

func (s summary) offered() int { return s.admitted + s.refused + s.failed }

// summarize counts the records that want accepts.
func summarize(records []record, want func(record) bool) summary {
	var s summary
	var took []time.Duration
	for _, r := range records {
		if !want(r) {
			continue
		}
		switch r.outcome {
		case admitted:
			s.admitted++
		case refused:
			s.refused++
		case failed:
			s.failed++
			continue
		}
		took = append(took, r.done-r.sent)
	}
	if len(took) == 0 {
		return s
	}
	slices.Sort(took)
	at := func(percent int) time.Duration { return took[min(len(took)-1, len(took)*percent/100)] }
	s.p50, s.p99, s.slowest = at(50), at(99), took[len(took)-1]
	return s
}

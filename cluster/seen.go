package cluster

import (
	"sync"
	"time"
)

const (
	// seenFor is how long an answer is kept for requests that come again.
	seenFor = 10 * time.Second
	// seenMax and seenBytes bound what is kept for one member.
	seenMax   = 8192
	seenBytes = 4 << 20
)

type seenState uint8

const (
	seenNew seenState = iota
	seenRunning
	seenAnswered
	seenTooOld
)

// seen remembers the requests of one process, so that each is executed at most once. A process
// numbers its requests upwards. What is forgotten, for its age or for want of room, raises
// floor, and a request at or below floor that is not remembered is refused: it may be a straggler
// of one that was executed. Safe for concurrent use; the zero value is ready.
type seen struct {
	mu    sync.Mutex
	m     map[uint64]*seenEntry
	order []uint64 // ids as they came, oldest first; some may be gone from m
	floor uint64
	bytes int
}

type seenEntry struct {
	at   time.Time
	done bool
	a    answer
}

// begin says what is known of a request, and takes note of a new one.
func (s *seen) begin(id uint64, now time.Time) (seenState, answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.m[id]; e != nil {
		if e.done {
			return seenAnswered, e.a
		}
		return seenRunning, answer{}
	}
	if id <= s.floor {
		return seenTooOld, answer{}
	}
	s.expire(now)
	if s.m == nil {
		s.m = make(map[uint64]*seenEntry)
	}
	s.m[id] = &seenEntry{at: now}
	s.order = append(s.order, id)
	return seenNew, answer{}
}

// finish keeps the answer of a request that begin called new.
func (s *seen) finish(id uint64, a answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.m[id]; e != nil {
		e.done, e.a = true, a
		s.bytes += len(a.body)
	}
}

// cancel undoes begin, for a request that was not executed after all.
func (s *seen) cancel(id uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.m, id)
}

// expire forgets the oldest while there are too many, and those that are too old. One that is still
// running is forgotten too: it runs on, and floor keeps it from running twice.
func (s *seen) expire(now time.Time) {
	for len(s.order) > 0 {
		id := s.order[0]
		e := s.m[id]
		if e != nil {
			if len(s.m) < seenMax && s.bytes <= seenBytes && now.Sub(e.at) < seenFor {
				return
			}
			s.bytes -= len(e.a.body)
			s.floor = max(s.floor, id)
			delete(s.m, id)
		}
		s.order = s.order[1:]
	}
}

// sweep forgets what is too old.
func (s *seen) sweep(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire(now)
}

package httpapi

import (
	"net/http"
	"sync"
	"time"

	"github.com/jatah-io/jatah/httpapi/internal/fields"
)

const (
	// repeatFor is how long an answer is kept for repeats of its request.
	repeatFor = time.Minute

	// repeatKeyMax bounds an Idempotency-Key, in bytes.
	repeatKeyMax = 255

	// repeatOverhead is about what an entry costs beside its key, headers
	// and body: the entry, its channel and its place in the map.
	repeatOverhead = 300
)

// answer is a whole response to a decision. head and body are not changed
// after it was made; body may be lent from a pool, see keep.
type answer struct {
	status int
	head   *fields.Values
	body   []byte
}

func (a *answer) size() int {
	n := len(a.body)
	for _, v := range a.head {
		n += len(v)
	}
	return n
}

// repeats remembers answers by Idempotency-Key. The zero value is not ready; use
// newRepeats. Safe for concurrent use. Times are durations since
// an epoch of the caller and must not go back.
//
// An entry is in flight until its first request is answered. All answers live equally
// long, so the list of answered entries is in order of expiry and the oldest is always the first to go.
type repeats struct {
	maxEntries, maxBytes int

	mu           sync.Mutex
	entries      map[string]*repeat
	first, last  *repeat // answered, oldest first
	bytes        int     // of answered entries
	early        uint64  // answers dropped before their time
	nextEarlyLog time.Duration
}

type repeat struct {
	key     string
	print   uint64        // hash of the request, to tell another request with the same key
	done    chan struct{} // closed once answered or given up
	answer  *answer       // valid after done; nil: given up, nothing was charged
	expires time.Duration
	size    int
	next    *repeat
}

// role is what a request with an Idempotency-Key has to do.
type role uint8

const (
	lead     role = iota // decide, then call finish
	follow               // wait for done, then use the answer or begin again
	conflict             // refuse: the key belongs to another request
	crowded              // refuse: too many first requests are in flight
)

func newRepeats(entries, bytes int) *repeats {
	return &repeats{maxEntries: entries, maxBytes: bytes, entries: make(map[string]*repeat)}
}

// begin finds or makes the entry of a key.
func (m *repeats) begin(now time.Duration, key string, print uint64) (*repeat, role) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.expire(now)
	if e := m.entries[key]; e != nil {
		if e.print != print {
			return nil, conflict
		}
		return e, follow
	}
	for len(m.entries) >= m.maxEntries {
		if m.first == nil {
			return nil, crowded
		}
		m.early++
		m.dropFirst()
	}
	e := &repeat{key: key, print: print, done: make(chan struct{})}
	m.entries[key] = e
	return e, lead
}

// finish answers an entry, for those who follow now and for a minute from now
// on. a nil: there is no answer, whoever follows begins again.
func (m *repeats) finish(now time.Duration, e *repeat, a *answer) {
	m.mu.Lock()
	defer m.mu.Unlock()
	defer close(e.done)
	if a == nil {
		delete(m.entries, e.key)
		return
	}
	e.answer, e.expires, e.size = a, now+repeatFor, repeatOverhead+len(e.key)+a.size()
	if m.last == nil {
		m.first = e
	} else {
		m.last.next = e
	}
	m.last = e
	m.bytes += e.size
	m.expire(now)
	for m.bytes > m.maxBytes {
		m.early++
		m.dropFirst()
	}
}

func (m *repeats) expire(now time.Duration) {
	for m.first != nil && m.first.expires <= now {
		m.dropFirst()
	}
}

func (m *repeats) dropFirst() {
	e := m.first
	if m.first = e.next; m.first == nil {
		m.last = nil
	}
	e.next = nil // a follower may still hold e; it must not hold the list
	m.bytes -= e.size
	delete(m.entries, e.key)
}

// droppedEarly returns how many answers had to go before their minute was over since
// the last time it returned some, at most once a minute, for the log.
func (m *repeats) droppedEarly(now time.Duration) uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.early == 0 || now < m.nextEarlyLog {
		return 0
	}
	n := m.early
	m.early, m.nextEarlyLog = 0, now+time.Minute
	return n
}

// repeatKey returns the Idempotency-Key of a request, ok false if it has none.
func repeatKey(head http.Header) (key string, ok bool, p *problem) {
	keys := head["Idempotency-Key"]
	if len(keys) == 0 {
		return "", false, nil
	}
	if len(keys) > 1 || keys[0] == "" || len(keys[0]) > repeatKeyMax {
		return "", false, badRepeatKey()
	}
	return keys[0], true, nil
}

func badRepeatKey() *problem {
	p := badField("Idempotency-Key", "Idempotency-Key must be there once and have 1 to %d bytes; a random UUID per request does well.", repeatKeyMax)
	p.slug = "bad-idempotency-key"
	return p
}

package main

import (
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jatah-io/jatah/internal/envelope"
)

// flood is what came of many requests for one key.
type flood struct {
	mu       sync.Mutex
	admitted []envelope.Admission
	refused  int
	errors   []error
	first    time.Duration // when the first was sent
	last     time.Duration // when the last was answered
	slowest  time.Duration
	sources  map[string]int
	ahead    int // admitted ahead of a share
}

// run sends requests for a key to all servers, from several workers each with
// a pause between two, until done says so. All times count from start.
func (f *flood) run(servers []*server, limit, key string, start time.Time, done func() bool) {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16}}
	defer client.CloseIdleConnections()
	f.mu.Lock()
	f.first, f.sources = time.Since(start), map[string]int{}
	f.mu.Unlock()
	var workers sync.WaitGroup
	for _, s := range servers {
		for range 3 {
			workers.Go(func() {
				// 3 workers with 10 ms between requests offer up to 300 a second at each
				// node: several times each limit here, and little for the machine.
				for pace := time.NewTicker(10 * time.Millisecond); !done(); <-pace.C {
					sent := time.Since(start)
					d, err := s.ask(client, limit, key)
					f.add(envelope.Admission{Sent: sent, Done: time.Since(start)}, d, err)
				}
			})
		}
	}
	workers.Wait()
}

func (f *flood) add(a envelope.Admission, d decision, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last = max(f.last, a.Done)
	if err != nil {
		f.errors = append(f.errors, err)
		return
	}
	f.slowest = max(f.slowest, a.Done-a.Sent)
	f.sources[d.Source]++
	if d.Allowed {
		f.admitted = append(f.admitted, a)
		f.ahead += spentAhead(d)
	} else {
		f.refused++
	}
}

func lasting(d time.Duration) func() bool {
	end := time.Now().Add(d)
	return func() bool { return time.Now().After(end) }
}

// paused is how often the servers were not run by the machine for so long that
// they were sure of nothing. That is a fault: it may waste tokens, and let
// through the burst once, whatever the test does.
func paused(servers []*server) int {
	n := 0
	for _, s := range servers {
		n += strings.Count(s.text(), "this node was paused")
	}
	return n
}

// spentAhead is what a decision may let through beyond the limit: a token, if the
// owner did not answer in time. On a busy machine that happens without a pause.
func spentAhead(d decision) int {
	if d.Allowed && d.Source == "ahead" {
		return 1
	}
	return 0
}

// judge compares a flood with b + r*t, and is strict about it if none of the
// servers was paused and every owner answered in time.
func (f *flood) judge(t *testing.T, servers []*server, rate, burst float64) {
	t.Helper()
	for _, err := range f.errors {
		t.Errorf("no decision: %v", err)
	}
	span := (f.last - f.first).Seconds()
	allowed := burst + rate*span
	worst := envelope.WorstExcess(f.admitted, rate, burst)
	t.Logf("admitted %d and refused %d in %.3f s, allowed %.1f (%.2f %%); worst excess %.2f; slowest %v; decided by %v",
		len(f.admitted), f.refused, span, allowed, 100*float64(len(f.admitted))/allowed, worst.Tokens, f.slowest, f.sources)
	if f.refused == 0 {
		t.Error("nothing was refused: the load was too small to show anything")
	}
	if n := float64(paused(servers)); n > 0 {
		t.Logf("%.0f pauses: this machine is too busy to tell how much of the limit is used", n)
		if worst.Tokens > n*burst+float64(f.ahead) {
			t.Errorf("excess of %.2f tokens, more than the burst for each pause", worst.Tokens)
		}
		return
	}
	if n := f.sources["share"] + f.sources["ahead"]; n > 0 {
		t.Logf("%d answers of owners were late: this machine is too busy to tell how much of the limit is used", n)
		if worst.Tokens > float64(f.ahead)+1 {
			t.Errorf("excess of %.2f tokens, more than the %d spent ahead", worst.Tokens, f.ahead)
		}
		return
	}
	if float64(len(f.admitted)) > allowed+1 {
		t.Errorf("admitted %d, more than b + r·t = %.1f", len(f.admitted), allowed)
	}
	if worst.Tokens > 1 {
		t.Errorf("excess of %.2f tokens from %v to %v", worst.Tokens, worst.From, worst.To)
	}
	if float64(len(f.admitted)) < 0.97*allowed {
		t.Errorf("admitted %d, less than 97 %% of %.1f", len(f.admitted), allowed)
	}
}

func (f *flood) count(source string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.sources[source]
}

// admittedInLast is how much was admitted in the time before the last answer.
func (f *flood) admittedInLast(d time.Duration) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for _, a := range f.admitted {
		if a.Done > f.last-d {
			n++
		}
	}
	return n
}

// stalls is how long this machine did not run a goroutine of the test that was due.
type stalls struct{ longest atomic.Int64 }

// watchStalls looks for stalls until the test ends.
func watchStalls(t *testing.T) *stalls {
	s, done := &stalls{}, make(chan struct{})
	t.Cleanup(func() { close(done) })
	go func() {
		const pace = 5 * time.Millisecond
		tick := time.NewTicker(pace)
		defer tick.Stop()
		for last := time.Now(); ; {
			select {
			case <-done:
				return
			case <-tick.C:
			}
			now := time.Now()
			s.longest.Store(max(s.longest.Load(), int64(now.Sub(last)-pace)))
			last = now
		}
	}()
	return s
}

func (s *stalls) worst() time.Duration { return time.Duration(s.longest.Load()) }

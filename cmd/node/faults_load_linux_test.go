package main

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jatah-io/jatah/internal/envelope"
)

// stream is a load on one key, through some nodes, until it is stopped.
type stream struct {
	flood
	rule    rule
	key     string
	rig     *rig
	ended   atomic.Bool
	workers sync.WaitGroup
	excused atomic.Int64 // requests that failed at nodes that were down
}

// pressure is how hard a stream presses on each node.
type pressure struct {
	workers int // each sends one request at a time
	pace    time.Duration
}

var (
	// steady offers 80/s at each node, nearly three times the limit of kinds.
	steady = pressure{2, 25 * time.Millisecond}
	// sudden empties a bucket of kinds within about 100 ms.
	sudden = pressure{2, 8 * time.Millisecond}
	// salvo puts more than a node's part of the burst of kinds into its queue at once.
	salvo = pressure{30, 250 * time.Millisecond}
)

// load begins a stream to some nodes.
func (r *rig) load(limit rule, key string, p pressure, nodes ...int) *stream {
	s := &stream{rule: limit, key: key, rig: r}
	s.first, s.sources = time.Since(r.begin), map[string]int{}
	s.last = s.first
	for _, i := range nodes {
		for range p.workers {
			s.workers.Go(func() { s.ask(r.nodes[i], p.pace) })
		}
	}
	r.t.Cleanup(func() { s.ended.Store(true) })
	return s
}

// everyKind begins a steady stream of each limit through all nodes, on keys that one node owns.
func (r *rig) everyKind(owner int) (all []*stream) {
	r.t.Helper()
	for _, l := range r.rules {
		all = append(all, r.load(l, r.fullKey(l, owner), steady, r.every()...))
	}
	return all
}

func (r *rig) every() []int { return r.except(-1) }

func (s *stream) ask(m *member, pace time.Duration) {
	tick := time.NewTicker(pace)
	defer tick.Stop()
	for ; !s.ended.Load(); <-tick.C {
		down, sent := m.isDown(), time.Since(s.rig.begin)
		d, err := m.server().ask(s.rig.web, s.rule.name, s.key)
		if err != nil && (down || m.isDown()) {
			s.excused.Add(1)
			continue
		}
		s.add(envelope.Admission{Sent: sent, Done: time.Since(s.rig.begin)}, d, err)
	}
}

// stop ends the stream and waits for its last answers.
func (s *stream) stop() {
	s.ended.Store(true)
	s.workers.Wait()
}

// waitUsed waits until the limit has been used, but for a tenth, for two seconds.
func (s *stream) waitUsed() {
	s.rig.t.Helper()
	const window = 2
	wait(s.rig.t, "nine tenths of "+s.rule.name+" being used", func() bool {
		return s.admittedInLast(window*time.Second) >= window*s.rule.rate*9/10
	})
}

// judge stops the stream and compares it with what is promised: nothing beyond
// b + r*t with wait; with share once b for each event.
func (s *stream) judge(fault string, events int) {
	t := s.rig.t
	t.Helper()
	s.stop()
	for _, err := range s.errors[:min(len(s.errors), 3)] {
		t.Errorf("%s: no decision: %v (%d such)", s.rule.name, err, len(s.errors))
	}
	worst := excess(t, fault, s.rule, s.admitted, (s.last - s.first).Seconds(), fmt.Sprintf(
		"refused %d, failed at nodes that were down %d, slowest %v, decided by %v", s.refused, s.excused.Load(), s.slowest.Round(time.Millisecond), s.sources))
	if s.refused == 0 {
		t.Errorf("%s: nothing was refused: the load was too small to show anything", s.rule.name)
	}
	bound := 1.0
	if s.rule.fallback == "share" {
		n := s.rig.unmeant()
		if n > 0 {
			t.Logf("%s: each of %d pauses that the machine made allows %d more", s.rule.name, n, s.rule.burst)
		}
		bound += float64((events + n) * s.rule.burst)
	}
	if worst.Tokens > bound {
		t.Errorf("%s, %s: excess of %.2f tokens from %v to %v, more than %.0f", fault, s.rule.name, worst.Tokens, worst.From, worst.To, bound)
	}
}

// excess logs one line of a table, and returns the worst excess.
func excess(t *testing.T, fault string, l rule, admitted []envelope.Admission, seconds float64, more string) envelope.Excess {
	t.Helper()
	worst := envelope.WorstExcess(admitted, float64(l.rate), float64(l.burst))
	allowed := float64(l.burst) + float64(l.rate)*seconds
	t.Logf("| %s | %s | %s | admitted %d | allowed %.1f | used %.1f %% | worst excess %.2f | %s", fault, l.mode, l.fallback,
		len(admitted), allowed, 100*float64(len(admitted))/allowed, worst.Tokens, more)
	return worst
}

// admittedFrom are the admissions that were sent after a moment.
func admittedFrom(streams []*stream, from time.Duration) (all []envelope.Admission) {
	for _, s := range streams {
		s.mu.Lock()
		all = append(all, s.admitted...)
		s.mu.Unlock()
	}
	return slices.DeleteFunc(all, func(a envelope.Admission) bool { return a.Sent < from })
}

// flash is a load that begins with a full bucket, at the moment of a fault: the
// worst there is for nodes that cannot ask. Begin it with an idle key.
func (r *rig) flash(keys []flashKey, p pressure, nodes ...int) (all []*stream) {
	for _, k := range keys {
		all = append(all, r.load(k.rule, k.key, p, nodes...))
	}
	return all
}

type flashKey struct {
	rule rule
	key  string
}

// idleKeys are keys of all hybrid limits that a node owns and nobody has used,
// with all of their burst.
func (r *rig) idleKeys(owner int) (keys []flashKey) {
	r.t.Helper()
	for _, l := range r.rules {
		if l.mode == "hybrid" {
			keys = append(keys, flashKey{l, r.fullKey(l, owner)})
		}
	}
	return keys
}

// fullKey is an unused key of a node that has all of its burst. With wait that
// takes burst/rate from when the node became the owner.
func (r *rig) fullKey(l rule, owner int) string {
	r.t.Helper()
	key := r.keyOf(l, owner)
	wait(r.t, l.name+" being full", func() bool {
		var state struct{ Remaining int }
		return r.nodes[owner].server().read("/v1/peek?limit="+l.name+"&key="+key, &state) == nil && state.Remaining == l.burst
	})
	return key
}

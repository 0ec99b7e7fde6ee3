package chaos

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jatah-io/jatah/bench/report"
	"github.com/jatah-io/jatah/httpapi/client"
	"github.com/jatah-io/jatah/internal/envelope"
)

// track is one key of a limit, of which every admission is recorded. Safe for concurrent use.
type track struct {
	rule rule
	key  string

	mu       sync.Mutex
	admitted []envelope.Admission
	refused  int
	sources  map[string]int
}

func newTrack(r rule, key string) *track {
	return &track{rule: r, key: key, sources: make(map[string]int)}
}

// add records one decision.
func (t *track) add(sent, done time.Duration, d client.Decision) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sources[d.Source]++
	if d.Allowed {
		t.admitted = append(t.admitted, envelope.Admission{Sent: sent, Done: done})
	} else {
		t.refused++
	}
}

// between is how many were admitted with answers in a part of the run.
func (t *track) between(from, to time.Duration) (n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, a := range t.admitted {
		if from <= a.Done && a.Done < to {
			n++
		}
	}
	return n
}

// load asks, and keeps what came of it. Safe for concurrent use.
type load struct {
	begin  time.Time
	nodes  []*node
	tracks []*track // in the order of the rules
	pace   time.Duration

	decisions atomic.Int64
	elsewhere atomic.Int64 // when a decision was last made by a fallback, in time since begin
	faulty    atomic.Bool  // a fault is on: latencies count as such

	mu      sync.Mutex
	flashes []*track
	errors  map[string]int // at nodes that had trouble, by kind
	wrong   []failure      // at others
	quick   [2]map[string]*report.Histogram
	permits []holding
	held    int // permits taken in all
	denied  int
}

func newLoad(nodes []*node, rules []rule) *load {
	l := &load{begin: time.Now(), nodes: nodes, pace: chaosPace, errors: make(map[string]int)}
	for i := range l.quick {
		l.quick[i] = make(map[string]*report.Histogram)
	}
	for _, r := range rules {
		l.tracks = append(l.tracks, newTrack(r, "hot"))
	}
	return l
}

func (l *load) now() time.Duration { return time.Since(l.begin) }

func (l *load) track(name string) *track {
	for _, t := range l.tracks {
		if t.rule.name == name {
			return t
		}
	}
	return nil
}

// How often each stream asks. In a soak less often, and for more at once: it shall leave the machine to others.
const (
	chaosPace = 50 * time.Millisecond
	soakPace  = 200 * time.Millisecond
)

// run asks until ctx ends. Every node has a stream for each limit.
func (l *load) run(ctx context.Context) {
	var streams sync.WaitGroup
	defer streams.Wait()
	nodes := len(l.nodes) - 1 // the guest is no part of what is offered
	for i, t := range l.tracks {
		if t.rule.offered == 0 {
			continue
		}
		for j, n := range l.nodes {
			// The first is asked for most, and another node is the first of each limit.
			skew := 0.75
			switch {
			case t.rule.even:
				skew = 1
			case j == i%nodes:
				skew = 0.25*float64(nodes) + 0.75
			}
			each := t.rule.offered * float64(t.rule.rate) / float64(nodes) * skew * l.pace.Seconds()
			streams.Go(func() { l.stream(ctx, t, n, each, l.pace) })
		}
	}
	for _, n := range l.nodes {
		streams.Go(func() { l.probe(ctx, n) })
		for range 4 {
			streams.Go(func() { l.hold(ctx, n) })
		}
	}
}

// stream asks one node for each takes at every tick, the fraction in some of them.
func (l *load) stream(ctx context.Context, t *track, n *node, each float64, pace time.Duration) {
	tick := time.NewTicker(pace)
	defer tick.Stop()
	due := 0.0
	for ctx.Err() == nil {
		if n.running() != nil {
			due += each
			if due >= 1 {
				l.takes(ctx, t, n, int(due))
				due -= float64(int(due))
			}
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}

// takes asks for one key of a limit several times, in one request.
func (l *load) takes(ctx context.Context, t *track, n *node, times int) {
	if t.rule.with != "" {
		for range times {
			l.takeAll(ctx, t, l.track(t.rule.with), n)
		}
		return
	}
	requests := make([]client.Request, times)
	for i := range requests {
		requests[i] = t.rule.request(t.key)
	}
	troubled, sent := n.troubled.Load() > 0, l.now()
	results := n.ask.Batch(ctx, requests)
	done := l.now()
	for _, r := range results {
		if r.Err != nil {
			l.failed(ctx, n, troubled, r.Err)
			continue
		}
		l.decided(t, sent, done, r.Decision)
	}
	l.took("batch "+t.rule.mode, done-sent)
}

func (l *load) takeAll(ctx context.Context, a, b *track, n *node) {
	troubled, sent := n.troubled.Load() > 0, l.now()
	all, err := n.ask.TakeAll(ctx, []client.Request{a.rule.request(a.key), b.rule.request(b.key)})
	done := l.now()
	if err != nil {
		l.failed(ctx, n, troubled, err)
		return
	}
	for i, t := range []*track{a, b} {
		d := all.Decisions[i]
		d.Allowed = all.Allowed // or it would have passed alone, and was not charged
		l.decided(t, sent, done, d)
	}
	l.took("take-all", done-sent)
}

func (l *load) decided(t *track, sent, done time.Duration, d client.Decision) {
	l.decisions.Add(1)
	t.add(sent, done, d)
	if t.rule.mode != "split" && d.Source != "local" && d.Source != "owner" {
		l.elsewhere.Store(int64(done))
	}
}

// probe asks single takes, of which the time is what a caller waits.
func (l *load) probe(ctx context.Context, n *node) {
	tick := time.NewTicker(l.pace)
	defer tick.Stop()
	for i := 0; ctx.Err() == nil; i++ {
		if t := l.tracks[i%len(l.tracks)]; n.running() != nil {
			troubled, sent := n.troubled.Load() > 0, l.now()
			d, err := n.ask.Take(ctx, t.rule.request(t.key))
			done := l.now()
			if err != nil {
				l.failed(ctx, n, troubled, err)
			} else {
				l.decided(t, sent, done, d)
				l.took("take "+t.rule.mode, done-sent)
			}
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}

// flash asks all nodes at once, for a while, for new keys, which are full: the worst there is for nodes that cannot ask.
func (l *load) flash(ctx context.Context, name string, length time.Duration, rules []rule) {
	var streams sync.WaitGroup
	ctx, cancel := context.WithTimeout(ctx, length)
	defer cancel()
	for _, r := range rules {
		t := newTrack(r, name)
		l.mu.Lock()
		l.flashes = append(l.flashes, t)
		l.mu.Unlock()
		for _, n := range l.nodes {
			// All nodes together ask for five times the burst within a quarter of a second.
			each := 5 * float64(r.burst) / float64(len(l.nodes)) / 10
			streams.Go(func() { l.stream(ctx, t, n, each, chaosPace/2) })
		}
	}
	streams.Wait()
}

// took records how long an answer took.
func (l *load) took(what string, d time.Duration) {
	i := 0
	if l.faulty.Load() {
		i = 1
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	h := l.quick[i][what]
	if h == nil {
		h = new(report.Histogram)
		l.quick[i][what] = h
	}
	h.Add(d)
}

// failed records that there was no decision. troubled: the node had trouble when it was asked.
func (l *load) failed(ctx context.Context, n *node, troubled bool, err error) {
	if ctx.Err() != nil {
		return // the load ends
	}
	kind := kindOf(err)
	l.mu.Lock()
	defer l.mu.Unlock()
	if troubled || n.troubled.Load() > 0 {
		l.errors[kind]++
		return
	}
	l.wrong = append(l.wrong, failure{l.now(), n.index, kind, err.Error()})
}

// failure is a request without a decision at a node that no fault had touched.
type failure struct {
	at   time.Duration
	node int
	kind string
	text string
}

// Kinds of errors that a busy machine makes.
const (
	late   = "no answer in time"
	unused = "connection closed before its first use"
)

// kindOf sorts an error without its details.
func kindOf(err error) string {
	var p *client.Problem
	var timeout net.Error
	switch {
	case errors.As(err, &p):
		return fmt.Sprintf("%d %s", p.Status, strings.TrimPrefix(p.Type, "urn:jatah:problem:"))
	case errors.Is(err, errUnused):
		return unused
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused"
	case errors.As(err, &timeout) && timeout.Timeout(), errors.Is(err, context.DeadlineExceeded), strings.Contains(err.Error(), " within "):
		return late
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), strings.Contains(err.Error(), "EOF"), strings.Contains(err.Error(), "server closed"):
		return "connection broken"
	}
	return "other"
}

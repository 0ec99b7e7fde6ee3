package dashboard

import (
	"context"
	"sync"
	"time"

	"github.com/jatah-io/jatah"
)

const (
	scopeNode    = "node"
	scopeCluster = "cluster"

	// sampleTime is between two samples, answerTime how long members are waited for.
	sampleTime = time.Second
	answerTime = 800 * time.Millisecond
	// costly bounds the part of the time that reading counters may take: one in so many.
	costly = 20
	// lingers is how long the members are asked after nobody watches any more: who reloads the page finds its history.
	lingers = time.Minute
)

// answers says who did not tell what it counted.
type answers struct{ missing, unknown []string }

// sampler reads counters once a second: of the node always, of the cluster while somebody watches.
type sampler struct {
	node    *jatah.Node
	own     *feed
	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu       sync.Mutex
	whole    *feed // nil: nobody watches the cluster
	watchers int   // of the cluster
	since    time.Time
	who      answers
}

func newSampler(node *jatah.Node) *sampler {
	s := &sampler{node: node, own: newFeed()}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.running.Go(s.runOwn)
	return s
}

// stop ends it, and waits for what runs.
func (s *sampler) stop() {
	s.mu.Lock()
	s.cancel() // with the lock held nobody starts to ask
	s.mu.Unlock()
	s.running.Wait()
}

// pause waits until the next sample; false: it is over. A sample that took long is followed by a longer pause.
func (s *sampler) pause(begun time.Time) bool {
	took := time.Since(begun)
	t := time.NewTimer(max(sampleTime-took, costly*took-took))
	defer t.Stop()
	select {
	case <-s.ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

func (s *sampler) runOwn() {
	for {
		begun := time.Now()
		n := s.node.NodeStats()
		s.own.take(begun, []jatah.NodeStats{n})
		if !s.pause(begun) {
			return
		}
	}
}

// runWhole asks the members until nobody has watched for a while.
func (s *sampler) runWhole(f *feed) {
	for s.wanted(f) {
		begun := time.Now()
		ctx, cancel := context.WithTimeout(s.ctx, answerTime)
		c, err := s.node.ClusterStats(ctx)
		cancel()
		if err == nil {
			s.mu.Lock()
			s.who = answers{c.Missing, c.Unknown}
			s.mu.Unlock()
			f.take(begun, c.Nodes) // and not when the last of them was given up: those that answered had counted long before
		}
		t := time.NewTimer(max(sampleTime-time.Since(begun), sampleTime/10))
		select {
		case <-s.ctx.Done():
			t.Stop()
			return
		case <-t.C:
		}
	}
}

// wanted says whether somebody watches the cluster, or did not long ago; else it ends the feed.
func (s *sampler) wanted(f *feed) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() == nil && (s.watchers > 0 || time.Since(s.since) < lingers) {
		return true
	}
	if s.whole == f {
		s.whole = nil
	}
	return false
}

// watch returns the feed of a scope, and what to call when nobody looks at it any more.
func (s *sampler) watch(scope string) (f *feed, done func()) {
	if scope == scopeNode {
		return s.own, func() {}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.whole == nil {
		s.whole, s.who = newFeed(), answers{}
		if s.ctx.Err() == nil {
			f := s.whole
			s.running.Go(func() { s.runWhole(f) })
		}
	}
	s.watchers++
	return s.whole, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.watchers--
		s.since = time.Now()
	}
}

// answered says who did not, when the members were asked last.
func (s *sampler) answered(scope string) answers {
	if scope == scopeNode {
		return answers{}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.who
}

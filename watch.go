package jatah

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/jatah-io/jatah/cluster"
	"github.com/jatah-io/jatah/hybrid"
)

// How a node watches itself and the others.
const (
	// watchTime is between two looks, or a sync interval where that is longer: in between nothing changes that a look would see.
	watchTime = time.Second
	// togetherTime is how near to each other losses of members count as one: the failure detector notices them one by one.
	togetherTime = 10 * time.Second
)

// watcher makes events of what changes. A view is compared with the one before when it comes, the rest once a second, so that no decision waits for it.
type watcher struct {
	log  *eventLog
	done chan struct{}
	end  sync.Once

	mu      sync.Mutex
	seq     uint64 // of the view seen last
	alive   map[string]cluster.Incarnation
	lost    map[string]bool      // name: left
	trouble map[string]time.Time // members that failed or are silent, and since when; not those that left
	cut     bool                 // a partition was suspected, and is not over

	// Only the loop uses these.
	signs    hybrid.Signs
	ready    bool
	doubtful map[string]bool // silent at the last look, which may be a packet or two
	silent   map[string]bool
}

func newWatcher(log *eventLog) *watcher {
	return &watcher{log: log, done: make(chan struct{}), trouble: map[string]time.Time{}, doubtful: map[string]bool{}, silent: map[string]bool{}}
}

func (w *watcher) stop() { w.end.Do(func() { close(w.done) }) }

// run looks every watchTime until stop.
func (w *watcher) run(n *Node) {
	t := time.NewTicker(max(watchTime, n.cfg.SyncInterval))
	defer t.Stop()
	for {
		w.look(n.e.Signs(), n.ready.Load() || n.settled(), time.Now())
		select {
		case <-w.done:
			return
		case <-t.C:
		}
	}
}

// view compares a view with the one before.
func (w *watcher) view(v *cluster.View, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if v.Seq <= w.seq {
		return // they may overtake each other
	}
	first := w.seq == 0
	alive, lost := make(map[string]cluster.Incarnation, len(v.Members)), make(map[string]bool, len(v.Lost))
	for _, m := range v.Members {
		alive[m.Name] = m.Incarnation
	}
	for _, l := range v.Lost {
		lost[l.Name] = l.Left
	}
	if !first {
		w.compare(v.Self, alive, lost, now)
	}
	w.seq, w.alive, w.lost = v.Seq, alive, lost
	w.judge(now)
}

// compare notes who came and went. Called with the lock held.
func (w *watcher) compare(self string, alive map[string]cluster.Incarnation, lost map[string]bool, now time.Time) {
	var joined, back, left, failed, forgotten []string
	for name, inc := range alive {
		before, was := w.alive[name]
		gone, known := w.lost[name]
		switch {
		case name == self:
		case !was && known && !gone, was && before != inc:
			back = append(back, name)
		case !was:
			joined = append(joined, name)
		}
		if !was || before != inc {
			delete(w.trouble, name)
		}
	}
	for name := range w.alive {
		hasLeft, known := lost[name]
		if _, is := alive[name]; is {
			continue
		}
		if !known || hasLeft {
			left = append(left, name)
			delete(w.trouble, name)
			continue
		}
		failed = append(failed, name)
		if _, already := w.trouble[name]; !already {
			w.trouble[name] = now
		}
	}
	for name, hadLeft := range w.lost {
		hasLeft, known := lost[name]
		if _, is := alive[name]; !is && !hadLeft && (!known || hasLeft) {
			forgotten = append(forgotten, name)
			delete(w.trouble, name)
		}
	}
	w.members(EventJoined, joined, "joined the cluster", false)
	w.members(EventJoined, back, "is back, and takes part again", false)
	w.members(EventLeft, left, "left in good order", false)
	w.members(EventFailed, failed, "does not answer any more; its share stays reserved for the grace", true)
	w.members(EventForgotten, forgotten, "was forgotten; its share goes to the others", false)
}

// members notes one event for each of a few members, or one for all.
func (w *watcher) members(kind string, names []string, what string, warn bool) {
	slices.Sort(names)
	if len(names) > 3 {
		w.log.note(Event{Kind: kind, Text: fmt.Sprintf("%d members: %s; each %s", len(names), someNames(names), what), Warn: warn})
		return
	}
	for _, name := range names {
		w.log.note(Event{Kind: kind, Node: name, Text: name + " " + what, Warn: warn})
	}
}

// judge says when several members are lost at once, which is rather the network than each of them, and when that is over. Called with the lock held.
func (w *watcher) judge(now time.Time) {
	var fresh []string
	members := len(w.alive)
	for name, since := range w.trouble {
		if _, alive := w.alive[name]; !alive {
			members++
		}
		if now.Sub(since) < togetherTime {
			fresh = append(fresh, name)
		}
	}
	switch {
	case !w.cut && len(fresh) >= 2:
		w.cut = true
		w.log.note(Event{Kind: EventPartition, Warn: true, Text: fmt.Sprintf("%d of %d members are out of reach since about the same time (%s): the network may be cut", len(fresh), members, someNames(fresh))})
	case w.cut && len(w.trouble) == 0:
		w.cut = false
		w.log.note(Event{Kind: EventHealed, Text: "no member is out of reach any more"})
	}
}

// look compares what the engine counts with the look before.
func (w *watcher) look(s hybrid.Signs, ready bool, now time.Time) {
	before := w.signs
	w.signs = s
	paused := s.Pauses > before.Pauses
	if paused {
		w.log.note(Event{Kind: EventPaused, Text: "this process stood still, so that its credit and loans ran out", Warn: true})
	}
	if ready && !w.ready {
		w.ready = true
		w.log.note(Event{Kind: EventReady, Text: "has its share of every limit"})
	}
	if in := s.HandOffsIn - before.HandOffsIn; in > 0 {
		w.log.note(Event{Kind: EventHandOff, Text: "took over ledgers from their owner before, in " + parts(in)})
	}
	if out := s.HandOffsOut - before.HandOffsOut; out > 0 {
		w.log.note(Event{Kind: EventHandOff, Text: "handed ledgers to their new owner, in " + parts(out)})
	}
	if lost := s.HandOffsLost - before.HandOffsLost; lost > 0 {
		w.log.note(Event{Kind: EventHandOff, Text: parts(lost) + " of the ledgers could not be handed over: their keys start anew", Warn: true})
	}
	w.listen(s.Silent, paused, now)
}

func parts(n uint64) string {
	if n == 1 {
		return "1 part"
	}
	return fmt.Sprintf("%d parts", n)
}

// listen notes who fell silent and who answers again.
func (w *watcher) listen(silent []string, paused bool, now time.Time) {
	doubtful := make(map[string]bool, len(silent))
	w.mu.Lock()
	defer w.mu.Unlock()
	var fell, answer []string
	for _, name := range silent {
		doubtful[name] = true
		if w.doubtful[name] && !w.silent[name] && !paused { // who was paused has heard nobody
			w.silent[name] = true
			fell = append(fell, name)
			if _, already := w.trouble[name]; !already {
				w.trouble[name] = now
			}
		}
	}
	for name := range maps.Clone(w.silent) {
		if doubtful[name] {
			continue
		}
		delete(w.silent, name)
		if _, alive := w.alive[name]; alive {
			delete(w.trouble, name)
			answer = append(answer, name)
		}
	}
	w.doubtful = doubtful
	w.members(EventSilent, fell, "does not answer this node; the keys that it owns are decided by their fallback", true)
	w.members(EventAnswers, answer, "answers again", false)
	w.judge(now)
}

package jatah

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

// Bounds of what a node remembers of events.
const (
	// MaxEvents is how many a node remembers; the oldest go first.
	MaxEvents = 256
	// MaxEventText is the longest text of an event in bytes; more is cut off.
	MaxEventText = 500
	// maxEventWord bounds Kind and Node.
	maxEventWord = 128
)

// Kinds of the events that a node records itself.
const (
	EventStarted   = "started"
	EventReady     = "ready"     // it has its share of every limit
	EventJoined    = "joined"    // a member that is new, or back
	EventLeft      = "left"      // a member, in good order
	EventFailed    = "failed"    // a member, without a word
	EventForgotten = "forgotten" // a member that had failed, see Node.Forget
	EventSilent    = "silent"    // a member does not answer this node
	EventAnswers   = "answers"   // one that was silent does again
	EventPartition = "partition" // several members fell silent or failed at once: the network may be cut
	EventHealed    = "healed"    // all of them are back, have left or were forgotten
	EventHandOff   = "hand-off"  // ledgers went to new owners
	EventPaused    = "paused"    // this process or its machine stood still
)

// Event is something that happened to a node or that it saw.
type Event struct {
	Seq  uint64    // 1 for the first of this process; each is one more than the one before
	Time time.Time // by this node's clock; those of members up to a second late
	Kind string    // one of the constants, or a word of the program's own
	Node string    // the member that it is about; "": none, or several
	Text string    // a sentence without a full stop
	Warn bool      // somebody may want to look
}

// Note records an event of the program's own; Seq and Time are set by the node, what is too long is cut off. It does not block.
func (n *Node) Note(e Event) { n.events.note(e) }

// Events returns what happened after the event that has the number since, oldest first: 0 for all that is remembered. A number that is missing was forgotten.
func (n *Node) Events(since uint64) []Event { return n.events.after(since) }

// eventLog is a ring of events.
type eventLog struct {
	mu   sync.Mutex
	ring []Event // that with Seq s is at (s-1) mod MaxEvents
	last uint64
}

func (l *eventLog) note(e Event) {
	e.Kind, e.Node, e.Text = cutText(e.Kind, maxEventWord), cutText(e.Node, maxEventWord), cutText(e.Text, MaxEventText)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last++
	e.Seq, e.Time = l.last, time.Now()
	if len(l.ring) < MaxEvents {
		l.ring = append(l.ring, e)
		return
	}
	l.ring[(e.Seq-1)%MaxEvents] = e
}

func (l *eventLog) after(since uint64) []Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	if since >= l.last {
		return nil
	}
	since = max(since, l.last-uint64(len(l.ring)))
	es := make([]Event, 0, l.last-since)
	for s := since; s < l.last; s++ {
		es = append(es, l.ring[s%MaxEvents])
	}
	return es
}

// cutText is s in at most so many bytes, whole characters, in memory of its own if something was cut off: what is kept must not keep more.
func cutText(s string, most int) string {
	if len(s) <= most {
		return s
	}
	for most > 0 && !utf8.RuneStart(s[most]) {
		most--
	}
	return strings.Clone(s[:most])
}

// someNames lists names, but not hundreds of them.
func someNames(names []string) string {
	const most = 5
	slices.Sort(names)
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

package jatah

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/jatah-io/jatah/cluster"
	"github.com/jatah-io/jatah/hybrid"
)

func TestEventsAreARing(t *testing.T) {
	var l eventLog
	if got := l.after(0); got != nil {
		t.Errorf("of nothing: %v", got)
	}
	const all = MaxEvents + 7
	for range all {
		l.note(Event{Kind: "k"})
	}
	for _, c := range []struct {
		since uint64
		first uint64
		n     int
	}{{0, 8, MaxEvents}, {7, 8, MaxEvents}, {8, 9, MaxEvents - 1}, {all - 1, all, 1}, {all, 0, 0}, {all + 100, 0, 0}} {
		got := l.after(c.since)
		if len(got) != c.n || c.n > 0 && got[0].Seq != c.first {
			t.Errorf("after %d: %d events, want %d from %d", c.since, len(got), c.n, c.first)
		}
		for i, e := range got {
			if e.Seq != c.first+uint64(i) || e.Time.IsZero() {
				t.Fatalf("after %d: place %d is %+v", c.since, i, e)
			}
		}
	}
}

func TestEventsAreCutToSize(t *testing.T) {
	var l eventLog
	l.note(Event{Kind: strings.Repeat("k", 1000), Node: strings.Repeat("n", 1000), Text: strings.Repeat("x", MaxEventText-1) + "äöü", Seq: 99})
	e := l.after(0)[0]
	if e.Seq != 1 || len(e.Kind) != maxEventWord || len(e.Node) != maxEventWord || len(e.Text) != MaxEventText-1 || !utf8.ValidString(e.Text) {
		t.Errorf("%d, %d, %d, %d bytes: %+v", e.Seq, len(e.Kind), len(e.Node), len(e.Text), e)
	}
}

// watched is a watcher with what it has noted since the last look.
type watched struct {
	t    *testing.T
	log  eventLog
	w    *watcher
	seen uint64
	seq  uint64
	now  time.Time
}

func newWatched(t *testing.T) *watched {
	x := &watched{t: t, now: time.Unix(1e9, 0)}
	x.w = newWatcher(&x.log)
	return x
}

// expect checks the kinds and members of what was noted since, such as "failed n2!" for a warning.
func (x *watched) expect(when string, want ...string) {
	x.t.Helper()
	var got []string
	for _, e := range x.log.after(x.seen) {
		x.seen = e.Seq
		s := strings.TrimSpace(e.Kind + " " + e.Node)
		if e.Warn {
			s += "!"
		}
		got = append(got, s)
	}
	if strings.Join(got, ", ") != strings.Join(want, ", ") {
		x.t.Errorf("%s: %q, want %q", when, got, want)
	}
}

// view shows it a view: names of members, "-n" for one that failed, "~n" for one that left, "n'" for another process of the name.
func (x *watched) view(names ...string) {
	x.seq++
	v := &cluster.View{Seq: x.seq, Self: "n1"}
	for _, name := range names {
		switch {
		case strings.HasPrefix(name, "-"):
			v.Lost = append(v.Lost, cluster.Lost{Name: name[1:]})
		case strings.HasPrefix(name, "~"):
			v.Lost = append(v.Lost, cluster.Lost{Name: name[1:], Left: true})
		default:
			plain := strings.TrimRight(name, "'")
			v.Members = append(v.Members, cluster.Member{Name: plain, Incarnation: cluster.Incarnation(len(name))})
		}
	}
	x.w.view(v, x.now)
}

func (x *watched) look(pauses uint64, silent ...string) {
	x.now = x.now.Add(watchTime)
	x.w.look(hybrid.Signs{Pauses: pauses, Silent: silent}, true, x.now)
}

func TestMembersComeAndGo(t *testing.T) {
	x := newWatched(t)
	x.view("n1")
	x.expect("the first view")
	x.view("n1", "n2", "n3")
	x.expect("two join", "joined n2", "joined n3")
	x.view("n1", "n2'", "n3")
	x.expect("one was started anew at once", "joined n2")
	x.view("n1", "n2'", "~n3")
	x.expect("one leaves", "left n3")
	x.view("n1", "-n2", "~n3")
	x.expect("one fails", "failed n2!")
	x.view("n1", "n2'", "~n3")
	x.expect("it is back", "joined n2")
	x.view("n1", "-n2", "~n3")
	x.view("n1", "~n3")
	x.expect("it fails again and is forgotten", "failed n2!", "forgotten n2")
	x.seq--
	x.view("n1", "n9")
	x.expect("a view that was overtaken")
	x.view("n1", "a", "b", "c", "d", "e", "f", "g")
	if e := x.log.after(x.seen); len(e) != 1 || !strings.Contains(e[0].Text, "7 members: a, b, c, d, e and 2 more") {
		t.Errorf("many at once: %+v", e)
	}
}

func TestAPartitionIsSuspected(t *testing.T) {
	x := newWatched(t)
	x.view("n1", "n2", "n3", "n4")
	x.look(0)
	x.expect("the first look", "ready")
	x.look(0, "n2", "n3")
	x.expect("a packet may have been lost")
	x.look(0, "n2", "n3")
	x.expect("two fall silent", "silent n2!", "silent n3!", "partition!")
	x.view("n1", "-n2", "n3", "n4")
	x.look(0, "n3")
	x.expect("the detector notices", "failed n2!")
	x.look(0)
	x.expect("one answers", "answers n3")
	x.now = x.now.Add(time.Minute)
	x.view("n1", "-n2", "-n3", "n4")
	x.expect("it goes on", "failed n3!")
	x.view("n1", "n2", "n3", "n4")
	x.expect("both are back", "joined n2", "joined n3", "healed")
	x.view("n1", "-n2", "n3", "n4")
	x.now = x.now.Add(time.Minute)
	x.view("n1", "-n2", "-n3", "n4")
	x.expect("two fail apart from each other", "failed n2!", "failed n3!")
	x.view("n1", "n2", "n3", "n4")
	x.expect("back again", "joined n2", "joined n3")
	x.look(1, "n2", "n3", "n4")
	x.expect("who was paused heard nobody", "paused!")
	x.look(1, "n2", "n3", "n4")
	x.expect("but then somebody should answer", "silent n2!", "silent n3!", "silent n4!", "partition!")
}

func TestHandOffsAreNoted(t *testing.T) {
	x := newWatched(t)
	x.w.look(hybrid.Signs{}, false, x.now)
	x.w.look(hybrid.Signs{HandOffsIn: 2, HandOffsOut: 1, HandOffsLost: 1}, false, x.now)
	x.w.look(hybrid.Signs{HandOffsIn: 2, HandOffsOut: 1, HandOffsLost: 1}, false, x.now)
	x.expect("hand-offs", "hand-off", "hand-off", "hand-off!")
}

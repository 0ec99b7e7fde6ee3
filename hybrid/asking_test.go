package hybrid

import (
	"testing"
	"time"
)

const us = int64(time.Microsecond)

// asker is a node of two and keys that the other one owns.
func asker(t *testing.T, keys int) (w *world, n *simNode, ks []string) {
	s := slow(100)
	s.Mode = Strict
	w = newWorld(t, *firstSeed, 2, 0, s, 20*keys)
	w.start(2)
	w.sleep(sec)
	n = w.nodes[0]
	for _, k := range w.keys {
		if len(ks) < keys && w.owner(k) != n {
			ks = append(ks, k)
		}
	}
	return w, n, ks
}

func TestALoneAskLeavesAtOnce(t *testing.T) {
	_, n, keys := asker(t, 20)
	for _, k := range keys {
		sent := n.e.stats.sent.Load()
		d, p := n.limit.Begin(k, 1)
		if p == nil {
			t.Fatalf("decided without its owner: %+v", d)
		}
		if got := n.e.stats.sent.Load() - sent; got != 1 {
			t.Errorf("%d messages", got)
		}
		if d := n.w.await(p); !d.OK || d.Source != SourceOwner {
			t.Errorf("%s: %+v", k, d)
		}
	}
	if r := n.e.stats.resent.Load(); r != 0 {
		t.Errorf("%d were sent again", r)
	}
}

// Asks that arise while others are on their way share messages, none is forgotten, and none waits for longer than a round trip.
func TestAsksForOneOwnerShareMessages(t *testing.T) {
	w, n, keys := asker(t, 100)
	w.sleep(2 * tick)
	sent, asks, begin := n.e.stats.sent.Load(), n.asks(), w.now
	for _, k := range keys {
		n.take(k, 1)
		w.sleep(10 * us)
	}
	for len(n.pending) > 0 && w.now < begin+sec {
		w.sleep(10 * us)
	}
	if took := w.now - begin; took > int64(len(keys))*10*us+6*ms { // two round trips of at most 2.4 ms, and a little
		t.Errorf("it took %v until all were decided", time.Duration(took))
	}
	if w.sources[SourceOwner] != len(keys) || n.asks()-asks != uint64(len(keys)) || n.e.stats.resent.Load() != 0 {
		t.Errorf("%d decided by the owner, %d asks, %d of them again", w.sources[SourceOwner], n.asks()-asks, n.e.stats.resent.Load())
	}
	if got := n.e.stats.sent.Load() - sent; got > 20 { // with what was spent, which is told at once while a pool is nearly full
		t.Errorf("%d messages for %d asks", got, len(keys))
	}
	w.sleep(5 * ms) // what was spent has been told
	if p := n.e.byName[w.owner(keys[0]).name]; len(p.asking) != 0 || p.flights != (flights{}) {
		t.Errorf("left behind: %d asks, flights %v", len(p.asking), p.flights)
	}
}

// Lost messages do not keep others waiting: what they hold up leaves when it would have been sent again.
func TestAsksBehindLostOnesLeaveSoon(t *testing.T) {
	w, n, keys := asker(t, maxFlights+5)
	w.sleep(tick)
	w.loss = 1
	for _, k := range keys[:maxFlights] {
		n.take(k, 1)
		w.sleep(us)
	}
	w.sleep(100 * us)
	w.loss = 0
	sent, begin := n.e.stats.sent.Load(), w.now
	for _, k := range keys[maxFlights:] {
		n.take(k, 1)
	}
	if got := n.e.stats.sent.Load() - sent; got != 0 {
		t.Fatalf("%d messages leave at once", got)
	}
	for len(n.pending) > 0 && w.now < begin+sec {
		w.sleep(10 * us)
	}
	if took := w.now - begin; took > resendAfter+pollEvery+3*ms {
		t.Errorf("it took %v", time.Duration(took))
	}
	if w.sources[SourceOwner] != len(keys) || n.e.stats.resent.Load() != maxFlights {
		t.Errorf("%d of %d decided by the owner, %d asks sent again", w.sources[SourceOwner], len(keys), n.e.stats.resent.Load())
	}
}

// An ask that found its owner far away goes after two milliseconds, when the next one comes: it need not wait for the answers.
func TestAsksToAFarOwnerDoNotWaitForAnswers(t *testing.T) {
	w, n, keys := asker(t, maxFlights+2)
	w.cut[[2]int{n.id, 1 - n.id}] = true // as good as far: nothing comes back in the time looked at
	for _, k := range keys[:maxFlights+1] {
		n.take(k, 1)
		w.sleep(us)
	}
	sent := n.e.stats.sent.Load()
	w.sleep(flightLost)
	n.take(keys[maxFlights+1], 1)
	if got := n.e.stats.sent.Load() - sent; got != 1 || len(n.e.byName[w.owner(keys[0]).name].asking) != 0 {
		t.Errorf("%d messages", got)
	}
}

func TestFlights(t *testing.T) {
	var f flights
	at := 10 * ms
	for i := range int64(maxFlights) {
		if !f.room(at + i) {
			t.Fatalf("no room for number %d", i)
		}
		f.start(at + i)
	}
	last := at + maxFlights - 1
	if f.room(at + maxFlights) {
		t.Error("room for one more")
	}
	if f.start(last); !f.room(last) || f.room(last+1) {
		t.Error("what leaves at one moment does not count once")
	}
	if f.landed(5) || !f.landed(last) || f.landed(last) {
		t.Error("landing")
	}
	if f.start(last + 1); f.room(last+2) || !f.room(at+flightLost) {
		t.Error("a flight is not given up after two milliseconds")
	}
	if f.start(at + flightLost); f.landed(at) || !f.landed(last+1) {
		t.Error("the oldest is not the one that makes room")
	}
}

// What one call asks for at several keys leaves at once, all of it.
func TestATakeAllIsNotHeldBack(t *testing.T) {
	_, n, keys := asker(t, 5*maxFlights)
	var takes []Take
	for _, k := range keys {
		takes = append(takes, Take{n.limit, k, 1})
	}
	asks := n.asks()
	x := n.e.BeginAll(takes)
	if got := n.asks() - asks; got != uint64(len(keys)) {
		t.Errorf("%d of %d asks have left", got, len(keys))
	}
	for !x.ready() {
		n.w.step()
	}
	if r := x.Finish(t.Context()); !r.OK {
		t.Errorf("%+v", r)
	}
}

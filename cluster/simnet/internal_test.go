package simnet

import (
	"math/rand/v2"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

func TestQueueGivesTheEarliestFirst(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	var q queue
	var floor event // nothing pushed from now on is earlier than what was popped
	pushed, popped := 0, 0
	for popped < 20_000 {
		if pushed < 20_000 && (len(q.heap) == 0 || r.IntN(100) < 55) {
			q.push(event{at: floor.at + time.Duration(r.IntN(50))})
			pushed++
			continue
		}
		e := q.pop()
		popped++
		if e.before(&floor) {
			t.Fatalf("number %d: (%d, %d) came after (%d, %d)", popped, e.at, e.seq, floor.at, floor.seq)
		}
		floor = e
	}
	if len(q.heap) != 0 {
		t.Errorf("%d events are left over", len(q.heap))
	}
}

// TestStreamsAreForgotten: however two ends come to their end, nothing of the stream is kept.
func TestStreamsAreForgotten(t *testing.T) {
	const a, b = "10.0.0.1:1", "10.0.0.2:1"
	for what, end := range map[string]func(n *Network, near, far net.Conn){
		"near first":        func(_ *Network, near, far net.Conn) { near.Close(); time.Sleep(time.Second); far.Close() },
		"far first":         func(_ *Network, near, far net.Conn) { far.Close(); time.Sleep(time.Second); near.Close() },
		"both at once":      func(_ *Network, near, far net.Conn) { far.Close(); near.Close() },
		"crash":             func(n *Network, near, far net.Conn) { n.Crash(a); far.Close() },
		"close, crash":      func(n *Network, near, far net.Conn) { far.Close(); n.Crash(a) },
		"close, late crash": func(n *Network, near, far net.Conn) { far.Close(); time.Sleep(time.Second); n.Crash(a) },
		"both crash":        func(n *Network, _, _ net.Conn) { n.Crash(a); n.Crash(b) },
		"crash in a cut":    func(n *Network, near, far net.Conn) { n.Isolate(a); n.Crash(a); n.Heal(); far.Close() },
		"close in a cut": func(n *Network, near, far net.Conn) {
			n.Isolate(a)
			near.Close()
			far.Close()
			time.Sleep(time.Second)
			n.Heal()
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			n := New(1)
			defer n.Close()
			ta, err := n.Transport(a)
			if err != nil {
				t.Fatal(err)
			}
			tb, err := n.Transport(b)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := n.Transport("10.0.0.3:1"); err != nil { // the network goes on
				t.Fatal(err)
			}
			near, err := ta.DialTimeout(b, time.Second)
			if err != nil {
				t.Fatal(err)
			}
			far := <-tb.StreamCh()
			for _, c := range []net.Conn{near, far} {
				if _, err := c.Write([]byte("some bytes that nobody reads")); err != nil {
					t.Fatal(err)
				}
			}
			end(n, near, far)
			time.Sleep(time.Second)
			n.mu.Lock()
			defer n.mu.Unlock()
			if len(n.pipes) != 0 || len(ta.conns) != 0 || len(tb.conns) != 0 || len(n.queue.heap) != 0 || n.timerAt != idle {
				t.Errorf("%s: left are %d pipes, %d and %d ends, %d events, timer at %v",
					what, len(n.pipes), len(ta.conns), len(tb.conns), len(n.queue.heap), n.timerAt)
			}
		})
	}
}

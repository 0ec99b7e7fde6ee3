package hybrid

import (
	"errors"
	"testing"
	"time"
)

// The same release that arrives twice is done once and answered alike; another one of the same permit finds nothing.
func TestAForwardedReleaseIsDoneOnce(t *testing.T) {
	w := newWorld(t, 1, 3, 0, permitSpec(2, time.Minute), 1)
	j := newJobs(w, 2)
	j.on = false
	w.start(3)
	w.run(sec)
	n := w.nodes[0]
	for range 4 {
		n.take("key-0", 1)
		w.run(w.now + 100*ms)
	}
	if j.got["key-0"] != 2 || n.e.Permits() != 2 {
		t.Fatalf("%d permits", j.got["key-0"])
	}
	var id string
	for id = range n.e.permits.byID {
		break
	}
	f := forwarded{id: 7, inc: w.nodes[1].e.inc, op: opRelease, limit: "api", key: "key-0", permit: id}
	for range 2 {
		kind, in, err := decodeForwarded(encodeForwarded(kindForward, &f))
		if err != nil || kind != kindForward || in != f {
			t.Fatalf("%d %+v %v", kind, in, err)
		}
		if a, ok := n.e.serveForwarded(n.clock(), &in); !ok || a.status != statusDone || a.id != 7 {
			t.Errorf("%+v %v", a, ok)
		}
	}
	f.id++
	if a, _ := n.e.serveForwarded(n.clock(), &f); a.status != statusUnknown {
		t.Errorf("a second release: %+v", a)
	}
	if n.e.Permits() != 1 {
		t.Errorf("%d permits are left, want 1", n.e.Permits())
	}
	w.run(w.now + 2*sec)
	w.nodes[2].take("key-0", 1)
	w.nodes[2].take("key-0", 1)
	w.run(w.now + sec)
	if j.got["key-0"] != 3 {
		t.Errorf("one was given back, %d could be had", j.got["key-0"]-2)
	}
}

func TestMalformedForwards(t *testing.T) {
	good := encodeForwarded(kindAnswer, &forwarded{id: 1, limit: "l", key: "k", permit: "p@n"})
	for i := range good {
		kind, _, err := decodeForwarded(good[:i])
		if i > 2 && (kind != kindAnswer || !errors.Is(err, errMessage)) || i <= 1 && (kind != 0 || err != nil) {
			t.Errorf("%d bytes: kind %d, %v", i, kind, err)
		}
	}
	if kind, f, err := decodeForwarded(append(good, 0)); kind != kindAnswer || f.permit != "p@n" || err != nil {
		t.Errorf("with a field of a newer version: %d %+v %v", kind, f, err)
	}
	if kind, _, err := decodeForwarded(encodeHandOff(&handOff{})); kind != 0 || err != nil {
		t.Errorf("a hand-off: %d %v", kind, err)
	}
}

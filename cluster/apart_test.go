package cluster

import (
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"
)

// gone is why a node went down because it had begun apart; nil: it has not.
func gone(n *node) *ApartError {
	n.mu.Lock()
	defer n.mu.Unlock()
	var e *ApartError
	errors.As(n.down, &e)
	return e
}

// apart is a configuration of a node that makes a seed of its own unless it finds somebody.
func (w *world) apart(name string, join []string, secrets ...[]byte) Config {
	c := w.seeded(name, secrets...)
	c.Join = join
	return c
}

// A process of an older cluster that is no more is heard of, as by a packet that somebody kept and sends again: nobody gives up for it.
func TestNobodyGivesUpForADeadProcess(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b := secret('a', 16), secret('b', 32)
		w.net.Partition([]string{at(1)}, []string{at(2), at(3)})
		old := w.start(1, w.apart("n1", nil, a, b))
		old.Cluster.mu.Lock() // it may change what it tells yet
		kept := memberlist.Node{Name: old.wire, Addr: net.IPv4(10, 0, 0, 1), Port: 7946, Meta: old.metaBytes}
		old.Cluster.mu.Unlock()
		w.crash(old)
		w.net.Heal()
		time.Sleep(10 * time.Second)
		n2, n3 := w.start(2, w.apart("n2", nil, b, a)), w.start(3, w.apart("n3", []string{at(2)}, b, a))
		w.within(time.Minute, "two members", func() bool { return alive("n2 n3", n2, n3) })
		for range 3 {
			for _, n := range []*node{n2, n3} {
				if err := (&delegate{n.Cluster}).NotifyAlive(&kept); !errors.Is(err, ErrMismatch) {
					t.Errorf("%v", err)
				}
			}
			time.Sleep(10 * time.Second)
		}
		if gone(n2) != nil || gone(n3) != nil || !alive("n2 n3", n2, n3) {
			t.Errorf("%v, %v", gone(n2), gone(n3))
		}
		// One that lives is still given up for.
		again := w.start(1, w.apart("n1", nil, a, b))
		again.setMeta(func(m *meta) { m.extra.Born = 1 })
		other := w.start(4, w.apart("n4", []string{at(1)}, a, b))
		w.within(time.Minute, "two others", func() bool { return alive("n1 n4", again, other) })
		_ = again.contact(n2.Cluster.addr)
		w.within(10*time.Second, "n2 gives up", func() bool { return gone(n2) != nil })
	})
}

// A node begins alone, cut off from a cluster of five, and by its clock before that: when they meet it is the one that gives up.
func TestNoClusterGivesUpForALonelyNode(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b := secret('a', 16), secret('b', 32)
		var ns []*node
		for i := 1; i <= 5; i++ {
			ns = append(ns, w.start(i, w.apart(fmt.Sprint("n", i), []string{at(1), at(2)}, a, b)))
		}
		w.within(time.Minute, "five members", func() bool { return alive("n1 n2 n3 n4 n5", ns...) })
		w.net.Isolate(at(6))
		lonely := w.start(6, w.apart("n6", []string{at(1)}, b, a))
		lonely.setMeta(func(m *meta) { m.extra.Born = 1 })
		time.Sleep(10 * time.Second)
		w.net.Heal()
		w.within(30*time.Second, "the lonely one gives up", func() bool { return gone(lonely) != nil })
		time.Sleep(time.Minute)
		for _, n := range ns {
			if gone(n) != nil {
				t.Errorf("%s: %v", n.cfg.Name, gone(n))
			}
		}
		back := w.start(6, w.apart("n6", []string{gone(lonely).Addr}, b, a))
		w.within(time.Minute, "six members", func() bool { return alive("n1 n2 n3 n4 n5 n6", append(ns, back)...) })
	})
}

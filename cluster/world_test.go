package cluster

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jatah-io/jatah/cluster/simnet"
)

// world is a network in a bubble and the nodes on it.
type world struct {
	t   *testing.T
	net *simnet.Network
}

// inBubble runs a test in virtual time, and lets memberlist's last probes end.
func inBubble(t *testing.T, f func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		t.Cleanup(func() { time.Sleep(time.Minute) })
		w := &world{t: t, net: simnet.New(1)}
		if err := w.net.Set(simnet.Conditions{DelayMin: 200 * time.Microsecond, DelayMax: 400 * time.Microsecond}); err != nil {
			t.Fatal(err)
		}
		f(t, w)
	})
}

func at(i int) string { return fmt.Sprintf("10.0.0.%d:7946", i) }

// node is a cluster with what its events brought.
type node struct {
	*Cluster
	addr string

	mu       sync.Mutex
	views    []*View
	packets  []string
	executed map[string]int
	down     error
}

// config of a node of the world; seeds are the first two addresses.
func (w *world) config(name string) Config {
	return Config{
		Name: name, Join: []string{at(1), at(2)}, HTTP: name + ".example:80", Version: "v1",
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	}
}

// try starts a node at address i.
func (w *world) try(i int, cfg Config) (*node, error) {
	w.t.Helper()
	tr, err := w.net.Transport(at(i))
	if err != nil {
		w.t.Fatal(err)
	}
	cfg.Transport = tr
	n := &node{addr: at(i), executed: make(map[string]int)}
	n.Cluster, err = Start(w.t.Context(), cfg, Events{
		View: func(v *View) {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.views = append(n.views, v)
		},
		Packet: func(from string, msg []byte) {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.packets = append(n.packets, from+" "+string(msg))
		},
		Call: func(_ context.Context, from string, req []byte) ([]byte, error) {
			n.mu.Lock()
			n.executed[string(req)]++
			n.mu.Unlock()
			if strings.HasPrefix(string(req), "slow ") {
				time.Sleep(300 * time.Millisecond)
			}
			if err, ok := strings.CutPrefix(string(req), "fail "); ok {
				return nil, fmt.Errorf("refused: %s", err)
			}
			if strings.HasPrefix(string(req), "big ") {
				return slices.Repeat(req, 10000), nil
			}
			return append([]byte("re "), req...), nil
		},
		Transfer: func(from string, msg []byte) {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.packets = append(n.packets, fmt.Sprintf("%s transfers %d", from, len(msg)))
		},
		Down: func(err error) {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.down = err
		},
	})
	if err != nil {
		return nil, err
	}
	w.t.Cleanup(func() { _ = n.Close() })
	return n, nil
}

func (w *world) start(i int, cfg Config) *node {
	w.t.Helper()
	n, err := w.try(i, cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	return n
}

// three is a cluster of n1, n2 and n3 at the addresses 1, 2 and 3 that has come to rest.
func (w *world) three() (n1, n2, n3 *node) {
	w.t.Helper()
	n1, n2, n3 = w.start(1, w.config("n1")), w.start(2, w.config("n2")), w.start(3, w.config("n3"))
	w.within(time.Minute, "three members", func() bool {
		return alive("n1 n2 n3", n1, n2, n3) && !n1.View().Unsure && !n2.View().Unsure && !n3.View().Unsure
	})
	return n1, n2, n3
}

func names(v *View) string {
	var s []string
	for _, m := range v.Members {
		s = append(s, m.Name)
	}
	return strings.Join(s, " ")
}

// alive says whether all nodes have the view with these members.
func alive(want string, nodes ...*node) bool {
	for _, n := range nodes {
		if names(n.View()) != want {
			return false
		}
	}
	return true
}

func lostNames(v *View) string {
	var s []string
	for _, l := range v.Lost {
		if l.Left {
			s = append(s, l.Name+" left")
		} else {
			s = append(s, l.Name)
		}
	}
	return strings.Join(s, ", ")
}

// within waits in virtual time until ok, and gives how long it took.
func (w *world) within(limit time.Duration, what string, ok func() bool) time.Duration {
	w.t.Helper()
	begin := time.Now()
	for !ok() {
		if time.Since(begin) > limit {
			w.t.Fatalf("after %v: not yet: %s", limit, what)
		}
		time.Sleep(50 * time.Millisecond)
	}
	return time.Since(begin)
}

// crash ends a node as kill -9 does: nothing is said, its port is closed.
func (w *world) crash(n *node) {
	w.t.Helper()
	_ = n.Close()
}

// table is the owner of every partition, to compare.
func table(v *View) string {
	var b strings.Builder
	for p := range v.Ring.Partitions() {
		o, ok := v.Ring.Owner(p)
		fmt.Fprintln(&b, p, o, ok)
	}
	return b.String()
}

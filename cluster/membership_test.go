package cluster

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jatah-io/jatah/cluster/simnet"
)

func TestNodesFindEachOther(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		n1, n2, n3 := w.three()
		for _, n := range []*node{n1, n2, n3} {
			v := n.View()
			if table(v) != table(n1.View()) {
				t.Errorf("%s has another table than n1", v.Self)
			}
			if v.Expect != 2 && v.Self != "n3" || v.Expect != 3 && v.Self == "n3" {
				t.Errorf("%s expects %d nodes; two addresses to join, and itself", v.Self, v.Expect)
			}
			if m, ok := v.Member("n2"); !ok || m.HTTP != "n2.example:80" || m.Version != "v1" || m.Addr != at(2) ||
				m.Incarnation != n2.Incarnation() || m.Protocol != Protocol {
				t.Errorf("%s sees %+v", v.Self, m)
			}
			n.mu.Lock()
			for i, v := range n.views {
				if v.Seq != uint64(i+1) {
					t.Errorf("view %d delivered as number %d", v.Seq, i+1)
				}
			}
			if len(n.views) == 0 || n.views[len(n.views)-1] != v {
				t.Errorf("%s: the last view was not delivered", v.Self)
			}
			n.mu.Unlock()
		}
	})
}

func TestCrashIsSeenAndForgotten(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		n1, n2, n3 := w.three()
		w.crash(n2)
		took := w.within(15*time.Second, "n2 is lost", func() bool { return alive("n1 n3", n1, n3) })
		t.Logf("seen after %v", took)
		if a, b := lostNames(n1.View()), lostNames(n3.View()); a != "n2" || b != "n2" {
			t.Fatalf("lost: %q and %q", a, b)
		}
		// A newcomer has to know of the lost member too, and of its age.
		time.Sleep(20 * time.Second)
		n4 := w.start(4, w.config("n4"))
		if got := n4.View().Lost; len(got) != 1 || got[0].Name != "n2" || got[0].Left ||
			time.Since(got[0].Since) < 20*time.Second || time.Since(got[0].Since) > 35*time.Second {
			t.Errorf("the newcomer knows of lost %+v", got)
		}
		w.within(time.Minute, "n4 is seen", func() bool { return alive("n1 n3 n4", n1, n3, n4) })
		if err := n3.Forget("n1"); !errors.Is(err, ErrAlive) {
			t.Errorf("forgetting a living member: %v", err)
		}
		if err := n3.Forget("n7"); !errors.Is(err, ErrUnknownMember) {
			t.Errorf("forgetting nobody: %v", err)
		}
		if err := n3.Forget("n2"); err != nil {
			t.Fatal(err)
		}
		w.within(2*time.Second, "all forget", func() bool {
			return lostNames(n1.View())+lostNames(n3.View())+lostNames(n4.View()) == ""
		})
		time.Sleep(2 * time.Minute) // and no exchange of states brings it back
		if got := lostNames(n1.View()) + lostNames(n3.View()) + lostNames(n4.View()); got != "" {
			t.Errorf("came back: %q", got)
		}
	})
}

func (w *world) set(c simnet.Conditions) {
	w.t.Helper()
	if err := w.net.Set(c); err != nil {
		w.t.Fatal(err)
	}
}

func TestSplitHealsByItself(t *testing.T) {
	for _, split := range []time.Duration{20 * time.Second, 120 * time.Second, 2 * time.Hour} {
		t.Run(split.String(), func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				n1, n2, n3 := w.three()
				w.net.Partition([]string{at(1), at(2)}, []string{at(3)})
				time.Sleep(split)
				if !alive("n1 n2", n1, n2) || !alive("n3", n3) {
					t.Fatalf("during the split: %s, %s, %s", names(n1.View()), names(n2.View()), names(n3.View()))
				}
				w.net.Heal()
				took := w.within(time.Minute, "whole again", func() bool { return alive("n1 n2 n3", n1, n2, n3) })
				t.Logf("whole %v after the network was", took)
				if got := lostNames(n1.View()) + lostNames(n3.View()); got != "" {
					t.Errorf("still lost: %q", got)
				}
			})
		})
	}
}

// Seeds that are gone for good do not matter: the last known addresses are tried.
func TestSplitHealsWithoutSeeds(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.three()
		n4, n5 := w.start(4, w.config("n4")), w.start(5, w.config("n5"))
		w.within(time.Minute, "five members", func() bool { return alive("n1 n2 n3 n4 n5", n4, n5) })
		for i := range 3 {
			w.net.Isolate(at(i + 1))
		}
		w.net.Cut(at(4), at(5))
		w.net.Cut(at(5), at(4))
		time.Sleep(120 * time.Second)
		if !alive("n4", n4) || !alive("n5", n5) {
			t.Fatalf("during the split: %s, %s", names(n4.View()), names(n5.View()))
		}
		w.net.Mend(at(4), at(5))
		w.net.Mend(at(5), at(4))
		w.within(time.Minute, "n4 and n5 again", func() bool { return alive("n4 n5", n4, n5) })
	})
}

func TestNodeStartsAloneAndFindsTheSeedLater(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		n3 := w.start(3, w.config("n3"))
		if names(n3.View()) != "n3" || n3.View().Expect != 3 {
			t.Fatalf("sees %s, expects %d", names(n3.View()), n3.View().Expect)
		}
		time.Sleep(5 * time.Minute)
		n1 := w.start(1, Config{Name: "n1", Logger: n3.cfg.Logger}) // knows of nobody
		w.within(time.Minute, "two members", func() bool { return alive("n1 n3", n1, n3) })
	})
}

// Joining one after the other, leaving in the same order, and many at once.
func TestManyJoinAndLeave(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		var nodes []*node
		check := func(n int, when string) {
			t.Helper()
			w.within(20*time.Second, when, func() bool {
				for _, node := range nodes {
					if len(node.View().Members) != n {
						return false
					}
				}
				return true
			})
			for _, node := range nodes {
				v := node.View()
				for p := range v.Ring.Partitions() {
					o, ok := v.Ring.Owner(p)
					if _, alive := v.Member(o); !ok || !alive {
						t.Fatalf("%s: partition %d has owner %q", when, p, o)
					}
				}
				if table(v) != table(nodes[0].View()) {
					t.Fatalf("%s: %s has another table", when, v.Self)
				}
			}
		}
		cfg := func(i int) Config {
			c := w.config(fmt.Sprint("n", i))
			c.Join = []string{at(1), at(2), at(3), at(16)}
			return c
		}
		for i := 1; i <= 16; i++ {
			nodes = append(nodes, w.start(i, cfg(i)))
		}
		check(16, "all have joined")
		for len(nodes) > 3 {
			first := nodes[0]
			nodes = nodes[1:]
			if err := first.Leave(t.Context()); err != nil {
				t.Errorf("leave: %v", err)
			}
			_ = first.Close()
		}
		check(3, "all but three have left")
		started := make(chan *node)
		for i := 21; i <= 24; i++ {
			go func() { started <- w.start(i, cfg(i)) }()
		}
		for range 4 {
			nodes = append(nodes, <-started)
		}
		check(7, "three have become seven")
	})
}

func TestLeaveAndCloseAreIdempotent(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		n1, n2, n3 := w.three()
		for range 2 {
			if err := n1.Leave(t.Context()); err != nil {
				t.Error(err)
			}
		}
		for range 2 {
			if err := n1.Close(); err != nil {
				t.Error(err)
			}
		}
		if err := n1.Leave(t.Context()); err != nil {
			t.Error(err)
		}
		done := make(chan bool)
		go func() { _ = n2.Leave(t.Context()); done <- true }()
		go func() { _ = n2.Close(); done <- true }()
		<-done
		<-done
		_ = n3
	})
}

func TestLeaveIsKnownForALeaveUnderLoss(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		n1, n2, n3 := w.three()
		w.set(simnet.Conditions{Loss: 0.2, DelayMin: time.Millisecond, DelayMax: 5 * time.Millisecond})
		if err := n2.Leave(t.Context()); err != nil {
			t.Errorf("leave: %v", err)
		}
		_ = n2.Close()
		time.Sleep(20 * time.Second)
		for _, n := range []*node{n1, n3} {
			if got := lostNames(n.View()); !strings.Contains(got, "n2 left") {
				t.Errorf("%s has lost %q", n.View().Self, got)
			}
		}
	})
}

// A member that did not hear the farewell hears of it from the others.
func TestLeaveIsToldByOthers(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		n1, n2, n3 := w.three()
		w.net.Partition([]string{at(1), at(2)}, []string{at(3)})
		_ = n2.Leave(t.Context())
		_ = n2.Close()
		time.Sleep(40 * time.Second)
		if got := lostNames(n3.View()); got != "n1, n2" {
			t.Fatalf("n3 has lost %q", got)
		}
		w.net.Heal()
		w.within(time.Minute, "n3 knows that n2 left", func() bool { return lostNames(n3.View()) == "n2 left" })
		_ = n1
	})
}

func TestForgettingReachesWhoWasCutOff(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		n1, n2, n3 := w.three()
		w.crash(n2)
		w.within(15*time.Second, "n2 is lost", func() bool { return alive("n1 n3", n1, n3) })
		w.net.Partition([]string{at(1)}, []string{at(3)})
		w.within(30*time.Second, "the split is seen", func() bool { return alive("n1", n1) && alive("n3", n3) })
		if err := n3.Forget("n2"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * forgetTimeout)
		w.net.Heal()
		w.within(time.Minute, "whole again", func() bool { return alive("n1 n3", n1, n3) })
		time.Sleep(time.Minute)
		if a, b := lostNames(n1.View()), lostNames(n3.View()); a != "" || b != "" {
			t.Errorf("lost: %q and %q", a, b)
		}
	})
}

// What Join lists counts whether it is there or not, until the member that was there is forgotten; and again when one is back.
func TestForgottenMemberIsNoLongerExpected(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		n1, n2, n3 := w.three()
		w.crash(n2)
		w.within(15*time.Second, "n2 is lost", func() bool { return alive("n1 n3", n1, n3) })
		time.Sleep(2 * time.Minute)
		if got := n1.View().Expect; got != 2 {
			t.Errorf("n1 expects %d members after n2 was lost; Join lists 2", got)
		}
		if err := n3.Forget("n2"); err != nil {
			t.Fatal(err)
		}
		w.within(time.Minute, "n2 is not expected any more", func() bool { return n1.View().Expect == 1 })
		w.start(2, w.config("n2"))
		w.within(time.Minute, "n2 is expected again", func() bool { return n1.View().Expect == 2 })
	})
}

// Somebody may forget a failed member before this node has noticed that it failed.
func TestForgottenBeforeItIsLost(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		n1, n2, n3 := w.three()
		w.crash(n2)
		if _, err := n3.tell(t.Context(), n3.snap.Load().byName["n1"],
			control{Op: opForget, Name: "n2", Proc: process(n2.Incarnation())}); err != nil {
			t.Fatal(err)
		}
		w.within(15*time.Second, "n2 is gone", func() bool { return alive("n1 n3", n1, n3) })
		if got := lostNames(n1.View()); got != "" {
			t.Errorf("n1 has lost %q", got)
		}
	})
}

// A process that starts is unsure until it knows whether there is a cluster which counts without it.
func TestWhoStartsIsUnsureUntilItKnows(t *testing.T) {
	sure := func(n *node) func() bool { return func() bool { return !n.View().Unsure } }
	t.Run("a cluster answers", func(t *testing.T) {
		inBubble(t, func(t *testing.T, w *world) {
			begin := time.Now()
			w.three()
			if took := time.Since(begin); took < 3*time.Second {
				t.Errorf("sure after %v, before a cluster could have found them", took)
			}
			n4 := w.start(4, w.config("n4"))
			if took := w.within(time.Second, "who joins it is sure", sure(n4)); took > 100*time.Millisecond {
				t.Errorf("who joins was sure after %v", took)
			}
		})
	})
	t.Run("seeds restart together", func(t *testing.T) {
		inBubble(t, func(t *testing.T, w *world) {
			n1, n2, n3 := w.three()
			n4 := w.start(4, w.config("n4"))
			w.within(time.Minute, "four members", func() bool { return alive("n1 n2 n3 n4", n1, n2, n3, n4) && sure(n4)() })
			for _, n := range []*node{n1, n2, n3} {
				w.crash(n)
			}
			time.Sleep(30 * time.Second)
			n1, n2, n3 = w.start(1, w.config("n1")), w.start(2, w.config("n2")), w.start(3, w.config("n3"))
			for _, n := range []*node{n1, n2, n3} {
				w.within(10*time.Second, "sure", sure(n))
				if _, ok := n.View().Member("n4"); !ok {
					t.Errorf("%s is sure and does not know of the member that went on", n.View().Self)
				}
			}
		})
	})
	t.Run("seeds do not answer", func(t *testing.T) {
		inBubble(t, func(t *testing.T, w *world) {
			w.three()
			w.net.Isolate(at(4))
			n4 := w.start(4, w.config("n4"))
			time.Sleep(n4.cfg.Grace - 10*time.Second)
			if sure(n4)() {
				t.Error("sure though its seeds may be there, out of reach")
			}
			w.within(15*time.Second, "sure when nobody counts on what was before", sure(n4))
		})
	})
	t.Run("nobody listens", func(t *testing.T) {
		inBubble(t, func(t *testing.T, w *world) {
			n1 := w.start(1, w.config("n1"))
			if sure(n1)() {
				t.Error("sure at once")
			}
			if took := w.within(5*time.Second, "sure", sure(n1)); took < 3*time.Second {
				t.Errorf("sure after %v", took)
			}
		})
	})
	t.Run("no seeds", func(t *testing.T) {
		inBubble(t, func(t *testing.T, w *world) {
			if n := w.start(1, Config{Name: "n1"}); !sure(n)() {
				t.Error("unsure though nobody else is named")
			}
		})
	})
}

package cluster

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jatah-io/jatah/cluster/simnet"
)

func TestNameIsFreeAtOnceAfterAnOrderlyLeave(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		n1, n2, n3 := w.three()
		if err := n2.Leave(t.Context()); err != nil {
			t.Errorf("leave: %v", err)
		}
		if !alive("n1 n3", n1, n3) {
			t.Errorf("after the leave n1 sees %s, n3 sees %s", names(n1.View()), names(n3.View()))
		}
		if got := lostNames(n1.View()); got != "n2 left" {
			t.Errorf("n1 has lost %q", got)
		}
		_ = n2.Close()
		time.Sleep(time.Second)

		again := w.start(9, w.config("n2"))
		took := w.within(5*time.Second, "n2 at its new address", func() bool {
			for _, n := range []*node{n1, n3, again} {
				if m, _ := n.View().Member("n2"); m.Addr != at(9) || len(n.View().Members) != 3 {
					return false
				}
			}
			return true
		})
		t.Logf("back after %v", took)
		if got := lostNames(n1.View()); got != "" {
			t.Errorf("n1 still has lost %q", got)
		}
		if got, err := n1.Call(t.Context(), "n2", []byte("x")); string(got) != "re x" {
			t.Errorf("call to the new n2: %q, %v", got, err)
		}
	})
}

func TestCrashedNodeComesBack(t *testing.T) {
	for name, address := range map[string]int{"at the same address": 2, "at another address": 9} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				n1, n2, n3 := w.three()
				w.crash(n2)
				began := time.Now()
				again := w.start(address, w.config("n2"))
				started := time.Since(began)
				w.within(3*time.Second, "n2's new incarnation everywhere", func() bool {
					for _, n := range []*node{n1, n3} {
						if m, _ := n.View().Member("n2"); m.Incarnation != again.Incarnation() {
							return false
						}
					}
					return alive("n1 n2 n3", n1, n3, again)
				})
				t.Logf("started in %v", started)
				if started > 5*time.Second {
					t.Errorf("start took %v though the old process was gone", started)
				}
				// The ghost of the old process must not take the name back when memberlist notices.
				time.Sleep(time.Minute)
				if m, _ := n1.View().Member("n2"); m.Incarnation != again.Incarnation() || again.down != nil {
					t.Errorf("a minute later: %+v, down: %v", m, again.down)
				}
			})
		})
	}
}

func TestSecondProcessOfOneNameIsRefused(t *testing.T) {
	for _, loss := range []float64{0, 0.2} {
		t.Run(fmt.Sprint("loss ", loss), func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				n1, n2, n3 := w.three()
				w.set(simnet.Conditions{Loss: loss, DelayMin: time.Millisecond, DelayMax: 5 * time.Millisecond})
				before := table(n1.View())
				n1.mu.Lock()
				views := len(n1.views)
				n1.mu.Unlock()
				began := time.Now()
				_, err := w.try(9, w.config("n2"))
				if took := time.Since(began); !errors.Is(err, ErrNameTaken) || took > 10*time.Second {
					t.Fatalf("after %v: %v", took, err)
				}
				if s := err.Error(); !strings.Contains(s, `"n2"`) || !strings.Contains(s, at(2)) {
					t.Errorf("the error names neither the name nor who has it: %v", err)
				}
				w.set(simnet.Conditions{DelayMin: time.Millisecond, DelayMax: 2 * time.Millisecond})
				for range 60 {
					time.Sleep(time.Second)
					if loss == 0 && (table(n1.View()) != before || table(n2.View()) != before || !alive("n1 n2 n3", n1, n2, n3)) {
						t.Fatal("the cluster was disturbed")
					}
				}
				n1.mu.Lock()
				defer n1.mu.Unlock()
				if loss == 0 && len(n1.views) != views {
					t.Errorf("n1 got %d new views", len(n1.views)-views)
				}
				if n2.down != nil {
					t.Errorf("the first n2 went down: %v", n2.down)
				}
			})
		})
	}
}

func TestNameTakenIsSeenThroughOthers(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		n1, n2, n3 := w.three()
		w.net.Cut(at(9), at(2)) // the newcomer cannot reach the holder of its name
		w.net.Cut(at(2), at(9))
		_, err := w.try(9, w.config("n2"))
		if !errors.Is(err, ErrNameTaken) {
			t.Fatalf("start: %v", err)
		}
		time.Sleep(30 * time.Second)
		if !alive("n1 n2 n3", n1, n2, n3) || n2.down != nil {
			t.Errorf("disturbed: %s, %v", names(n1.View()), n2.down)
		}
	})
}

func TestTwoOfOneNameAcrossAPartition(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		n1, n2, n3 := w.three()
		w.net.Isolate(at(9))
		other := w.start(9, w.config("n2")) // reaches no seed, so it is alone
		if names(other.View()) != "n2" {
			t.Fatalf("alone with %s", names(other.View()))
		}
		time.Sleep(time.Minute)
		w.net.Heal()
		w.within(30*time.Second, "the later one goes down", func() bool {
			other.mu.Lock()
			defer other.mu.Unlock()
			return errors.Is(other.down, ErrNameTaken)
		})
		time.Sleep(30 * time.Second)
		if m, _ := n1.View().Member("n2"); m.Addr != at(2) || !alive("n1 n2 n3", n1, n2, n3) || n2.down != nil {
			t.Errorf("n1 sees %+v of %s; n2 down: %v", m, names(n1.View()), n2.down)
		}
	})
}

func TestPausedProcessWhoseNameWasTakenGoes(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		n1, n2, n3 := w.three()
		w.net.Pause(at(2))
		again := w.start(9, w.config("n2"))
		time.Sleep(time.Minute)
		w.net.Resume(at(2))
		w.within(time.Minute, "the old process goes down", func() bool {
			n2.mu.Lock()
			defer n2.mu.Unlock()
			return n2.down != nil
		})
		time.Sleep(30 * time.Second)
		if m, _ := n1.View().Member("n2"); m.Incarnation != again.Incarnation() || !alive("n1 n2 n3", n1, n3, again) || again.down != nil {
			t.Errorf("n1 sees %s; the new one is down: %v", names(n1.View()), again.down)
		}
	})
}

// A seed that swallows everything must not keep the second process from finding out in time.
func TestSecondProcessIsRefusedInTimeWithADeadSeed(t *testing.T) {
	for _, profile := range []string{Local, LAN, WAN} {
		t.Run(profile, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				w.three()
				w.net.Isolate(at(7))
				cfg := w.config("n2")
				cfg.Profile = profile
				cfg.Join = append(cfg.Join, at(7))
				began := time.Now()
				_, err := w.try(9, cfg)
				if took := time.Since(began); !errors.Is(err, ErrNameTaken) || took > 10*time.Second {
					t.Errorf("after %v: %v", took, err)
				}
			})
		})
	}
}

package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
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
		w.within(5*time.Second, "n4 is seen", func() bool { return alive("n1 n3 n4", n1, n3, n4) })
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

func (w *world) set(c simnet.Conditions) {
	w.t.Helper()
	if err := w.net.Set(c); err != nil {
		w.t.Fatal(err)
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
		w.within(5*time.Second, "five members", func() bool { return alive("n1 n2 n3 n4 n5", n4, n5) })
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
		w.within(15*time.Second, "two members", func() bool { return alive("n1 n3", n1, n3) })
	})
}

func TestConstantsMustAgree(t *testing.T) {
	for field, change := range map[string]func(*Config){
		"partitions is 101 here and 271 there":       func(c *Config) { c.Ring.Partitions = 101 },
		"hash seed is 7 here and 0 there":            func(c *Config) { c.Ring.Seed = 7 },
		"sync interval is 50ms here and 100ms there": func(c *Config) { c.SyncInterval = 50 * time.Millisecond },
		"load is 2 here and 1.25 there":              func(c *Config) { c.Ring.Load = 2 },
	} {
		t.Run(field, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				n1, n2, n3 := w.three()
				cfg := w.config("n4")
				change(&cfg)
				_, err := w.try(4, cfg)
				if !errors.Is(err, ErrMismatch) || !strings.Contains(err.Error(), field) {
					t.Errorf("start: %v", err)
				}
				time.Sleep(20 * time.Second)
				if !alive("n1 n2 n3", n1, n2, n3) || lostNames(n1.View()) != "" {
					t.Errorf("disturbed: %s, lost %s", names(n1.View()), lostNames(n1.View()))
				}
			})
		})
	}
}

func TestLongestSettleAndGraceCount(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.config("n1"), w.config("n2")
		a.Settle, b.Grace = 5*time.Second, Never
		n1, n2 := w.start(1, a), w.start(2, b)
		w.within(5*time.Second, "two members", func() bool { return alive("n1 n2", n1, n2) })
		for _, n := range []*node{n1, n2} {
			if v := n.View(); v.Settle != 5*time.Second || v.Grace != math.MaxInt64 {
				t.Errorf("%s: settle %v, grace %v", v.Self, v.Settle, v.Grace)
			}
		}
	})
}

func TestOtherClustersAreIgnored(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		n1 := w.start(1, w.config("n1"))
		cfg := w.config("n2")
		cfg.ClusterName = "another"
		n2 := w.start(2, cfg)
		time.Sleep(30 * time.Second)
		if !alive("n1", n1) || !alive("n2", n2) {
			t.Errorf("%s and %s", names(n1.View()), names(n2.View()))
		}
	})
}

func TestSecretsMustAgree(t *testing.T) {
	key := func(b byte) []byte { return bytes.Repeat([]byte{b}, 32) }
	inBubble(t, func(t *testing.T, w *world) {
		cfg := w.config("n1")
		cfg.Secrets = [][]byte{key(1)}
		n1 := w.start(1, cfg)
		for _, wrong := range [][][]byte{nil, {key(2)}} {
			cfg := w.config("n2")
			cfg.Secrets = wrong
			if _, err := w.try(2, cfg); !errors.Is(err, ErrSecret) {
				t.Errorf("with %d other secrets: %v", len(wrong), err)
			}
		}
		// A rolling change of keys: the new one comes second first.
		cfg = w.config("n3")
		cfg.Secrets = [][]byte{key(1), key(2)}
		n3 := w.start(3, cfg)
		w.within(5*time.Second, "two members", func() bool { return alive("n1 n3", n1, n3) })
		if got, err := n1.Call(t.Context(), "n3", []byte("x")); string(got) != "re x" {
			t.Errorf("call: %q, %v", got, err)
		}
	})
}

// names of DNS, in memory.
type fakeDNS struct {
	mu    sync.Mutex
	hosts map[string][]string
	srv   map[string][]*net.SRV
}

func (d *fakeDNS) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var ips []netip.Addr
	for _, s := range d.hosts[host] {
		ips = append(ips, netip.MustParseAddr(s))
	}
	if ips == nil {
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	return ips, nil
}

func (d *fakeDNS) LookupSRV(_ context.Context, service, proto, name string) (string, []*net.SRV, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if r := d.srv[name]; r != nil && service == "" && proto == "" {
		return name, r, nil
	}
	return "", nil, &net.DNSError{Err: "no such host", Name: name, IsNotFound: true}
}

func TestSeedsFromDNS(t *testing.T) {
	for _, join := range []string{"nodes.example:7946", "dns+srv://_jatah._tcp.example"} {
		t.Run(join, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				dns := &fakeDNS{
					hosts: map[string][]string{"nodes.example": {"10.0.0.1", "10.0.0.2", "::ffff:10.0.0.2"}, "a.example": {"10.0.0.1"}, "b.example": {"10.0.0.2"}},
					srv:   map[string][]*net.SRV{"_jatah._tcp.example": {{Target: "a.example.", Port: 7946}, {Target: "b.example.", Port: 7946}}},
				}
				config := func(name string) Config {
					cfg := w.config(name)
					cfg.Join, cfg.Resolver = []string{join}, dns
					return cfg
				}
				n1, n2 := w.start(1, config("n1")), w.start(2, config("n2"))
				w.within(10*time.Second, "two members", func() bool { return alive("n1 n2", n1, n2) })
				if n1.View().Expect != 2 || n2.View().Expect != 2 {
					t.Errorf("expect %d and %d", n1.View().Expect, n2.View().Expect)
				}
				// A third address appears in DNS, then the name server goes away.
				dns.mu.Lock()
				dns.hosts["nodes.example"] = append(dns.hosts["nodes.example"], "10.0.0.3")
				dns.hosts["b.example"] = append(dns.hosts["b.example"], "10.0.0.3")
				dns.mu.Unlock()
				w.within(time.Minute, "a third is expected", func() bool { return n1.View().Expect == 3 })
				dns.mu.Lock()
				dns.hosts, dns.srv = nil, nil
				dns.mu.Unlock()
				time.Sleep(2 * time.Minute)
				if n1.View().Expect != 3 || !alive("n1 n2", n1, n2) {
					t.Errorf("without DNS: expect %d, members %s", n1.View().Expect, names(n1.View()))
				}
			})
		})
	}
}

func TestCallsAreAnsweredOnceUnderLoss(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		n1, n2, _ := w.three()
		w.set(simnet.Conditions{Loss: 0.2, Duplicate: 0.1, DelayMin: time.Millisecond, DelayMax: 5 * time.Millisecond})
		for i := range 500 {
			req := fmt.Sprint("call ", i)
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			got, err := n1.Call(ctx, "n2", []byte(req))
			cancel()
			if err != nil || string(got) != "re "+req {
				t.Fatalf("call %d: %q, %v", i, got, err)
			}
		}
		n2.mu.Lock()
		defer n2.mu.Unlock()
		for req, times := range n2.executed {
			if times != 1 {
				t.Errorf("%q was executed %d times", req, times)
			}
		}
		s := n2.Stats()
		if n1.Stats().Resends == 0 || s.Duplicates == 0 {
			t.Errorf("nothing was lost: %+v", s)
		}
	})
}

func TestCallErrors(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		n1, n2, n3 := w.three()
		if _, err := n1.Call(t.Context(), "n2", []byte("fail me")); !errors.Is(err, ErrRemote) || !strings.Contains(err.Error(), "refused: me") {
			t.Errorf("handler's error: %v", err)
		}
		for _, to := range []string{"n7", "n1"} {
			if _, err := n1.Call(t.Context(), to, nil); !errors.Is(err, ErrUnknownMember) {
				t.Errorf("call to %s: %v", to, err)
			}
		}
		w.net.Isolate(at(3))
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		began := time.Now()
		if _, err := n1.Call(ctx, "n3", nil); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != 50*time.Millisecond {
			t.Errorf("silent member: %v after %v", err, time.Since(began))
		}
		if _, err := n1.Call(t.Context(), "n3", nil); !errors.Is(err, ErrUnknownMember) { // until it is lost
			t.Errorf("lost member: %v", err)
		}
		if err := n1.Send("n2", make([]byte, n1.MaxMessage()+1)); !errors.Is(err, ErrTooLarge) {
			t.Errorf("large message: %v", err)
		}
		_ = n1.Close()
		if _, err := n1.Call(t.Context(), "n2", nil); !errors.Is(err, ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
		_, _ = n2, n3
	})
}

func TestBigMessagesGoOverStreams(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		n1, n2, _ := w.three()
		w.set(simnet.Conditions{Loss: 0.05, DelayMin: time.Millisecond, DelayMax: 3 * time.Millisecond})
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		big := bytes.Repeat([]byte("x"), 1<<20)
		if got, err := n1.Call(ctx, "n2", big); err != nil || len(got) != len(big)+3 {
			t.Errorf("big request: %d bytes, %v", len(got), err)
		}
		if got, err := n1.Call(ctx, "n2", []byte("big answer")); err != nil || len(got) != 100000 {
			t.Errorf("big answer: %d bytes, %v", len(got), err)
		}
		for _, size := range []int{0, 10, n1.MaxMessage(), n1.MaxMessage() + 1, 5 << 20} {
			if err := n1.Transfer(ctx, "n2", make([]byte, size)); err != nil {
				t.Errorf("transfer of %d: %v", size, err)
			}
			n2.mu.Lock()
			if want := fmt.Sprint("n1 transfers ", size); !slices.Contains(n2.packets, want) {
				t.Errorf("Transfer returned before it was taken: %q", want)
			}
			n2.mu.Unlock()
		}
		if err := n1.Transfer(ctx, "n2", make([]byte, MaxTransfer+1)); !errors.Is(err, ErrTooLarge) {
			t.Errorf("too large: %v", err)
		}
	})
}

func TestPacketsForAnotherIncarnationAreDropped(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		n1, n2, _ := w.three()
		old := n2.Incarnation()
		w.net.Isolate(at(2)) // so that n1 does not hear of it
		if n2.Renew() <= old || n2.Incarnation() == old {
			t.Fatal("not a new incarnation")
		}
		time.Sleep(time.Millisecond) // let go of what is under way
		w.net.Heal()
		if err := n1.Send("n2", []byte("for the old one")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Millisecond)
		if n2.Stats().DropStale != 1 || len(n2.packets) != 0 {
			t.Errorf("dropped %d, got %q", n2.Stats().DropStale, n2.packets)
		}
		// A packet of the new incarnation is enough for n1 to know it.
		if err := n2.Send("n1", []byte("hello")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Millisecond)
		if m, _ := n1.View().Member("n2"); m.Incarnation != n2.Incarnation() {
			t.Errorf("n1 still knows %x, it is %x", m.Incarnation, n2.Incarnation())
		}
		if err := n1.Send("n2", []byte("for the new one")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Millisecond)
		n2.mu.Lock()
		defer n2.mu.Unlock()
		if !slices.Equal(n2.packets, []string{"n1 for the new one"}) {
			t.Errorf("n2 got %q", n2.packets)
		}
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

// A call survives a split that the caller does not notice, and still runs once.
func TestCallRunsOnceAcrossASplit(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		n1, n2, _ := w.three()
		w.net.Cut(at(2), at(1)) // requests arrive, answers do not
		done := make(chan error, 1)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
		defer cancel()
		go func() {
			_, err := n1.Call(ctx, "n2", []byte("once"))
			done <- err
		}()
		time.Sleep(2 * time.Minute)
		w.net.Heal()
		err := <-done
		n2.mu.Lock()
		defer n2.mu.Unlock()
		if n2.executed["once"] != 1 {
			t.Errorf("executed %d times; the call's error: %v", n2.executed["once"], err)
		}
	})
}

package jatah_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jatah-io/jatah"
	"github.com/jatah-io/jatah/cluster/simnet"
)

// publishing is a bubble of nodes whose own limit does not matter.
func publishing(t *testing.T, seed uint64, n int, f func(b *bubble)) {
	inBubble(t, seed, hourlyLimit("node", 10), 0, func(b *bubble) {
		b.start(n)
		f(b)
	})
}

func (h *host) publish(l jatah.Limit) {
	h.b.t.Helper()
	if _, err := h.node().Publish(h.b.t.Context(), l); err != nil {
		h.b.t.Fatal(err)
	}
}

// published is what a node has of published limits, to compare.
func (h *host) published() string {
	var s []string
	for _, l := range h.node().Limits() {
		if h.node().Published(l.Name) {
			s = append(s, fmt.Sprintf("%s=%v/%d/%s", l.Name, l.Rate, l.Burst, l.Parent))
		}
	}
	return strings.Join(s, " ")
}

func (b *bubble) agree() bool {
	up := b.up()
	for _, h := range up {
		if h.published() != up[0].published() {
			return false
		}
	}
	return true
}

func (b *bubble) mustAgree(limit time.Duration, want string) {
	b.t.Helper()
	b.within(limit, "all have "+want, func() bool { return b.agree() && b.up()[0].published() == want })
}

func hourlyLimit(name string, burst int64) jatah.Limit {
	return jatah.Limit{Name: name, Rate: jatah.PerHour(burst), Burst: burst}
}

// What is published on one node is in use on all when Publish returns, and shared like any other limit; what was used stays used when it is
// changed on another node.
func TestPublishReachesAllNodes(t *testing.T) {
	publishing(t, 1, 3, func(b *bubble) {
		t := b.t
		ctx := t.Context()
		take := func(h *host, n int64) int64 {
			t.Helper()
			l, ok := h.node().Lookup("api")
			if !ok {
				t.Fatalf("%s has no such limit", h.name)
			}
			var got int64
			for range n {
				if l.Take(ctx, "k", 1).OK {
					got++
				}
			}
			return got
		}
		begin := b.now()
		b.hosts[0].publish(hourlyLimit("api", 60))
		if !b.agree() || b.hosts[2].published() == "" || b.now()-begin > 100*time.Millisecond {
			t.Errorf("after %v: %q", b.now()-begin, b.hosts[2].published())
		}
		time.Sleep(time.Second)
		used := take(b.hosts[1], 20) + take(b.hosts[2], 20)
		time.Sleep(10 * time.Second)
		b.hosts[2].publish(hourlyLimit("api", 50))
		if want := "api=50/h/50/"; !b.agree() || b.hosts[0].published() != want {
			t.Errorf("%q, want %q", b.hosts[0].published(), want)
		}
		for range 5 {
			for _, h := range b.hosts {
				used += take(h, 50)
			}
			time.Sleep(10 * time.Second)
		}
		if used < 55 || used > 61 { // 60 at first; the refill of a minute is less than one
			t.Errorf("%d tokens of 60", used)
		}
		if err := b.hosts[1].node().Unpublish(ctx, "api"); err != nil {
			t.Fatal(err)
		}
		if !b.agree() || b.hosts[0].published() != "" {
			t.Errorf("%q", b.hosts[0].published())
		}
	})
}

// A parent and its child that are published on different nodes; a node that defines the name itself.
func TestPublishParentsAndOwnDefinitions(t *testing.T) {
	publishing(t, 1, 3, func(b *bubble) {
		t := b.t
		own := hourlyLimit("own", 3)
		if _, err := b.hosts[2].node().Limit(own); err != nil {
			t.Fatal(err)
		}
		b.hosts[0].publish(hourlyLimit("total", 100))
		child := hourlyLimit("child", 10)
		child.Parent = "total"
		b.hosts[1].publish(child)
		b.mustAgree(time.Second, "child=10/h/10/total total=100/h/100/")
		b.hosts[0].publish(hourlyLimit("own", 7))
		if l, _ := b.hosts[2].node().Lookup("own"); l.Limit().Burst != 3 || b.hosts[2].node().Published("own") {
			t.Errorf("the program's own definition lost: %+v", l.Limit())
		}
		if _, err := b.hosts[2].node().Publish(t.Context(), hourlyLimit("own", 8)); !errors.Is(err, jatah.ErrDefined) {
			t.Errorf("%v", err)
		}
		b.hosts[2].node().RemoveLimit("own")
		b.mustAgree(time.Second, "child=10/h/10/total own=7/h/7/ total=100/h/100/")
	})
}

// Two nodes that publish at the same moment, some hundred times: all nodes come to the same, without a word more.
func TestPublishAtTheSameMoment(t *testing.T) {
	publishing(t, 1, 3, func(b *bubble) {
		t := b.t
		if err := b.net.Set(simnet.Conditions{DelayMin: 200 * time.Microsecond, DelayMax: 5 * time.Millisecond}); err != nil {
			t.Fatal(err)
		}
		differed := 0
		for i := range 100 {
			done := make(chan struct{}, 2)
			for j, h := range b.hosts[:2] {
				go func() {
					if _, err := h.node().Publish(t.Context(), hourlyLimit("api", int64(10+2*i+j))); err != nil {
						t.Error(err)
					}
					done <- struct{}{}
				}()
			}
			<-done
			<-done
			if !b.agree() {
				differed++
			}
			b.within(time.Second, "all agree", b.agree)
		}
		if differed > 0 {
			t.Errorf("%d times they differed though both had been told", differed)
		}
	})
}

// Both sides of a partition publish, the same name and others: when it heals all agree.
func TestPublishDuringAPartition(t *testing.T) {
	publishing(t, 1, 4, func(b *bubble) {
		t := b.t
		b.hosts[0].publish(hourlyLimit("api", 10))
		b.hosts[0].publish(hourlyLimit("old", 10))
		b.net.Partition([]string{b.hosts[0].addr, b.hosts[1].addr}, []string{b.hosts[2].addr, b.hosts[3].addr})
		begin := b.now()
		b.hosts[0].publish(hourlyLimit("api", 11))
		if took := b.now() - begin; took > 1100*time.Millisecond {
			t.Errorf("Publish took %v", took)
		}
		time.Sleep(15 * time.Second) // they have lost each other
		b.hosts[1].publish(hourlyLimit("left", 1))
		b.hosts[2].publish(hourlyLimit("api", 12))
		b.hosts[3].publish(hourlyLimit("api", 13)) // the later version of the two sides
		b.hosts[3].publish(hourlyLimit("right", 2))
		if err := b.hosts[2].node().Unpublish(t.Context(), "old"); err != nil {
			t.Fatal(err)
		}
		b.net.Heal()
		b.mustAgree(time.Minute, "api=13/h/13/ left=1/h/1/ right=2/h/2/")
	})
}

// A node that joins later has what was published, and its old state does not bring back what was removed meanwhile; a stop of all nodes
// loses nothing.
func TestPublishedLimitsAndLateJoiners(t *testing.T) {
	dir := t.TempDir()
	inBubble(t, 1, hourlyLimit("node", 10), 0, func(b *bubble) {
		t := b.t
		b.tune = func(c *jatah.Config) { c.StateDir = filepath.Join(dir, c.Node) }
		b.start(3)
		for i := range 20 {
			b.hosts[i%3].publish(hourlyLimit(fmt.Sprint("l", i), 10))
		}
		b.hosts[2].leave()
		for i := range 19 {
			if err := b.hosts[i%2].node().Unpublish(t.Context(), fmt.Sprint("l", i)); err != nil {
				t.Fatal(err)
			}
		}
		b.hosts[0].publish(hourlyLimit("new", 5))
		b.add(1) // one that never was there
		for _, h := range b.hosts[2:] {
			h.open()
		}
		b.together(30*time.Second, 4)
		b.mustAgree(time.Second, "l19=10/h/10/ new=5/h/5/")
		b.stopAll(true)
		time.Sleep(time.Hour)
		for _, h := range b.hosts {
			if l := h.open(); !l.node.Published("new") {
				t.Errorf("%s has nothing before it has met anybody", h.name)
			}
		}
		b.mustAgree(30*time.Second, "l19=10/h/10/ new=5/h/5/")
	})
}

// A node that comes back before the others have given up the one of its name is in no view of theirs for a while. When it is ready it has the limits, so that
// no request finds one missing, and what is published there comes after what was published before.
func TestARestartedNodeHasTheLimitsWhenItIsReady(t *testing.T) {
	for seed := range uint64(5) {
		publishing(t, seed+1, 3, func(b *bubble) {
			b.together(time.Minute, 3)
			for i := range 10 {
				b.hosts[0].publish(hourlyLimit("x", int64(10+i)))
			}
			b.hosts[2].crash()
			time.Sleep(3 * time.Second)
			h := b.hosts[2]
			h.open()
			if err := h.node().Wait(b.t.Context()); err != nil {
				b.t.Fatal(err)
			}
			if x, ok := h.node().Lookup("x"); !ok || x.Limit().Burst != 19 {
				b.problem("it is ready and has no limit, or an old one")
			}
			h.publish(hourlyLimit("x", 77))
			b.mustAgree(10*time.Second, "x=77/h/77/")
		})
	}
}

// With a fifth of all packets lost a change reaches all within a second, nearly always, and always at last.
func TestPublishUnderLoss(t *testing.T) {
	publishing(t, 1, 3, func(b *bubble) {
		t := b.t
		b.weather(simnet.Conditions{Loss: 0.2, DelayMin: 200 * time.Microsecond, DelayMax: 2 * time.Millisecond})
		late := 0
		for i := range 50 {
			begin := b.now()
			b.hosts[i%3].publish(hourlyLimit("api", int64(1+i)))
			want := fmt.Sprintf("api=%d/h/%d/", i+1, i+1)
			b.mustAgree(10*time.Second, want)
			if b.now()-begin > time.Second {
				late++
			}
		}
		if late > 1 {
			t.Errorf("%d of 50 took more than a second", late)
		}
	})
}

// Random definitions, changes and removals on all nodes under faults: after a quiet time all nodes use the same limits.
func TestPublishRandomSchedules(t *testing.T) {
	for i := range max(1, *schedules/3) {
		seed := *firstSeed + uint64(i)
		publishing(t, seed, 4, func(b *bubble) {
			rng := rand.New(rand.NewPCG(seed, 3))
			for range 80 {
				up := b.up()
				h := up[rng.IntN(len(up))]
				switch what := rng.IntN(20); {
				case what == 0 && len(up) > 2:
					h.crash()
				case what == 1:
					for _, h := range b.hosts {
						if h.life.Load() == nil {
							h.open()
						}
					}
				case what == 2:
					b.net.Partition([]string{b.hosts[0].addr, b.hosts[1].addr}, []string{b.hosts[2].addr, b.hosts[3].addr})
				case what == 3:
					b.net.Heal()
				case what == 4:
					b.weather(simnet.Conditions{Loss: 0.2, Duplicate: 0.1, DelayMin: time.Millisecond, DelayMax: 20 * time.Millisecond})
				default:
					b.changeOne(rng, h)
				}
				time.Sleep(time.Duration(rng.IntN(2000)) * time.Millisecond)
			}
			b.net.Heal()
			b.weather(simnet.Conditions{DelayMin: 200 * time.Microsecond, DelayMax: time.Millisecond})
			b.within(2*time.Minute, "all agree", b.agree)
		})
	}
}

// changeOne publishes or removes a limit, or defines one of the node's own for a while.
func (b *bubble) changeOne(rng *rand.Rand, h *host) {
	ctx, cancel := context.WithTimeout(b.t.Context(), time.Duration(rng.IntN(50))*time.Millisecond)
	defer cancel()
	l := hourlyLimit(fmt.Sprint("l", rng.IntN(5)), 1+rng.Int64N(100))
	if rng.IntN(3) == 0 {
		l.Parent = fmt.Sprint("l", rng.IntN(5))
	}
	var err error
	switch rng.IntN(6) {
	case 0:
		err = h.node().Unpublish(ctx, l.Name)
	case 1:
		if _, err = h.node().Limit(l); err == nil {
			h.node().RemoveLimit(l.Name)
		}
	default:
		_, err = h.node().Publish(ctx, l)
	}
	if err != nil && !errors.Is(err, jatah.ErrLimit) && !errors.Is(err, jatah.ErrUnknownLimit) && !errors.Is(err, jatah.ErrParent) {
		b.problem("%v", err)
	}
}

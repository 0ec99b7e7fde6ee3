package cluster

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jatah-io/jatah/ring"
)

// seeded is a configuration with a hash seed of the secret.
func (w *world) seeded(name string, secrets ...[]byte) Config {
	c := w.config(name)
	c.Secrets, c.SecretSeed = secrets, true
	return c
}

func TestTheSeedOutlivesTheSecretItWasMadeOf(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b := secret('a', 16), secret('b', 32)
		n1, n2 := w.start(1, w.seeded("n1", a)), w.start(2, w.seeded("n2", a))
		w.within(time.Minute, "two members", func() bool { return alive("n1 n2", n1, n2) })
		want := hashSeed(a, "jatah")
		table1 := table(n1.View())
		for _, list := range [][][]byte{{a, b}, {b, a}, {b}} {
			for _, n := range []*node{n1, n2} {
				if err := n.SetSecrets(list); err != nil {
					t.Fatal(err)
				}
			}
		}
		// Each is replaced by another, until nobody is left who was there when it began.
		ns := []*node{n1, n2}
		for i := 3; i <= 6; i++ {
			cfg := w.seeded(fmt.Sprint("n", i), b)
			cfg.Join = []string{ns[0].addr, ns[1].addr}
			n := w.start(i, cfg)
			if n.cfg.Ring.Seed != want || n.meta.Seed != want {
				t.Fatalf("%s: seed %x, want %x", n.cfg.Name, n.cfg.Ring.Seed, want)
			}
			w.within(time.Minute, "three members", func() bool { return len(n.View().Members) == 3 })
			if err := ns[0].Leave(t.Context()); err != nil {
				t.Error(err)
			}
			w.crash(ns[0])
			ns = []*node{ns[1], n}
			w.within(time.Minute, "two members", func() bool { return len(n.View().Members) == 2 })
		}
		fresh, err := ring.New(ring.Config{Seed: want}, []string{"n1", "n2"})
		if err != nil {
			t.Fatal(err)
		}
		if got := table(&View{Ring: fresh}); got != table1 {
			t.Error("the ring is not that of the seed")
		}
	})
}

func TestSeedsOfAllWhoBeginTogetherAreTheSame(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		var mu sync.Mutex
		var ns []*node
		var wg sync.WaitGroup
		for i := range 4 {
			wg.Go(func() {
				n := w.start(i+1, w.seeded(fmt.Sprint("n", i+1), secret('a', 16)))
				mu.Lock()
				defer mu.Unlock()
				ns = append(ns, n)
			})
		}
		wg.Wait()
		w.within(time.Minute, "four members", func() bool { return alive("n1 n2 n3 n4", ns...) })
		for _, n := range ns {
			n.Cluster.mu.Lock()
			if n.meta.Seed != hashSeed(secret('a', 16), "jatah") || n.meta.extra.Born != ns[0].meta.extra.Born {
				t.Errorf("%s: %x of %d", n.cfg.Name, n.meta.Seed, n.meta.extra.Born)
			}
			n.Cluster.mu.Unlock()
		}
	})
}

func TestWithoutASecretTheSeedIsZero(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		if n := w.start(1, w.seeded("n1")); n.meta.Seed != 0 || n.meta.extra.Seeking {
			t.Errorf("%+v", n.meta)
		}
		cfg := w.seeded("n2", secret('a', 16))
		cfg.Ring.Seed = 7
		if _, err := w.try(2, cfg); !errors.Is(err, ErrConfig) {
			t.Errorf("with a seed besides: %v", err)
		}
	})
}

func TestARefusedRingEndsTheStart(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		tr, err := w.net.Transport(at(1))
		if err != nil {
			t.Fatal(err)
		}
		cfg := w.seeded("n1", secret('a', 16))
		cfg.Transport = tr
		no := errors.New("no")
		if _, err := Start(t.Context(), cfg, Events{Ring: func(r ring.Config) error {
			if r.Seed != hashSeed(cfg.Secrets[0], "jatah") || r.Partitions != ring.DefaultPartitions {
				t.Errorf("%+v", r)
			}
			return no
		}}); !errors.Is(err, no) {
			t.Errorf("%v", err)
		}
	})
}

// Two clusters that began apart, with other secrets first, meet: the members of the younger one go, and say whom they have met; started again
// with that address they are members of the other one, also where they had no seeds at all.
func TestOfTwoClustersThatBeganApartTheYoungerGives(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b := secret('a', 16), secret('b', 32)
		w.net.Partition([]string{at(1), at(2)}, []string{at(3), at(4)})
		old1 := w.start(1, w.apart("n1", []string{at(1), at(3)}, a, b))
		old2 := w.start(2, w.apart("n2", []string{at(1)}, a, b))
		time.Sleep(10 * time.Second)
		new3, new4 := w.start(3, w.apart("n3", nil, b, a)), w.start(4, w.apart("n4", []string{at(3)}, b, a))
		w.within(30*time.Second, "two clusters", func() bool { return alive("n1 n2", old1, old2) && alive("n3 n4", new3, new4) })
		if old1.meta.Seed == new3.meta.Seed {
			t.Fatal("they are not apart")
		}
		w.net.Heal()
		w.within(20*time.Second, "n3 gives up", func() bool { return gone(new3) != nil })
		e := gone(new3)
		if !errors.Is(e, ErrMismatch) || e.Addr != at(1) && e.Addr != at(2) || strings.Contains(e.Error(), fmt.Sprint(old1.meta.Seed)) {
			t.Errorf("%v", e)
		}
		again3 := w.start(3, w.apart("n3", []string{e.Addr}, b, a))
		w.within(30*time.Second, "n4 gives up as well", func() bool { return gone(new4) != nil })
		again4 := w.start(4, w.apart("n4", []string{at(3), gone(new4).Addr}, b, a))
		w.within(20*time.Second, "one cluster", func() bool { return alive("n1 n2 n3 n4", old1, old2, again3, again4) })
		if gone(old1) != nil || gone(old2) != nil || again3.meta.Seed != hashSeed(a, "jatah") {
			t.Errorf("%v %v", gone(old1), gone(old2))
		}
	})
}

package cluster

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jatah-io/jatah/cluster/simnet"
)

// again is a node that is started anew each time it goes because it began apart, as a program is.
type again struct {
	w       *world
	i       int
	cfg     Config
	mu      sync.Mutex
	now     *node
	starts  int
	restart time.Time // the last one
}

// run starts it and keeps it up until the test ends.
func (a *again) run(stop <-chan struct{}) {
	for {
		cfg := a.cfg
		n, err := a.w.try(a.i, cfg)
		if err != nil {
			if !errors.Is(err, ErrMismatch) && !errors.Is(err, ErrNameTaken) {
				a.w.t.Errorf("%s: %v", a.cfg.Name, err)
				return
			}
			select {
			case <-stop:
				return
			case <-time.After(time.Second):
			}
			continue
		}
		a.mu.Lock()
		a.now, a.restart = n, time.Now()
		a.starts++
		a.mu.Unlock()
		for {
			n.mu.Lock()
			down := n.down
			n.mu.Unlock()
			if down != nil {
				var apart *ApartError
				_ = n.Close()
				if errors.As(down, &apart) && !slices.Contains(a.cfg.Join, apart.Addr) {
					a.cfg.Join = append(slices.Clone(a.cfg.Join), apart.Addr)
				}
				break
			}
			select {
			case <-stop:
				return
			case <-time.After(100 * time.Millisecond):
			}
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// Nodes with the same secrets in another order, as in the middle of a change of them, start at the same time or in steps, with loss, and some of them cut
// off from the others for a while: all end in one cluster, with one seed, and nobody starts again and again.
func TestAllWhoBeginTogetherEndTogether(t *testing.T) {
	for _, size := range []int{3, 5} {
		for seed := range uint64(12) {
			t.Run(fmt.Sprintf("%d nodes, seed %d", size, seed), func(t *testing.T) {
				inBubble(t, func(t *testing.T, w *world) { beginTogether(t, w, size, seed) })
			})
		}
	}
}

func beginTogether(t *testing.T, w *world, size int, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, uint64(size)))
	loss := []float64{0, 0.1, 0.2}[rng.IntN(3)]
	if err := w.net.Set(simnet.Conditions{DelayMin: time.Millisecond, DelayMax: 20 * time.Millisecond, Loss: loss}); err != nil {
		t.Fatal(err)
	}
	a, b := secret('a', 16), secret('b', 32)
	step := []time.Duration{0, 300 * time.Millisecond, 3 * time.Second}[rng.IntN(3)]
	for range rng.IntN(3) { // whoever is cut off is a seed as often as not
		w.net.Isolate(at(1 + rng.IntN(size)))
	}
	stop := make(chan struct{})
	var all []*again
	var wg sync.WaitGroup
	for i := range size {
		cfg := w.seeded(fmt.Sprint("n", i+1), a, b)
		if rng.IntN(2) == 0 {
			cfg.Secrets = [][]byte{b, a}
		}
		x := &again{w: w, i: i + 1, cfg: cfg}
		all = append(all, x)
		wg.Go(func() { time.Sleep(time.Duration(i) * step); x.run(stop) })
	}
	defer wg.Wait()
	defer close(stop)
	time.Sleep(time.Duration(5+rng.IntN(40)) * time.Second)
	w.net.Heal()
	var nodes []*node
	one := func() bool {
		nodes = nodes[:0]
		for _, x := range all {
			x.mu.Lock()
			n := x.now
			x.mu.Unlock()
			if n == nil || len(n.View().Members) != size {
				return false
			}
			nodes = append(nodes, n)
		}
		return true
	}
	w.within(2*time.Minute, "one cluster", one)
	healed := time.Now()
	time.Sleep(time.Minute)
	if !one() {
		t.Error("it has come apart again")
	}
	for i, n := range nodes {
		n.Cluster.mu.Lock()
		if n.meta.Seed != nodes[0].meta.Seed {
			t.Errorf("%s: another seed", n.cfg.Name)
		}
		n.Cluster.mu.Unlock()
		all[i].mu.Lock()
		if all[i].starts > 4 || all[i].restart.After(healed) {
			t.Errorf("%s: %d starts", n.cfg.Name, all[i].starts)
		}
		all[i].mu.Unlock()
	}
}

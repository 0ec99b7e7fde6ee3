package hybrid

import (
	"fmt"
	"testing"
	"time"

	"github.com/jatah-io/jatah/bucket"
)

func permitSpec(most int64, ttl time.Duration) Spec {
	return Spec{Name: "api", Rate: bucket.Per(1, time.Second), Burst: most, TTL: ttl, Rule: &bucket.Spec{Algorithm: "concurrency", Max: most}}
}

// jobs are holders of permits in a world: they acquire, hold for a random time, renew, and release. The twin is the count of
// permits that live processes hold.
type jobs struct {
	w       *world
	most    int64
	on      bool
	tainted map[string]bool // permits of nodes that were declared dead while they lived
	until   map[string]int64
	got     map[string]int
	peak    int
	refused int
	worst   int
}

func newJobs(w *world, most int64) *jobs {
	j := &jobs{w: w, most: most, on: true, tainted: map[string]bool{}, until: map[string]int64{}, got: map[string]int{}}
	w.onDecision = j.decided
	return j
}

func (j *jobs) decided(n *simNode, key string, d Decision) {
	p, d := n.limit.keep(&Permit{l: n.limit, key: key}, d, n.limit.spec.TTL)
	if p == nil {
		if d.Err != nil {
			j.w.t.Errorf("acquire: %v", d.Err)
		}
		j.refused++
		return
	}
	j.got[key]++
	if d.Source == SourceShare {
		j.tainted[p.id] = true // taken while the owner was silent
	}
	if j.on {
		j.hold(n, p, n.life, j.w.now+j.w.uniform(6*sec))
	}
}

// hold renews now and then, and releases at the end; a paused process does so when it goes on.
func (j *jobs) hold(n *simNode, p *Permit, life int, end int64) {
	j.w.after(200*ms+j.w.uniform(sec), func() {
		switch {
		case !n.alive || n.life != life:
		case n.paused:
			j.hold(n, p, life, end)
		case j.w.now < end:
			if _, err := p.Renew(j.w.t.Context(), 0); err == nil { // else it is lost: its owner did not answer for long
				j.hold(n, p, life, end)
			}
			n.settle()
		default:
			_ = p.Release(j.w.t.Context())
			if p.Release(j.w.t.Context()) == nil {
				j.w.t.Error("a permit was released twice")
			}
			n.settle()
		}
	})
}

// check counts what is held at this moment.
func (j *jobs) check(what string) {
	w := j.w
	held := map[string]int{}
	for _, n := range w.nodes {
		if !n.alive {
			continue
		}
		for _, o := range w.nodes {
			if o.alive && !o.view[n.id] {
				j.until[n.name] = w.now + 3*sec
			}
		}
		for id, p := range n.e.permits.byID {
			if w.now < j.until[n.name] {
				j.tainted[id] = true
			}
			if !j.tainted[id] && p.expires > n.clock()+n.e.permits.slept {
				held[p.key]++
			}
		}
	}
	for key, k := range held {
		j.peak = max(j.peak, k)
		if k > int(j.most) && k > j.worst {
			j.worst = k
			w.t.Errorf("%s: at %.3f s %d of %d permits of %s are held", what, float64(w.now)/float64(sec), k, j.most, key)
		}
	}
}

// drained: after everybody has released and the dead are forgotten, each permit can be had again, and not one more.
func (j *jobs) drained(what string) {
	w := j.w
	j.on = false
	w.loss = 0
	for _, n := range w.nodes[:3] {
		w.revive(n)
	}
	w.run(w.now + w.grace + 20*sec)
	clear(j.got)
	for _, key := range w.keys {
		for range int(j.most) + 12 {
			for _, n := range w.nodes {
				if n.alive && !n.paused && j.got[key] <= int(j.most) {
					n.take(key, 1)
					w.run(w.now + 25*ms)
				}
			}
			w.run(w.now + 50*ms)
		}
		if j.got[key] != int(j.most) {
			w.t.Errorf("%s: in the end %d of %d permits of %s could be acquired", what, j.got[key], j.most, key)
		}
	}
}

func (s schedule) permits(t *testing.T, most int64) {
	spec := permitSpec(most, 30*time.Second)
	spec.Mode, spec.Fallback = s.mode, s.fallback
	s.rule, s.burst = spec.Rule, most
	w := newWorld(t, s.seed, 8, 0, spec, 2)
	j := newJobs(w, most)
	n := 3 + w.rng.IntN(5)
	s.rate, s.flash = 1, true // the load of the schedule itself
	what := fmt.Sprint(s)
	w.after(ms, func() { w.load(float64(most)*4, n, func() bool { return j.on }) })
	s.run(w, n, func() { j.check(what) })
	if j.peak < int(most) && most < 10 {
		t.Errorf("%s: at most %d of %d permits were held at once: the schedule shows little", what, j.peak, most)
	}
	j.drained(what)
}

// TestPermitsUnderFaults: no fault lets more permits be held at once than there are, other than those of nodes that were
// declared dead while they lived or, with fallback share, were taken while the owner was silent; and none leaks.
func TestPermitsUnderFaults(t *testing.T) {
	for _, mode := range []Mode{Hybrid, Strict} {
		for _, faults := range kinds() {
			t.Run(fmt.Sprintf("%v/%s", mode, faults), func(t *testing.T) {
				t.Parallel()
				n := *schedules
				for i := range n {
					s := schedule{seed: *firstSeed + uint64(i), mode: mode, faults: faults, loss: 0.02, fallback: FallbackShare}
					s.permits(t, 5)
					s.loss, s.fallback = 0.2, FallbackWait
					s.permits(t, 12)
					s.permits(t, 1)
				}
			})
		}
	}
}

package hybrid

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jatah-io/jatah/bucket"
	"github.com/jatah-io/jatah/ring"
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

// known: an owner that counts a member's share, and may grant, knows of all that the member holds.
func (j *jobs) known(what string) {
	for _, o := range j.w.nodes {
		for _, n := range j.w.nodes {
			if o == n || !o.alive || !n.alive || o.paused || n.paused || !o.view[n.id] {
				continue
			}
			n.e.eachAccount(n.limit, func(a *account) {
				key := a.key
				p := o.e.parts[a.part]
				if !p.owned || a.owner == nil || a.owner.name != o.name || a.ownerInc != o.e.inc || !o.e.knowsHeld(p) {
					return
				}
				if s := p.shareOf(n.name); s.inc != n.e.inc || !p.usable(s, o.clock()) {
					return
				}
				var told int64
				if x := p.ledgers[ledgerKey{o.limit, key}]; x != nil {
					if y := x.find(n.name); y != nil && y.inc == n.e.inc {
						told = y.g - y.r - y.u
					}
				}
				if holds := a.holds() + max(0, a.left()); holds > told {
					j.w.t.Errorf("%s: at %.3f s %s holds %d of %s, and its owner %s knows of %d", what, float64(j.w.now)/float64(sec), n.name, holds, key, o.name, told)
				}
			})
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

func (s schedule) permits(t *testing.T, most int64, keys int) {
	spec := permitSpec(most, 30*time.Second)
	spec.Mode, spec.Fallback = s.mode, s.fallback
	s.rule, s.burst = spec.Rule, most
	w := newWorld(t, s.seed, 8, 0, spec, keys)
	j := newJobs(w, most)
	n := 3 + w.rng.IntN(5)
	s.rate, s.flash = 1, true // the load of the schedule itself
	what := fmt.Sprint(s)
	w.after(ms, func() { w.load(float64(most)*float64(2*keys), n, func() bool { return j.on }) })
	s.run(w, n, func() {
		j.check(what)
		j.known(what)
	})
	if j.peak < int(most) {
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
				for i := range max(1, *schedules/2) { // three worlds each
					s := schedule{seed: *firstSeed + uint64(i), mode: mode, faults: faults, loss: 0.02, fallback: FallbackShare}
					s.permits(t, 5, 2)
					s.loss, s.fallback = 0.2, FallbackWait
					s.permits(t, 12, 2)
					// So many keys that what is held does not fit in the packet that lends.
					s.hook = func(e *Engine) { e.cfg.MaxMessage = 320 }
					s.permits(t, 1, 12)
				}
			})
		}
	}
}

// holding is a world of three nodes in which one has taken all permits of a key that another owns. With fourth, a fourth
// node would own the key.
func holding(t *testing.T, seed uint64, fourth bool) (w *world, j *jobs, key string, owner, holder, other *simNode) {
	w = newWorld(t, seed, 3, 1, permitSpec(4, 30*time.Second), 30)
	j = newJobs(w, 4)
	j.on = false
	w.start(3)
	w.run(sec)
	for _, k := range w.keys {
		a := w.nodes[0]
		part := a.e.partOf(a.e.hash(a.limit, k))
		owner = nil
		for _, n := range w.nodes[:3] {
			if a.e.ownerOf(part).name == n.name {
				owner = n
			}
		}
		four, err := ring.New(ring.Config{Partitions: 5}, []string{"n0", "n1", "n2", "n3"})
		if err != nil {
			t.Fatal(err)
		}
		if next, _ := four.Owner(part); !fourth || next == "n3" {
			key = k
			break
		}
	}
	if key == "" {
		t.Fatal("the fourth node would own none of the keys")
	}
	holder, other = w.nodes[(owner.id+1)%3], w.nodes[(owner.id+2)%3]
	for range 8 {
		holder.take(key, 1)
		w.run(w.now + 300*ms)
	}
	if j.got[key] != 4 {
		t.Fatalf("%d of 4 permits were acquired", j.got[key])
	}
	return w, j, key, owner, holder, other
}

// An owner that loses a key and has it back at once, in its own view only, has forgotten what is held. It grants nothing until it
// knows again, though the holder has noticed nothing and goes on lending.
func TestAnOwnerThatForgotGrantsNothing(t *testing.T) {
	for seed := uint64(1); seed <= 20; seed++ { // it matters whose tick comes first
		w, j, key, owner, _, other := holding(t, seed, true)
		owner.view[3] = true
		owner.push()
		w.run(w.now + 5*ms)
		delete(owner.view, 3)
		owner.push()
		for range 100 {
			other.take(key, 1)
			owner.take(key, 1)
			w.run(w.now + 10*ms)
		}
		if j.got[key] != 4 {
			t.Errorf("seed %d: %d permits of 4 were given", seed, j.got[key])
		}
	}
}

// What a process held is free when a new one of the same name lends, long before its time to live is over.
func TestARestartFreesPermits(t *testing.T) {
	w, j, key, _, holder, other := holding(t, 3, false)
	holder.kill()
	w.after(500*ms, func() { w.revive(holder) })
	free := int64(0)
	for at := w.now; free == 0 && w.now < at+20*sec; {
		if other.take(key, 1); j.got[key] > 4 {
			free = w.now - at
		}
		w.run(w.now + 50*ms)
	}
	if free == 0 || free > 6*sec {
		t.Errorf("free after %v, want a few seconds", time.Duration(free))
	}
}

// Nobody's credit is lost with the answer that brought it: who asked and heard nothing asks what became of it.
func TestAnAnswerThatIsLostLeaksNoPermit(t *testing.T) {
	w := newWorld(t, 4, 3, 0, permitSpec(4, time.Hour), 1)
	j := newJobs(w, 4)
	w.start(3)
	w.run(sec)
	owner := w.ownerNode()
	holder, other := w.nodes[(owner.id+1)%3], w.nodes[(owner.id+2)%3]
	w.cut[[2]int{owner.id, holder.id}] = true // for less than it takes to be thought silent
	for range 4 {
		holder.take(w.keys[0], 1)
	}
	w.run(w.now + 150*ms)
	clear(w.cut)
	j.on = false
	w.run(w.now + 10*sec)
	before := j.got[w.keys[0]]
	for range 30 {
		other.take(w.keys[0], 1)
		w.run(w.now + 100*ms)
	}
	if got := j.got[w.keys[0]] - before; before != 0 || got != 4 {
		t.Errorf("%d were acquired without an answer; then %d of 4 were free", before, got)
	}
}

// TestNoTokensOfPermits: what is done to tokens is refused where there are permits, together with others too.
func TestNoTokensOfPermits(t *testing.T) {
	e := New(Config{Node: "n"})
	l, err := e.Define(permitSpec(2, time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	if d := l.Take(t.Context(), "k", 1); !errors.Is(d.Err, ErrConcurrency) {
		t.Errorf("a take: %+v", d)
	}
	if r := e.TakeAll(t.Context(), []Take{{Limit: l, Key: "k", Cost: 1}}); r.OK || !errors.Is(r.Err, ErrConcurrency) {
		t.Errorf("a take-all: %+v", r)
	}
}

package jatah_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/jatah-io/jatah"
	"github.com/jatah-io/jatah/cluster/simnet"
)

// Kinds of faults, one letter each, so that a schedule can be named.
const (
	faultPartition = 'p' // two groups that do not hear each other, for less than grace
	faultOneWay    = 'a' // some links are cut in one direction
	faultTriangle  = 't' // two nodes do not hear each other, and everybody hears both
	faultPause     = 's' // a host that neither reads nor sends, perhaps until it is declared dead
	faultCrash     = 'c' // for good
	faultRestart   = 'r' // a crash, and a new process of the same name
	faultLeave     = 'l' // in good order
	faultJoin      = 'j'
	faultRolling   = 'R' // every member in turn leaves and comes back
)

// memberFaults are all the faults above.
const memberFaults = "patscrljR"

// rough is the worst weather that the guarantees are checked in.
func rough(loss float64) simnet.Conditions {
	return simnet.Conditions{Loss: loss, Duplicate: 0.05, DelayMin: 200 * time.Microsecond, DelayMax: 1200 * time.Microsecond,
		Straggle: 0.02, StraggleMax: 400 * time.Millisecond}
}

// victim is the owner of the first key half of the time, else anybody who is up.
func (b *bubble) victim() *host {
	if b.rng.IntN(2) == 0 {
		if h := b.find(b.keys[0]); h != nil {
			return h
		}
	}
	up := b.up()
	return up[b.rng.IntN(len(up))]
}

// strike lets a fault happen, and returns when it is over.
func (b *bubble) strike(kind rune) {
	x := b.victim()
	some := func(lo, hi time.Duration) time.Duration { return lo + time.Duration(b.rng.Float64()*float64(hi-lo)) }
	switch kind {
	case faultPartition:
		var a, c []string
		for _, h := range b.hosts {
			if h != x && b.rng.IntN(2) == 0 {
				a = append(a, h.addr)
			} else {
				c = append(c, h.addr)
			}
		}
		b.net.Partition(a, c)
		time.Sleep(some(time.Second, 15*time.Second))
		b.net.Heal()
	case faultOneWay:
		for _, h := range b.hosts {
			for _, o := range b.hosts {
				if h != o && b.rng.Float64() < 0.3 {
					b.net.Cut(h.addr, o.addr)
				}
			}
		}
		time.Sleep(some(time.Second, 12*time.Second))
		b.net.Heal()
	case faultTriangle:
		for _, h := range b.others(x) {
			if b.rng.IntN(2) == 0 {
				b.net.Partition([]string{x.addr}, []string{h.addr})
			}
		}
		time.Sleep(some(time.Second, 12*time.Second))
		b.net.Heal()
	case faultPause:
		x.pause()
		time.Sleep(some(200*time.Millisecond, 10*time.Second))
		x.resume()
	case faultCrash:
		x.crash()
	case faultRestart:
		x.crash()
		time.Sleep(some(300*time.Millisecond, 3*time.Second))
		b.boot(x)
	case faultLeave:
		x.leave()
	case faultJoin:
		for _, h := range b.hosts {
			if h.life.Load() == nil {
				b.boot(h)
				return
			}
		}
	case faultRolling:
		for _, h := range b.up() {
			h.leave()
			time.Sleep(some(100*time.Millisecond, 2*time.Second))
			b.boot(h)
			if b.rng.IntN(2) == 0 {
				_ = h.node().Wait(b.t.Context())
			}
		}
	}
}

// boot starts a process that is asked before it is ready.
func (b *bubble) boot(h *host) {
	if _, err := h.try(); err != nil {
		b.problem("%s starts: %v", h.name, err)
	}
}

// schedule is one random run, named by all it follows from.
type schedule struct {
	seed   uint64
	limit  jatah.Limit
	loss   float64
	faults string // kinds to draw from; none: only the weather
	flash  bool   // quiet with full buckets, and a flash within 50 ms of each fault; else saturating load
	skew   bool   // 90 % of the load on one node
}

func (s schedule) String() string {
	load := "saturated"
	if s.flash {
		load = "flash"
	}
	if s.skew {
		load += ", skewed"
	}
	rate := fmt.Sprintf("%v burst %d", s.limit.Rate, s.limit.Burst)
	if s.limit.Algorithm != "" {
		rate = fmt.Sprint(s.limit.Algorithm, s.limit.Rate, s.limit.Rates)
	}
	return fmt.Sprintf("seed %d: %v %v %v phi %v, loss %v, faults %q, %s", s.seed, s.limit.Mode, s.limit.Fallback, rate, s.limit.Overshoot, s.loss, s.faults, load)
}

// outcome is what a schedule came to.
type outcome struct {
	excess  float64
	most    int64  // the largest cost that the limit lets pass
	events  string // the faults that were drawn
	slowest time.Duration
	sources string
	offered int
}

// run plays three faults, some seconds apart, and checks that all is well afterwards.
func (s schedule) run(t *testing.T) (out outcome) {
	inBubble(t, s.seed, s.limit, 2, func(b *bubble) {
		out.most = b.most()
		n := 3 + b.rng.IntN(3)
		b.start(n)
		b.add(1) // a spare
		if s.skew {
			for _, h := range b.hosts[1:] {
				h.weight = 0.1 / 0.9 / float64(len(b.hosts)-1)
			}
		}
		b.generate()
		b.weather(rough(s.loss))
		load := 4 * perSecond(s.limit) * float64(len(b.keys))
		if !s.flash {
			b.offer(load)
		}
		for range 3 {
			out.events += s.event(b, load)
		}
		b.weather(rough(0))
		for _, h := range b.hosts[:n] {
			if h.life.Load() == nil {
				b.boot(h)
			}
		}
		b.together(90*time.Second, len(b.up()))
		time.Sleep(12 * time.Second) // what was suspected in the bad weather has been found dead or alive
		b.together(30*time.Second, len(b.up()))
		b.rest()
		out.excess, out.slowest, out.offered, out.sources = b.excess(), b.slowest, b.offered, fmt.Sprint(b.bySource)
	})
	return out
}

// event waits, strikes and waits; a flash comes within 50 ms of the strike.
func (s schedule) event(b *bubble, load float64) (kind string) {
	time.Sleep(time.Duration(1+b.rng.IntN(4000)) * time.Millisecond)
	if s.flash {
		time.AfterFunc(time.Duration(b.rng.IntN(50))*time.Millisecond, func() { b.offer(load) })
	}
	if s.faults != "" {
		k := s.faults[b.rng.IntN(len(s.faults))]
		kind = string(k)
		b.strike(rune(k))
	}
	time.Sleep(time.Duration(b.rng.IntN(7000)) * time.Millisecond)
	if s.flash {
		b.offer(0)
		time.Sleep(2 * time.Second)
	}
	return kind
}

// longestDecision is the ask timeout, the 5 ms after which asks are looked at, and a round trip.
const longestDecision = 50*time.Millisecond + 5*time.Millisecond + 2400*time.Microsecond

// check runs the schedule and holds it against what is promised: with fallback share, each event may let through at
// most the burst; otherwise nothing beyond the overshoot.
func (s schedule) check(t *testing.T) {
	t.Run(fmt.Sprintf("seed %d", s.seed), func(t *testing.T) {
		t.Log(s)
		out := s.run(t)
		t.Logf("excess %.3f, slowest decision %v, faults drawn %q, %d requests %s", out.excess, out.slowest, out.events, out.offered, out.sources)
		promised := s.limit.Overshoot*float64(out.most) + tolerance
		if s.limit.Fallback == jatah.FallbackShare && s.limit.Mode != jatah.Split {
			promised += float64(len(out.events)) * float64(out.most)
		}
		if out.excess > promised {
			t.Errorf("%v: excess %v, at most %v is promised", s, out.excess, promised)
		}
		if out.slowest > longestDecision {
			t.Errorf("%v: a decision took %v", s, out.slowest)
		}
	})
}

// draw makes the schedule that follows from a seed. The seed's low digits go through the modes and fallbacks, so that a few
// schedules in a row meet all.
func draw(seed uint64, faults string) schedule {
	rng := rand.New(rand.NewPCG(seed, 2))
	sizes := []struct{ rate, burst int64 }{{200, 10}, {30, 100}, {200, 50}}
	size := sizes[rng.IntN(len(sizes))]
	s := schedule{seed: seed, faults: faults, loss: []float64{0, 0.02, 0.1, 0.2}[rng.IntN(4)], flash: seed/4%2 == 1, skew: rng.IntN(3) == 0,
		limit: jatah.Limit{Name: "api", Rate: jatah.PerSecond(size.rate), Burst: size.burst,
			Mode: []jatah.Mode{jatah.Hybrid, jatah.Strict}[seed%2], Fallback: []jatah.Fallback{jatah.FallbackWait, jatah.FallbackShare}[seed/2%2]}}
	if seed%5 == 0 {
		s.limit.Overshoot = 0.1
	}
	return s
}

// count is how many schedules to run, with fewer when time is short.
func count(short int) uint64 {
	if testing.Short() {
		return uint64(short)
	}
	return uint64(*schedules)
}

func TestNothingAboveTheLimitWhateverHappens(t *testing.T) {
	for i := range count(3) {
		draw(*firstSeed+i, memberFaults).check(t)
	}
}

// Lost, doubled, late and reordered packets alone let nothing through, whatever the fallback.
func TestBadWeatherAloneLetsNothingThrough(t *testing.T) {
	for i := range (count(1) + 1) / 2 {
		draw(*firstSeed+i, "").check(t)
	}
}

// A split limit is exact as long as nobody joins or leaves; members that cannot be reached keep their shares.
func TestSplitIsExactWhileMembershipIsStable(t *testing.T) {
	for i := range (count(1) + 3) / 4 {
		s := draw(*firstSeed+i, "pats")
		s.limit.Mode, s.limit.Overshoot = jatah.Split, 0
		s.check(t)
	}
}

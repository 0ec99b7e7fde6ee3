package jatah_test

import (
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jatah-io/jatah"
	"github.com/jatah-io/jatah/bucket"
)

// The oracle of another rule than one token bucket is one bucket.Meter of the whole limit, which is told of everything that any node
// admits. That its arithmetic is right is proved in package bucket, against twins of its own.

// ruleOf is a limit's rule for the oracle; nil: one token bucket.
func ruleOf(t *testing.T, l jatah.Limit) *bucket.Algorithm {
	t.Helper()
	if (l.Algorithm == "" || l.Algorithm == jatah.TokenBucket) && len(l.Rates) == 0 {
		return nil
	}
	rates := l.Rates
	if len(rates) == 0 {
		rates = []jatah.Rate{l.Rate}
	}
	a, err := bucket.Compile(bucket.Spec{Algorithm: l.Algorithm, Rates: rates, Burst: l.Burst, Calendar: l.Calendar, Timezone: l.Timezone, Queue: l.Queue,
		MaxWait: l.MaxWait, BurstRate: l.BurstRate, BurstThreshold: l.BurstThreshold, BurstTime: l.BurstTime, MaxLog: l.MaxLog})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// perSecond is what a limit lets through in the long run.
func perSecond(l jatah.Limit) float64 {
	rates := l.Rates
	if len(rates) == 0 {
		rates = []jatah.Rate{l.Rate}
	}
	least := float64(rates[0].Count) / rates[0].Per.Seconds()
	for _, r := range rates[1:] {
		least = min(least, float64(r.Count)/r.Per.Seconds())
	}
	return least
}

// rules are limits of every algorithm, whose windows are shorter than the gaps between faults.
func rules() []jatah.Limit {
	per := jatah.Per
	return []jatah.Limit{
		{Algorithm: jatah.FixedWindow, Rate: per(200, 4*time.Second)},
		{Algorithm: jatah.SlidingWindow, Rate: per(60, time.Second)},
		{Algorithm: jatah.SlidingLog, Rate: per(80, 2*time.Second)},
		{Algorithm: jatah.LeakyBucket, Rate: per(100, time.Second), Burst: 20},
		{Algorithm: jatah.LeakyBucket, Rate: per(50, time.Second), Queue: 25},
		{Algorithm: jatah.BurstAverage, Rate: per(50, time.Second), Burst: 50, BurstRate: per(200, time.Second), BurstThreshold: per(25, time.Second), BurstTime: 4 * time.Second},
		{Algorithm: jatah.TokenBucket, Rates: []jatah.Rate{per(100, time.Second), per(500, 10*time.Second)}},
		{Algorithm: jatah.FixedWindow, Rates: []jatah.Rate{per(60, time.Second), per(400, 10*time.Second)}},
	}
}

// ruleName names a limit's rule in a test.
func ruleName(l jatah.Limit) string {
	name := l.Algorithm
	switch {
	case l.Queue > 0:
		name += " queue"
	case len(l.Rates) > 1:
		name += " of several rates"
	case l.Calendar != "":
		name += " " + l.Calendar
	}
	return name
}

// alone counts what one exact meter admits that is asked for a token at the load, evenly, from one time of the bubble until another.
func (b *bubble) alone(from, to time.Duration, load float64) (n int64) {
	m := b.alg.New()
	for at := from; at < to; at += time.Duration(float64(time.Second) / load) {
		if m.Advance(b.begin.UnixNano()+int64(at), 1, 0); m.Free() >= 1 {
			m.Use(1, 0)
			n++
		}
	}
	return n
}

// Every rule lets nothing more through on three nodes than on one, and under an overload nearly as much, wherever the load is. In
// split mode too, as long as the load is everywhere.
func TestEveryRuleIsKeptAndUsedUpOnThreeNodes(t *testing.T) {
	for _, limit := range append(rules(), jatah.Limit{Algorithm: jatah.FixedWindow, Rate: jatah.Per(300, time.Hour), Calendar: "hour"}) {
		for i, mode := range []jatah.Mode{jatah.Hybrid, jatah.Strict, jatah.Split} {
			limit.Name, limit.Mode = "api", mode
			t.Run(ruleName(limit)+"/"+mode.String(), func(t *testing.T) {
				inBubble(t, 1, limit, 1, func(b *bubble) {
					if limit.Calendar != "" { // the load meets the end of an hour
						time.Sleep(time.Hour - 11*time.Second)
					}
					b.start(3)
					time.Sleep(limit.BurstTime) // shares that came do not count as used any more
					if limit.Algorithm == jatah.FixedWindow && limit.Calendar == "" && len(limit.Rates) == 0 {
						time.Sleep(limit.Rate.Per - time.Duration(time.Now().UnixNano())%limit.Rate.Per) // whole windows
					}
					if i == 1 { // nearly all of the load is on one node
						b.hosts[1].weight, b.hosts[2].weight = 0.1, 0.1
					}
					b.generate()
					load, key := 4*max(perSecond(limit), 30), b.keys[0]
					begin, before := b.now(), b.admitted(b.keys[0])
					b.offer(load)
					time.Sleep(12 * time.Second)
					b.offer(0)
					end := b.now()
					time.Sleep(time.Second)
					// An overload is refused in memory for some milliseconds at a time. What depends on when it was used, as averages
					// and weighted windows do, loses by that.
					least := map[string]float64{jatah.SlidingWindow: 0.93, jatah.BurstAverage: 0.88}[limit.Algorithm]
					if least == 0 {
						least = 0.97
					}
					got, want := b.admitted(key)-before, b.alone(begin, end, load)
					if float64(got) < least*float64(want) {
						t.Errorf("%d passed, one node alone lets %d through", got, want)
					}
					if x := b.excess(); x > tolerance {
						t.Errorf("%v too many passed", x)
					}
					if b.slowest > longestDecision {
						t.Errorf("a decision took %v", b.slowest)
					}
				})
			})
		}
	}
}

// drawRule is draw with another rule than a token bucket.
func drawRule(seed uint64) schedule {
	s, rng := draw(seed, memberFaults), rand.New(rand.NewPCG(seed, 3))
	all := rules()
	l := all[rng.IntN(len(all))]
	l.Name, l.Mode, l.Fallback = "api", s.limit.Mode, s.limit.Fallback
	s.limit = l
	return s
}

// Whatever happens to the members, a rule lets no more through than its capacity once per event with fallback share, and nothing with
// fallback wait; and when it is over everything is as it was.
func TestNoRuleLetsMoreThroughWhateverHappens(t *testing.T) {
	for i := range (count(1) + 2) / 3 {
		drawRule(*firstSeed + i).check(t)
	}
}

// departures collects when requests that a queue let through may depart.
type departures struct {
	mu sync.Mutex
	at []time.Duration
}

func (d *departures) add(at time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.at = append(d.at, at)
}

// A queue that is asked through three nodes spaces departures over all of them, never two in the same slot, and refuses what would
// wait for longer than it may.
func TestQueueSpacesDeparturesOverAllNodes(t *testing.T) {
	const interval, places = 20 * time.Millisecond, 25
	limit := jatah.Limit{Name: "api", Algorithm: jatah.LeakyBucket, Rate: jatah.PerSecond(50), Queue: places}
	inBubble(t, 1, limit, 1, func(b *bubble) {
		b.start(3)
		var out departures
		b.notable = func(h *host, _ string, d jatah.Decision) {
			if d.OK {
				if d.Delay > places*interval {
					t.Errorf("%s: a delay of %v", h.name, d.Delay)
				}
				out.add(b.now() + d.Delay)
			}
		}
		b.generate()
		b.offer(200)
		time.Sleep(10 * time.Second)
		b.offer(0)
		time.Sleep(time.Second)
		slices.Sort(out.at)
		if n := len(out.at); n < 490 {
			t.Errorf("only %d departed in 10 s", n)
		}
		// The owner says how long after its answer; the answer is under way for up to 0.7 ms.
		const jitter = 800 * time.Microsecond
		for i, at := range out.at[1:] {
			if gap := at - out.at[i]; gap < interval-jitter {
				t.Errorf("departure %d is %v after the one before", i+1, gap)
			}
		}
	})
}

// Many requests for a queue in one call depart one after the other, in their order.
func TestBatchThroughQueueDepartsInOrder(t *testing.T) {
	limit := jatah.Limit{Name: "api", Algorithm: jatah.LeakyBucket, Rate: jatah.PerSecond(50), Queue: 25}
	inBubble(t, 1, limit, 1, func(b *bubble) {
		b.start(3)
		for _, h := range b.hosts {
			var reqs []jatah.Request
			for range 40 {
				reqs = append(reqs, jatah.Request{Limit: "api", Key: "batch" + h.name, Cost: 1})
			}
			for i, d := range h.node().Batch(b.t.Context(), reqs) {
				switch {
				case d.Err != nil || d.OK != (i < 26):
					t.Errorf("%s: request %d of 40 through a queue of 25 and one that departs: %+v", h.name, i, d)
				case d.OK && (d.Delay < time.Duration(i)*20*time.Millisecond-time.Millisecond || d.Delay > time.Duration(i)*20*time.Millisecond):
					t.Errorf("%s: request %d departs after %v", h.name, i, d.Delay)
				case !d.OK && (d.RetryAfter <= 0 || d.RetryAfter > 40*20*time.Millisecond):
					t.Errorf("%s: request %d: %+v", h.name, i, d)
				}
			}
		}
	})
}

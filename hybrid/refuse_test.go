package hybrid

import (
	"fmt"
	"testing"
	"time"

	"github.com/jatah-io/jatah/bucket"
)

func modes(t *testing.T, f func(t *testing.T, m Mode)) {
	for _, m := range []Mode{Hybrid, Strict} {
		t.Run(m.String(), func(t *testing.T) { f(t, m) })
	}
}

// TestRefusedFloodOfASlowKeyCostsNothing: ten thousand refused requests cause not one message: the same world without them
// sends as many.
func TestRefusedFloodOfASlowKeyCostsNothing(t *testing.T) {
	modes(t, func(t *testing.T, m Mode) {
		flood := func(perMs int) int {
			s := Spec{Name: "api", Rate: bucket.Per(5, time.Hour), Burst: 5, Mode: m}
			w := quiet(t, 3, 0, s)
			n := w.others("k")[0]
			if ok := n.takes("k", 100); ok != 5 {
				t.Fatalf("%d requests passed, 5 should", ok)
			}
			w.rest()
			before := w.messages
			for range 1000 {
				for range perMs {
					if d, p := n.limit.Begin("k", 1); p != nil || d.OK {
						t.Fatalf("a request was not refused in memory: %+v", d)
					}
				}
				w.sleep(ms)
			}
			return w.messages - before
		}
		if idle, flooded := flood(0), flood(10); flooded != idle {
			t.Errorf("10 000 refused requests: %d messages, without them %d", flooded, idle)
		}
	})
}

// TestRefusedFloodOfAFastKeyIsPaced: where a token comes every 100 ms, a flood of refused requests asks for each of them, and
// else once in min(tick, b/(4r)) at most.
func TestRefusedFloodOfAFastKeyIsPaced(t *testing.T) {
	modes(t, func(t *testing.T, m Mode) {
		s := testSpec(10, 10)
		s.Mode = m
		w := quiet(t, 3, 0, s)
		n := w.others("k")[0]
		n.takes("k", 100)
		before, denied, passed := n.asks(), 0, 0
		for range 1000 {
			for range 10 {
				if d := n.ask("k", 1); d.OK {
					passed++
				} else {
					denied++
				}
			}
			w.sleep(ms)
		}
		asks := n.asks() - before
		t.Logf("%d refused, %d passed, %d asks", denied, passed, asks)
		if seconds := float64(w.now-sec) / float64(sec); denied < 9900 || float64(asks) > 10*seconds+float64(passed)+2 {
			t.Errorf("%d requests were refused, %d passed, and %d asks were sent within %.1f s", denied, passed, asks, seconds)
		}
	})
}

// TestDeniedCostOfFiveDoesNotRefuseCostOfOne: a denial says how much is there, so a cheaper request is not refused by it.
func TestDeniedCostOfFiveDoesNotRefuseCostOfOne(t *testing.T) {
	modes(t, func(t *testing.T, m Mode) {
		s := Spec{Name: "api", Rate: bucket.Per(1, time.Minute), Burst: 5, Mode: m}
		w := quiet(t, 3, 0, s)
		for _, n := range []*simNode{w.others("k")[0], w.owner("k")} {
			key := "k" + n.name
			n.ask(key, 3)
			d := n.ask(key, 5)
			if d.OK || d.RetryAfter > 3*time.Minute || d.RetryAfter < 3*time.Minute-time.Second {
				t.Errorf("%s: 5 of 2 tokens: %+v", n.name, d)
			}
			for i := range 2 {
				if d := n.ask(key, 1); !d.OK {
					t.Errorf("%s: token %d of the 2 left: %+v", n.name, i+1, d)
				}
			}
			if d := n.ask(key, 1); d.OK {
				t.Errorf("%s: there are no tokens left: %+v", n.name, d)
			}
		}
	})
}

// TestNewsLiftsADenial: what makes tokens appear at the owner is told, at the next tick, to a node that was denied.
func TestNewsLiftsADenial(t *testing.T) {
	for _, m := range []Mode{Hybrid, Strict} {
		for _, x := range []struct {
			name string
			cost int64 // denied
			then int64 // what passes once the news is there
			do   func(w *world, by *simNode)
		}{
			{"refund", 1, 1, func(w *world, by *simNode) { by.refund("k", 2) }},
			{"refund of a part", 5, 2, func(w *world, by *simNode) { by.refund("k", 2) }},
			{"reset", 5, 5, func(w *world, by *simNode) {
				st := by.adjust("k", 0, 0)
				by.refund("k", w.spec.Burst-st.Remaining)
			}},
			{"raised rate", 1, 1, func(w *world, by *simNode) {
				s := w.spec
				s.Rate = bucket.Per(1000, time.Second)
				w.define(s)
			}},
		} {
			t.Run(fmt.Sprintf("%v/%s", m, x.name), func(t *testing.T) {
				s := slow(5)
				s.Mode = m
				w := quiet(t, 3, 0, s)
				denied, by := w.others("k")[0], w.others("k")[1]
				denied.takes("k", 5)
				w.rest()
				if d := denied.ask("k", x.cost); d.OK {
					t.Fatalf("5 of 5 are used: %+v", d)
				}
				x.do(w, by)
				w.sleep(tick + tick/10 + roundTrip)
				if d := denied.ask("k", x.then); !d.OK {
					t.Errorf("a tick later: %+v", d)
				}
			})
		}
	}
}

// TestRaisedRateIsToldWhenTheOwnerLearnsOfItLast: the node that was denied knows the new rate already, and is denied again by an
// owner that does not. A token that comes in two seconds must not be waited for a hundred days.
func TestRaisedRateIsToldWhenTheOwnerLearnsOfItLast(t *testing.T) {
	modes(t, func(t *testing.T, m Mode) {
		s := slow(5)
		s.Mode = m
		w := quiet(t, 3, 0, s)
		n := w.others("k")[0]
		n.takes("k", 5)
		w.rest()
		s.Rate = bucket.Per(30, time.Minute)
		n.define(s)
		if d := n.ask("k", 1); d.OK {
			t.Fatalf("5 of 5 are used: %+v", d)
		}
		w.sleep(sec / 2)
		w.owner("k").define(s)
		w.sleep(2*sec + 2*tick)
		if d := n.ask("k", 1); !d.OK {
			t.Errorf("2.2 s after the owner learned of a token every 2 s: %+v", d)
		}
	})
}

// TestRetryAfterIsHonest: the same request passes after that time if nothing else came, and not before.
func TestRetryAfterIsHonest(t *testing.T) {
	for _, m := range []Mode{Hybrid, Strict} {
		for _, rate := range []bucket.Rate{bucket.Per(7, time.Second), bucket.Per(1, 3*time.Second), bucket.Per(100, time.Minute), bucket.Per(50, time.Second)} {
			t.Run(fmt.Sprintf("%v/%v", m, rate), func(t *testing.T) {
				s := Spec{Name: "api", Rate: rate, Burst: 9, Mode: m}
				w := quiet(t, 3, 0, s)
				for _, n := range []*simNode{w.others("k")[0], w.owner("k"), w.others("k")[1]} {
					for cost := int64(1); cost <= 9; cost += 2 {
						n.takes("k", 50)
						w.sleep(sec / 10) // the denial of an overload stands for a tick at most
						d := n.ask("k", cost)
						if d.OK {
							continue // tokens came meanwhile
						}
						pool, _ := w.balance("k")
						if credit := n.credit("k"); credit > 0 {
							pool += float64(credit)
						}
						exact := s.fill(float64(cost) - pool)
						if d.RetryAfter < exact-time.Duration(roundTrip) || d.RetryAfter > exact+time.Duration(roundTrip) {
							t.Errorf("%s, cost %d: should wait %v: %+v", n.name, cost, exact, d)
						}
						w.sleep(int64(d.RetryAfter))
						if again := n.ask("k", cost); !again.OK {
							t.Errorf("%s, cost %d: refused with %+v, and after that time with %+v", n.name, cost, d, again)
						}
						w.sleep(2 * tick) // until the owner has heard that this was spent, the pool waits for it
					}
				}
			})
		}
	}
}

// TestWhatCanNeverPassAndWhatTakesNothing in every mode.
func TestWhatCanNeverPassAndWhatTakesNothing(t *testing.T) {
	for _, m := range []Mode{Hybrid, Strict, Split} {
		t.Run(m.String(), func(t *testing.T) {
			s := slow(30)
			s.Mode = m
			w := quiet(t, 3, 0, s)
			for _, n := range w.nodes {
				if d := n.ask("k", 31); d.OK || d.RetryAfter != bucket.Never || d.Err != nil {
					t.Errorf("%s: above the burst: %+v", n.name, d)
				}
				if d := n.ask("k", -1); d.OK || d.RetryAfter != bucket.Never || d.Err == nil {
					t.Errorf("%s: negative: %+v", n.name, d)
				}
				for range 50 {
					if d := n.ask("k", 0); !d.OK || d.Err != nil || m != Split && d.Remaining != 30 {
						t.Fatalf("%s: a look: %+v", n.name, d)
					}
				}
				st := n.e.Stats()
				if st.Accounts+st.Ledgers+st.Buckets != 0 {
					t.Errorf("%s: looks left %d accounts, %d ledgers and %d buckets", n.name, st.Accounts, st.Ledgers, st.Buckets)
				}
			}
			sum := 0
			for _, n := range w.nodes {
				sum += n.takes("k", 100)
			}
			if sum != 30 {
				t.Errorf("%d passed of 30", sum)
			}
			s.Rate, s.Burst = bucket.Rate{}, 0
			w.define(s)
			for _, n := range w.nodes {
				if d := n.ask("k", 1); d.OK || d.RetryAfter != bucket.Never || d.Err != nil {
					t.Errorf("%s: rate 0: %+v", n.name, d)
				}
			}
		})
	}
}

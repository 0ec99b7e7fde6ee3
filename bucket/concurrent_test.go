package bucket

import (
	"math/rand/v2"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// together runs f in n goroutines and waits for them.
func together(n int, f func(i int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { f(i) })
	}
	wg.Wait()
}

func TestFrozenTimeAdmitsExactlyABurst(t *testing.T) {
	for _, burst := range []int64{1, 7, 10_000} {
		b := New(params(t, "65535/s", burst))
		var admitted atomic.Int64
		together(16, func(i int) {
			for range 2000 {
				if n := int64(1 + i%3); b.Take(sec, n).OK {
					admitted.Add(n)
				}
			}
			for b.Take(sec, 1).OK {
				admitted.Add(1)
			}
		})
		if admitted.Load() != burst {
			t.Errorf("%d of %d admitted", admitted.Load(), burst)
		}
	}
}

// Time advances while goroutines that never tire take, each with the time it read a moment ago.
func TestAdvancingTimeAdmitsExactlyTheRate(t *testing.T) {
	for _, rate := range []string{"7/s", "65535/s", "1000000/s"} {
		p := params(t, rate, 50)
		b := New(p)
		var admitted, clock atomic.Int64
		burst := func(now int64) {
			for b.Take(now, 1).OK {
				admitted.Add(1)
			}
		}
		burst(0) // never full again, so nothing is lost at the brim
		step := int64(p.FillTime()) / 20
		const steps = 3000
		together(8, func(int) {
			for clock.Load() < steps*step {
				now := clock.Load()
				if rand.IntN(4) == 0 {
					runtime.Gosched()
				}
				burst(now)
				clock.CompareAndSwap(now, now+step)
			}
			burst(clock.Load())
		})
		w := newTwin(p.rate, 1, 1, p.burst)
		w.burst = 1 << 60
		if want := floor(w.at(clock.Load())); admitted.Load() != want {
			t.Errorf("%s: %d admitted in %v, want %d", rate, admitted.Load(), time.Duration(clock.Load()), want)
		}
	}
}

// TestChangesUnderTakersLoseNothing checks that what was taken and what is left add up, at a frozen
// time, while the limit changes: the bursts never cut what is left, and a raise must not give any.
func TestChangesUnderTakersLoseNothing(t *testing.T) {
	const burst = 200_000
	limits := []*Params{
		params(t, "1000/s", burst), params(t, "7/s", burst+1), params(t, "65535/s", 10*burst),
		params(t, "0/s", burst), params(t, "1000000/s", burst),
	}
	tab := NewTable(limits[0], 0)
	now := 5 * sec
	// Keep the key in the table: a forgotten full key would start with the burst of the moment.
	tab.Take("k", now, 1)
	var taken, done atomic.Int64
	taken.Store(1)
	changer := func() {
		for i := 0; done.Load() < 6; i++ {
			tab.SetParams(limits[i%len(limits)], now)
			runtime.Gosched()
		}
	}
	together(7, func(i int) {
		if i == 6 {
			changer()
			return
		}
		defer done.Add(1)
		mine := int64(0)
		for range 15_000 {
			switch rand.IntN(8) {
			case 0:
				tab.Charge("k", now, 2)
				mine += 2
			case 1:
				if mine >= 1 {
					tab.Refund("k", now, 1)
					mine--
				}
			case 2:
				tab.Peek("k", now)
			default:
				if tab.Take("k", now, 1).OK {
					mine++
				}
			}
		}
		taken.Add(mine)
	})
	tab.SetParams(limits[0], now)
	e, ok := stored(tab, "k")
	if !ok {
		t.Fatal("forgotten")
	}
	left, ok := e.Tokens(now)
	if want := rat(burst - taken.Load()); !ok || left.Cmp(want) != 0 {
		t.Errorf("%s left, want %s", left, want)
	}
	consistent(t, tab)
}

// Shares of a key change with each take: what was taken and what is left add up.
func TestSharesUnderTakersLoseNothing(t *testing.T) {
	const burst = 20_000
	var shares []*Params
	for den := int64(1); den < 5; den++ {
		p, err := NewShare(Per(1000, time.Second), 1, den, burst)
		if err != nil {
			t.Fatal(err)
		}
		shares = append(shares, p)
	}
	tab := NewTable(shares[0], 0)
	var taken atomic.Int64
	together(4, func(i int) {
		for j := range 3000 {
			if tab.TakeWith("k", shares[(i+j/10)%4], sec, 1).OK {
				taken.Add(1)
			}
		}
	})
	if r := tab.PeekWith("k", shares[0], sec); r.Remaining != burst-taken.Load() {
		// Each conversion may round down by a part of a token.
		e, _ := stored(tab, "k")
		left, _ := e.Tokens(sec)
		if left.Cmp(rat(burst-taken.Load())) > 0 || left.Cmp(rat(burst-taken.Load()-1)) < 0 {
			t.Errorf("%s left after %d", left, taken.Load())
		}
	}
	consistent(t, tab)
}

// TestSweepUnderTakersLosesNothing refunds what it takes, so that keys are full again all the time
// and are forgotten under the hands of takers, by the sweeper and by new keys that need room. At a
// frozen time what is held and what is left add up to a burst.
func TestSweepUnderTakersLosesNothing(t *testing.T) {
	const burst, keys, hands = 20, 12, 6
	tab := NewTable(params(t, "5/s", burst), 8)
	now := 3 * sec
	var held [keys]atomic.Int64
	var done atomic.Int64
	together(hands+1, func(i int) {
		if i == hands {
			for done.Load() < hands {
				tab.Sweep(now, 3)
				runtime.Gosched()
			}
			return
		}
		defer done.Add(1)
		var mine [keys]int64
		rnd := rand.New(rand.NewPCG(uint64(i), 9))
		for range 15_000 {
			k := rnd.IntN(keys)
			key := strconv.Itoa(k)
			if n := 1 + rnd.Int64N(5); mine[k] == 0 {
				if r := tab.Take(key, now, n); r.OK {
					mine[k] = n
					if held[k].Add(n) > burst {
						t.Errorf("more than a burst of %s is held", key)
					}
				}
			} else {
				held[k].Add(-mine[k])
				if r := tab.Refund(key, now, mine[k]); !r.OK {
					t.Errorf("%+v", r)
				}
				mine[k] = 0
			}
		}
	})
	for k := range held {
		if r := tab.Peek(strconv.Itoa(k), now); r.Remaining != burst-held[k].Load() {
			t.Errorf("key %d: %d left, %d held", k, r.Remaining, held[k].Load())
		}
	}
	consistent(t, tab)
}

// TestTableUnderEverything lets all methods loose on few keys and checks that the parts of the
// table agree afterwards.
func TestTableUnderEverything(t *testing.T) {
	limits := []*Params{params(t, "1000/s", 10), params(t, "100000/s", 5), params(t, "1/min", 3), params(t, "0/s", 3)}
	share, err := NewShare(Per(1000, time.Second), 1, 3, 3)
	if err != nil {
		t.Fatal(err)
	}
	tab := NewTable(limits[0], 20)
	var clock atomic.Int64
	together(6, func(i int) {
		rnd := rand.New(rand.NewPCG(uint64(i), 7))
		for range 8000 {
			now := clock.Add(rnd.Int64N(ms / 10))
			key := strconv.Itoa(rnd.IntN(40))
			switch rnd.IntN(40) {
			case 0:
				tab.SetParams(limits[rnd.IntN(4)], now)
			case 1:
				tab.Reset(key)
			case 2:
				tab.Sweep(now, 4)
			case 3:
				tab.Charge(key, now, 3)
			case 4, 5:
				tab.Refund(key, now, 3)
			case 6:
				tab.TakeWith(key, share, now, 1)
			default:
				if r := tab.Take(key, now, 1+rnd.Int64N(3)); r.Sealed || r.Remaining < 0 {
					t.Errorf("%+v", r)
				}
			}
		}
	})
	consistent(t, tab)
}

// TestFloodFromManyGoroutines: a table full of refused keys, and new ones from everywhere.
func TestFloodFromManyGoroutines(t *testing.T) {
	const known = 500
	tab := NewTable(params(t, "1/min", 2), known)
	for i := range known {
		tab.Take("known"+strconv.Itoa(i), 0, 2)
	}
	together(8, func(i int) {
		for j := range 20_000 {
			if r := tab.Take(strconv.Itoa(i)+"/"+strconv.Itoa(j), int64(j), 1); r.OK || !r.Overflow {
				t.Errorf("%+v", r)
			}
			if r := tab.Take("known"+strconv.Itoa(j%known), int64(j), 1); r.OK || r.Overflow {
				t.Errorf("%+v", r)
			}
		}
	})
	if s := tab.Stats(); s.Overflows != 160_000 || s.Entries != known {
		t.Errorf("%+v", s)
	}
	consistent(t, tab)
}

func TestOneKeyIsMadeOnce(t *testing.T) {
	for i := range 200 {
		tab := NewTable(params(t, "1/min", 5), 1)
		var admitted, over atomic.Int64
		together(4, func(int) {
			for range 3 {
				r := tab.Take("k", sec, 1)
				if r.OK {
					admitted.Add(1)
				}
				if r.Overflow {
					over.Add(1)
				}
			}
		})
		if admitted.Load() != 5 || over.Load() > 0 || tab.Len() != 1 {
			t.Fatalf("round %d: %d admitted, %d overflows, %d keys", i, admitted.Load(), over.Load(), tab.Len())
		}
	}
}

// TestConvertUnderTakers is the race that Convert describes, without a table around it: takers
// hammer on a chain of buckets while its last link is converted over and over.
func TestConvertUnderTakers(t *testing.T) {
	const burst = 1 << 40
	ps := []*Params{params(t, "1000000/s", burst), params(t, "3000000000/s", burst)}
	var cur atomic.Pointer[Bucket]
	cur.Store(New(ps[0]))
	var taken, done atomic.Int64
	together(4, func(i int) {
		if i == 0 {
			for j := 1; done.Load() < 3; j++ {
				next, ok := cur.Load().Convert(ps[j&1], sec)
				if !ok {
					t.Error("converted by somebody else")
				}
				cur.Store(next)
			}
			return
		}
		defer done.Add(1)
		for n := 0; n < 300_000; {
			if r := cur.Load().Take(sec, 1); r.OK {
				n++
			} else if !r.Sealed {
				t.Errorf("%+v", r)
			}
		}
		taken.Add(300_000)
	})
	left, ok := cur.Load().Tokens(sec)
	if want := rat(burst - taken.Load()); !ok || left.Cmp(want) != 0 {
		t.Errorf("%s left, want %s", left, want)
	}
}

// TestSealUnderTakers seals a bucket whenever it is full, as sweeping does, and puts a new one in
// its place, while takers take a token and give it back. As long as somebody holds a token the
// bucket is not full, and must not be sealed.
func TestSealUnderTakers(t *testing.T) {
	p := params(t, "1/s", 3)
	var cur atomic.Pointer[Bucket]
	cur.Store(New(p))
	var done atomic.Int64
	together(4, func(i int) {
		if i == 0 {
			for done.Load() < 3 {
				if cur.Load().seal(sec) {
					cur.Store(New(p))
				}
			}
			return
		}
		defer done.Add(1)
		for range 150_000 {
			b := cur.Load()
			if !b.Take(sec, 1).OK {
				continue
			}
			if r := b.Refund(sec, 1); !r.OK {
				t.Errorf("a bucket was sealed while a token was out: %+v", r)
			}
		}
	})
}

// A request that finds an entry of before a change converts it as of the time of the change.
func TestLateConversionCountsFromTheChange(t *testing.T) {
	tab := NewTable(params(t, "1/s", 100), 0)
	tab.Take("k", 0, 100)
	// What SetParams does before it walks.
	p := params(t, "10/s", 100)
	tab.params.leave(tab.limit.Load().number)
	tab.limit.Store(&limit{p: p, number: tab.params.use(p), since: 10 * sec})
	if r := tab.Take("k", 12*sec, 1); r.Remaining != 10+20-1 {
		t.Errorf("%+v", r)
	}
	consistent(t, tab)
}

package bucket

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func TestALiveChangeOfAWindowKeepsWhatWasUsed(t *testing.T) {
	table := NewMeterTable(mustCompile(t, specMinute("fixed_window", 100)), 0)
	if r := table.Take("k", t0+10*second, 40); !r.OK || r.Remaining != 60 || r.ResetAfter != 50*time.Second {
		t.Errorf("40 of 100: %+v", r)
	}
	table.SetAlgorithm(mustCompile(t, specMinute("fixed_window", 10)), t0+20*second)
	if r := table.Take("k", t0+20*second, 1); r.OK || r.Remaining != 0 || r.RetryAfter != 40*time.Second {
		t.Errorf("limit 10: %+v", r)
	}
	table.SetAlgorithm(mustCompile(t, specMinute("fixed_window", 50)), t0+30*second)
	if r := table.Take("k", t0+30*second, 1); !r.OK || r.Remaining != 9 {
		t.Errorf("limit 50: %+v", r)
	}
}

func TestALiveChangeOfABucketKeepsItsTokens(t *testing.T) {
	table := NewMeterTable(mustCompile(t, specMinute("token_bucket", 100)), 0)
	want := func(ok bool, remaining int64) {
		t.Helper()
		if r := table.Take("k", t0, 1); r.OK != ok || r.Remaining != remaining {
			t.Errorf("%+v", r)
		}
	}
	want(true, 99)
	table.SetAlgorithm(mustCompile(t, specMinute("token_bucket", 10)), t0)
	want(true, 9)
	table.SetAlgorithm(mustCompile(t, specMinute("token_bucket", 1000)), t0)
	want(true, 8)
}

func TestAChangeOfTheAlgorithmCarriesUsageOver(t *testing.T) {
	rnd := source(t)
	table := func(s Spec) *Algorithm {
		s.Rates = []Rate{Per(100, time.Minute)}
		return mustCompile(t, s)
	}
	all := []*Algorithm{
		table(Spec{}), table(Spec{Algorithm: "fixed_window"}), table(Spec{Algorithm: "sliding_window"}), table(Spec{Algorithm: "sliding_log"}),
		table(Spec{Algorithm: "leaky_bucket", Queue: 99}),
		table(Spec{Algorithm: "burst_average", Burst: 100, BurstRate: Per(10, time.Second), BurstThreshold: Per(1, time.Second), BurstTime: time.Minute}),
		mustCompile(t, Spec{Algorithm: "fixed_window", Rates: []Rate{Per(100, time.Minute), Per(1000, time.Hour)}}),
	}
	for _, from := range all {
		for _, to := range all {
			used := 1 + rnd.Int64N(99)
			m := from.New()
			m.Advance(t0, 1, 0)
			m.Use(float64(used), 0)
			if got := Resize(m, to).Free(); got != float64(100-used) {
				t.Errorf("%d used: from %s to %s %v are free", used, from.spec.Algorithm, to.spec.Algorithm, got)
			}
			m = from.New()
			m.Advance(t0, 1, 0)
			m.Use(30, 30) // as credit
			next := Resize(m, to)
			next.Use(10, 30)
			if got := next.Free(); got != 60 || next.at().out != 30 {
				t.Errorf("30 out: from %s to %s %v are free", from.spec.Algorithm, to.spec.Algorithm, got)
			}
		}
	}
	small := mustCompile(t, Spec{Rates: []Rate{Per(10, time.Second)}})
	m := all[1].New()
	m.Advance(t0, 1, 0)
	m.Use(90, 0)
	if got := Resize(m, small).Free(); got != 0 {
		t.Errorf("90 used of a window leave a bucket of 10 with %v", got)
	}
}

func TestSeveralRatesAllOrNothing(t *testing.T) {
	for _, rates := range [][]Rate{
		{Per(10, time.Minute), Per(30, 30*time.Minute)},
		{Per(30, 30*time.Minute), Per(10, time.Minute)},
	} {
		m := mustCompile(t, Spec{Algorithm: "fixed_window", Rates: rates}).New()
		left := func(per time.Duration) float64 {
			for _, x := range m.(*multiMeter).meters {
				if x.(*fixedWindow).rule.windows == epochWindows(per) {
					return x.Free()
				}
			}
			return math.NaN()
		}
		allowed := 0
		for i := range int64(31) {
			allowed += spendMany(m, t0+i*second, 1)
		}
		if allowed != 10 || left(30*time.Minute) != 20 {
			t.Errorf("%d pass, %v of the half hour left", allowed, left(30*time.Minute))
		}
		if w := m.Wait(1); w != 30*time.Second {
			t.Errorf("wait %v", w)
		}
		if !spend(m, t0+60*second, 1) || left(time.Minute) != 9 || left(30*time.Minute) != 19 {
			t.Errorf("%v of the minute left, %v of the half hour", left(time.Minute), left(30*time.Minute))
		}
	}
}

// TestManyGoroutinesTakeNoMoreThanTheLimit counts what passes in one window.
func TestManyGoroutinesTakeNoMoreThanTheLimit(t *testing.T) {
	for _, s := range []Spec{
		{Algorithm: "fixed_window", Rates: []Rate{Per(1000, time.Minute), Per(700, time.Hour)}},
		specMinute("sliding_log", 700), specMinute("sliding_window", 700), specMinute("token_bucket", 700),
	} {
		table := NewMeterTable(mustCompile(t, s), 0)
		var passed atomic.Int64
		var wg sync.WaitGroup
		for range 64 {
			wg.Go(func() {
				for range 50 {
					if table.Take("k", t0, 1).OK {
						passed.Add(1)
					}
				}
			})
		}
		wg.Wait()
		if passed.Load() != 700 {
			t.Errorf("%s: %d pass", s.Algorithm, passed.Load())
		}
	}
}

func TestTheTableAnswersLikeATokenBucket(t *testing.T) {
	rnd := source(t)
	for range 100 {
		r := Per(1+rnd.Int64N(7), time.Second)
		burst := 1 + rnd.Int64N(30)
		p, err := NewParams(r, burst)
		if err != nil {
			t.Fatal(err)
		}
		tokens := NewTable(p, 0)
		meters := NewMeterTable(mustCompile(t, Spec{Rates: []Rate{r}, Burst: burst}), 0)
		now := t0
		for range 100 {
			now += rnd.Int64N(2 * second) // a meter's time also moves with denials, so never back here
			n := rnd.Int64N(burst+3) - 1
			var a, b Result
			o := rnd.IntN(8)
			switch o {
			case 0:
				a, b = tokens.Refund("k", now, n), meters.Refund("k", now, n)
			case 1:
				a, b = tokens.Charge("k", now, n), meters.Charge("k", now, n)
			default:
				a, b = tokens.Take("k", now, n), meters.Take("k", now, n)
			}
			if a != b {
				t.Fatalf("%s burst %d at %d: operation %d of %d: %+v, want %+v", r, burst, now, o, n, b, a)
			}
		}
	}
}

func TestTheTableStoresOnlyWhatItMust(t *testing.T) {
	table := NewMeterTable(mustCompile(t, specMinute("fixed_window", 10)), 0)
	for name, r := range map[string]Result{
		"look": table.Peek("a", t0), "cost 0": table.Take("a", t0, 0), "too much": table.Take("a", t0, 11),
		"negative": table.Take("a", t0, -1), "refund": table.Refund("a", t0, 5),
	} {
		want := name != "too much" && name != "negative"
		if r.OK != want || r.Remaining != 10 || !want && r.RetryAfter != Never {
			t.Errorf("%s: %+v", name, r)
		}
	}
	if table.Len() != 0 {
		t.Errorf("%d keys are stored", table.Len())
	}
	table.Take("a", t0, 3)
	table.Charge("b", t0, 30)
	if r := table.Peek("b", t0); r.OK || r.RetryAfter != time.Minute || r.Remaining != 0 {
		t.Errorf("in debt: %+v", r)
	}
	if r := table.Refund("a", t0, 100); r.Remaining != 10 {
		t.Errorf("refund: %+v", r)
	}
	table.Reset("b")
	if r := table.Take("b", t0, 10); !r.OK {
		t.Errorf("after a reset: %+v", r)
	}
	if n := table.Sweep(t0, 0); n != 1 || table.Len() != 1 {
		t.Errorf("%d swept, %d left", n, table.Len())
	}
	if n := table.Sweep(t0+60*second, 0); n != 1 || table.Len() != 0 {
		t.Errorf("%d swept, %d left", n, table.Len())
	}
	if r := table.Take("b", t0+59*second, 10); !r.OK || r.ResetAfter != 61*time.Second {
		t.Errorf("behind what was forgotten: %+v", r)
	}
}

func TestADenyAllTableDeniesEvenALook(t *testing.T) {
	for _, name := range Algorithms() {
		if name == "burst_average" || name == "concurrency" { // they have no rate of 0
			continue
		}
		table := NewMeterTable(mustCompile(t, Spec{Algorithm: name, Rates: []Rate{{}}}), 0)
		for n := range int64(2) {
			if r := table.Take("k", t0, n); r != (Result{RetryAfter: Never}) {
				t.Errorf("%s: take of %d: %+v", name, n, r)
			}
		}
	}
}

func TestAFullMeterTableRefusesNewKeysOnly(t *testing.T) {
	const bound = 200
	table := NewMeterTable(mustCompile(t, specMinute("sliding_log", 10)), bound)
	for i := range bound {
		if r := table.Take(fmt.Sprint(i), t0, 10); !r.OK {
			t.Fatalf("%d: %+v", i, r)
		}
	}
	for i := range 1000 {
		if r := table.Take(fmt.Sprint("new", i), t0+second, 1); r.OK || !r.Overflow || r.RetryAfter <= 0 {
			t.Fatalf("%+v", r)
		}
	}
	if r := table.Take("7", t0+second, 1); r.OK || r.Overflow {
		t.Errorf("a known key: %+v", r)
	}
	for i := range 1000 { // all are fresh by now
		if r := table.Take(fmt.Sprint("new", i), t0+60*second+int64(i)*second, 1); !r.OK {
			t.Fatalf("%d: %+v", i, r)
		}
	}
	if s := table.Stats(); s.Entries > bound || s.Overflows != 1000 || s.Evictions+s.Swept < 800 {
		t.Errorf("%+v", s)
	}
}

func TestKeysWithSharesOfTheirOwn(t *testing.T) {
	whole := mustCompile(t, specMinute("fixed_window", 10))
	third, _ := whole.Share(3, 0)
	half, _ := whole.Share(2, 0)
	table := NewMeterTable(whole, 0)
	for i := range 5 {
		if r := table.TakeWith("k", third, t0, 1); r.OK != (i < 4) {
			t.Errorf("%d: %+v", i, r)
		}
	}
	table.SetAlgorithm(mustCompile(t, specMinute("fixed_window", 1)), t0)
	if r := table.TakeWith("k", half, t0, 1); !r.OK || r.Remaining != 0 {
		t.Errorf("half: %+v", r)
	}
	if r := table.PeekWith("k", half, t0); r.Remaining != 0 {
		t.Errorf("look: %+v", r)
	}
	if r := table.RefundWith("k", half, t0, 2); r.Remaining != 2 {
		t.Errorf("refund: %+v", r)
	}
	if r := table.ChargeWith("k", half, t0, 3); r.Remaining != 0 || r.RetryAfter != time.Minute {
		t.Errorf("charge: %+v", r)
	}
}

// TestAMeterTableUnderManyGoroutines takes, charges, sweeps and changes the limit at once, and checks
// that no more passes than the largest limit allows, and that all is forgotten in the end.
func TestAMeterTableUnderManyGoroutines(t *testing.T) {
	seed := source(t).Uint64()
	ten, five := mustCompile(t, specMinute("sliding_log", 10)), mustCompile(t, specMinute("sliding_log", 5))
	table := NewMeterTable(ten, 64)
	var clock atomic.Int64
	clock.Store(t0)
	var mu sync.Mutex
	type span struct{ from, to int64 } // the table took it at a time between
	passed := map[string][]span{}
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(seed, uint64(g)))
			for i := range 3000 {
				now := clock.Add(rnd.Int64N(second / 20))
				key := fmt.Sprint(rnd.IntN(100))
				switch rnd.IntN(200) {
				case 0:
					table.SetAlgorithm([]*Algorithm{ten, five}[i%2], now)
				case 1:
					table.Sweep(now, 20)
				default:
					if r := table.Take(key, now, 1); r.OK {
						mu.Lock()
						passed[key] = append(passed[key], span{now, clock.Load()})
						mu.Unlock()
					}
				}
				if n := table.Len(); n > 64 {
					t.Errorf("%d keys", n)
				}
			}
		})
	}
	wg.Wait()
	total := 0
	for key, at := range passed {
		slices.SortFunc(at, func(a, b span) int { return cmp.Compare(a.from, b.from) })
		total += len(at)
		for i := 10; i < len(at); i++ {
			to := at[i].to
			for _, s := range at[i-10 : i] {
				to = max(to, s.to)
			}
			if d := to - at[i-10].from; d < int64(time.Minute) {
				t.Errorf("%s: 11 within %v", key, time.Duration(d))
			}
		}
	}
	table.Sweep(clock.Load()+int64(time.Hour), 0)
	if table.Len() != 0 || total < 1000 {
		t.Errorf("%d keys left, %d passed", table.Len(), total)
	}
}

func TestDelaysComeWithTheResult(t *testing.T) {
	s := specMinute("leaky_bucket", 5)
	s.Queue = 5
	table := NewMeterTable(mustCompile(t, s), 0)
	for i := range 6 {
		if r := table.Take("k", t0, 1); !r.OK || r.Delay != time.Duration(i)*12*time.Second || r.Remaining != int64(5-i) {
			t.Errorf("%d: %+v", i, r)
		}
	}
	if r := table.Take("k", t0, 1); r.OK || r.RetryAfter != 12*time.Second || r.Delay != 0 {
		t.Errorf("%+v", r)
	}
}

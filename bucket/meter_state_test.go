package bucket

import (
	"errors"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
	"time"
)

// fuzzAlgorithms is one algorithm of each kind of state.
func fuzzAlgorithms(t testing.TB) []*Algorithm {
	return []*Algorithm{
		mustCompile(t, specMinute("token_bucket", 60)),
		mustCompile(t, specMinute("fixed_window", 60)),
		mustCompile(t, Spec{Algorithm: "fixed_window", Rates: []Rate{Per(60, day)}, Calendar: "day", Timezone: "Europe/Berlin"}),
		mustCompile(t, specMinute("sliding_window", 60)),
		mustCompile(t, Spec{Algorithm: "sliding_log", Rates: []Rate{Per(60, time.Minute)}, MaxLog: 4}),
		mustCompile(t, Spec{Algorithm: "leaky_bucket", Rates: []Rate{Per(60, time.Minute)}, Queue: 5}),
		mustCompile(t, Spec{Algorithm: "burst_average", Rates: []Rate{Per(2, time.Second)}, BurstRate: Per(8, time.Second), BurstThreshold: Per(1, time.Second), BurstTime: 16 * time.Second}),
		mustCompile(t, Spec{Algorithm: "token_bucket", Rates: []Rate{Per(60, time.Minute), Per(100, time.Hour)}}),
		mustCompile(t, concurrency(60)),
	}
}

// used returns a meter that has seen some life.
func used(a *Algorithm, rnd *rand.Rand) Meter {
	m := a.New()
	now, out := t0, 0.0
	for range 12 {
		m.Advance(now, float64(rnd.IntN(3))/2, out)
		now += rnd.Int64N(20 * second)
		n := float64(rnd.IntN(4))
		switch rnd.IntN(3) {
		case 0:
			out += n
			m.Use(n, out)
		case 1:
			m.Return(n, out)
		default:
			m.Use(n, out)
		}
	}
	return m
}

// FuzzLoad reads any bytes: they are refused and change nothing, or give a meter that works.
func FuzzLoad(f *testing.F) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for i, a := range fuzzAlgorithms(f) {
		f.Add(byte(i), a.New().State(nil), int64(t0))
		for range 3 {
			f.Add(byte(i), used(a, rnd).State(nil), t0+rnd.Int64N(int64(time.Hour)))
		}
	}
	f.Fuzz(func(t *testing.T, kind byte, b []byte, now int64) {
		now = max(now, 0)
		all := fuzzAlgorithms(t)
		a := all[int(kind)%len(all)]
		m := a.New()
		m.Advance(t0, 1, 0)
		m.Use(1, 0)
		before := m.State(nil)
		if err := m.Load(b, now); err != nil {
			if !errors.Is(err, ErrState) {
				t.Fatal(err)
			}
			if string(m.State(nil)) != string(before) {
				t.Fatal("a failed load changed the meter")
			}
			return
		}
		if !m.at().begun {
			return
		}
		works(t, a, m)
	})
}

// works uses a meter of unknown state in all ways.
func works(t *testing.T, a *Algorithm, m Meter) {
	t.Helper()
	for i := range 6 {
		for _, n := range []float64{0, 1, float64(a.Limit())} {
			w := m.Wait(n)
			if f := m.Free(); math.IsNaN(f) || math.Abs(f) > 4*maxDebt || w < 0 || m.Reset() < 0 || (f >= n) != (w == 0) {
				t.Fatalf("step %d: %v free, wait %v for %v, reset %v", i, f, w, n, m.Reset())
			}
			if now := m.at().now; w != Never && int64(w) < math.MaxInt64-now {
				c := m.clone()
				if c.Advance(now+int64(w), m.at().part, m.at().out); c.Free() < n {
					t.Fatalf("step %d: %v free after %v for %v", i, c.Free(), w, n)
				}
			}
		}
		again := a.New()
		if err := again.Load(m.State(nil), m.at().now); err != nil {
			t.Fatalf("step %d: it cannot read its own state: %v", i, err)
		}
		switch out := m.at().out; i {
		case 0:
			m.Use(3, out+3)
		case 1:
			m.Return(2, out-2)
		case 2:
			m.Advance(m.at().now+second, 0.5, out)
		case 3:
			m.Return(1, out)
		case 4:
			m.Advance(m.at().now+int64(min(m.Reset(), day)), 1, 0)
		}
	}
}

func TestLoadRefusesWhatCannotBe(t *testing.T) {
	all := fuzzAlgorithms(t)
	bucket, window := all[0], all[1]
	good := func(a *Algorithm) []byte {
		m := a.New()
		m.Advance(t0, 1, 0)
		m.Use(3, 0)
		return m.State(nil)
	}
	for name, b := range map[string][]byte{
		"nothing":   nil,
		"a version": append([]byte{9}, good(bucket)[1:]...),
		"a kind":    good(window),
		"the end":   good(bucket)[:len(good(bucket))-1],
		"more":      append(good(bucket), 0),
		"a flag":    append([]byte{1, kindBucket, 7}, good(bucket)[3:]...),
		"a part":    putFloats(putInt(putFloats([]byte{1, kindBucket, 1}, 1.5, 0), 0), 1, 1),
		"an amount": putFloats(putInt(putFloats([]byte{1, kindBucket, 1}, 1, math.NaN()), 0), 1, 1),
		"an age":    putFloats(putInt(putFloats([]byte{1, kindBucket, 1}, 1, 0), -5), 1, 1),
	} {
		if err := bucket.New().Load(b, t0); !errors.Is(err, ErrState) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestAStateIsReadByAnotherClock sends states to nodes whose clocks differ by a little, a lot, and by a window.
func TestAStateIsReadByAnotherClock(t *testing.T) {
	for _, name := range []string{"fixed_window", "sliding_window"} {
		a := mustCompile(t, specMinute(name, 60))
		m := a.New()
		m.Advance(t0+59*second, 1, 0)
		m.Use(60, 0)
		state := m.State(nil)
		free := func(now int64) float64 {
			t.Helper()
			n := a.New()
			if err := n.Load(state, now); err != nil {
				t.Fatal(err)
			}
			n.Advance(now, 1, 0)
			return n.Free()
		}
		if f := free(t0 + 10*second); f != 0 {
			t.Errorf("%s, in the same window: %v free", name, f)
		}
		if f := free(t0 - second); f != 0 {
			t.Errorf("%s, a second behind the window: %v free", name, f)
		}
		if f := free(t0 - int64(day)); f != 0 {
			t.Errorf("%s, a day behind: %v free", name, f)
		}
		if f := free(t0 + 90*second); f != map[string]float64{"fixed_window": 60, "sliding_window": 30}[name] {
			t.Errorf("%s, half a window later: %v free", name, f)
		}
		if f := free(t0 + int64(day)); f != 60 {
			t.Errorf("%s, a day later: %v free", name, f)
		}
	}
	for _, name := range []string{"sliding_log", "token_bucket"} { // these know no windows: only how long ago
		a := mustCompile(t, specMinute(name, 60))
		m := a.New()
		m.Advance(t0, 1, 0)
		m.Use(60, 0)
		m.Advance(t0+20*second, 1, 0)
		want := m.Wait(60)
		n := a.New()
		if err := n.Load(m.State(nil), 5*t0); err != nil {
			t.Fatal(err)
		}
		if got := n.Wait(60); got != want || n.Free() != m.Free() {
			t.Errorf("%s: %v free and wait %v, want %v and %v", name, n.Free(), got, m.Free(), want)
		}
	}
}

func FuzzFirstTime(f *testing.F) {
	f.Add(int64(0), int64(5), int64(9))
	f.Add(int64(7), int64(math.MaxInt64-1), int64(math.MaxInt64-1))
	f.Add(int64(7), int64(0), int64(math.MaxInt64))
	f.Fuzz(func(t *testing.T, lo, guess, want int64) {
		lo, guess = max(lo, 0), max(guess, 0)
		want = max(want, lo)
		if got := firstTime(lo, min(guess, math.MaxInt64-1), func(t int64) bool { return t >= want }); got != want {
			t.Fatalf("%d, want %d", got, want)
		}
	})
}

func FuzzPerTime(f *testing.F) {
	f.Add(int64(1e9), uint64(3), uint64(1e9), uint64(3))
	f.Fuzz(func(t *testing.T, d int64, count, per, k uint64) {
		d, per, k = max(d, 0), max(per, 1), max(k%1000, 1)
		whole, frac := perTime(d, count, per, k)
		if whole < 0 || frac < 0 || frac >= 1 {
			t.Fatalf("%v + %v", whole, frac)
		}
		want := new(big.Rat).SetFrac(new(big.Int).Mul(big.NewInt(d), new(big.Int).SetUint64(count)), new(big.Int).Mul(new(big.Int).SetUint64(per), new(big.Int).SetUint64(k)))
		if want.Cmp(rat(maxDebt)) > 0 {
			return
		}
		if int64(whole) != floor(want) || frac == 0 != want.IsInt() {
			t.Fatalf("%v + %v, want %s", whole, frac, want.FloatString(20))
		}
	})
}

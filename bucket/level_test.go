package bucket

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"sync"
	"testing"
	"time"
)

func (l Level) rat() *big.Rat {
	r := new(big.Rat).SetInt64(l.Whole)
	if l.Unit > 0 {
		r.Add(r, new(big.Rat).SetFrac(new(big.Int).SetUint64(l.Part), new(big.Int).SetUint64(l.Unit)))
	}
	return r
}

// exactly is what the key of a table holds at now.
func exactly(t *testing.T, tab *Table, key string, now int64) *big.Rat {
	t.Helper()
	e, ok := stored(tab, key)
	if !ok {
		return new(big.Rat).SetInt64(tab.Params().Burst())
	}
	level, ok := e.Tokens(now)
	if !ok {
		t.Fatalf("%s is sealed", key)
	}
	return level
}

func TestTableGoesOnWhereItsCopyEnded(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	rng := rand.New(rand.NewPCG(seed, 1))
	for range 300 {
		r := Per(rng.Int64N(1000)+1, time.Duration(rng.Int64N(int64(48*time.Hour))+1))
		p, err := NewParams(r, rng.Int64N(10_000)+1)
		if err != nil {
			continue
		}
		was, now := NewTable(p, 0), rng.Int64N(1e18)
		for i := range 20 {
			key := fmt.Sprint("k", i)
			was.Charge(key, now, rng.Int64N(2*p.Burst()))
			now += rng.Int64N(1e9)
			was.Take(key, now, rng.Int64N(p.Burst()))
		}
		// The other process has a clock of its own.
		other, ago, later := rng.Int64N(1e18), rng.Int64N(1e14), rng.Int64N(1e12)
		next := NewTable(p, 0)
		was.Each(now, func(key string, of *Params, left Level) bool {
			if of != p {
				t.Errorf("seed %d: %s has other Params", seed, key)
			}
			if have := exactly(t, was, key, now); left.rat().Cmp(have) != 0 {
				t.Errorf("seed %d: %s at %v burst %d: told %v, holds %v", seed, key, r, p.Burst(), left, have)
			}
			next.Restore(key, nil, other, left, ago)
			return true
		})
		consistent(t, next)
		// Two clocks are each rounded to units, and so is the time between.
		slack := new(big.Rat).SetFrac(big.NewInt(2), new(big.Int).SetUint64(p.unit))
		for i := range 20 {
			key := fmt.Sprint("k", i)
			want, got := exactly(t, was, key, now+ago+later), exactly(t, next, key, other+later)
			if diff := new(big.Rat).Sub(want, got); diff.Abs(diff).Cmp(slack) > 0 {
				t.Errorf("seed %d: %s at %v burst %d: %v, want %v", seed, key, r, p.Burst(), got.FloatString(12), want.FloatString(12))
			}
		}
	}
}

func TestLevelUnderOtherParamsIsNeverMore(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	rng := rand.New(rand.NewPCG(seed, 2))
	for range 2000 {
		a, b := params(t, fmt.Sprintf("%d/%ds", rng.IntN(99)+1, rng.IntN(99)+1), 1000), params(t, fmt.Sprintf("%d/h", rng.IntN(99)+1), 1000)
		l := a.level(rng.Uint64N(2 * a.full))
		have, got := l.rat(), b.level(b.missing(l)).rat()
		slack := new(big.Rat).SetFrac(big.NewInt(1), new(big.Int).SetUint64(b.unit))
		if diff := new(big.Rat).Sub(have, got); diff.Sign() < 0 || diff.Cmp(slack) > 0 {
			t.Errorf("seed %d: %v became %v", seed, have, got)
		}
	}
}

func TestLevelOfNumbers(t *testing.T) {
	for _, v := range []float64{0, 1, 0.5, -0.5, -3, 1e9 + 0.125, 1 << 50, -1 << 50, 1.0 / 3, -1.0 / 4, 99.99999999} {
		if got := LevelOf(v); got.Tokens() != v || got.Part >= got.Unit {
			t.Errorf("%v became %v, which is %v", v, got, got.Tokens())
		}
	}
	for v, want := range map[float64]int64{math.Inf(1): math.MaxInt64, math.Inf(-1): math.MinInt64, math.NaN(): math.MinInt64, -1e-300: -1} {
		if got := LevelOf(v); got.Whole != want || got.Part >= got.Unit {
			t.Errorf("%v became %v", v, got)
		}
	}
}

func TestRestoreLeavesKnownAndFullKeysAlone(t *testing.T) {
	p := params(t, "10/s", 10)
	tab := NewTable(p, 2)
	tab.Take("used", 0, 3)
	if tab.Restore("used", nil, 0, Level{}, 0) {
		t.Error("a key in use was overwritten")
	}
	if tab.Restore("full", nil, 0, Level{Whole: 10}, 0) || tab.Restore("refilled", nil, 0, Level{Whole: 5}, int64(time.Second)) {
		t.Error("a full key was stored")
	}
	if !tab.Restore("empty", nil, 0, Level{}, 0) || tab.Restore("more", nil, 0, Level{}, 0) {
		t.Error("the bound was not kept")
	}
	if r := tab.Peek("empty", 0); r.Remaining != 0 {
		t.Errorf("%+v", r)
	}
	if r := tab.Peek("used", 0); r.Remaining != 7 {
		t.Errorf("%+v", r)
	}
	consistent(t, tab)
}

// A walk meets keys that are taken from, converted and reset at the same time; what it tells was true at some moment.
func TestEachBesideTakers(t *testing.T) {
	a, b := params(t, "1/h", 100), params(t, "2/h", 100)
	tab := NewTable(a, 0)
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 3000 {
				key := fmt.Sprint("k", i%16)
				tab.Take(key, 1, 1)
				if i%7 == g {
					tab.Reset(key)
				}
			}
		})
	}
	wg.Go(func() {
		for i := range 200 {
			tab.SetParams([]*Params{a, b}[i%2], 1)
		}
	})
	for range 100 {
		tab.Each(1, func(key string, p *Params, left Level) bool {
			if left.Whole < 0 || left.Whole >= 100 {
				t.Errorf("%s: %v", key, left)
			}
			return true
		})
	}
	wg.Wait()
	seen := 0
	tab.Each(1, func(string, *Params, Level) bool { seen++; return seen < 3 })
	if seen != min(3, tab.Len()) {
		t.Errorf("%d keys after false", seen)
	}
	consistent(t, tab)
}

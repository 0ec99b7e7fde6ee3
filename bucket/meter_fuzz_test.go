package bucket

import (
	"math/big"
	"math/rand/v2"
	"testing"
)

// FuzzMeters plays what the input says on a meter and its twin: which algorithm, which definition and which steps.
func FuzzMeters(f *testing.F) {
	names := append(Algorithms(), "several")
	for i := range names {
		f.Add(uint8(i), uint64(i), false)
		f.Add(uint8(i), uint64(100+i), true)
	}
	f.Fuzz(func(t *testing.T, algorithm uint8, seed uint64, exact bool) {
		name := names[int(algorithm)%len(names)]
		if exact && name == "burst_average" {
			t.Skip("it refills in fractions from slice to slice")
		}
		rnd := rand.New(rand.NewPCG(seed, 1))
		s, w := randomSpec(rnd, name)
		a := mustCompile(t, s)
		x := &run{t: t, rnd: rnd, a: a, m: a.New(), w: w, part: rat(1), exact: exact, now: t0 + rnd.Int64N(int64(day))}
		if !exact {
			x.part = big.NewRat(rnd.Int64N(4), 3)
			if x.part.Cmp(rat(1)) > 0 {
				x.part = rat(1)
			}
		}
		x.advance(x.now)
		for range 40 {
			x.turn()
		}
	})
}

package fields

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/jatah-io/jatah"
)

func TestFillSecondsAreExact(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for range 20000 {
		r := jatah.Rate{Count: 1 + rng.Int64()>>rng.IntN(63), Per: time.Duration(1 + rng.Int64()>>rng.IntN(63))}
		burst := rng.Int64() >> rng.IntN(63)
		if r.Count < 1 || r.Per < 1 {
			continue
		}
		nanos := new(big.Int).Mul(big.NewInt(burst), big.NewInt(int64(r.Per)))
		per := new(big.Int).Mul(big.NewInt(r.Count), big.NewInt(int64(time.Second)))
		want, rest := new(big.Int).QuoRem(nanos, per, new(big.Int))
		if rest.Sign() > 0 {
			want.Add(want, big.NewInt(1))
		}
		if !want.IsInt64() {
			want.SetInt64(math.MaxInt64)
		}
		if got := fillSeconds(r, burst); got != want.Int64() {
			t.Fatalf("%d per %d ns, burst %d: %d s, want %v", r.Count, int64(r.Per), burst, got, want)
		}
	}
}

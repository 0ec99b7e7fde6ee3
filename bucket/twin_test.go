package bucket

import (
	"math/big"
	"math/rand/v2"
	"testing"
	"time"
)

// twin is a deliberately dumb token bucket: a level that refills, in fractions of any size.
type twin struct {
	perNano *big.Rat
	burst   int64
	level   *big.Rat
	last    int64
}

func rat(n int64) *big.Rat { return big.NewRat(n, 1) }

func newTwin(r Rate, num, den, burst int64) *twin {
	w := &twin{burst: burst, level: rat(burst), perNano: new(big.Rat)}
	if r.Count > 0 {
		w.perNano.Mul(big.NewRat(r.Count, int64(r.Per)), big.NewRat(num, den))
	}
	return w
}

// at returns the level at now; time before the last change stands still.
func (w *twin) at(now int64) *big.Rat {
	now = max(now, w.last)
	l := new(big.Rat).Mul(rat(now-w.last), w.perNano)
	l.Add(l, w.level)
	if l.Cmp(rat(w.burst)) > 0 {
		return rat(w.burst)
	}
	return l
}

// change moves the level by n tokens, up to the burst.
func (w *twin) change(now, n int64) {
	l := w.at(now)
	l.Add(l, rat(n))
	if l.Cmp(rat(w.burst)) > 0 {
		l = rat(w.burst)
	}
	w.level, w.last = l, max(now, w.last)
}

// until returns how long after now (of the caller's clock) the level has risen by gap, rounded up;
// huge values as a big.Int.
func (w *twin) until(now int64, gap *big.Rat) *big.Int {
	if gap.Sign() <= 0 {
		return new(big.Int)
	}
	d := new(big.Rat).Quo(gap, w.perNano)
	d.Add(d, rat(max(now, w.last)-now))
	return ceil(d)
}

func floor(r *big.Rat) int64 {
	return new(big.Int).Div(r.Num(), r.Denom()).Int64()
}

// differ explains why got cannot be the answer to a take of n (or the state after a change, n = 0)
// at now, given the level. It allows slack nanoseconds of refill between got and the truth.
func (w *twin) differ(now, n int64, level *big.Rat, slack int64, got Result, took bool) string {
	eps := new(big.Rat).Mul(rat(slack), w.perNano)
	after := new(big.Rat).Set(level)
	if took {
		after.Sub(after, rat(n))
	}
	lo, hi := new(big.Rat).Sub(after, eps), new(big.Rat).Add(after, eps)
	if got.Remaining < min(max(floor(lo), 0), w.burst) || got.Remaining > min(max(floor(hi), 0), w.burst) {
		return "remaining"
	}
	if !w.near(now, new(big.Rat).Sub(rat(w.burst), after), eps, got.ResetAfter) {
		return "reset after"
	}
	if took || n > w.burst {
		want := time.Duration(0)
		if !took {
			want = Never
		}
		if got.RetryAfter != want {
			return "retry after"
		}
		return ""
	}
	if !w.near(now, new(big.Rat).Sub(rat(n), level), eps, got.RetryAfter) {
		return "retry after"
	}
	return ""
}

// near tells whether got is how long a level takes to rise by gap, give or take eps. It allows
// Never where the clock ends before.
func (w *twin) near(now int64, gap, eps *big.Rat, got time.Duration) bool {
	lo := w.until(now, new(big.Rat).Sub(gap, eps))
	hi := w.until(now, new(big.Rat).Add(gap, eps))
	if got == Never {
		return hi.Add(hi, big.NewInt(now)).Cmp(big.NewInt(int64(clockRange))) >= 0
	}
	d := big.NewInt(int64(got))
	return lo.Cmp(d) <= 0 && d.Cmp(hi) <= 0
}

// pair is a bucket and its twin, compared after every step.
type pair struct {
	t *testing.T
	b *Bucket
	w *twin
}

func newPair(t *testing.T, p *Params, num, den int64) *pair {
	return &pair{t, New(p), newTwin(p.rate, num, den, p.burst)}
}

// slack is by how many nanoseconds the bucket may differ.
func (x *pair) slack() int64 {
	if x.b.p.exact {
		return 0
	}
	return 1
}

func (x *pair) take(now, n int64) Result {
	x.t.Helper()
	before := x.b.tat.Load()
	level := x.w.at(now)
	r := x.b.Take(now, n)
	if x.b.p.DenyAll() {
		if (r != Result{RetryAfter: Never}) || x.b.tat.Load() != before {
			x.t.Fatalf("take(%d, %d) at rate 0: %+v", now, n, r)
		}
		return r
	}
	gap := new(big.Rat).Sub(rat(n), level)
	may := n <= x.w.burst && x.w.until(now, gap).Cmp(big.NewInt(max(0, x.w.last-now)+x.slack())) <= 0
	must := n <= x.w.burst && gap.Add(gap, new(big.Rat).Mul(rat(x.slack()), x.w.perNano)).Sign() <= 0
	if r.OK && !may || !r.OK && must {
		x.t.Fatalf("take(%d, %d): %+v, but the level is %s", now, n, r, level.FloatString(12))
	}
	if why := x.w.differ(now, n, level, x.slack(), r, r.OK); why != "" {
		x.t.Fatalf("take(%d, %d): %+v: wrong %s: the level was %s", now, n, r, why, level.FloatString(12))
	}
	if r.OK && n > 0 {
		x.w.change(now, -n)
	} else if x.b.tat.Load() != before {
		x.t.Fatalf("take(%d, %d): %+v changed the state", now, n, r)
	}
	x.holds(now, n, r)
	x.levels(now)
	return r
}

// holds checks the promises of an answer on copies of the bucket.
func (x *pair) holds(now, n int64, r Result) {
	x.t.Helper()
	if r.RetryAfter != Never && r.RetryAfter > 0 {
		at := now + int64(r.RetryAfter)
		if c := x.copy(); !c.Take(at, n).OK {
			x.t.Fatalf("take(%d, %d): %+v, but not after that wait", now, n, r)
		}
		if c := x.copy(); c.Take(at-1, n).OK {
			x.t.Fatalf("take(%d, %d): %+v, but it passes 1 ns earlier", now, n, r)
		}
	}
	if r.ResetAfter == 0 && !x.b.Full(now) {
		x.t.Fatalf("at %d: %+v, but it is not full", now, r)
	}
	if r.ResetAfter != Never && r.ResetAfter > 0 {
		if at := now + int64(r.ResetAfter); !x.b.Full(at) || x.b.Full(at-1) {
			x.t.Fatalf("at %d: %+v, but then full is %v, and %v before", now, r, x.b.Full(at), x.b.Full(at-1))
		}
	}
}

func (x *pair) copy() *Bucket {
	c := New(x.b.p)
	c.tat.Store(x.b.tat.Load())
	c.newest.Store(x.b.newest.Load())
	return c
}

func (x *pair) levels(now int64) {
	x.t.Helper()
	got, ok := x.b.Tokens(now)
	if !ok {
		x.t.Fatal("sealed")
	}
	d := new(big.Rat).Sub(got, x.w.at(now))
	if d.Abs(d).Cmp(new(big.Rat).Mul(rat(x.slack()), x.w.perNano)) > 0 {
		x.t.Fatalf("at %d: %s tokens, want %s", now, got.FloatString(15), x.w.at(now).FloatString(15))
	}
}

// move refunds (n > 0) or charges (n < 0).
func (x *pair) move(now, n int64) Result {
	x.t.Helper()
	before := x.b.tat.Load()
	var r Result
	if n >= 0 {
		r = x.b.Refund(now, n)
	} else {
		r = x.b.Charge(now, -n)
	}
	if x.b.tat.Load() != before { // not if it was full, or n is 0
		x.w.change(now, n)
	}
	if !r.OK {
		x.t.Fatalf("move(%d, %d): %+v", now, n, r)
	}
	if x.b.p.DenyAll() {
		if (r != Result{OK: true, RetryAfter: Never}) {
			x.t.Fatalf("move(%d, %d) at rate 0: %+v", now, n, r)
		}
	} else {
		if why := x.w.differ(now, 0, x.w.at(now), x.slack(), r, false); why != "" {
			x.t.Fatalf("move(%d, %d): %+v: wrong %s: the level is %s", now, n, r, why, x.w.at(now).FloatString(12))
		}
		x.holds(now, 0, r)
	}
	x.levels(now)
	return r
}

// convert changes the limit. The level may lose less than one unit of the new Params, and goes on
// from there.
func (x *pair) convert(now int64, p *Params, num, den int64) {
	x.t.Helper()
	x.levels(now)
	before, _ := x.b.Tokens(now)
	next, ok := x.b.Convert(p, now)
	if !ok {
		x.t.Fatal("cannot convert")
	}
	if before.Cmp(rat(p.burst)) > 0 {
		before = rat(p.burst)
	}
	after, _ := next.Tokens(now)
	lost := new(big.Rat).Sub(before, after)
	if lost.Sign() < 0 || lost.Cmp(new(big.Rat).SetFrac(big.NewInt(1), new(big.Int).SetUint64(p.unit))) >= 0 {
		x.t.Fatalf("convert(%d) from %s to %s: kept %s of %s", now, x.b.p.rate, p.rate, after.FloatString(15), before.FloatString(15))
	}
	if r := x.b.Take(now, 1); r != (Result{Sealed: true}) {
		x.t.Fatalf("the old bucket answers %+v", r)
	}
	if _, again := x.b.Convert(p, now); again {
		x.t.Fatal("converted twice")
	}
	last := max(now, x.w.last)
	x.b, x.w = next, newTwin(p.rate, num, den, p.burst)
	x.w.level, x.w.last = after, last
}

// logUniform returns a number in [lo, hi], each order of magnitude as likely as the other.
func logUniform(rnd *rand.Rand, lo, hi int64) int64 {
	bitsOf := func(v int64) int { return big.NewInt(v).BitLen() }
	for {
		n := bitsOf(lo) + rnd.IntN(bitsOf(hi)-bitsOf(lo)+1)
		v := int64(1) << max(n-1, 0)
		v += rnd.Int64N(v)
		if v >= lo && v <= hi {
			return v
		}
	}
}

// randomLimit draws a share of a rate between 1 per year and 3e9/s, and a burst that the Params
// accept.
func randomLimit(rnd *rand.Rand) (p *Params, num, den int64) {
	awkward := []Rate{
		Per(7, time.Second), Per(65535, time.Second), Per(2000, time.Second), Per(6000, time.Second),
		Per(3, time.Second), Per(1e9, time.Second), Per(999999937, time.Second), Per(3e9, time.Second),
		Per(2999999999, time.Second), Per(1, year), Per(1, 364*day), Per(100, time.Minute), {},
	}
	for {
		r := Per(logUniform(rnd, 1, 1e12), time.Duration(logUniform(rnd, 1, int64(year))))
		if rnd.IntN(2) == 0 {
			r = awkward[rnd.IntN(len(awkward))]
		}
		burst := logUniform(rnd, 1, 1<<uint(1+rnd.IntN(45)))
		p, err := NewParams(r, burst)
		if err != nil || p.FillTime() > 30*year {
			continue
		}
		if rnd.IntN(4) > 0 {
			return p, 1, 1
		}
		den := 1 + rnd.Int64N(100)
		num := 1 + rnd.Int64N(den)
		if p, err = NewShare(r, num, den, burst/den); err == nil && p.FillTime() < 30*year {
			return p, num, den
		}
	}
}

package bucket

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"math/bits"
	"time"
)

const (
	// MaxBurst is the largest burst.
	MaxBurst = 1_000_000_000_000_000_000

	// maxFill bounds burst/rate in NewParams: with it, a unit is at most half a nanosecond.
	maxFill = 100 * year

	// clockRange is for how long after its epoch a clock is followed without saturating.
	// 75 years let 7 units per nanosecond fit the word (so 7/s is exact), and
	// let a clock count from 1970 until 2045.
	clockRange = 75 * year

	// sealed is the word of a bucket that has been replaced; lastTAT the largest time.
	sealed  = math.MaxUint64
	lastTAT = sealed - 1
)

// Errors of NewParams and NewShare; match them with errors.Is. A bad rate gives ErrRateRange.
var (
	ErrBurst = errors.New("bucket: burst out of range")
	ErrShare = errors.New("bucket: share out of range")
)

// Params are a rate and a burst compiled for the arithmetic of buckets. They are immutable: share
// them between any number of buckets and goroutines. Make them with NewParams or NewShare.
//
// Time and tokens are measured in units. One token is `unit` units, and the clock shows now*mul >>
// shift units, so that a bucket refills mul/2^shift units per nanosecond. If the reduced rate is a
// tokens per b nanoseconds and a is small, then unit = b, mul = a and shift = 0: exact. Otherwise
// unit is chosen so that there are 4 units or more to a nanosecond (2 if the burst takes more than
// 30 years to fill) and mul has 61 significant bits or more, rounded up. Since the clock in units
// is a function of now alone, its rounding telescopes: whatever the number of requests, the level
// is off by less than two units.
type Params struct {
	unit  uint64 // units of one token
	full  uint64 // units of a full bucket: burst * unit <= 2^63
	mul   uint64 // 0: no refill, deny all
	last  uint64 // the clock stops here: last + 2*full <= lastTAT, room for a burst and a debt of a burst
	shift uint8  // 0..63
	exact bool
	burst int64
	rate  Rate
	used  bool // see KeepUsed
}

// NewParams compiles a rate and a burst in tokens. The burst must be between 1 and MaxBurst and
// must refill within 100 years. With a rate of 0, which denies all, it may be 0 as well. Errors
// match ErrRateRange or ErrBurst.
func NewParams(r Rate, burst int64) (*Params, error) {
	if err := checkLimit(r, burst); err != nil {
		return nil, err
	}
	if r.Count > 0 {
		if burst == 0 {
			return nil, fmt.Errorf("%w: a burst of 0 would deny everything; use 1 or more, or the rate 0/s to deny all",
				ErrBurst)
		}
		// burst * Per/Count > maxFill
		bh, bl := bits.Mul64(uint64(burst), uint64(r.Per))
		fh, fl := bits.Mul64(uint64(r.Count), uint64(maxFill))
		if bh > fh || bh == fh && bl > fl {
			return nil, fmt.Errorf("%w: %d tokens at %s take more than 100 years to fill; lower the burst or raise the rate", ErrBurst, burst, r)
		}
	}
	return compile(r, 1, 1, burst), nil
}

// NewShare compiles the part num/den of a rate, with a burst of its own in whole tokens, for one of
// several holders of a limit. Unlike NewParams it accepts a burst of 0, which denies every positive
// cost, and takes of any length to fill: where that is centuries, units become coarser than a
// nanosecond. A share of 0 denies all. Errors match ErrRateRange, ErrBurst or ErrShare.
func NewShare(r Rate, num, den int64, burst int64) (*Params, error) {
	if err := checkLimit(r, burst); err != nil {
		return nil, err
	}
	if den <= 0 || num < 0 || num > den {
		return nil, fmt.Errorf("%w: %d/%d is not between 0 and 1", ErrShare, num, den)
	}
	return compile(r, num, den, burst), nil
}

func checkLimit(r Rate, burst int64) error {
	if err := r.Validate(); err != nil {
		return err
	}
	if burst < 0 {
		return fmt.Errorf("%w: %d is negative", ErrBurst, burst)
	}
	if burst > MaxBurst {
		return fmt.Errorf("%w: %d is above %d", ErrBurst, burst, int64(MaxBurst))
	}
	return nil
}

// compile chooses the units: exact ones if they fit the word, else the finest of 4, 2, 1, 1/2 ...
// to the nanosecond that fit.
func compile(r Rate, num, den int64, burst int64) *Params {
	p := &Params{burst: burst, rate: r}
	if r.Count == 0 || num == 0 {
		// No refill, but a level to keep over the change back: as fine as fits.
		p.exact = true
		p.unit = min(uint64(time.Second), (1<<62)/uint64(max(burst, 1)))
		p.full = uint64(burst) * p.unit
		p.last = lastTAT - 2*p.full
		return p
	}
	perNano := new(big.Rat).Mul(big.NewRat(r.Count, int64(r.Per)), big.NewRat(num, den))
	a, b := perNano.Num(), perNano.Denom()
	if b.IsInt64() && p.fits(b, perNano) {
		p.exact = true
		p.set(b.Uint64(), a.Uint64(), 0)
		return p
	}
	target := big.NewRat(4, 1)
	for half := big.NewRat(1, 2); ; target.Mul(target, half) {
		u := ceil(new(big.Rat).Quo(target, perNano))
		if u.IsInt64() && p.fits(u, perNano) {
			speed := new(big.Rat).Mul(perNano, new(big.Rat).SetInt(u))
			shift := uint8(63)
			for scaled(speed, shift).BitLen() > 64 {
				shift--
			}
			// Rounded up, so that a wait of exactly 1 s is not 1 s and 1 ns, which
			// callers that show seconds would round to 2. Time in units is
			// rounded down; so waits are never longer than exact.
			p.set(u.Uint64(), scaled(speed, shift).Uint64(), shift)
			return p
		}
	}
}

// fits tells whether the clock's range, a burst and a debt of a burst fit the word with this unit.
func (p *Params) fits(unit *big.Int, perNano *big.Rat) bool {
	need := new(big.Rat).SetInt(unit)
	need.Mul(need, perNano)
	need.Mul(need, big.NewRat(int64(clockRange), 1))
	full := new(big.Int).Mul(unit, big.NewInt(2*p.burst))
	need.Add(need, new(big.Rat).SetInt(full))
	return need.Cmp(new(big.Rat).SetInt(new(big.Int).SetUint64(lastTAT))) <= 0
}

func (p *Params) set(unit, mul uint64, shift uint8) {
	p.unit, p.mul, p.shift = unit, mul, shift
	p.full = uint64(p.burst) * unit
	p.last = lastTAT - 2*p.full
}

func ceil(r *big.Rat) *big.Int {
	q, m := new(big.Int).QuoRem(r.Num(), r.Denom(), new(big.Int))
	if m.Sign() > 0 {
		q.Add(q, big.NewInt(1))
	}
	return q
}

// scaled returns r * 2^shift, rounded up.
func scaled(r *big.Rat, shift uint8) *big.Int {
	return ceil(new(big.Rat).SetFrac(new(big.Int).Lsh(r.Num(), uint(shift)), r.Denom()))
}

// Burst returns the burst in tokens.
func (p *Params) Burst() int64 { return p.burst }

// Rate returns the rate as it was given (for a share: the whole rate).
func (p *Params) Rate() Rate { return p.rate }

// DenyAll tells whether the rate is 0.
func (p *Params) DenyAll() bool { return p.mul == 0 }

// FillTime is how long an empty bucket takes to fill, rounded up to the nanosecond: Never if longer
// than 292 years, 0 if it denies all.
func (p *Params) FillTime() time.Duration {
	if p.mul == 0 {
		return 0
	}
	return time.Duration(p.inverse(p.full))
}

// same tells whether buckets of p and q are interchangeable.
func (p *Params) same(q *Params) bool { return p == q || *p == *q }

// clock returns the time now (>= 0) in units, rounded down, at most p.last.
func (p *Params) clock(now int64) uint64 {
	hi, lo := bits.Mul64(uint64(now), p.mul)
	u := hi<<(64-p.shift) | lo>>(p.shift&63)
	if hi>>(p.shift&63) != 0 || u > p.last {
		return p.last
	}
	return u
}

// when returns the first time in nanoseconds at which the clock shows u or more, or MaxInt64 if
// that never comes.
func (p *Params) when(u uint64) int64 {
	if u == 0 {
		return 0
	}
	if u > p.last {
		return math.MaxInt64
	}
	return p.inverse(u)
}

// inverse returns the least t with t*mul >> shift >= u, that is ceil(u << shift / mul), or
// MaxInt64.
func (p *Params) inverse(u uint64) int64 {
	hi, lo := u>>(64-p.shift), u<<(p.shift&63)
	if hi >= p.mul { // the quotient needs more than 64 bits, or there is no refill
		return math.MaxInt64
	}
	t, rem := bits.Div64(hi, lo, p.mul)
	if rem > 0 {
		t++
	}
	return int64(min(t, math.MaxInt64))
}

// units returns n tokens (n >= 0) in units, saturated.
func (p *Params) units(n int64) uint64 {
	hi, lo := bits.Mul64(uint64(n), p.unit)
	if hi != 0 {
		return math.MaxUint64
	}
	return lo
}

// KeepUsed returns Params that are the same but in one thing: a bucket that is converted to them keeps what was used instead of what
// is left. A larger burst gives the difference at once, a smaller one may leave a debt: for plans, between which a key moves to and fro.
func (p *Params) KeepUsed() *Params {
	c := *p
	c.used = true
	return &c
}

// adopt converts what is missing from a full bucket of old, in its units, into what is missing from
// one of p: the tokens stay, rounded down, but are cut to p's burst. What is missing beyond a burst
// is debt, and stays too.
func (p *Params) adopt(missing uint64, old *Params) uint64 {
	if p.used {
		m, rem := scale(missing, p.unit, old.unit)
		if rem > 0 {
			m = add(m, 1)
		}
		return m
	}
	if missing <= old.full {
		level, _ := scale(old.full-missing, p.unit, old.unit)
		return p.full - min(level, p.full)
	}
	debt, rem := scale(missing-old.full, p.unit, old.unit)
	if rem > 0 {
		debt = add(debt, 1)
	}
	return add(p.full, debt)
}

// scale returns u * num / den, saturated, and the remainder.
func scale(u, num, den uint64) (q, rem uint64) {
	hi, lo := bits.Mul64(u, num)
	if hi >= den {
		return math.MaxUint64, 0
	}
	return bits.Div64(hi, lo, den)
}

// add adds, saturated.
func add(a, b uint64) uint64 {
	s, carry := bits.Add64(a, b, 0)
	if carry != 0 {
		return math.MaxUint64
	}
	return s
}

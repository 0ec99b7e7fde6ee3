package bucket

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// Meter is what one key has used under one algorithm. It serves the owner of a key in a cluster, who may use
// only a part of the limit while some of its tokens are out as credit, and it serves a node that is
// alone, or holds a share of its own: part 1, out 0.
//
// Make one with [Algorithm.New] and call Advance before anything else. It is not safe for
// concurrent use. Tokens are float64: whole ones are exact, fractions come from parts of a limit.
//
//   - now is in nanoseconds since the Unix epoch (windows are counted from it), on a clock that should not go
//     back; when it does, time stands still.
//   - part is the part of the limit that may be used, 0 to 1.
//   - out is how many tokens are out as credit: granted, and not yet known to be spent.
//
// A share that comes was just used up elsewhere, as far as is known, and one that goes starts empty elsewhere. So a
// rise of part frees nothing at that moment: the tokens that it brings are booked as used now, and age as such. After a
// fall buckets and windows may use what they had until those shares refill elsewhere; a log may not. Who knows
// better gives the tokens that a share brings with Return. A first Advance with part 0 therefore
// makes a meter that starts empty.
//
// Invariant: Free() + out <= what the algorithm allows at once. Where shares move, all owners together admit no more
// than the whole limit, provided that of each owner out <= part*limit: recall credit before the part falls.
type Meter interface {
	// Advance moves to now. Until now held what the last call said; from now on hold part and out. Tokens
	// that are no longer out count as spent now.
	Advance(now int64, part, out float64)

	// Free returns how many tokens can be granted now; negative is debt. It is rounded down by less
	// than what appears in a nanosecond: whole costs are decided exactly where part is 1.
	Free() float64

	// Use grants or charges n tokens (>= 0). out is what is out afterwards: more by n after a grant, the same
	// after a charge.
	Use(n, out float64)

	// Return gives n tokens back. out is what is out afterwards: less by n when credit comes back,
	// the same for a refund. What is more than the algorithm allows is lost.
	Return(n, out float64)

	// Wait returns how long it takes from the last Advance until Free() >= n if nothing else
	// happens, to the nanosecond; Never if it does not come.
	Wait(n float64) time.Duration

	// Reset returns how long it takes until the meter is as new, out aside. For windows that
	// is the end of the window.
	Reset() time.Duration

	// Fresh tells that there is nothing to remember: a new meter would say the same.
	Fresh() bool

	// State appends what the meter remembers: amounts, durations before the last Advance, numbers of
	// windows. It holds no time of a clock.
	State(b []byte) []byte

	// Load reads a State of the same algorithm, as of now. Time on the way is not counted, so
	// usage ages late. After an error (ErrState) the meter is as it was.
	Load(b []byte, now int64) error

	at() *moment
	clone() Meter
	taken() float64        // tokens that count as used, without out
	capacity() float64     // what the whole limit allows at once
	adopt(old Meter) error // takes over what old, a started meter of any algorithm, remembers
}

// Delayer is a Meter that lets requests wait: a leaky_bucket with a queue.
type Delayer interface {
	Meter
	// Delay returns how long after the last Advance the tokens used last may depart.
	Delay() time.Duration
}

// ErrState is the error for bytes that are not the state of a meter of this algorithm.
var ErrState = errors.New("bucket: malformed meter state")

// errKind says that adopt got a meter of another kind.
var errKind = errors.New("bucket: another kind of meter")

// Resize returns a meter of algorithm a that goes on where old ended, as of old's last Advance: windows keep
// what was used, buckets keep their tokens, cut to a lower burst. A raised limit gives a bucket no tokens at once. From one
// kind of algorithm to another what counts as used is carried over as if it were used now, down
// to an empty meter. Of several rates each goes on with the one in the same place. Do not use old afterwards.
func Resize(old Meter, a *Algorithm) Meter {
	m := a.New()
	if !old.at().begun {
		return m
	}
	if o, ok := old.(*multiMeter); ok && len(a.rules) == 1 {
		old = o.meters[0]
	}
	goOn(m, old)
	return m
}

// goOn makes the new meter m continue old.
func goOn(m, old Meter) {
	if m.adopt(old) == nil {
		return
	}
	o := old.at()
	m.Advance(o.now, o.part, 0)
	m.Use(min(max(0, old.taken()), max(0, m.Free()))+o.out, o.out)
}

// moment is where a meter stands.
type moment struct {
	now   int64
	part  float64
	out   float64
	begun bool
}

func (m *moment) at() *moment { return m }

// later keeps time from going back, and parts and credit in their range.
func (m *moment) later(now int64, part, out float64) (int64, float64, float64) {
	return max(now, m.now, 0), clampPart(part), max(out, 0)
}

func clampPart(part float64) float64 {
	if !(part > 0) { // also NaN
		return 0
	}
	return min(part, 1)
}

// consumed returns how many of n tokens, used (n > 0) or returned, are neither out nor were: they count as
// spent (> 0) or are taken off what was spent (< 0). Credit that comes up from nowhere costs nothing here; it is
// in out.
func (m *moment) consumed(n, out float64) float64 {
	c := n - (out - m.out)
	m.out = out
	if n >= 0 {
		return max(c, 0)
	}
	return c
}

// amount is the part of a limit in tokens. Sums of shares such as three times 1/3 come out whole.
func amount(limit, part float64, roundUp bool) float64 {
	if part >= 1 {
		return limit
	}
	x := snap(limit * part)
	if roundUp {
		return math.Ceil(x)
	}
	return x
}

// snap removes what rounding left beside a whole number: a billionth of a token.
func snap(x float64) float64 {
	if r := math.Round(x); math.Abs(x-r) <= 1e-9+math.Abs(x)*1e-15 {
		return r
	}
	return x
}

// below returns whole - frac, for a whole number and a frac in [0, 1), rounded so that a positive frac, however
// small, keeps the difference below the whole.
func below(whole, frac float64) float64 {
	if frac <= 0 {
		return whole
	}
	return min(whole-frac, math.Nextafter(whole, math.Inf(-1)))
}

// maxTokens bounds limits, maxDebt what can be owed: sums of whole tokens stay exact in a float64.
const (
	maxTokens = 1 << 50
	maxDebt   = 1 << 52
)

// firstTime returns the least t in [lo, math.MaxInt64) with ok(t), for an ok that once true stays true,
// looking around a guess first; math.MaxInt64 if there is none.
func firstTime(lo, guess int64, ok func(t int64) bool) int64 {
	if ok(lo) {
		return lo
	}
	// Gallop away from the guess until it is enclosed: bad < answer <= good.
	bad, good := lo, int64(math.MaxInt64)
	for t, width := max(guess, lo+1), int64(1); ; width *= 2 {
		if ok(t) {
			good = t
			if t-width <= bad {
				break
			}
			t -= width
		} else {
			bad = t
			if good != math.MaxInt64 {
				break
			}
			if t > math.MaxInt64-1-width {
				if t == math.MaxInt64-1 {
					return math.MaxInt64
				}
				t = math.MaxInt64 - 1
				continue
			}
			t += width
		}
	}
	for good-bad > 1 {
		if mid := bad + (good-bad)/2; ok(mid) {
			good = mid
		} else {
			bad = mid
		}
	}
	return good
}

// toTime returns a guess as a time, which may be anything.
func toTime(x float64) int64 {
	if !(x > 0) {
		return 0
	}
	if x >= math.MaxInt64/2 {
		return math.MaxInt64 / 2
	}
	return int64(x)
}

// until returns the wait from now to t.
func until(t, now int64) time.Duration {
	if t == math.MaxInt64 {
		return Never
	}
	return time.Duration(max(t-now, 0))
}

func stateError(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrState, fmt.Sprintf(format, args...))
}

package bucket

import (
	"math"
	"math/bits"
	"time"
)

// bucketMeter is a token bucket as a Meter: the pool of a part of a limit. It refills at part*rate up to
// part*burst, less what is out. When the part changes, refill changes at once, and the cap follows:
//
//	down  cap(t) = max(part*burst, cap - (1-part)*rate*t)
//	up    cap(t) = min(part*burst, cap + part*rate*t)
//
// Shares start empty where they come to, so the caps of all owners never add up to more than burst: while one falls, it falls at
// least as fast as all others rise, since their parts add up to at most 1-part; while none
// falls, each is at most part*burst. And in any time t no more passes than all caps and rate*t. If the cap jumped up
// with the part, moving a share to and fro would gain tokens.
//
// Exactness: the pool is meant at the time since, and since moves only when the pool is at its cap
// (a whole number of tokens where part is 1) or the part changes. So refilling is one
// multiplication of integers from the same moment, whenever it is asked for, and rounding does not add
// up: where part has been 1 since the pool was full every decision is exact.
type bucketMeter struct {
	moment
	rule      *bucketRule
	pool, cap float64
	since     int64
}

// bucketRule is a compiled token_bucket or leaky_bucket.
type bucketRule struct {
	count, per uint64  // rate: count tokens per `per` nanoseconds
	k          uint64  // of it one part in k is meant: shares
	burst      float64 // with a queue it may have a fraction
	roundUp    bool
	queue      bool
}

func newBucketRule(s Spec, r Rate, burst float64) *bucketRule {
	if r.Count == 0 {
		return &bucketRule{per: 1, k: 1} // never holds a token
	}
	return &bucketRule{count: uint64(r.Count), per: uint64(r.Per), k: 1, burst: burst, roundUp: s.RoundUp}
}

func compileTokenBucket(s Spec, r Rate, burst int64, _ *Algorithm) (rule, error) {
	if burst == 0 {
		burst = r.Count
	}
	if err := checkMeterBurst(burst); err != nil {
		return nil, err
	}
	return newBucketRule(s, r, float64(burst)), nil
}

func checkMeterBurst(burst int64) error {
	if burst < 0 || burst > maxTokens {
		return specError("burst is %d; it must be between 1 and %d", burst, int64(maxTokens))
	}
	return nil
}

func (r *bucketRule) capacity() float64 { return r.burst }

func (r *bucketRule) meter() Meter {
	if r.queue {
		return &queueMeter{bucketMeter{rule: r}}
	}
	return &bucketMeter{rule: r}
}

func (r *bucketRule) share(k, rank int) rule {
	s := *r
	s.k *= uint64(k)
	if r.queue { // departures are spaced, so a queue divides like a rate; each share may always depart one
		s.burst = max(1, r.burst/float64(k))
	} else {
		s.burst = wholeShare(r.burst, k, rank)
	}
	return &s
}

// wholeShare is floor or ceil of tokens/k by rank, so that the shares of all ranks add up.
func wholeShare(tokens float64, k, rank int) float64 {
	n, d := int64(tokens), int64(k)
	s := n / d
	if int64(rank) < n%d {
		s++
	}
	return float64(s)
}

// refill is what the whole rate brings in d nanoseconds: a whole number and a fraction below 1, positive unless
// exactly 0.
func (r *bucketRule) refill(d int64) (whole, frac float64) {
	return perTime(d, r.count, r.per, r.k)
}

// perTime returns d * count / (per * k).
func perTime(d int64, count, per, k uint64) (whole, frac float64) {
	hi, lo := bits.Mul64(uint64(max(d, 0)), count)
	if hi >= per {
		return maxDebt, 0
	}
	q, rem := bits.Div64(hi, lo, per)
	frac = float64(rem) / float64(per)
	if k > 1 {
		frac = (float64(q%k) + frac) / float64(k)
		q /= k
		if frac == 0 && rem > 0 {
			frac = math.SmallestNonzeroFloat64
		}
	}
	return float64(q), min(frac, math.Nextafter(1, 0))
}

// speed is the whole rate in tokens per nanosecond, for guesses and caps.
func (r *bucketRule) speed() float64 {
	return float64(r.count) / float64(r.per) / float64(r.k)
}

func (r *bucketRule) amount(part float64) float64 { return amount(r.burst, part, r.roundUp) }

// grown is the pool at t if there were no cap.
func (m *bucketMeter) grown(t int64) float64 {
	whole, frac := m.rule.refill(t - m.since)
	if m.part < 1 {
		return m.pool + (whole+frac)*m.part
	}
	if frac == 0 {
		return m.pool + whole
	}
	return min(m.pool+whole+frac, math.Nextafter(m.pool+whole+1, math.Inf(-1)))
}

// top is the cap at t.
func (m *bucketMeter) top(t int64) float64 {
	full, most := m.rule.amount(m.part), float64(t-m.since)*m.rule.speed()
	if m.cap < full {
		return min(full, m.cap+most*m.part)
	}
	return max(full, m.cap-most*(1-m.part))
}

// level is the pool at t, and whether the cap holds it. A cap that falls, or too much credit, takes tokens from the pool,
// but never makes a debt: below zero the pool only stands still.
func (m *bucketMeter) level(t int64) (float64, bool) {
	room := m.top(t) - m.out
	if g := m.grown(t); g < room {
		return g, false
	}
	if room >= 0 {
		return room, true
	}
	// The pool met its cap at this level, and has stood still since if it was in debt.
	met := m.pool
	if first := m.cap - m.out; met < first {
		// It grew by part*speed while the cap fell by (1-part)*speed. A cap that rises does so as the pool does: only rounding
		// makes them meet, at once.
		met = max(min(m.rule.amount(m.part)-m.out, first), first-(first-met)*(1-m.part))
	}
	return max(room, min(met, 0)), true
}

// settle moves since to now where that is exact, or must be.
func (m *bucketMeter) settle(must bool) {
	level, capped := m.level(m.now)
	if capped || must {
		m.cap = m.top(m.now)
		m.pool, m.since = level, m.now
		if must {
			m.cap, m.pool = snap(m.cap), snap(level)
		}
	}
}

func (m *bucketMeter) Advance(now int64, part, out float64) {
	now, part, out = m.later(now, part, out)
	if !m.begun {
		m.moment = moment{now, part, out, true}
		m.pool = m.rule.amount(part)
		m.cap, m.since = m.pool, now
		m.settle(false)
		return
	}
	m.now = now
	m.settle(part != m.part || out > m.out)
	m.out = out
	m.part = part
}

func (m *bucketMeter) Free() float64 { return m.free(m.now) }

// free is what of the level may be given away: credit may stay out for long, so a cap that still has to fall is not
// for it.
func (m *bucketMeter) free(t int64) float64 {
	level, _ := m.level(t)
	if most := m.rule.amount(m.part) - m.out; level > most {
		return max(most, min(level, 0))
	}
	return level
}

func (m *bucketMeter) Use(n, out float64) {
	if more := out - m.out; more > 0 && more != n {
		m.settle(true)
	}
	m.pool = max(m.pool-n, -maxDebt)
	m.out = out
	m.settle(false)
}

func (m *bucketMeter) Return(n, out float64) {
	m.pool += n
	if more := n + out - m.out; more > 0 { // a refund, or tokens that a share brought
		// The cap is meant at the time since, like the pool: one that is raised now must not have risen since then as well.
		if g := m.grown(m.now); min(m.rule.amount(m.part), g+out) > m.top(m.now) {
			m.cap = min(m.rule.amount(m.part), g+out)
			m.pool, m.since = g, m.now
		}
	}
	m.out = out
	if g, top := m.grown(m.now), m.top(m.now); g >= top-out {
		m.cap = top
		m.pool, m.since = max(top-out, min(g, 0)), m.now
	}
}

func (m *bucketMeter) Wait(n float64) time.Duration {
	if m.Free() >= n {
		return 0
	}
	speed := m.rule.speed() * m.part
	if speed == 0 {
		return Never
	}
	// A cap that rises goes on letting through what it has let through; one that falls does not: there the growing
	// pool tells when it can be, and the cap whether it is.
	enough := func(t int64) bool { return m.grown(t) >= n }
	guess := (n - m.pool) / speed
	if m.cap < m.rule.amount(m.part) {
		enough = func(t int64) bool { return m.free(t) >= n }
		guess = max(guess, (n+m.out-m.cap)/speed)
	}
	t := firstTime(m.now, m.since+toTime(guess), enough)
	if t == math.MaxInt64 {
		return Never
	}
	if m.free(t) < n {
		return Never
	}
	return until(t, m.now)
}

func (m *bucketMeter) Reset() time.Duration {
	full := m.rule.amount(m.part)
	c := *m
	c.out = 0
	wait := c.Wait(full)
	if m.cap <= full || m.part >= 1 || wait == Never {
		return wait
	}
	falls := m.since + toTime((m.cap-full)/(m.rule.speed()*(1-m.part)))
	return max(wait, until(firstTime(m.now, falls, func(t int64) bool { return m.top(t) == full }), m.now))
}

func (m *bucketMeter) Fresh() bool {
	full := m.rule.amount(m.part)
	return m.out == 0 && m.top(m.now) == full && m.Free() >= full
}

func (m *bucketMeter) clone() Meter {
	c := *m
	return &c
}

func (m *bucketMeter) capacity() float64 { return m.rule.capacity() }

func (m *bucketMeter) taken() float64 {
	return m.rule.amount(m.part) - m.Free() - m.out
}

func (m *bucketMeter) adopt(old Meter) error {
	var o *bucketMeter
	switch x := old.(type) {
	case *bucketMeter:
		o = x
	case *queueMeter:
		o = &x.bucketMeter
	default:
		return errKind
	}
	m.moment = o.moment
	m.cap = m.rule.amount(m.part)
	m.pool, m.since = o.Free(), m.now
	m.settle(false)
	return nil
}

func (m *bucketMeter) State(b []byte) []byte {
	b = m.header(b, kindBucket)
	b = putInt(b, m.now-m.since)
	return putFloats(b, m.pool, m.cap)
}

func (m *bucketMeter) Load(b []byte, now int64) error {
	r := newReader(b, kindBucket)
	n := *m
	n.moment = r.header(now)
	n.since = n.now - r.age(n.now)
	n.pool, n.cap = r.level(), r.amount()
	if err := r.end(); err != nil {
		return err
	}
	if !n.begun {
		*m = bucketMeter{moment: n.moment, rule: m.rule}
		return nil
	}
	// A cap above what can be, or a pool above that, comes from another definition.
	n.cap = min(n.cap, n.rule.burst)
	n.pool = min(n.pool, n.cap)
	*m = n
	return nil
}

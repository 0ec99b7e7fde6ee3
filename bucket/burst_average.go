package bucket

import (
	"math"
	"math/bits"
	"time"
)

// averageMeter is burst by average, as routers know it (max-limit, burst-limit, burst-threshold and
// burst-time of MikroTik's queues): a bucket that refills at burst_rate while the average of the last burst_time is
// below burst_threshold, else at rate.
//
// The average is kept in 16 slices of burst_time/16, counted from the epoch, and compared when a
// slice begins. So from idle a full load passes at burst_rate for
//
//	T = burst_threshold * burst_time / burst_rate
//
// rounded up to whole slices, then at the rate. For the rate 2, burst_rate 8, burst_threshold 1 and
// burst_time 16 s, T is 2 s. The burst is over until the average is below the threshold again:
// for a load above the threshold that is never.
//
// The bucket holds burst tokens, 1 if not given, and those come on top. Returned credit and
// refunds are taken off the present slice. A part of the limit has a part of the bucket and of the rate, and never
// bursts: whether the whole limit may depends on an average that nobody sees who holds a part of it. When the part
// falls, the bucket is cut.
type averageMeter struct {
	moment
	rule  *averageRule
	pool  float64
	since int64 // the pool is meant at this time; see bucketMeter
	slice int64 // number of the present one
	fast  bool  // in it
	used  [slices16]float64
}

const slices16 = 16

// averageRule is a compiled burst_average.
type averageRule struct {
	slow, fast *bucketRule
	threshold  float64 // tokens in burst_time
	slice      int64
	burst      float64
	roundUp    bool
}

func compileAverage(s Spec, r Rate, burst int64, _ *Algorithm) (rule, error) {
	if burst == 0 {
		burst = 1
	}
	if err := checkMeterBurst(burst); err != nil {
		return nil, err
	}
	if len(s.Rates) > 1 {
		return nil, specError("burst_average takes one rate; use burst_rate for the second speed")
	}
	for _, x := range []struct {
		field string
		rate  Rate
	}{{"burst_rate", s.BurstRate}, {"burst_threshold", s.BurstThreshold}} {
		if err := x.rate.Validate(); err != nil || x.rate.Count == 0 {
			return nil, specError("burst_average needs a %s above 0, such as 8/s (it is %s)", x.field, x.rate)
		}
	}
	switch {
	case s.BurstTime < slices16*time.Millisecond || s.BurstTime > year:
		return nil, specError("burst_time is %v; it must be between 16ms and a year", s.BurstTime)
	case !faster(s.BurstRate, r):
		return nil, specError("burst_rate %s is not faster than the rate %s", s.BurstRate, r)
	case !faster(s.BurstRate, s.BurstThreshold):
		return nil, specError("burst_threshold %s is not slower than burst_rate %s: the burst would never end", s.BurstThreshold, s.BurstRate)
	}
	a := &averageRule{
		slow: newBucketRule(s, r, float64(burst)), fast: newBucketRule(s, s.BurstRate, float64(burst)),
		slice: int64(s.BurstTime) / slices16, burst: float64(burst), roundUp: s.RoundUp,
	}
	whole, frac := perTime(a.slice*slices16, uint64(s.BurstThreshold.Count), uint64(s.BurstThreshold.Per), 1)
	a.threshold = whole + frac
	return a, nil
}

// faster tells whether a > b.
func faster(a, b Rate) bool {
	if b.Count == 0 {
		return a.Count > 0
	}
	ah, al := bits.Mul64(uint64(a.Count), uint64(b.Per))
	bh, bl := bits.Mul64(uint64(b.Count), uint64(a.Per))
	return ah > bh || ah == bh && al > bl
}

func (r *averageRule) meter() Meter                { return &averageMeter{rule: r} }
func (r *averageRule) capacity() float64           { return r.burst }
func (r *averageRule) amount(part float64) float64 { return amount(r.burst, part, r.roundUp) }

func (r *averageRule) share(k, rank int) rule {
	s := *r
	s.slow, s.fast = r.slow.share(k, rank).(*bucketRule), r.fast.share(k, rank).(*bucketRule)
	s.threshold = r.threshold / float64(k)
	s.burst = wholeShare(r.burst, k, rank)
	return &s
}

// speed is that of the present slice.
func (m *averageMeter) speed() *bucketRule {
	if m.fast {
		return m.rule.fast
	}
	return m.rule.slow
}

// grown is the pool at a time in the present slice if there were no cap.
func (m *averageMeter) grown(t int64) float64 {
	b := bucketMeter{moment: moment{part: m.part}, rule: m.speed(), pool: m.pool, since: m.since}
	return b.grown(t)
}

func (m *averageMeter) level(t int64) (float64, bool) {
	room := m.rule.amount(m.part) - m.out
	if g := m.grown(t); g < room {
		return g, false
	}
	if m.pool >= room {
		return max(room, min(m.pool, 0)), true
	}
	return room, true
}

func (m *averageMeter) settle(must bool) {
	if level, capped := m.level(m.now); capped {
		m.pool, m.since = level, m.now
	} else if must {
		m.pool, m.since = snap(level), m.now
	}
}

// enter begins the next slice: the 16 before it decide the speed. The oldest of them then makes room for it.
func (m *averageMeter) enter() {
	m.slice++
	if fast := m.bursts(m.part) && m.total() < m.rule.threshold-1e-9; fast != m.fast {
		m.settle(true)
		m.fast = fast
	}
	m.used[m.slice%slices16] = 0
}

func (m *averageMeter) total() float64 {
	sum := 0.0
	for _, u := range m.used {
		sum += u
	}
	return sum
}

// idle tells that the speed will not change unless something is used.
func (m *averageMeter) idle() bool {
	return m.fast == m.bursts(m.part) && m.total() == 0
}

// bursts tells that a part of the limit is as fast as may be while nothing is used.
func (m *averageMeter) bursts(part float64) bool { return part >= 1 && m.rule.threshold > 1e-9 }

// border is when the slice after the present one begins.
func (m *averageMeter) border() int64 {
	if m.slice >= math.MaxInt64/m.rule.slice-1 {
		return math.MaxInt64
	}
	return (m.slice + 1) * m.rule.slice
}

// move goes to now, slice by slice as long as there is something to average.
func (m *averageMeter) move(now int64) {
	for now >= m.border() && !m.idle() {
		m.now = m.border()
		m.enter()
	}
	m.now = now
	if s := now / m.rule.slice; s > m.slice {
		m.slice = s
	}
}

func (m *averageMeter) Advance(now int64, part, out float64) {
	now, part, out = m.later(now, part, out)
	if !m.begun {
		m.moment = moment{now, part, out, true}
		m.pool, m.since = m.rule.amount(part), now
		m.slice = now / m.rule.slice
		m.fast = m.bursts(part)
		m.settle(false)
		return
	}
	m.move(now)
	m.settle(part != m.part || out > m.out)
	if part > m.part {
		// A share that comes has just been used as much as it could be elsewhere, for all that is known.
		most := m.rule.slow.speed()*float64(m.rule.slice)*slices16 + m.rule.burst
		m.used[m.slice%slices16] += max(m.rule.threshold, most) * (part - m.part)
	}
	m.fast = m.fast && m.bursts(part)
	m.part, m.out = part, out
	m.settle(false)
}

func (m *averageMeter) Free() float64 {
	level, _ := m.level(m.now)
	return level
}

func (m *averageMeter) Use(n, out float64) {
	if more := out - m.out; more > 0 && more != n {
		m.settle(true)
	}
	m.pool = max(m.pool-n, -maxDebt)
	u := &m.used[m.slice%slices16]
	*u = min(*u+n, maxDebt)
	m.out = out
	m.settle(false)
}

func (m *averageMeter) Return(n, out float64) {
	m.pool = min(m.pool+n, maxDebt)
	if g, room := m.grown(m.now), m.rule.amount(m.part)-out; g >= room {
		m.pool, m.since = max(room, min(g, 0)), m.now
	}
	u := &m.used[m.slice%slices16]
	*u = max(*u-n, 0)
	m.out = out
}

func (m *averageMeter) Wait(n float64) time.Duration {
	if m.Free() >= n {
		return 0
	}
	if m.rule.amount(m.part)-m.out < n {
		return Never
	}
	c := *m
	for {
		end := int64(math.MaxInt64)
		if !c.idle() {
			end = c.border()
		}
		guess := int64(math.MaxInt64 - 1)
		if speed := c.speed().speed() * c.part; speed > 0 {
			guess = c.since + toTime((n-c.pool)/speed)
		} else if c.idle() {
			return Never
		}
		t := firstTime(c.now, min(guess, end), func(t int64) bool {
			if t >= end {
				return true
			}
			level, _ := c.level(t)
			return level >= n
		})
		if t < end {
			return time.Duration(t - m.now)
		}
		if end == math.MaxInt64 {
			return Never
		}
		if c.move(end); c.Free() >= n {
			return time.Duration(end - m.now)
		}
	}
}

func (m *averageMeter) Reset() time.Duration {
	c := *m
	c.out = 0
	wait := c.Wait(m.rule.amount(m.part))
	for !c.idle() {
		if c.border() == math.MaxInt64 {
			return Never
		}
		c.move(c.border())
	}
	return max(wait, until(c.now, m.now))
}

func (m *averageMeter) Fresh() bool {
	return m.out == 0 && m.idle() && m.Free() >= m.rule.amount(m.part)
}

func (m *averageMeter) clone() Meter {
	c := *m
	return &c
}

func (m *averageMeter) capacity() float64 { return m.rule.capacity() }

func (m *averageMeter) taken() float64 {
	return m.rule.amount(m.part) - m.Free() - m.out
}

func (m *averageMeter) adopt(old Meter) error {
	o, ok := old.(*averageMeter)
	if !ok || o.rule.slice != m.rule.slice {
		return errKind
	}
	rule, free := m.rule, o.Free()
	*m = *o
	m.rule = rule
	m.pool, m.since = free, m.now
	m.settle(false)
	return nil
}

func (m *averageMeter) State(b []byte) []byte {
	b = m.header(b, kindAverage)
	b = putInt(b, m.now-m.since)
	b = putInt(b, m.slice)
	fast := byte(0)
	if m.fast {
		fast = 1
	}
	b = putFloats(append(b, fast), m.pool)
	return putFloats(b, m.used[:]...)
}

func (m *averageMeter) Load(b []byte, now int64) error {
	r := newReader(b, kindAverage)
	n := *m
	n.moment = r.header(now)
	n.since = n.now - r.age(n.now)
	number := r.int()
	fast := r.byte()
	n.pool = min(r.level(), n.rule.burst)
	for i := range n.used {
		n.used[i] = r.amount()
	}
	if fast > 1 {
		r.fail("a flag is neither 0 nor 1")
	}
	if err := r.end(); err != nil {
		return err
	}
	if !n.begun {
		*m = averageMeter{moment: n.moment, rule: m.rule}
		return nil
	}
	w, ahead, err := loadWindow(epochWindows(m.rule.slice), number, n.now)
	if err != nil {
		return err
	}
	n.fast, n.slice = fast == 1, w.start/m.rule.slice
	if ahead {
		n.now = w.start
	}
	n.since = min(n.since, n.now)
	at := n.now
	n.now = max(n.since, w.start)
	n.move(at)
	*m = n
	return nil
}

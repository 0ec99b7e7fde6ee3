package bucket

import (
	"math/big"
	"slices"
	"time"
)

// The twins of the meters: fractions of any size and lists of all events, and no care for speed.
type meterTwin interface {
	advance(now int64, part, out *big.Rat)
	free() *big.Rat
	use(n, out *big.Rat)
	giveBack(n, out *big.Rat)
	clone() meterTwin
}

func plus(a, b *big.Rat) *big.Rat  { return new(big.Rat).Add(a, b) }
func minus(a, b *big.Rat) *big.Rat { return new(big.Rat).Sub(a, b) }
func times(a, b *big.Rat) *big.Rat { return new(big.Rat).Mul(a, b) }
func zero() *big.Rat               { return new(big.Rat) }

func least(a, b *big.Rat) *big.Rat {
	if a.Cmp(b) <= 0 {
		return a
	}
	return b
}

func most(a, b *big.Rat) *big.Rat {
	if a.Cmp(b) >= 0 {
		return a
	}
	return b
}

// stand is what all twins have.
type stand struct {
	now       int64
	part, out *big.Rat
	begun     bool
	limit     int64
	up        bool
}

func (s *stand) amount(part *big.Rat) *big.Rat {
	a := times(rat(s.limit), part)
	if s.up {
		return new(big.Rat).SetInt(ceil(a))
	}
	return a
}

func (s *stand) begin(now int64, part, out *big.Rat) bool {
	if s.begun {
		return false
	}
	s.now, s.part, s.out, s.begun = now, part, out, true
	return true
}

// spent is what n used or returned tokens, and a change of out, add to what is spent.
func (s *stand) spent(n, out *big.Rat) *big.Rat {
	c := minus(n, minus(out, s.out))
	s.out = out
	return c
}

// windowTwin counts per number of the window; sliding adds the window before.
type windowTwin struct {
	stand
	at         func(now int64) (number int64, passed *big.Rat) // of the window, 0 to 1
	sliding    bool
	used, kept map[int64]*big.Rat
}

func newWindowTwin(limit int64, up, sliding bool, at func(int64) (int64, *big.Rat)) *windowTwin {
	return &windowTwin{stand: stand{limit: limit, up: up}, at: at, sliding: sliding, used: map[int64]*big.Rat{}, kept: map[int64]*big.Rat{}}
}

func epochAt(p time.Duration) func(int64) (int64, *big.Rat) {
	return func(now int64) (int64, *big.Rat) { return now / int64(p), big.NewRat(now%int64(p), int64(p)) }
}

func in(m map[int64]*big.Rat, k int64) *big.Rat {
	if v := m[k]; v != nil {
		return v
	}
	return zero()
}

func (w *windowTwin) advance(now int64, part, out *big.Rat) {
	if w.begin(now, part, out) {
		return
	}
	w.now = max(w.now, now)
	k, _ := w.at(w.now)
	if c := w.spent(zero(), out); c.Sign() > 0 {
		w.used[k] = plus(in(w.used, k), c)
	}
	more := minus(w.amount(part), w.amount(w.part))
	w.part = part
	if more.Sign() < 0 {
		w.kept[k] = minus(in(w.kept, k), more)
		return
	}
	back := least(more, in(w.kept, k))
	w.kept[k] = minus(in(w.kept, k), back)
	w.used[k] = plus(in(w.used, k), minus(more, back))
}

func (w *windowTwin) free() *big.Rat {
	k, passed := w.at(w.now)
	f := minus(minus(w.amount(w.part), most(minus(in(w.used, k), in(w.kept, k)), zero())), w.out)
	if w.sliding {
		before := most(minus(in(w.used, k-1), in(w.kept, k-1)), zero())
		f = minus(f, times(before, minus(rat(1), passed)))
	}
	return f
}

func (w *windowTwin) use(n, out *big.Rat) {
	k, _ := w.at(w.now)
	w.used[k] = plus(in(w.used, k), most(w.spent(n, out), zero()))
}

func (w *windowTwin) giveBack(n, out *big.Rat) {
	k, _ := w.at(w.now)
	u := plus(in(w.used, k), w.spent(new(big.Rat).Neg(n), out))
	if u.Sign() < 0 {
		if w.sliding {
			before := most(minus(in(w.used, k-1), in(w.kept, k-1)), zero())
			w.used[k-1], w.kept[k-1] = most(plus(before, u), zero()), zero()
		}
		u = zero()
	}
	w.used[k] = u
}

func (w *windowTwin) clone() meterTwin {
	c := *w
	c.used, c.kept = map[int64]*big.Rat{}, map[int64]*big.Rat{}
	for k, v := range w.used {
		c.used[k] = v
	}
	for k, v := range w.kept {
		c.kept[k] = v
	}
	return &c
}

// logTwin remembers all events.
type logTwin struct {
	stand
	period int64
	events []twinEvent
}

type twinEvent struct {
	at int64
	n  *big.Rat
}

func (w *logTwin) add(n *big.Rat) {
	if n.Sign() > 0 {
		w.events = append(w.events, twinEvent{w.now, n})
	}
}

func (w *logTwin) advance(now int64, part, out *big.Rat) {
	if w.begin(now, part, out) {
		return
	}
	w.now = max(w.now, now)
	w.add(w.spent(zero(), out))
	w.add(minus(w.amount(part), w.amount(w.part)))
	w.part = part
}

func (w *logTwin) free() *big.Rat {
	f := minus(w.amount(w.part), w.out)
	for _, e := range w.events {
		if e.at+w.period > w.now {
			f = minus(f, e.n)
		}
	}
	return f
}

func (w *logTwin) use(n, out *big.Rat) { w.add(w.spent(n, out)) }

func (w *logTwin) giveBack(n, out *big.Rat) {
	c := w.spent(new(big.Rat).Neg(n), out)
	w.add(c)
	for i := len(w.events) - 1; i >= 0 && c.Sign() < 0; i-- {
		if w.events[i].at+w.period > w.now {
			d := least(w.events[i].n, new(big.Rat).Neg(c))
			w.events[i].n = minus(w.events[i].n, d)
			c = plus(c, d)
		}
	}
}

func (w *logTwin) clone() meterTwin {
	c := *w
	c.events = slices.Clone(w.events)
	return &c
}

// poolTwin is a token bucket. With average it is burst_average: speed depends on what was used in
// the 16 slices before the present one.
type poolTwin struct {
	stand
	burst     *big.Rat // limit, or with a fraction
	speed     *big.Rat // per nanosecond
	pool, cap *big.Rat
	average   *averageTwin
}

type averageTwin struct {
	fast, threshold *big.Rat // per nanosecond, and tokens
	slice           int64
	used            map[int64]*big.Rat
	quick           bool
}

func (w *poolTwin) full() *big.Rat {
	a := times(w.burst, w.part)
	if w.up && w.part.Cmp(rat(1)) < 0 {
		return new(big.Rat).SetInt(ceil(a))
	}
	return a
}

// clamp puts the pool to its room, but tokens there are not turned into debt.
func (w *poolTwin) clamp(pool *big.Rat) *big.Rat {
	if room := minus(w.cap, w.out); pool.Cmp(room) >= 0 {
		return most(room, least(pool, zero()))
	}
	return pool
}

// step refills for a time in which nothing changes.
func (w *poolTwin) step(to int64) {
	d := rat(to - w.now)
	speed := w.speed
	if w.average != nil && w.average.quick {
		speed = w.average.fast
	}
	cap := w.cap
	if w.cap.Cmp(w.full()) < 0 {
		w.cap = least(w.full(), plus(w.cap, times(times(d, w.speed), w.part)))
	} else {
		w.cap = most(w.full(), minus(w.cap, times(times(d, w.speed), minus(rat(1), w.part))))
	}
	if w.average != nil {
		w.cap, cap = w.full(), w.full()
	}
	grown := plus(w.pool, times(times(d, speed), w.part))
	if room := minus(w.cap, w.out); grown.Cmp(room) >= 0 {
		// Where the growing pool met the cap.
		met := w.pool
		if room := minus(cap, w.out); met.Cmp(room) < 0 {
			met = most(minus(w.full(), w.out), minus(room, times(minus(room, met), minus(rat(1), w.part))))
		}
		grown = most(room, least(met, zero()))
	}
	w.pool, w.now = grown, to
}

func (w *poolTwin) advance(now int64, part, out *big.Rat) {
	if w.begin(now, part, out) {
		w.cap = w.full()
		w.pool = w.clamp(w.full())
		if a := w.average; a != nil {
			a.quick = part.Cmp(rat(1)) >= 0 && a.threshold.Sign() > 0
		}
		return
	}
	now = max(now, w.now)
	if a := w.average; a != nil {
		for b := (w.now/a.slice + 1) * a.slice; b <= now; b += a.slice {
			w.step(b)
			sum := zero()
			for k := b/a.slice - 16; k < b/a.slice; k++ {
				sum = plus(sum, in(a.used, k))
			}
			a.quick = w.part.Cmp(rat(1)) >= 0 && sum.Cmp(a.threshold) < 0
			if sum.Sign() == 0 && now-b > 20*a.slice { // nothing will change
				b = (now/a.slice - 1) * a.slice
				w.step(b)
			}
		}
	}
	w.step(now)
	if a := w.average; a != nil && part.Cmp(w.part) > 0 {
		k := now / a.slice
		could := plus(times(w.speed, rat(16*a.slice)), w.burst)
		a.used[k] = plus(in(a.used, k), times(most(a.threshold, could), minus(part, w.part)))
	}
	if a := w.average; a != nil && part.Cmp(rat(1)) < 0 {
		a.quick = false
	}
	w.part, w.out = part, out
	if w.average != nil {
		w.cap = w.full()
		w.pool = w.clamp(w.pool)
	}
}

func (w *poolTwin) free() *big.Rat {
	f := w.clamp(w.pool)
	if room := minus(w.full(), w.out); f.Cmp(room) > 0 {
		return most(room, least(f, zero()))
	}
	return f
}

func (w *poolTwin) use(n, out *big.Rat) {
	w.pool, w.out = minus(w.pool, n), out
	if a := w.average; a != nil {
		k := w.now / a.slice
		a.used[k] = plus(in(a.used, k), n)
	}
}

func (w *poolTwin) giveBack(n, out *big.Rat) {
	if c := minus(plus(n, out), w.out); c.Sign() > 0 {
		w.cap = most(w.cap, least(w.full(), plus(plus(w.pool, n), out)))
	}
	w.out = out
	w.pool = w.clamp(plus(w.pool, n))
	if a := w.average; a != nil {
		k := w.now / a.slice
		a.used[k] = most(minus(in(a.used, k), n), zero())
	}
}

func (w *poolTwin) clone() meterTwin {
	c := *w
	if w.average != nil {
		a := *w.average
		a.used = map[int64]*big.Rat{}
		for k, v := range w.average.used {
			a.used[k] = v
		}
		c.average = &a
	}
	return &c
}

// manyTwin is several rates.
type manyTwin []meterTwin

func (w manyTwin) advance(now int64, part, out *big.Rat) {
	for _, x := range w {
		x.advance(now, part, out)
	}
}

func (w manyTwin) free() *big.Rat {
	f := w[0].free()
	for _, x := range w {
		f = least(f, x.free())
	}
	return f
}

func (w manyTwin) use(n, out *big.Rat) {
	for _, x := range w {
		x.use(n, out)
	}
}

func (w manyTwin) giveBack(n, out *big.Rat) {
	for _, x := range w {
		x.giveBack(n, out)
	}
}

func (w manyTwin) clone() meterTwin {
	var c manyTwin
	for _, x := range w {
		c = append(c, x.clone())
	}
	return c
}

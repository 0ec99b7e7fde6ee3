package bucket

import (
	"encoding/binary"
	"slices"
	"time"
)

// multiMeter is several rates in one limit, such as 10/s and 1000/h: a meter of meters. A request passes if all
// of them agree, and then all of them are charged; else none is. The tightest one answers.
type multiMeter struct {
	moment
	meters []Meter
}

func (m *multiMeter) Advance(now int64, part, out float64) {
	now, part, out = m.later(now, part, out)
	m.moment = moment{now, part, out, true}
	for _, x := range m.meters {
		x.Advance(now, part, out)
	}
}

func (m *multiMeter) Free() float64 {
	free := m.meters[0].Free()
	for _, x := range m.meters[1:] {
		free = min(free, x.Free())
	}
	return free
}

func (m *multiMeter) Use(n, out float64) {
	m.out = out
	for _, x := range m.meters {
		x.Use(n, out)
	}
}

func (m *multiMeter) Return(n, out float64) {
	m.out = out
	for _, x := range m.meters {
		x.Return(n, out)
	}
}

// Wait is the longest of all. Where shares left Free may fall again, so that one meter has
// enough only before another one has: then the search goes on from there.
func (m *multiMeter) Wait(n float64) time.Duration {
	total := m.longest(n)
	if total == 0 || total == Never || m.part == 1 {
		return total
	}
	for c := m.copy(); ; {
		c.Advance(m.now+int64(total), m.part, m.out)
		w := c.longest(n)
		if w == 0 {
			return total
		}
		if w >= Never-total-time.Duration(m.now) {
			return Never
		}
		total += w
	}
}

func (m *multiMeter) longest(n float64) time.Duration {
	w := time.Duration(0)
	for _, x := range m.meters {
		w = max(w, x.Wait(n))
	}
	return w
}

func (m *multiMeter) Reset() time.Duration {
	w := time.Duration(0)
	for _, x := range m.meters {
		w = max(w, x.Reset())
	}
	return w
}

func (m *multiMeter) Fresh() bool {
	return !slices.ContainsFunc(m.meters, func(x Meter) bool { return !x.Fresh() })
}

// capacity is that of the tightest rate.
func (m *multiMeter) capacity() float64 {
	least := m.meters[0].capacity()
	for _, x := range m.meters[1:] {
		least = min(least, x.capacity())
	}
	return least
}

func (m *multiMeter) taken() float64 {
	n := m.meters[0].taken()
	for _, x := range m.meters[1:] {
		n = max(n, x.taken())
	}
	return n
}

func (m *multiMeter) copy() *multiMeter {
	c := &multiMeter{moment: m.moment, meters: make([]Meter, len(m.meters))}
	for i, x := range m.meters {
		c.meters[i] = x.clone()
	}
	return c
}

func (m *multiMeter) clone() Meter { return m.copy() }

func (m *multiMeter) State(b []byte) []byte {
	b = m.header(b, kindMulti)
	b = append(b, byte(len(m.meters)))
	for _, x := range m.meters {
		s := x.State(nil)
		b = append(binary.AppendUvarint(b, uint64(len(s))), s...)
	}
	return b
}

func (m *multiMeter) Load(b []byte, now int64) error {
	r := newReader(b, kindMulti)
	n := multiMeter{moment: r.header(now)}
	if count := int(r.byte()); count != len(m.meters) {
		r.fail("it has %d rates and not %d", count, len(m.meters))
	}
	for _, x := range m.meters {
		part := r.bytes()
		if r.err != nil {
			break
		}
		c := x.clone()
		if err := c.Load(part, now); err != nil {
			return err
		}
		if y := c.at(); y.begun != n.begun || y.part != n.part || y.out != n.out {
			r.fail("its rates disagree about the part or the credit")
		}
		n.now = max(n.now, c.at().now)
		n.meters = append(n.meters, c)
	}
	if err := r.end(); err != nil {
		return err
	}
	if n.begun { // bring them to one time: one may be ahead
		n.Advance(n.now, n.part, n.out)
	}
	*m = n
	return nil
}

// adopt lets each rate go on where the one in the same place ended. A rate that is added starts as new.
func (m *multiMeter) adopt(old Meter) error {
	olds := []Meter{old}
	if o, ok := old.(*multiMeter); ok {
		olds = o.meters
	}
	m.moment = *old.at()
	for i, x := range m.meters {
		if i < len(olds) {
			goOn(x, olds[i])
		} else {
			x.Advance(m.now, m.part, m.out)
		}
	}
	return nil
}

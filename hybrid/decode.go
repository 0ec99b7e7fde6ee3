package hybrid

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/vmihailenco/msgpack/v5"
)

// reader keeps the first error, so that decoding reads as a list of fields.
type reader struct {
	src *bytes.Reader
	dec *msgpack.Decoder
	err error
}

func newReader(b []byte) *reader {
	r := &reader{src: bytes.NewReader(b)}
	r.dec = msgpack.NewDecoder(r.src)
	return r
}
func keep[T any](r *reader, v T, err error) T {
	if err != nil && r.err == nil {
		r.err = err
	}
	if r.err != nil {
		var zero T
		return zero
	}
	return v
}
func (r *reader) u() uint64  { v, err := r.dec.DecodeUint64(); return keep(r, v, err) }
func (r *reader) i() int64   { v, err := r.dec.DecodeInt64(); return keep(r, v, err) }
func (r *reader) f() float64 { v, err := r.dec.DecodeFloat64(); return keep(r, v, err) }

// s and b check the length against what is there before they allocate.
func (r *reader) s() string { return string(r.b()) }
func (r *reader) b() []byte {
	n, err := r.dec.DecodeBytesLen()
	if n = keep(r, n, err); n <= 0 {
		return nil
	}
	if n > r.src.Len() {
		r.err = fmt.Errorf("%d bytes announced, %d left", n, r.src.Len())
		return nil
	}
	v := make([]byte, n)
	return keep(r, v, r.dec.ReadFull(v))
}

// list reads a length that can be true: every element has that many fields, of at least one byte each.
func (r *reader) list(fields int) int {
	n, err := r.dec.DecodeArrayLen()
	if n = keep(r, n, err); n > r.src.Len()/fields {
		r.err = fmt.Errorf("%d elements announced, %d bytes left", n, r.src.Len())
		return 0
	}
	return max(n, 0)
}
func (r *reader) stamp() stamp { return stamp{inc: r.u(), epoch: r.u(), at: r.i()} }

// decode reads what encode wrote. Anything else is an error, never a panic.
func decode(b []byte) (*message, error) {
	r := newReader(b)
	if v := r.u(); r.err == nil && v != version {
		return nil, fmt.Errorf("%w: version %d, this node speaks %d", errMessage, v, version)
	}
	flags := r.u()
	m := &message{stamp: r.stamp(), echo: r.stamp(), probe: flags&hasProbe != 0}
	if flags&hasOwns != 0 {
		m.owns, m.k = r.b(), int(min(r.u(), maxMembers))
	}
	if flags&hasLoan != 0 {
		m.loan = r.loan()
	}
	if flags&hasReports != 0 {
		m.reports = make([]report, r.list(11))
		for i := range m.reports {
			m.reports[i] = r.report()
		}
	}
	if flags&hasGrants != 0 {
		m.re = r.i()
		m.grants = make([]grant, r.list(9))
		for i := range m.grants {
			m.grants[i] = r.grant()
		}
	}
	if flags&hasStandby != 0 {
		m.seq, m.standby = r.u(), r.copies()
	}
	if flags&hasWhole != 0 {
		m.whole = r.b()
	}
	if flags&hasAcks != 0 {
		m.acks = r.ids()
	}
	if flags&hasHanded != 0 {
		m.handed = r.ids()
	}
	if r.err == nil && r.src.Len() > 0 {
		r.err = fmt.Errorf("%d bytes too many", r.src.Len())
	}
	if r.err != nil {
		return nil, fmt.Errorf("%w: %w", errMessage, r.err)
	}
	return m, nil
}

func (r *reader) ids() []uint64 {
	ids := make([]uint64, r.list(1))
	for i := range ids {
		ids[i] = r.u()
	}
	return ids
}

func (r *reader) loan() *loan {
	l := &loan{k: int(min(r.u(), maxMembers)), counted: r.u(), parts: r.b()}
	l.formers = make([]former, r.list(4))
	for i := range l.formers {
		l.formers[i] = former{inc: r.u(), epoch: r.u(), left: r.i(), parts: r.b()}
	}
	return l
}

func (r *reader) report() report {
	x := report{limit: r.s(), plan: r.s(), key: r.s(), gen: r.u()}
	for _, v := range [...]*int64{&x.g, &x.c, &x.r, &x.u, &x.denied, &x.want, &x.least} {
		if *v = r.i(); *v < 0 && r.err == nil {
			r.err = errors.New("a negative counter")
		}
	}
	if x.was.number = r.u(); x.was.number != 0 {
		r.counters(&x.was)
	}
	return x
}

// counters grow as long as a generation lasts, beyond 2^53 too; only the credit that they leave is bounded.
func (r *reader) counters(g *generation) {
	for _, v := range [...]*int64{&g.g, &g.c, &g.r, &g.u} {
		if *v = r.i(); *v < 0 && r.err == nil {
			r.err = errors.New("a negative counter")
		}
	}
	if out := float64(g.g) - float64(g.c) - float64(g.r); out > maxTokens && r.err == nil {
		r.err = errors.New("a credit out of range")
	}
}

func (r *reader) grant() grant {
	x := grant{gen: r.u()}
	for _, v := range [...]*int64{&x.g, &x.c, &x.r, &x.u} {
		if *v = r.i(); *v < 0 && r.err == nil {
			r.err = errors.New("a negative counter")
		}
	}
	x.bal, x.rate, x.out, x.flags = r.f(), r.f(), r.i(), r.u()
	if !(x.bal < maxTokens && x.bal > -maxTokens && x.rate >= 0 && x.rate < maxTokens) && r.err == nil {
		r.err = errors.New("a balance or rate out of range")
	}
	if x.flags&grantWaits != 0 {
		for _, v := range [...]*int64{&x.waits.cost, &x.waits.refused, &x.waits.next, &x.waits.reset, &x.waits.delay, &x.waits.held} {
			if *v = r.i(); *v < 0 && r.err == nil {
				r.err = errors.New("a wait out of range")
			}
		}
	}
	if x.flags&grantPlan != 0 {
		x.plan = r.u()
	}
	return x
}

func (r *reader) copies() []copyOf {
	cs := make([]copyOf, r.list(11))
	for i := range cs {
		part := r.u()
		c := copyOf{part: int(min(part, 1<<20)), limit: r.s(), plan: r.s(), key: r.s()}
		flags := r.u()
		c.base, c.full = flags&1 != 0, flags&2 != 0
		c.bal, c.brought, c.cap, c.out = r.f(), r.f(), r.f(), r.f()
		if !(c.bal < maxTokens && c.bal > -maxTokens && c.brought >= 0 && c.brought < maxTokens && c.cap >= 0 && c.cap < maxTokens && c.out >= 0 && c.out < maxTokens) && r.err == nil {
			r.err = errors.New("a balance out of range")
		}
		c.state = r.b()
		if n := r.list(7); n > 0 {
			c.entries = make([]handedEntry, n)
			for j := range c.entries {
				c.entries[j] = handedEntry{lender: r.s(), inc: r.u(), generation: generation{number: r.u()}}
				r.counters(&c.entries[j].generation)
			}
		}
		cs[i] = c
	}
	return cs
}

// maxMembers bounds what a message may say of the number of members.
const maxMembers = 1 << 20

// maxTokens bounds every balance; float64 holds whole tokens exactly up to 2^53.
const maxTokens = 1 << 53

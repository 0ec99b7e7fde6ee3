package hybrid

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/vmihailenco/msgpack/v5"
	"github.com/vmihailenco/msgpack/v5/msgpcode"
)

// The dumb twin of the wire form: every field by a call of the msgpack library, each message into memory of its own. What the
// engine writes and reads by hand must be the same, to the byte.

type twinWriter struct {
	buf bytes.Buffer
	enc *msgpack.Encoder
}

func newTwinWriter() *twinWriter {
	w := &twinWriter{}
	w.enc = msgpack.NewEncoder(&w.buf)
	return w
}
func (w *twinWriter) u(v uint64)  { _ = w.enc.EncodeUint(v) }
func (w *twinWriter) i(v int64)   { _ = w.enc.EncodeInt(v) }
func (w *twinWriter) f(v float64) { _ = w.enc.EncodeFloat64(v) }
func (w *twinWriter) s(v string)  { _ = w.enc.EncodeString(v) }
func (w *twinWriter) b(v []byte)  { _ = w.enc.EncodeBytes(v) }
func (w *twinWriter) list(n int)  { _ = w.enc.EncodeArrayLen(n) }
func (w *twinWriter) stamp(s stamp) {
	w.u(s.inc)
	w.u(s.epoch)
	w.i(s.at)
}

func encodeTwin(w *twinWriter, m *message) []byte {
	flags := m.sections()
	w.buf.Reset()
	w.u(version)
	w.u(flags)
	w.stamp(m.stamp)
	w.stamp(m.echo)
	if flags&hasOwns != 0 {
		w.b(m.owns)
		w.u(uint64(m.k))
	}
	if flags&hasLoan != 0 {
		w.loan(m.loan)
	}
	if flags&hasReports != 0 {
		w.list(len(m.reports))
		for i := range m.reports {
			w.report(&m.reports[i])
		}
	}
	if flags&hasGrants != 0 {
		w.i(m.re)
		w.list(len(m.grants))
		for i := range m.grants {
			w.grant(&m.grants[i])
		}
	}
	if flags&hasStandby != 0 {
		w.u(m.seq)
		w.copies(m.standby)
	}
	if flags&hasWhole != 0 {
		w.b(m.whole)
	}
	if flags&hasAcks != 0 {
		w.ids(m.acks)
	}
	if flags&hasHanded != 0 {
		w.ids(m.handed)
	}
	return bytes.Clone(w.buf.Bytes())
}

func (w *twinWriter) ids(ids []uint64) {
	w.list(len(ids))
	for _, id := range ids {
		w.u(id)
	}
}

func (w *twinWriter) loan(l *loan) {
	w.u(uint64(l.k))
	w.u(l.counted)
	w.b(l.parts)
	w.list(len(l.formers))
	for _, f := range l.formers {
		w.u(f.inc)
		w.u(f.epoch)
		w.i(f.left)
		w.b(f.parts)
	}
}

func (w *twinWriter) report(r *report) {
	w.s(r.limit)
	w.s(r.plan)
	w.s(r.key)
	w.u(r.gen)
	for _, v := range [...]int64{r.g, r.c, r.r, r.u, r.denied, r.want, r.least} {
		w.i(v)
	}
	if w.u(r.was.number); r.was.number != 0 {
		w.counters(&r.was)
	}
}

func (w *twinWriter) counters(g *generation) {
	for _, v := range [...]int64{g.g, g.c, g.r, g.u} {
		w.i(v)
	}
}

func (w *twinWriter) grant(g *grant) {
	w.u(g.gen)
	for _, v := range [...]int64{g.g, g.c, g.r, g.u} {
		w.i(v)
	}
	w.f(bound(g.bal)) // what a twinReader refuses would make it drop all that travels together
	w.f(g.rate)
	w.i(g.out)
	w.u(g.flags)
	if g.flags&grantWaits != 0 {
		for _, v := range [...]int64{g.waits.cost, g.waits.refused, g.waits.next, g.waits.reset, g.waits.delay, g.waits.held} {
			w.i(v)
		}
	}
	if g.flags&grantPlan != 0 {
		w.u(g.plan)
	}
}

func (w *twinWriter) copies(cs []copyOf) {
	w.list(len(cs))
	for i := range cs {
		c := &cs[i]
		var flags uint64
		if c.base {
			flags |= 1
		}
		if c.full {
			flags |= 2
		}
		w.u(uint64(c.part))
		w.s(c.limit)
		w.s(c.plan)
		w.s(c.key)
		w.u(flags)
		w.f(c.bal)
		w.f(c.brought)
		w.f(c.cap)
		w.f(c.out)
		w.b(c.state)
		w.list(len(c.entries))
		for i := range c.entries {
			w.s(c.entries[i].lender)
			w.u(c.entries[i].inc)
			w.u(c.entries[i].number)
			w.counters(&c.entries[i].generation)
		}
	}
}

type twinReader struct {
	src *bytes.Reader
	dec *msgpack.Decoder
	err error
}

func newTwinReader(b []byte) *twinReader {
	r := &twinReader{src: bytes.NewReader(b)}
	r.dec = msgpack.NewDecoder(r.src)
	return r
}
func keepTwin[T any](r *twinReader, v T, err error) T {
	if err != nil && r.err == nil {
		r.err = err
	}
	if r.err != nil {
		var zero T
		return zero
	}
	return v
}
func (r *twinReader) u() uint64  { v, err := r.dec.DecodeUint64(); return keepTwin(r, v, err) }
func (r *twinReader) i() int64   { v, err := r.dec.DecodeInt64(); return keepTwin(r, v, err) }
func (r *twinReader) f() float64 { v, err := r.dec.DecodeFloat64(); return keepTwin(r, v, err) }

// length reads a length; -1 for nil. Where an int has 32 bits, the library makes negative ones of those above 2³¹.
func (r *twinReader) length(decode func() (int, error)) (int, error) {
	code, _ := r.dec.PeekCode()
	n, err := decode()
	if err == nil && n < 0 && code != msgpcode.Nil {
		err = errors.New("more announced than there can be")
	}
	return n, err
}

func (r *twinReader) s() string { return string(r.b()) }
func (r *twinReader) b() []byte {
	n, err := r.length(r.dec.DecodeBytesLen)
	if n = keepTwin(r, n, err); n <= 0 {
		return nil
	}
	if n > r.src.Len() {
		r.err = fmt.Errorf("%d bytes announced, %d left", n, r.src.Len())
		return nil
	}
	v := make([]byte, n)
	return keepTwin(r, v, r.dec.ReadFull(v))
}

func (r *twinReader) list(fields int) int {
	n, err := r.length(r.dec.DecodeArrayLen)
	if n = keepTwin(r, n, err); n > r.src.Len()/fields {
		r.err = fmt.Errorf("%d elements announced, %d bytes left", n, r.src.Len())
		return 0
	}
	return max(n, 0)
}
func (r *twinReader) stamp() stamp { return stamp{inc: r.u(), epoch: r.u(), at: r.i()} }

func decodeTwin(b []byte) (*message, error) {
	r := newTwinReader(b)
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
	if r.err == nil && r.src.Len() > 0 && flags < hasNewer {
		r.err = fmt.Errorf("%d bytes too many", r.src.Len())
	}
	if r.err != nil {
		return nil, fmt.Errorf("%w: %w", errMessage, r.err)
	}
	return m, nil
}

func (r *twinReader) ids() []uint64 {
	ids := make([]uint64, r.list(1))
	for i := range ids {
		ids[i] = r.u()
	}
	return ids
}

func (r *twinReader) loan() *loan {
	l := &loan{k: int(min(r.u(), maxMembers)), counted: r.u(), parts: r.b()}
	l.formers = make([]former, r.list(4))
	for i := range l.formers {
		l.formers[i] = former{inc: r.u(), epoch: r.u(), left: r.i(), parts: r.b()}
	}
	return l
}

func (r *twinReader) report() report {
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

func (r *twinReader) counters(g *generation) {
	for _, v := range [...]*int64{&g.g, &g.c, &g.r, &g.u} {
		if *v = r.i(); *v < 0 && r.err == nil {
			r.err = errors.New("a negative counter")
		}
	}
	if out := float64(g.g) - float64(g.c) - float64(g.r); out > maxTokens && r.err == nil {
		r.err = errors.New("a credit out of range")
	}
}

func (r *twinReader) grant() grant {
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

func (r *twinReader) copies() []copyOf {
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

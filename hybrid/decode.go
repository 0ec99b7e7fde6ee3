package hybrid

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// decoder reads messages, one after the other, into the same memory. What it returns consists of parts of the packet that it reads and
// of memory that the next message overwrites: it must be copied where it is kept, see Limit.owned. The zero value is ready;
// it is not safe for concurrent use.
type decoder struct {
	m message
	l loan
}

// decode reads what writer.message wrote. Anything else is an error, never a panic. What it returns is good until release, and while b is
// not written to.
func (d *decoder) decode(b []byte) (*message, error) {
	r := &reader{in: b, views: true}
	if v := r.u(); r.err == nil && v != version {
		return nil, fmt.Errorf("%w: version %d, this node speaks %d", errMessage, v, version)
	}
	m, flags := &d.m, r.u()
	m.stamp, m.echo = r.stamps()
	m.probe = flags&hasProbe != 0
	if flags&hasOwns != 0 {
		m.owns, m.k = r.b(), int(min(r.u(), maxMembers))
	}
	if flags&hasLoan != 0 {
		m.loan = r.loan(&d.l)
	}
	if flags&hasReports != 0 {
		m.reports = sized(m.reports, r.list(11))
		for i := range m.reports {
			r.report(&m.reports[i])
		}
	}
	if flags&hasGrants != 0 {
		m.re = r.i()
		m.grants = sized(m.grants, r.list(9))
		for i := range m.grants {
			r.grant(&m.grants[i])
		}
	}
	if flags&hasStandby != 0 {
		m.seq, m.standby = r.u(), r.copiesInto(m.standby)
	}
	if flags&hasWhole != 0 {
		m.whole = r.b()
	}
	if flags&hasAcks != 0 {
		m.acks = r.ids(m.acks)
	}
	if flags&hasHanded != 0 {
		m.handed = r.ids(m.handed)
	}
	// Sections of newer versions come after those that are known here, and are left out with what follows.
	if r.err == nil && r.left() > 0 && flags < hasNewer {
		r.err = fmt.Errorf("%d bytes too many", r.left())
	}
	if r.err != nil {
		return nil, fmt.Errorf("%w: %w", errMessage, r.err)
	}
	return m, nil
}

// release forgets the message, so that nothing of its packet is kept alive. Its lists are used again.
func (d *decoder) release() {
	m := &d.m
	clear(m.reports)
	clear(m.standby)
	clear(d.l.formers)
	d.m = message{reports: m.reports[:0], grants: m.grants[:0], standby: m.standby[:0], acks: m.acks[:0], handed: m.handed[:0]}
	d.l = loan{formers: d.l.formers[:0]}
}

// sized is a list of n elements in the memory of s, or in new memory if there is too little. What they hold is left over.
func sized[T any](s []T, n int) []T { return slices.Grow(s[:0], n)[:n] }

// owned is a key of the limit that outlives what it was read from: the string that this node has of it, or a copy.
func (l *Limit) owned(key string) string {
	if a := l.e.accountOf(l, key); a != nil {
		return a.key
	}
	return strings.Clone(key)
}

// stamps reads the sender's stamp and its echo.
func (r *reader) stamps() (s, echo stamp) {
	var n [6]uint64
	i := r.pos
	for j := range n {
		n[j], i = getUint(r.in, i)
	}
	r.to(i)
	return stamp{n[0], n[1], int64(n[2])}, stamp{n[3], n[4], int64(n[5])}
}

func (r *reader) ids(ids []uint64) []uint64 {
	ids = sized(ids, r.list(1))
	for i := range ids {
		ids[i] = r.u()
	}
	return ids
}

func (r *reader) loan(l *loan) *loan {
	l.k, l.counted, l.parts = int(min(r.u(), maxMembers)), r.u(), r.b()
	l.formers = sized(l.formers, r.list(4))
	for i := range l.formers {
		l.formers[i] = former{inc: r.u(), epoch: r.u(), left: r.i(), parts: r.b()}
	}
	return l
}

func (r *reader) report(x *report) {
	var n [7]uint64
	b, i := r.in, r.pos
	x.limit, i = getString(b, i)
	x.plan, i = getString(b, i)
	x.key, i = getString(b, i)
	x.gen, i = getUint(b, i)
	for j := range n {
		n[j], i = getUint(b, i)
	}
	x.was.number, i = getUint(b, i)
	r.to(i)
	x.g, x.c, x.r, x.u = int64(n[0]), int64(n[1]), int64(n[2]), int64(n[3])
	x.denied, x.want, x.least = int64(n[4]), int64(n[5]), int64(n[6])
	if x.g|x.c|x.r|x.u|x.denied|x.want|x.least < 0 {
		r.fail(errCounter)
	}
	if x.was.number != 0 {
		r.counters(&x.was)
	} else {
		x.was = generation{}
	}
}

var (
	errCounter = errors.New("a negative counter")
	errCredit  = errors.New("a credit out of range")
	errBalance = errors.New("a balance or rate out of range")
	errWait    = errors.New("a wait out of range")
)

// counters grow as long as a generation lasts, beyond 2^53 too; only the credit that they leave is bounded.
func (r *reader) counters(g *generation) {
	g.g, g.c, g.r, g.u = r.i(), r.i(), r.i(), r.i()
	if g.g|g.c|g.r|g.u < 0 {
		r.fail(errCounter)
	}
	if out := float64(g.g) - float64(g.c) - float64(g.r); out > maxTokens {
		r.fail(errCredit)
	}
}

func (r *reader) grant(x *grant) {
	var n [4]uint64
	var out uint64
	b, i := r.in, r.pos
	x.gen, i = getUint(b, i)
	for j := range n {
		n[j], i = getUint(b, i)
	}
	x.bal, i = getFloat(b, i)
	x.rate, i = getFloat(b, i)
	out, i = getUint(b, i)
	x.flags, i = getUint(b, i)
	r.to(i)
	x.g, x.c, x.r, x.u, x.out = int64(n[0]), int64(n[1]), int64(n[2]), int64(n[3]), int64(out)
	if x.g|x.c|x.r|x.u < 0 {
		r.fail(errCounter)
	}
	if !(x.bal < maxTokens && x.bal > -maxTokens && x.rate >= 0 && x.rate < maxTokens) {
		r.fail(errBalance)
	}
	x.waits, x.plan = waits{}, 0
	if x.flags&grantWaits != 0 {
		r.waits(&x.waits)
	}
	if x.flags&grantPlan != 0 {
		x.plan = r.u()
	}
}

func (r *reader) waits(w *waits) {
	*w = waits{cost: r.i(), refused: r.i(), next: r.i(), reset: r.i(), delay: r.i(), held: r.i()}
	if w.cost|w.refused|w.next|w.reset|w.delay|w.held < 0 {
		r.fail(errWait)
	}
}

func (r *reader) copies() []copyOf { return r.copiesInto(nil) }

func (r *reader) copiesInto(cs []copyOf) []copyOf {
	cs = sized(cs, r.list(11))
	for i := range cs {
		r.copyOf(&cs[i])
		if r.err != nil {
			break
		}
	}
	return cs
}

func (r *reader) copyOf(c *copyOf) {
	*c = copyOf{part: int(min(r.u(), 1<<20)), limit: r.s(), plan: r.s(), key: r.s()}
	flags := r.u()
	c.base, c.full = flags&1 != 0, flags&2 != 0
	c.bal, c.brought, c.cap, c.out = r.f(), r.f(), r.f(), r.f()
	if !(c.bal < maxTokens && c.bal > -maxTokens && c.brought >= 0 && c.brought < maxTokens && c.cap >= 0 && c.cap < maxTokens && c.out >= 0 && c.out < maxTokens) {
		r.fail(errBalance)
	}
	c.state = r.b()
	if n := r.list(7); n > 0 {
		c.entries = make([]handedEntry, n)
		for j := range c.entries {
			c.entries[j] = handedEntry{lender: r.s(), inc: r.u(), generation: generation{number: r.u()}}
			r.counters(&c.entries[j].generation)
		}
	}
}

// maxMembers bounds what a message may say of the number of members.
const maxMembers = 1 << 20

// maxTokens bounds every balance; float64 holds whole tokens exactly up to 2^53.
const maxTokens = 1 << 53

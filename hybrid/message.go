package hybrid

import (
	"bytes"
	"errors"

	"github.com/vmihailenco/msgpack/v5"
)

// version is the first element of every message. A reader drops what it does not know.
const version = 1

// errMessage is wrapped by every error of decode.
var errMessage = errors.New("hybrid: malformed message")

// stamp names a moment of one engine: its incarnation, how often its set of owned partitions
// changed so far, and its own monotonic clock. It is only ever compared with stamps of the
// same incarnation.
type stamp struct {
	inc, epoch uint64
	at         int64 // ns
}

// former is a loan of some partitions to a former owner that may still be in use.
type former struct {
	inc, epoch uint64 // the former owner's incarnation, and the epoch of the last stamp it was lent under
	left       int64  // ns until it has run out
	parts      bits
}

// loan is what the sender lends to the receiver: its share of these partitions.
type loan struct {
	k       int    // the weight is 1/k; 0 lends nothing
	counted uint64 // fingerprint of the members counted in k
	parts   bits
	formers []former
}

// report is the lender's side of one key, all counters cumulative within the generation.
type report struct {
	limit, plan, key string
	gen              uint64
	g, c, r, u       int64      // granted (as known to the sender), consumed, returned, refunded
	was              generation // what the account held of the owner before this one
	denied           int64      // tokens refused locally since the last report
	want             int64      // total G that would satisfy who waits; 0: nobody waits
	least            int64      // smallest G of use to who waits first
}

// generation is the counters of one generation at one moment; number 0: none.
type generation struct {
	number     uint64
	g, c, r, u int64
}

// handedEntry is a lender's entry in a ledger that is handed over.
type handedEntry struct {
	lender string
	inc    uint64
	generation
}

// Flags of a grant.
const (
	grantUnknown   = 1 << iota // the ledger does not know this generation: burn the credit
	grantRecall                // return what is not needed
	grantHold                  // idle credit is being recalled; ask again
	grantNews                  // not an answer: tokens appeared for a denied key
	grantNoLimit               // the owner has no limit of this name
	grantContended             // demand exceeds the pool
	grantRefused               // what was wanted is not there: a denial
	grantWaits                 // waits follow: the rule is not one token bucket
	grantPlan                  // a plan follows: the key has another than the report names
)

// grant is the owner's side of one key: G and the counters it has seen.
type grant struct {
	gen        uint64
	g, c, r, u int64
	bal        float64 // tokens in the pool
	rate       float64 // tokens per second that the pool gains now
	out        int64   // credit that is out, of all lenders
	flags      uint64
	waits      waits  // with grantWaits
	plan       uint64 // with grantPlan: planHash of its name
}

// copyOf is one ledger as an heir or a new owner keeps it.
type copyOf struct {
	part             int
	limit, plan, key string // key "" with base: what a key has that no record names; with base key is the plan
	base             bool
	full             bool          // nothing to remember
	bal, cap         float64       // tokens
	brought          float64       // of bal, or spent since: what came from a standby record, while its owner may have it too
	out              float64       // credit that is out
	saved            float64       // in a hand-off: see ledger
	start            float64       // in a hand-off: see ledger
	entries          []handedEntry // whose credit, in a hand-off
	state            []byte        // of the meter, where the rule is not one token bucket
	at               int64         // own clock: when it was true; not sent
}

// message is all that one engine says to another in one packet. Sections may be empty.
type message struct {
	stamp   stamp // the sender's
	echo    stamp // the newest of the receiver's that the sender has seen
	probe   bool  // answer at once
	owns    bits  // partitions that the sender owns
	k       int   // with owns: how many members the sender counts
	loan    *loan
	reports []report
	re      int64 // the receiver's time of the packet that the grants answer; 0 for none
	grants  []grant
	seq     uint64 // of the standby records; 0 for none
	standby []copyOf
	whole   bits     // partitions whose standby the receiver has been told completely
	acks    []uint64 // standby sequences that the sender has taken in
	handed  []uint64 // hand-offs that the sender has taken in
}

// bits is a set of partitions.
type bits []byte

func newBits(n int) bits      { return make(bits, (n+7)/8) }
func (b bits) set(i int)      { b[i/8] |= 1 << (i % 8) }
func (b bits) has(i int) bool { return i/8 < len(b) && b[i/8]&(1<<(i%8)) != 0 }

// writer collects the first error of the encoder; bytes.Buffer has none, so none is expected.
type writer struct {
	buf bytes.Buffer
	enc *msgpack.Encoder
}

func newWriter() *writer {
	w := &writer{}
	w.enc = msgpack.NewEncoder(&w.buf)
	return w
}
func (w *writer) u(v uint64)  { _ = w.enc.EncodeUint(v) }
func (w *writer) i(v int64)   { _ = w.enc.EncodeInt(v) }
func (w *writer) f(v float64) { _ = w.enc.EncodeFloat64(v) }
func (w *writer) s(v string)  { _ = w.enc.EncodeString(v) }
func (w *writer) b(v []byte)  { _ = w.enc.EncodeBytes(v) }
func (w *writer) list(n int)  { _ = w.enc.EncodeArrayLen(n) }
func (w *writer) stamp(s stamp) {
	w.u(s.inc)
	w.u(s.epoch)
	w.i(s.at)
}

// Flags of a message: which sections follow.
const (
	hasProbe = 1 << iota
	hasOwns
	hasLoan
	hasReports
	hasGrants
	hasStandby
	hasWhole
	hasAcks
	hasHanded
)

func (m *message) sections() (flags uint64) {
	for _, x := range [...]struct {
		bit uint64
		has bool
	}{
		{hasProbe, m.probe}, {hasOwns, m.owns != nil}, {hasLoan, m.loan != nil}, {hasReports, len(m.reports) > 0},
		{hasGrants, len(m.grants) > 0 || m.re != 0}, {hasStandby, m.seq != 0}, {hasWhole, m.whole != nil}, {hasAcks, len(m.acks) > 0}, {hasHanded, len(m.handed) > 0},
	} {
		if x.has {
			flags |= x.bit
		}
	}
	return flags
}

// encode writes a message; the result is the caller's to keep.
func encode(w *writer, m *message) []byte {
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

func (w *writer) ids(ids []uint64) {
	w.list(len(ids))
	for _, id := range ids {
		w.u(id)
	}
}

func (w *writer) loan(l *loan) {
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

func (w *writer) report(r *report) {
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

func (w *writer) counters(g *generation) {
	for _, v := range [...]int64{g.g, g.c, g.r, g.u} {
		w.i(v)
	}
}

func (w *writer) grant(g *grant) {
	w.u(g.gen)
	for _, v := range [...]int64{g.g, g.c, g.r, g.u} {
		w.i(v)
	}
	w.f(bound(g.bal)) // what a reader refuses would make it drop all that travels together
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

func (w *writer) copies(cs []copyOf) {
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

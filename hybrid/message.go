package hybrid

import "errors"

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
	grantOverflow              // with a denial: the owner has no room for the key
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

// Flags of a message: which sections follow, in their order. What a newer version has to say besides goes in sections of its own, of higher bits,
// so that those who do not know them can take the rest. The records within sections have no room for more.
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
	hasNewer // and all bits above it: see decode
)

func (m *message) sections() (flags uint64) {
	has := func(bit uint64, yes bool) {
		if yes {
			flags |= bit
		}
	}
	has(hasProbe, m.probe)
	has(hasOwns, m.owns != nil)
	has(hasLoan, m.loan != nil)
	has(hasReports, len(m.reports) > 0)
	has(hasGrants, len(m.grants) > 0 || m.re != 0)
	has(hasStandby, m.seq != 0)
	has(hasWhole, m.whole != nil)
	has(hasAcks, len(m.acks) > 0)
	has(hasHanded, len(m.handed) > 0)
	return flags
}

// message appends m. It keeps nothing of it.
func (w *writer) message(m *message) {
	flags := m.sections()
	b, i := w.room(8 * maxNumber)
	i = putUint(b, i, version)
	i = putUint(b, i, flags)
	i = putStamp(b, i, m.stamp)
	w.buf = b[:putStamp(b, i, m.echo)]
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
}

func putStamp(b []byte, i int, s stamp) int {
	i = putUint(b, i, s.inc)
	i = putUint(b, i, s.epoch)
	return putInt(b, i, s.at)
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
	b, i := w.room(3*maxLength + len(r.limit) + len(r.plan) + len(r.key) + 13*maxNumber)
	i = putString(b, i, r.limit)
	i = putString(b, i, r.plan)
	i = putString(b, i, r.key)
	i = putUint(b, i, r.gen)
	i = putInt(b, i, r.g)
	i = putInt(b, i, r.c)
	i = putInt(b, i, r.r)
	i = putInt(b, i, r.u)
	i = putInt(b, i, r.denied)
	i = putInt(b, i, r.want)
	i = putInt(b, i, r.least)
	if i = putUint(b, i, r.was.number); r.was.number != 0 {
		i = putCounters(b, i, &r.was)
	}
	w.buf = b[:i]
}

func putCounters(b []byte, i int, g *generation) int {
	i = putInt(b, i, g.g)
	i = putInt(b, i, g.c)
	i = putInt(b, i, g.r)
	return putInt(b, i, g.u)
}

func (w *writer) grant(g *grant) {
	b, i := w.room(16 * maxNumber)
	i = putUint(b, i, g.gen)
	i = putInt(b, i, g.g)
	i = putInt(b, i, g.c)
	i = putInt(b, i, g.r)
	i = putInt(b, i, g.u)
	i = putFloat(b, i, bound(g.bal)) // what a reader refuses would make it drop all that travels together
	i = putFloat(b, i, g.rate)
	i = putInt(b, i, g.out)
	i = putUint(b, i, g.flags)
	if g.flags&grantWaits != 0 {
		i = putInt(b, i, g.waits.cost)
		i = putInt(b, i, g.waits.refused)
		i = putInt(b, i, g.waits.next)
		i = putInt(b, i, g.waits.reset)
		i = putInt(b, i, g.waits.delay)
		i = putInt(b, i, g.waits.held)
	}
	if g.flags&grantPlan != 0 {
		i = putUint(b, i, g.plan)
	}
	w.buf = b[:i]
}

func (w *writer) copies(cs []copyOf) {
	w.list(len(cs))
	for i := range cs {
		w.copyOf(&cs[i])
	}
}

func (w *writer) copyOf(c *copyOf) {
	var flags uint64
	if c.base {
		flags |= 1
	}
	if c.full {
		flags |= 2
	}
	b, i := w.room(5*maxLength + len(c.limit) + len(c.plan) + len(c.key) + len(c.state) + 6*maxNumber)
	i = putUint(b, i, uint64(c.part))
	i = putString(b, i, c.limit)
	i = putString(b, i, c.plan)
	i = putString(b, i, c.key)
	i = putUint(b, i, flags)
	i = putFloat(b, i, c.bal)
	i = putFloat(b, i, c.brought)
	i = putFloat(b, i, c.cap)
	i = putFloat(b, i, c.out)
	i = putBytes(b, i, c.state)
	w.buf = b[:putList(b, i, len(c.entries))]
	for j := range c.entries {
		x := &c.entries[j]
		b, i := w.room(maxLength + len(x.lender) + 6*maxNumber)
		i = putString(b, i, x.lender)
		i = putUint(b, i, x.inc)
		i = putUint(b, i, x.number)
		w.buf = b[:putCounters(b, i, &x.generation)]
	}
}

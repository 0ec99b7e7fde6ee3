package hybrid

import (
	"math"
	"slices"
	"strings"

	"github.com/jatah-io/jatah/ring"
)

// partition is the owner's side of one slot of the ring.
type partition struct {
	id    int
	owned bool
	epoch uint64 // of the engine, when it took the partition over
	// What keys start from, for fallback share: each share brings this part of its tokens along
	// when it is first counted. bringing is off once a hand-off has told the balances.
	full        float64 // 1: a key without a record was full; 0: nothing is known of it
	bringing    bool
	adopted     uint64  // incarnation of the owner whose standby it started from
	bringEnd    int64   // own clock: a share that is counted for the first time later brings nothing, it may have been used
	brought     float64 // weights that were brought, at most 1 in all
	told        bool    // its balances are known, or known to be unknown: nothing more is waited for
	fresh       bool    // taken over while the process was starting: others may yet tell
	handedFresh bool    // a former owner said that it knew nothing either
	takenAt     int64   // own clock
	// lineage is a number for all that its ledgers have been through since some owner began them because nobody knew anything, in a
	// cluster that started. It goes along with hand-offs. 0: they began otherwise.
	lineage uint64
	pending []pendingHandOff
	// applied is the epoch of the last hand-off taken in from each former owner's incarnation. It outlives the time in which
	// this node owns the partition: a hand-off that is sent again because its confirmation was lost may come after that.
	applied map[uint64]uint64
	shares  []*share
	// Weight that was held here before, and went to nobody else as far as is known: what of it comes back was not used. since is when
	// the first of it left.
	away    float64
	since   int64
	handed  map[uint64]uint64 // former owner's incarnation -> epoch in which it let the partition go
	eras    []era
	first   uint64 // id of eras[0]
	next    int64  // the earliest moment at which the set of shares may change by itself
	ledgers map[ledgerKey]*ledger
	roomy   int                // ledgers since the map was made: it keeps room for as many
	bytes   int64              // of the ledgers
	bases   map[*Limit]*ledger // what a key has that has no ledger

	heir    *peer // to whom standby records go
	heirInc uint64
	heirDue []*ledger       // changed since they were sent
	unheard map[string]bool // members that have not lent since: what permits they hold is not known
	missing int             // ledgers that the heir has never confirmed

	off rules
}

type ledgerKey struct {
	limit *Limit
	key   string
}

// share is one lender's loan of its share of this partition.
type share struct {
	lender  string
	inc     uint64
	k       int
	counted uint64
	brought bool
	until   int64 // own clock: the stamp that the lender echoed, plus TTL
	formers []formerShare
	from    []formerShare // other owners that it was lent to since it was counted here
}

// formerShare is a loan to a former owner that must have run out, or been handed over, first.
type formerShare struct {
	inc, epoch uint64
	until      int64 // own clock
}

// era is a span of time in which the owner holds the same shares.
type era struct {
	id       uint64
	from     int64
	fraction float64 // of the limit, 0 to 1
	brought  float64 // weight of the shares that are counted for the first time
	back     float64 // weight of the shares that come back as they were, if they left after since
	since    int64
	shares   []eraShare
	whole    bool // all of the limit
	even     int  // the common k, 0 if they differ
	counted  []string
}
type eraShare struct {
	lender string
	k      int
	known  bool // the lender counts the same members as the owner: its rank is known
}

// maxEras bounds the history of a partition. Older eras are merged, to the disadvantage of
// ledgers that nobody touched since.
const maxEras = 512

func (p *partition) era() *era { return &p.eras[len(p.eras)-1] }

// index is the place of an era in the history, the oldest kept one for those that were merged away.
func (p *partition) index(id uint64) int {
	if id <= p.first {
		return 0
	}
	return int(id - p.first)
}

// usable says whether the owner may count the share at now.
func (p *partition) usable(s *share, now int64) bool {
	if s.k == 0 || s.until < now {
		return false
	}
	if p.off&ruleFormer != 0 {
		return true
	}
	for _, f := range s.formers {
		if f.until > now && p.handed[f.inc] < f.epoch {
			return false
		}
	}
	return true
}

// changes is the next moment after now at which the share may become usable or stop being so.
func (p *partition) changes(s *share, now int64) int64 {
	if s.k == 0 || s.until < now {
		return math.MaxInt64
	}
	next := s.until + 1
	for _, f := range s.formers {
		if f.until > now && p.handed[f.inc] < f.epoch {
			next = min(next, f.until)
		}
	}
	return next
}

// settleShares brings the history of shares to now. Shares that ran out meanwhile end at their own time.
func (e *Engine) settleShares(p *partition, now int64) {
	for p.next <= now {
		at := p.next
		e.newEra(p, at)
		if p.next <= at {
			p.next = at + 1
		}
	}
	e.newEra(p, now)
}

// newEra starts an era at the given time if the set of usable shares differs from the last one's.
func (e *Engine) newEra(p *partition, at int64) {
	p.next = math.MaxInt64
	last := p.era()
	held := last.fraction
	same, n := true, 0
	for _, s := range p.shares {
		p.next = min(p.next, p.changes(s, at))
		if !p.usable(s, at) {
			continue
		}
		if same = same && n < len(last.shares); same {
			o := last.shares[n]
			same = o.lender == s.lender && o.k == s.k && o.known == e.known(s)
		}
		n++
	}
	if same && n == len(last.shares) && !p.brings(at) {
		return
	}
	now := era{id: last.id + 1, from: max(at, last.from), counted: e.counted.names}
	for _, s := range p.shares {
		if p.usable(s, at) {
			now.shares = append(now.shares, eraShare{s.lender, s.k, e.known(s)})
			if p.bringing && !s.brought && at <= p.bringEnd {
				s.brought = true
				w := min(1/float64(s.k), 1-p.brought)
				now.brought += w
				p.brought += w
			}
		}
	}
	p.moved(&now, last, at)
	now.sum()
	if len(p.eras) == maxEras { // merge the two oldest: the smaller part of the limit for both
		if a, b := &p.eras[0], &p.eras[1]; a.fraction < b.fraction {
			from, id, brought := b.from, b.id, b.brought
			*b = *a
			b.from, b.id, b.brought = from, id, brought
		}
		p.eras = slices.Delete(p.eras, 0, 1)
		p.first++
	}
	p.eras = append(p.eras, now)
	if now.fraction > held {
		e.tellRate(p)
	}
}

// known says whether a lender counts the same members as this node, so that its rank among them is known.
func (e *Engine) known(s *share) bool { return s.counted == e.counted.print && s.counted != 0 }

// moved reckons which weight left with an era, and which came back that was nowhere else meanwhile: from a lender that lent it to nobody
// else, or to one that handed everything over, or because the members that remain divide what another one had.
func (p *partition) moved(now, last *era, at int64) {
	weight := map[string]float64{}
	for _, s := range last.shares {
		weight[s.lender] = 1 / float64(s.k)
	}
	var left, came float64
	for _, s := range p.shares {
		if p.usable(s, at) {
			if d := 1/float64(s.k) - weight[s.lender]; d > 0 && !p.foreign(s) {
				came += d
			} else {
				left += max(0, -d)
			}
			s.from = s.from[:0]
			delete(weight, s.lender)
		}
	}
	for _, w := range weight {
		left += w
	}
	if p.away < 1e-9 {
		p.away, p.since = 0, at
	}
	p.away = min(1, p.away+left)
	now.back, now.since = min(p.away, came), p.since
	p.away -= now.back
}

// foreign says that a share was with another owner, which has not handed over what it knew.
func (p *partition) foreign(s *share) bool {
	return slices.ContainsFunc(s.from, func(f formerShare) bool { return p.handed[f.inc] < f.epoch })
}

// brings says whether a share is usable that has not brought its tokens along yet.
func (p *partition) brings(at int64) bool {
	if !p.bringing || at > p.bringEnd {
		return false
	}
	for _, s := range p.shares {
		if !s.brought && p.usable(s, at) {
			return true
		}
	}
	return false
}

// sum adds the weights, exactly when all lenders count the same number of members.
func (e *era) sum() {
	for i, s := range e.shares {
		if i == 0 {
			e.even = s.k
		} else if e.even != s.k {
			e.even = 0
		}
		e.fraction += 1 / float64(s.k)
	}
	if e.even > 0 {
		e.fraction = float64(len(e.shares)) / float64(e.even)
	}
	e.fraction = min(e.fraction, 1)
	e.whole = e.even > 0 && len(e.shares) == e.even
}

// tokens is the cap of a key's pool in this era: whole tokens.
func (e *era) tokens(l *Limit, hash uint64) float64 {
	b := l.spec.Burst
	switch {
	case e.whole:
		return float64(b)
	case l.spec.Fallback != FallbackWait:
		return min(float64(b), math.Ceil(float64(b)*e.fraction-1e-9))
	}
	var sum int64
	for _, s := range e.shares {
		sum += wholeShare(b, s.k, rankOf(e.counted, s.lender, hash, s.known))
	}
	return float64(min(b, sum))
}

// rankOf is the rendezvous rank of a member; one whose view is not known gets no odd token.
func rankOf(counted []string, member string, hash uint64, known bool) int {
	if !known {
		return math.MaxInt
	}
	if r := ring.Rank(counted, member, hash); r >= 0 {
		return r
	}
	return math.MaxInt
}

// wholeShare is floor or ceil of b/k by rank, so that the shares of all ranks add up to b.
func wholeShare(b int64, k, rank int) int64 {
	s := b / int64(k)
	if int64(rank) < b%int64(k) {
		s++
	}
	return s
}

// take makes the engine the partition's owner, with nothing known about its keys.
func (p *partition) take(epoch uint64, now int64) {
	*p = partition{id: p.id, owned: true, epoch: epoch, next: math.MaxInt64, takenAt: now, pending: p.pending, applied: p.applied, off: p.off,
		handed: map[uint64]uint64{}, ledgers: map[ledgerKey]*ledger{}, bases: map[*Limit]*ledger{},
		eras: []era{{from: now}}}
}

// shareOf finds or makes the record of a lender; they are kept sorted so that runs can be replayed.
func (p *partition) shareOf(lender string) *share {
	i, ok := slices.BinarySearchFunc(p.shares, lender, func(s *share, n string) int { return strings.Compare(s.lender, n) })
	if !ok {
		p.shares = slices.Insert(p.shares, i, &share{lender: lender})
	}
	return p.shares[i]
}

// base is the state of a key that nobody has used since the partition was taken over.
func (p *partition) base(l *Limit) *ledger {
	b := p.bases[l]
	if b == nil {
		b = &ledger{limit: l, at: p.eras[0].from, era: p.first}
		if l.spec.Fallback != FallbackWait {
			b.start = float64(l.spec.Burst) * p.full
		}
		b.m = l.newMeter(b.at)
		p.bases[l] = b
	}
	return b
}

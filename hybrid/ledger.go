package hybrid

import (
	"math"

	"github.com/jatah-io/jatah/bucket"
)

// ledger is the owner's side of one key: the pool and what was granted out of it.
//
// The pool is kept as tokens in a float64 together with the time it was exact at. Grants,
// charges and returns change it by whole tokens, which are exact below 2^53, and the time
// only moves when the pool is clamped or the shares change, so rounding does not add up:
// refilling from the same moment is one multiplication, whenever it is asked for.
//
// Invariant: pool + sum(G-C-R) <= cap.
type ledger struct {
	limit *Limit
	key   string
	hash  uint64
	blind int64 // own clock: until then it may lack what nobody used, since its owner began without knowing

	m         bucket.Meter // instead of pool and cap, where the rule is another than a token bucket
	spent     float64      // with m: granted and charged since this owner took the key over
	pool, cap float64
	at        int64   // own clock: the time at which pool and cap are meant
	era       uint64  // the partition's era that `at` lies in
	adopted   float64 // debt that was taken from the standby, until its owner tells it itself
	brought   float64 // of start, so far
	start     float64 // tokens that the shares bring along, all together
	saved     float64 // tokens that count as used because a snapshot said so
	exact     bool    // start is certain: it is brought with fallback wait too
	recorded  bool    // with m: a snapshot said something of it
	carried   bool    // with m: another owner handed it over, so that spent is not all
	full      float64
	fullEra   uint64 // era that full was computed for, plus one

	entries   []*entry // by lender; few
	held      float64  // credit that a former owner had granted, counted for one TTL
	heldUntil int64
	granted   bool // since this owner took the key over

	size int64 // bytes that are counted for it; 0: it is not stored

	recallUntil   int64 // idle credit has been recalled; wait for it this long
	recalledTwice bool  // within that time
	heirDue       bool  // changed since it was sent to the heir
	heirMissing   bool  // the heir has never confirmed it
	heirHas       heirHas
	telling       *tell // on the list of ledgers that have news for nodes they refused
	recalling     *lateRecall
}

// entry is what one lender was granted, consumed, returned and refunded in one generation.
// All four only grow; both sides merge by max.
type entry struct {
	lender     string
	inc, gen   uint64
	g, c, r, u int64
	was        generation // what its lender held of the owner before, in case that hands it over yet
	handed     bool       // it came with a hand-off, from an owner that grants no more
	void       bool       // written off: any later report of this generation is unknown
	until      int64      // the credit's lease, own clock
	seen       int64      // last report
	demand     float64
	used       int64   // what the last report added to C
	refused    int64   // the cost that was refused last, 0 when satisfied since
	quietUntil int64   // when the denial that the lender holds ends by itself
	told       float64 // the level that went with that denial
	toldAt     int64
}

func (x *entry) out() int64 {
	if x.void {
		return 0
	}
	return max(0, x.g-x.c-x.r)
}

// outstanding is the credit that is out now, in tokens.
func (l *ledger) outstanding() float64 {
	o := l.held
	for _, x := range l.entries {
		o += float64(x.out())
	}
	return o
}

// refill moves the ledger to now. Credit whose lease ended meanwhile is written off at the very
// moment it ended: it counts as consumed then, and only from then on the pool refills in its place.
func (p *partition) refill(l *ledger, now int64) {
	if l.isPermits() { // what is out may be held: it is not written off
		l.expireHeld(now)
		p.advance(l, now)
		return
	}
	for {
		end, x := now, (*entry)(nil)
		held := l.held > 0 && l.heldUntil < end
		if held {
			end = l.heldUntil
		}
		for _, y := range l.entries {
			if y.out() > 0 && y.until < end {
				end, x, held = y.until, y, false
			}
		}
		p.advance(l, end)
		switch {
		case x != nil:
			x.void = true
		case held:
			l.held = 0
		default:
			return
		}
	}
}

// advance refills to end, era by era.
func (p *partition) advance(l *ledger, end int64) {
	if l.m != nil {
		p.advanceMeter(l, end)
		return
	}
	out := l.outstanding()
	for i := p.index(l.era); ; i++ {
		l.era = p.first + uint64(i)
		if i == len(p.eras)-1 || p.eras[i+1].from > end {
			l.step(&p.eras[i], end, out, false)
			return
		}
		l.step(&p.eras[i], p.eras[i+1].from, out, true)
		if w := p.eras[i+1].brought; w > 0 && (l.limit.spec.Fallback != FallbackWait || l.exact) {
			l.pool += l.start * w // the cap follows with the fraction
			l.brought += l.start * w
		}
	}
}

// step refills to end within one era, in which the part of the limit that the owner may use is fixed.
func (l *ledger) step(e *era, end int64, out float64, over bool) {
	d := float64(max(0, end-l.at))
	rate := l.limit.perNs
	full := l.fullIn(e)
	// Shares that left started empty elsewhere and refill no faster than this.
	top := max(full, l.cap-d*rate*(1-e.fraction))
	room := top - out
	gain := d * rate * e.fraction
	switch {
	case l.pool+gain >= room:
		l.pool = max(room, min(l.pool+gain, 0))
	case !over && top == l.cap:
		// Not clamped, and the era goes on. The moment stays where it is: the next
		// refill starts from the same exact value.
		return
	default:
		l.pool += gain
	}
	l.cap, l.at = top, max(l.at, end)
}

// level is the pool at now; refill(l, now) has just been called.
func (p *partition) level(l *ledger, now int64) float64 {
	if l.m != nil {
		return l.m.Free()
	}
	return l.pool + float64(max(0, now-l.at))*l.limit.perNs*p.era().fraction
}

// isFull says that the ledger holds nothing that a new one would not: no credit, no debt, a full pool.
func (p *partition) isFull(l *ledger, now int64) bool {
	if l.m != nil {
		return l.m.Fresh() && l.outstanding() == 0 && p.era().whole
	}
	return l.outstanding() == 0 && p.level(l, now) >= l.cap && l.cap >= float64(l.limit.spec.Burst)
}

// fullIn is the pool's cap when the shares of the era have been held for long: whole tokens.
func (l *ledger) fullIn(e *era) float64 {
	if l.fullEra == e.id+1 {
		return l.full
	}
	l.full, l.fullEra = e.tokens(l.limit, l.hash), e.id+1
	return l.full
}

// quietSince is when a lender last said something of the key.
func (l *ledger) quietSince() (at int64) {
	for _, x := range l.entries {
		at = max(at, x.seen)
	}
	return at
}

// find returns the entry of a lender.
func (l *ledger) find(lender string) *entry {
	for _, x := range l.entries {
		if x.lender == lender {
			return x
		}
	}
	return nil
}

// returned is what a lender has returned and refunded in a generation, as far as is known.
func (l *ledger) returned(lender string, inc, gen uint64) int64 {
	if x := l.find(lender); x != nil && x.inc == inc && x.gen == gen {
		return x.r + x.u
	}
	return 0
}

// settleReport takes a report's counters into the ledger: returns and refunds fill the pool, consumption
// ends credit, and consumption beyond credit is charged. It returns nil for a report that must
// not be believed: of a generation that was written off, is older, or was granted by another owner.
func (e *Engine) settleReport(p *partition, l *ledger, from string, inc uint64, m *report, now int64) *entry {
	x := l.find(from)
	if x == nil || x.inc != inc || x.gen != m.gen {
		if m.g > 0 || x != nil && x.inc == inc && x.gen > m.gen {
			return nil
		}
		if x == nil {
			x = &entry{lender: from}
			l.entries = append(l.entries, x)
		}
		// The credit of the generation before is burnt at the lender: consumed, as far as is known.
		if old := *x; e.off&ruleGeneration == 0 {
			left, back := old.carry(inc, &m.was)
			*x = entry{lender: from, inc: inc, gen: m.gen, g: left, was: m.was, seen: old.seen, demand: old.demand}
			if back > 0 {
				l.give(float64(back))
			}
			if old.seen == 0 { // what it has refused so far may have come over any time
				x.seen = now - 2*e.tick
			}
		} else {
			x.inc, x.gen, x.void = inc, m.gen, false
		}
	}
	if x.void {
		return nil
	}
	used := max(0, m.c-x.c)
	x.c = max(x.c, m.c)
	if l.isPermits() { // an entry that was dropped and came back: what the lender may use is held
		x.g = max(x.g, m.g)
	}
	if l.m != nil && used > 0 {
		l.m.Use(0, l.outstanding()) // credit that was spent is no longer out
	}
	if d := m.r - x.r; d > 0 {
		x.r = m.r
		l.give(float64(d))
	}
	if d := m.u - x.u; d > 0 {
		x.u = m.u
		l.give(float64(d))
	}
	if over := x.c + x.r - x.g; over > 0 {
		x.g += over
		l.spend(float64(over))
		e.stats.debt.Add(uint64(over))
	}
	l.recount()
	p.clamp(l, now)
	x.until = now + e.lease()
	if from == e.cfg.Node {
		// The owner's own account has no lease: it voids its credit only with the ledger, and says nothing while it is idle.
		x.until = math.MaxInt64
	}
	x.used = used
	dt := float64(max(now-x.seen, int64(1e6)))
	x.demand += (1 - math.Exp(-dt/float64(2*e.tick))) * (float64(used+m.denied)/dt - x.demand)
	x.seen = now
	return x
}

// clamp takes away what a refund filled the pool with above what it can hold.
func (p *partition) clamp(l *ledger, now int64) {
	if l.m != nil {
		return
	}
	gain := float64(max(0, now-l.at)) * l.limit.perNs * p.era().fraction
	if room, level := l.cap-l.outstanding(), l.pool+gain; level > room {
		l.pool = max(room, min(level, 0)) - gain
	}
}

// most is what the pool can hold of what the owner has now.
func (p *partition) most(l *ledger) float64 {
	if l.m != nil {
		return float64(l.limit.spec.Burst) * p.era().fraction
	}
	return l.cap
}

// carry closes a generation that a former owner handed over, and returns the credit that is left of it: the new generation
// begins with as much. Its lender has set it aside meanwhile. back is what was returned and refunded that the former owner did not
// know: it is for the pool once the new generation is in the books.
func (x *entry) carry(inc uint64, was *generation) (left, back int64) {
	if !x.handed || x.void || was.number == 0 || x.inc != inc || x.gen != was.number {
		return 0, 0
	}
	back = max(0, was.r-x.r) + max(0, was.u-x.u)
	x.c, x.r, x.u = max(x.c, was.c), max(x.r, was.r), max(x.u, was.u)
	return x.out(), back
}

// lease is how long the owner keeps credit for a lender that is silent. The lender voids it within TTL, with the first tick after which the
// next one would be too late; and that tick may itself be late by half a TTL before the node finds that it was paused.
func (e *Engine) lease() int64 { return e.ttl + e.ttl/2 }

// wanted is a lender's demand in tokens per nanosecond, 0 once it has gone quiet.
func (e *Engine) wanted(x *entry, now int64) float64 {
	if now-x.seen > 5*e.tick/2 {
		return 0
	}
	return x.demand
}

// refuses says that somebody else holds a denial: what is left is for those who want it.
func (l *ledger) refuses(but *entry, now int64) bool {
	for _, y := range l.entries {
		if y != but && y.refused > 0 && now <= y.quietUntil {
			return true
		}
	}
	return false
}

// grantTo decides how much credit a lender gets: what it waits for, plus enough for its demand over two
// ticks; under contention in proportion to demand; never more than the pool.
func (e *Engine) grantTo(p *partition, l *ledger, x *entry, m *report, now int64) {
	level := p.level(l, now)
	if level < 1 {
		return
	}
	var need float64
	if l.limit.spec.Mode == Hybrid {
		mine, all := e.wanted(x, now), 0.0
		for _, y := range l.entries {
			all += e.wanted(y, now)
		}
		if mine > 0 {
			need = min(mine*float64(2*e.tick)-float64(x.out()), level*mine/all)
		}
	}
	if want := float64(m.want - x.g); m.want > 0 && want > 0 {
		switch least := float64(m.least - x.g); {
		case want <= level:
			need = max(need, want)
		case least <= level:
			// Not enough for all who wait: what is there, rather than what the first of them needs.
			need = max(need, level)
		}
	}
	// Only to who uses the key: what a quiet node returns would go out again at once.
	if l.limit.spec.Mode == Hybrid && (m.want > 0 || x.used > 0) && !l.refuses(x, now) {
		if free := level - max(0, need) - p.most(l)/2; free >= 1 {
			spare := min(free, max(1, float64(l.limit.spec.Burst)/float64(4*max(1, e.k))))
			waiting := max(0, float64(m.want-m.c-m.r))
			if have := float64(x.out()) + max(0, need) - waiting; have < spare {
				need = max(0, need) + spare - max(0, have)
			}
		}
	}
	if g := math.Floor(min(need, level)); g >= 1 {
		x.g += int64(g)
		l.spend(g)
		l.granted = true
	}
}

package hybrid

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/jatah-io/jatah/bucket"
)

// standby is what an heir keeps of a partition: the ledgers that are not full.
type standby struct {
	owner   string
	inc     uint64
	whole   bool
	heardAt int64
	bytes   int64 // of the records
	records map[standbyKey]*record
}

type standbyKey struct {
	limit, key string
	base       bool
}

type record struct {
	seq uint64
	at  int64 // own clock of its arrival
	c   copyOf
}

// sentStandby is records that the heir has not confirmed.
type sentStandby struct {
	seq  uint64
	to   *peer
	at   int64
	what []standbyItem
}
type standbyItem struct {
	p    *partition
	x    *ledger
	full bool // it was said that nothing need be kept
}

// heirHas is what the heir keeps of a ledger.
type heirHas uint8

const (
	heirHasNothing heirHas = iota
	heirHasRecord          // one that says that it is not full
	heirToldFull           // that record, until it confirms that there is none to keep
)

// heirKeeps says that the heir has a record of a ledger, which nobody would tell it to forget once the ledger is forgotten here. If the ledger
// is full, it is told so.
func (e *Engine) heirKeeps(p *partition, x *ledger) bool {
	if x.heirHas == heirHasNothing || p.heir == nil || p.heir.inc == 0 || !p.heir.present {
		return false
	}
	if x.heirHas == heirHasRecord {
		e.changed(p, x)
	}
	return true
}

// changed notes that the heir's record of a ledger is out of date.
func (e *Engine) changed(p *partition, x *ledger) {
	if !x.heirDue && !x.isPermits() { // holders tell a new owner themselves
		x.heirDue = true
		p.heirDue = append(p.heirDue, x)
	}
}

// tickStandby sends every heir the ledgers that changed; a new heir is sent all that are not full.
func (e *Engine) tickStandby(now int64) {
	e.tickRemoved(now)
	e.standbyLost(now)
	for _, q := range e.peers {
		q.standbySent = 0
	}
	e.heirTurn = (e.heirTurn + 1) % len(e.parts)
	for i := range e.parts {
		p := e.parts[(e.heirTurn+i)%len(e.parts)]
		if !p.owned {
			if s := e.standby[p.id]; s != nil && now-s.heardAt > int64(e.grace())+e.settle() && e.grace() > 0 {
				e.dropStandby(p.id)
			}
			continue
		}
		e.dropStandby(p.id)
		heir := e.heirOf(p)
		if heir != p.heir || heir != nil && heir.inc != p.heirInc {
			p.newHeir(heir)
			for _, x := range p.ledgers {
				e.changed(p, x)
			}
		}
		if e.ticks%10 == 0 && heir != nil {
			for _, b := range p.bases {
				if p.refill(b, now); !p.isFull(b, now) {
					e.changed(p, b)
				}
			}
		}
		if heir == nil || heir.inc == 0 || !heir.present {
			for _, x := range p.heirDue {
				x.heirDue = false
			}
			p.heirDue = p.heirDue[:0]
			continue
		}
		if len(p.heirDue) > 0 && heir.standbySent < standbyPerTick {
			e.sendStandby(p, heir, now)
		}
	}
	for _, q := range e.peers {
		e.flushStandby(q, now)
	}
	e.sweepCopies(now)
}

func (e *Engine) heirOf(p *partition) *peer {
	if e.view.Ring == nil {
		return nil
	}
	if name, ok := e.view.Ring.Heir(p.id); ok {
		return e.peer(name)
	}
	return nil
}

// maxState is how much of a record the state of a meter may take, so that it fits in a packet: a long log is told coarsely.
// minState is the least that it may take, however long the key is.
const (
	maxState = 512
	minState = 100
)

// standbyPerTick is how many packets of records a tick sends to an heir. A new heir is sent all that there is, which may be a million keys: not at
// once, or neither the lock nor the heir's socket has room for anything else.
const standbyPerTick = 128

func (e *Engine) sendStandby(p *partition, heir *peer, now int64) {
	done := 0
	for _, x := range p.heirDue {
		if heir.standbySent >= standbyPerTick {
			break
		}
		done++
		if x.heirDue = false; x.limit.gone.Load() {
			continue
		}
		c := e.copyOf(p, x, now)
		if c.base = x.key == "" && p.bases[x.limit] == x; c.base {
			c.key = x.limit.plan
		}
		if room := max(minState, min(maxState, e.cfg.MaxMessage-200-len(c.limit)-len(c.plan)-len(c.key))); len(c.state) > room {
			c.state = bucket.Coarse(x.m, room/18).State(nil)
		}
		if heir.standbyRoom < 80+len(c.limit)+len(c.plan)+len(c.key)+len(c.state) {
			e.flushStandby(heir, now)
		}
		heir.standbyRoom -= 64 + len(c.limit) + len(c.plan) + len(c.key) + len(c.state)
		heir.copies = append(heir.copies, c)
		heir.items = append(heir.items, standbyItem{p, x, c.full})
		switch {
		case !c.full:
			x.heirHas = heirHasRecord
		case x.heirHas == heirHasRecord:
			x.heirHas = heirToldFull
		}
	}
	if p.heirDue = slices.Delete(p.heirDue, 0, done); len(p.heirDue) == 0 && cap(p.heirDue) > 1<<10 {
		p.heirDue = nil // all of a new heir's: what changes in a tick is less
	}
}

func (e *Engine) flushStandby(to *peer, now int64) {
	if len(to.copies) > 0 {
		e.standbySeq++
		to.standbySent++
		e.unconfirmed = append(e.unconfirmed, &sentStandby{e.standbySeq, to, now, to.items})
		e.send(to, &message{seq: e.standbySeq, standby: to.copies}, now, false)
	}
	to.copies, to.items, to.standbyRoom = nil, nil, e.cfg.MaxMessage-100
}

// standbyLost sends again what was not confirmed for three ticks.
func (e *Engine) standbyLost(now int64) {
	e.unconfirmed = slices.DeleteFunc(e.unconfirmed, func(s *sentStandby) bool {
		if now-s.at < 3*e.tick {
			return false
		}
		e.endStandby(s, true)
		return true
	})
}

func (e *Engine) endStandby(s *sentStandby, lost bool) {
	for _, it := range s.what {
		switch {
		case !it.p.has(it.x) || it.p.heir != s.to:
		case lost:
			e.changed(it.p, it.x)
		default:
			it.p.notMissing(it.x)
			if it.full && it.x.heirHas == heirToldFull {
				it.x.heirHas = heirHasNothing
			}
		}
	}
}

// newHeir begins anew with another heir, or with another life of the same: it has none of the records.
func (p *partition) newHeir(heir *peer) {
	p.heir, p.heirInc, p.missing = heir, 0, 0
	if heir != nil {
		p.heirInc = heir.inc
	}
	for _, x := range p.ledgers {
		if x.heirHas = heirHasNothing; x.isPermits() {
			continue
		}
		x.heirMissing = true
		p.missing++
	}
}

// notMissing is for a ledger that its heir has confirmed, or that is forgotten here.
func (p *partition) notMissing(x *ledger) {
	if x.heirMissing {
		x.heirMissing = false
		p.missing--
	}
}

// has says that a ledger belongs to the partition as it is now: partitions go and come back.
func (p *partition) has(x *ledger) bool {
	return p.owned && (p.ledgers[ledgerKey{x.limit.root, x.key}] == x || p.bases[x.limit] == x)
}

// wholeFor is the partitions of which a member, as heir, has confirmed every record at least once. What
// changed since its last confirmation is what a crash may let through again.
func (e *Engine) wholeFor(to *peer) bits {
	var b bits
	for i, p := range e.parts {
		if p.owned && p.heir == to && p.heirInc == to.inc && p.missing == 0 {
			if b == nil {
				b = newBits(len(e.parts))
			}
			b.set(i)
		}
	}
	return b
}

func (e *Engine) heirReborn(p *peer) {
	e.unconfirmed = slices.DeleteFunc(e.unconfirmed, func(s *sentStandby) bool {
		if s.to != p {
			return false
		}
		e.endStandby(s, false)
		return true
	})
}

// receiveStandby takes in an owner's records, and the confirmations of a heir. The newest record of an incarnation wins;
// records for what this node owns are ignored.
func (e *Engine) receiveStandby(from *peer, m *message, now int64) {
	if len(m.acks) > 0 {
		e.unconfirmed = slices.DeleteFunc(e.unconfirmed, func(s *sentStandby) bool {
			if s.to != from || !slices.Contains(m.acks, s.seq) {
				return false
			}
			e.endStandby(s, false)
			return true
		})
	}
	e.handedOver(m.handed)
	if m.seq != 0 {
		for i := range m.standby {
			e.record(from, m, &m.standby[i], now)
		}
		from.acks = append(from.acks, m.seq)
		if len(from.acks) >= 64 {
			e.send(from, &message{acks: from.acks}, now, false)
			from.acks = from.acks[:0]
		}
	}
	if m.owns != nil {
		for i, s := range e.standby {
			if m.owns.has(i) && s.owner == from.name && s.inc == m.stamp.inc && e.isHeir(i) { // else another one has the records by now
				s.heardAt = now
			}
		}
	}
	for i := range 8 * len(m.whole) {
		if m.whole[i/8] != 0 && m.whole.has(i) && i < len(e.parts) && e.lend[i].owner == from && !e.parts[i].owned {
			s := e.standbyOf(i, from, m.stamp.inc)
			s.whole, s.heardAt = true, now
		}
	}
}

// isHeir says that this node is the heir of a partition, as it sees the members.
func (e *Engine) isHeir(part int) bool {
	if e.view.Ring == nil {
		return false
	}
	name, ok := e.view.Ring.Heir(part)
	return ok && name == e.cfg.Node
}

func (e *Engine) standbyOf(part int, owner *peer, inc uint64) *standby {
	s := e.standby[part]
	if s == nil || s.owner != owner.name || s.inc != inc {
		e.dropStandby(part)
		s = &standby{owner: owner.name, inc: inc, records: map[standbyKey]*record{}}
		e.standby[part] = s
	}
	return s
}

func (e *Engine) record(from *peer, m *message, c *copyOf, now int64) {
	if c.part >= len(e.parts) || e.parts[c.part].owned || e.lend[c.part].owner != from {
		return
	}
	s := e.standbyOf(c.part, from, m.stamp.inc)
	s.heardAt = now
	k := standbyKey{c.limit, c.key, c.base}
	r := s.records[k]
	if r != nil && r.seq > m.seq {
		return
	}
	size := int64(0)
	if r != nil {
		size = k.size(r)
	}
	if c.full {
		delete(s.records, k)
		s.count(e, -size)
		return
	}
	if r == nil {
		k = standbyKey{strings.Clone(c.limit), strings.Clone(c.key), c.base}
		if l, ok := e.limits.Load(c.limit); ok {
			k.limit = l.def.Load().Name
		}
		r = &record{c: copyOf{limit: k.limit, key: k.key}}
		s.records[k] = r
	}
	r.take(c)
	r.seq, r.at, r.c.at = m.seq, now, now
	s.count(e, k.size(r)-size)
}

// take copies what a message says anew of the key. Whose credit is out only hand-offs say.
func (r *record) take(c *copyOf) {
	old := r.c
	r.c = *c
	r.c.limit, r.c.plan, r.c.key, r.c.entries = old.limit, old.plan, old.key, nil
	if old.plan != c.plan {
		r.c.plan = strings.Clone(c.plan)
	}
	r.c.state = append(old.state[:0], c.state...)
}

// adopt starts a partition from what this node kept of it as heir: every share brings its part of the balances along.
func (e *Engine) adopt(p *partition, s *standby, now int64) {
	e.dropStandby(p.id)
	var copies []copyOf
	for _, r := range s.records {
		c := r.c
		if l, ok := e.limits.Load(c.limit); ok && l.copied(&c).alg == nil && c.bal < c.cap {
			// A balance that was not reported again has grown since, as long as its owner was there.
			c.bal = min(c.cap, c.bal+float64(max(0, s.heardAt-r.at))*l.copied(&c).perNs)
		}
		copies = append(copies, c)
	}
	e.startFrom(p, copies, s.whole, now)
	p.adopted = s.inc
}

// startFrom makes the records the start of a partition's keys. A debt counts at once, a balance as shares arrive.
func (e *Engine) startFrom(p *partition, copies []copyOf, whole bool, now int64) {
	e.dissolve(nil, now)
	p.told, p.fresh, p.bringing = true, false, true
	if p.bringEnd = now + 2*e.ttl; copies == nil && whole {
		p.bringEnd = math.MaxInt64 // a cluster that starts: its members may come one after the other
	}
	if whole {
		p.full = 1
	}
	slices.SortFunc(copies, func(a, b copyOf) int {
		return cmp.Or(cmp.Compare(a.limit, b.limit), cmp.Compare(a.key, b.key))
	})
	for _, x := range p.ledgers {
		x.start = float64(x.limit.spec.Burst) * p.full
	}
	for l, b := range p.bases {
		b.start = float64(l.spec.Burst) * p.full
	}
	for i := range copies {
		c := &copies[i]
		l, ok := e.limits.Load(c.limit)
		if !ok || c.part != p.id {
			continue
		}
		var x *ledger
		if c.base {
			v, ok := l.Plan(c.key)
			if !ok {
				continue
			}
			x = p.base(v)
		} else {
			l = l.planOf(c.plan, c.key)
			if x = e.mustLedger(p, l, c.key, e.hash(l, c.key), now); x == nil {
				continue
			}
		}
		e.startLedger(p, x, c, now)
		e.changed(p, x)
	}
}

// startLedger makes a record the start of a key.
func (e *Engine) startLedger(p *partition, x *ledger, c *copyOf, now int64) {
	x.start = max(0, c.bal)
	x.adopted = min(0, c.bal)
	if x.m == nil {
		x.pool += x.adopted
		return
	}
	at := c.at
	if at == 0 {
		at = now
	}
	// Shares bring back to a loaded meter what left with them, as far as it was not used.
	if x.start = 0; x.limit.spec.Fallback == FallbackWait || !p.loadMeter(x, c.state, at, now) {
		p.refill(x, now)
		x.spend(-x.adopted)
	} else if x.limit.logged() { // a log does not keep account of what left
		x.start = float64(x.limit.spec.Burst)
	}
}

// restore gives an owner that restarted under its old name what this node kept for it as heir.
func (e *Engine) restore(owner *peer, now int64) {
	byPart := map[int]*standby{}
	h := handOff{restore: true, parts: newBits(len(e.parts))}
	for i, s := range e.standby {
		if s.owner == owner.name && s.inc != owner.inc && s.whole && e.lend[i].owner == owner {
			byPart[i] = s
		}
	}
	if len(byPart) == 0 {
		return
	}
	for i := range e.parts {
		s := byPart[i]
		if s == nil {
			continue
		}
		h.parts.set(i)
		h.inc = s.inc
		for _, r := range s.records {
			c := r.c
			if l, ok := e.limits.Load(c.limit); ok && l.copied(&c).alg == nil && c.bal < c.cap {
				c.bal = min(c.cap, c.bal+float64(max(0, s.heardAt-r.at))*l.copied(&c).perNs)
			}
			h.copies = append(h.copies, c)
		}
		e.dropStandby(i)
	}
	e.handSeq++
	h.id = e.handSeq
	e.handing = append(e.handing, &handing{to: owner, id: h.id, msg: encodeHandOff(&h), until: now + e.settle()})
	e.tickHandOff(now)
}

// takeBack takes in what an heir restores. It is believed only by an owner that has just started anew and was told nothing else.
func (e *Engine) takeBack(p *partition, h *handOff, now int64) {
	if !p.owned || p.told || now > p.takenAt+e.settle() {
		return
	}
	e.settleShares(p, now)
	e.startFrom(p, h.copies, true, now)
	e.settleShares(p, now)
}

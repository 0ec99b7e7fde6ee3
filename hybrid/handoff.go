package hybrid

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/jatah-io/jatah/bucket"
)

// handOff is what a former owner sends a new one, reliably: the ledgers of the partitions that moved, as durations
// and amounts, never times. It is known by (incarnation, epoch) and applied to each partition once. With restore
// it is what an heir gives back to an owner that lost its memory.
type handOff struct {
	restore    bool
	id         uint64
	inc, epoch uint64
	parts      bits // told of completely
	fresh      bits // of these, taken over a moment ago by a process that started: it knew nothing of other keys
	// since is the incarnation of an owner out of whose standby the sender started as heir. If that owner lives on, it
	// has its balances still, and is only told what was spent of them.
	since  uint64
	copies []copyOf
	began  map[int]began
}

// handing is a hand-off that has not been acknowledged.
type handing struct {
	to    *peer
	id    uint64
	msg   []byte
	next  int64
	until int64
	saved bool // records from a snapshot: not lost when this is given up
}

const (
	kindHandOff = 1
	kindRestore = 2

	// handOffBytes is about what one transfer holds; a partition is never divided.
	handOffBytes = 256 << 10
)

func encodeHandOff(h *handOff) []byte {
	w := newWriter()
	w.u(version)
	if h.restore {
		w.u(kindRestore)
	} else {
		w.u(kindHandOff)
	}
	w.u(h.id)
	w.u(h.inc)
	w.u(h.epoch)
	w.b(h.parts)
	w.b(h.fresh)
	w.u(h.since)
	w.copies(h.copies)
	w.began(h)
	return w.buf
}

func decodeHandOff(b []byte) (*handOff, error) {
	r := newReader(b)
	if v := r.u(); r.err == nil && v != version {
		return nil, fmt.Errorf("%w: version %d, this node speaks %d", errMessage, v, version)
	}
	kind := r.u()
	if r.err == nil && kind != kindHandOff && kind != kindRestore {
		return nil, fmt.Errorf("%w: transfer of kind %d", errMessage, kind)
	}
	h := &handOff{restore: kind == kindRestore, id: r.u(), inc: r.u(), epoch: r.u(), parts: r.b(), fresh: r.b(), since: r.u(), copies: r.copies()}
	r.began(h) // a newer version may say more after it
	if r.err != nil {
		return nil, fmt.Errorf("%w: %w", errMessage, r.err)
	}
	return h, nil
}

// ReceiveTransfer takes in a message that a member sent with Network.Transfer.
func (e *Engine) ReceiveTransfer(now int64, from string, msg []byte) {
	if e.receiveForwarded(now, from, msg) {
		return
	}
	if isSaved(msg) {
		e.receiveSaved(now, from, msg)
		return
	}
	h, err := decodeHandOff(msg)
	if err != nil {
		e.stats.malformed.Add(1)
		e.log.Warn("hand-off dropped", "from", from, "err", err)
		return
	}
	e.mu.Lock()
	defer e.unlock()
	if e.self == nil || from == e.cfg.Node {
		return
	}
	p := e.peer(from)
	for i, part := range e.parts {
		if !h.parts.has(i) {
			continue
		}
		switch {
		case h.restore:
			e.takeBack(part, h, now)
		case part.owned:
			e.applyHandOff(part, h, now)
		default:
			// This node will own it in a moment: views do not change everywhere at once.
			part.pending = append(slices.DeleteFunc(part.pending, func(o pendingHandOff) bool {
				return o.h.inc == h.inc || o.until < now
			}), pendingHandOff{h, p, now + pendingFor})
			e.pendings = true
		}
	}
	e.send(p, &message{handed: []uint64{h.id}}, now, false)
}

// pendingHandOff is one that came before this node took the partition over.
type pendingHandOff struct {
	h     *handOff
	from  *peer
	until int64
}

// pendingFor is how long it is kept: as long as views may differ.
const pendingFor = int64(3 * time.Second)

// dropPending drops hand-offs of partitions that another member turns out to own: their tokens would come on top of
// those that the shares it holds give it.
func (e *Engine) dropPending(owner *peer, owns bits) {
	e.pendings = false
	for i, p := range e.parts {
		p.pending = slices.DeleteFunc(p.pending, func(o pendingHandOff) bool { return owns.has(i) && o.from != owner })
		e.pendings = e.pendings || len(p.pending) > 0
	}
}

// applyHandOff adds a former owner's balances: a debt always, what is left only where nothing was granted since.
func (e *Engine) applyHandOff(p *partition, h *handOff, now int64) {
	e.dissolve(nil, now)
	if p.applied[h.inc] >= h.epoch {
		return
	}
	if len(p.applied) >= 64 { // incarnations of processes that are long gone
		clear(p.applied)
	}
	if p.applied == nil {
		p.applied = map[uint64]uint64{}
	}
	p.applied[h.inc] = h.epoch
	e.settleShares(p, now)
	fresh := h.fresh.has(p.id)
	p.handedFresh = p.handedFresh || fresh
	if !fresh {
		p.goOn(h)
	}
	e.disown(p, h.inc, now)
	had := 0.0
	for i := range h.copies { // the shares follow what is handed over here
		if c := &h.copies[i]; c.part == p.id && c.base {
			if l, ok := e.limits.Load(c.limit); ok && l.copied(c).alg != nil {
				had = max(had, c.cap/float64(max(1, l.copied(c).spec.Burst)))
			}
		}
	}
	if p.away = max(0, min(1, had)-p.era().fraction); p.away > 0 {
		p.since = now
	}
	if h.since == e.inc {
		e.repay(p, h, now)
		p.handed[h.inc] = h.epoch
		e.settleShares(p, now)
		e.stats.handOffsIn.Add(1)
		return
	}
	named := map[*ledger]bool{}
	base := map[*Limit]*copyOf{}
	for i := range h.copies {
		c := &h.copies[i]
		l, ok := e.limits.Load(c.limit)
		if c.part != p.id || !ok {
			continue
		}
		if c.base {
			if v, ok := l.Plan(c.key); ok && !fresh {
				base[v] = c
			}
			continue
		}
		l = l.planOf(c.plan, c.key)
		if x := e.mustLedger(p, l, c.key, e.hash(l, c.key), now); x != nil {
			named[x] = true
			e.inherit(p, x, c, now)
		}
	}
	for l, c := range base {
		b := p.base(l)
		e.inherit(p, b, c, now)
		for k, x := range p.ledgers {
			if k.limit == l.root && x.limit == l && !named[x] {
				e.inherit(p, x, c, now)
			}
		}
	}
	p.handed[h.inc] = h.epoch
	e.settleShares(p, now)
	e.stats.handOffsIn.Add(1)
}

// repay charges what an heir spent of the balances that it took over from this owner's standby records while the owner lived
// on, cut off, with the same balances.
func (e *Engine) repay(p *partition, h *handOff, now int64) {
	for i := range h.copies {
		c := &h.copies[i]
		l, ok := e.limits.Load(c.limit)
		if c.part != p.id || c.base || !ok || c.bal >= c.brought {
			continue
		}
		l = l.planOf(c.plan, c.key)
		if x := e.mustLedger(p, l, c.key, e.hash(l, c.key), now); x != nil {
			p.refill(x, now)
			x.spend(c.brought - c.bal)
			// Of that, credit that is out is not spent: whoever holds it may claim it here.
			x.held, x.heldUntil = x.held+c.out, now+e.lease()
			for j := range c.entries {
				e.inheritEntry(p, x, &c.entries[j], now)
			}
			e.changed(p, x)
		}
	}
}

// disown takes back the debts that a partition started with as its owner's heir, now that the same owner tells them itself:
// they would count twice.
func (e *Engine) disown(p *partition, inc uint64, now int64) {
	if p.adopted != inc {
		return
	}
	p.adopted = 0
	undo := func(x *ledger) {
		if x.adopted < 0 {
			p.refill(x, now)
			if x.m != nil {
				x.give(-x.adopted)
			} else {
				x.pool = min(p.level(x, now)-x.adopted, max(0, x.cap-x.outstanding()))
			}
			x.at, x.adopted = now, 0
		}
	}
	for _, x := range p.ledgers {
		undo(x)
	}
	for _, b := range p.bases {
		undo(b)
	}
}

func (e *Engine) inherit(p *partition, x *ledger, c *copyOf, now int64) {
	p.refill(x, now)
	x.start, x.saved = 0, max(x.saved, c.saved)
	switch {
	case !x.granted:
		debt := min(p.level(x, now), 0)
		x.carried = true
		if p.bringing {
			x.start, x.exact = c.start, c.start > 0
		}
		x.held, x.heldUntil = c.out, now+e.lease()
		if x.m == nil {
			x.pool, x.at = debt+c.bal, now
			x.cap = max(x.cap, c.cap)
		} else if here := x.charged(); p.loadMeter(x, c.state, now, now) {
			x.m.Use(here, x.outstanding())
		}
		for _, h := range c.entries {
			e.inheritEntry(p, x, &h, now)
		}
	case c.bal < 0:
		x.spend(-c.bal)
	}
	e.changed(p, x)
}

// inheritEntry takes over what a lender was granted by the former owner. If the lender has opened its generation with this owner
// already, the credit that is left goes into that; otherwise it waits for the lender's first report, for one TTL.
func (e *Engine) inheritEntry(p *partition, x *ledger, h *handedEntry, now int64) {
	y := &entry{lender: h.lender, inc: h.inc, gen: h.number, g: h.g, c: h.c, r: h.r, u: h.u, handed: true, until: now + e.lease(), seen: now}
	out := float64(y.out())
	if out > x.held {
		return
	}
	x.held -= out
	have := x.find(h.lender)
	if have == nil {
		x.entries = append(x.entries, y)
		return
	}
	left, back := y.carry(have.inc, &have.was)
	news := left > 0 && !have.void
	if news {
		have.g += left
		have.was = generation{}
		have.until = max(have.until, now+e.lease())
	}
	if x.give(float64(back)); news {
		e.newsTo(p, x, have, now)
	}
}

// letGo hands partitions over to their new owners. From here on this node grants nothing of them.
func (e *Engine) letGo(lost []int, now int64) {
	type group struct {
		to    *peer
		h     handOff
		bytes int
	}
	var groups []*group
	open := map[*peer]*group{}
	for _, i := range lost {
		p, to := e.parts[i], e.lend[i].owner
		copies, fresh, since, begun := e.copyLedgers(p, now), p.fresh && !p.told, p.adopted, p.began()
		e.unstoreAll(p)
		pending := p.pending
		*p = partition{id: i, pending: pending, applied: p.applied, off: p.off}
		if to == nil || to == e.self {
			continue
		}
		g := open[to]
		if g == nil || g.bytes > handOffBytes || g.h.since != since {
			e.handSeq++
			g = &group{to: to, h: handOff{id: e.handSeq, inc: e.inc, epoch: e.ownEpoch, since: since, parts: newBits(len(e.parts)), fresh: newBits(len(e.parts)), began: map[int]began{}}}
			open[to] = g
			groups = append(groups, g)
		}
		g.h.parts.set(i)
		if fresh {
			g.h.fresh.set(i)
		}
		if begun.lineage != 0 {
			g.h.began[i] = begun
		}
		g.h.copies = append(g.h.copies, copies...)
		for _, c := range copies {
			g.bytes += 40 + len(c.key) + len(c.limit) + len(c.state)
		}
	}
	for _, g := range groups {
		e.stats.handOffsOut.Add(1)
		e.handing = append(e.handing, &handing{to: g.to, id: g.h.id, msg: encodeHandOff(&g.h), until: now + 3*int64(time.Second)})
	}
	e.tickHandOff(now)
}

// copyLedgers is what is to be known of a partition's keys: all ledgers that are not full, and what other keys have.
func (e *Engine) copyLedgers(p *partition, now int64) []copyOf {
	e.settleShares(p, now)
	var copies []copyOf
	for _, x := range p.ledgers {
		if x.isPermits() {
			continue // the holders tell the new owner themselves
		}
		c := e.copyOf(p, x, now)
		if c.full {
			continue
		}
		c.saved, c.start = x.saved, p.coming(x)
		for _, y := range x.entries {
			if y.out() > 0 {
				c.entries = append(c.entries, handedEntry{y.lender, y.inc, generation{y.gen, y.g, y.c, y.r, y.u}})
			}
		}
		copies = append(copies, c)
	}
	slices.SortFunc(copies, func(a, b copyOf) int {
		return cmp.Or(cmp.Compare(a.limit, b.limit), cmp.Compare(a.key, b.key))
	})
	e.limits.Range(func(_ string, l *Limit) bool {
		if l.spec.permits() {
			return true
		}
		for _, v := range l.all() {
			c := e.copyOf(p, p.base(v), now)
			c.start = p.coming(p.base(v))
			c.base, c.full, c.key = true, false, v.plan
			copies = append(copies, c)
		}
		return true
	})
	return copies
}

func (e *Engine) copyOf(p *partition, x *ledger, now int64) copyOf {
	p.refill(x, now)
	c := copyOf{part: p.id, limit: x.limit.spec.Name, plan: x.limit.plan, key: x.key, full: p.isFull(x, now),
		bal: bound(p.level(x, now)), brought: bound(x.brought), cap: bound(x.cap), out: bound(x.outstanding())}
	if x.m != nil {
		c.cap, c.brought = bound(p.most(x)), bound(max(0, c.bal+min(x.spent, max(0, bucket.Taken(x.m)))))
		c.state = x.m.State(nil)
	}
	return c
}

// bound keeps a balance within what a message may say.
func bound(v float64) float64 { return max(-maxTokens+1, min(v, maxTokens-1)) }

// tickHandOff sends hand-offs again until they are acknowledged.
func (e *Engine) tickHandOff(now int64) {
	keep := e.handing[:0]
	for _, h := range e.handing {
		if now > h.until {
			if h.saved {
				continue // its records wait for another attempt
			}
			if e.leaving {
				e.undelivered = append(e.undelivered, h.msg)
			}
			e.stats.handOffsLost.Add(1)
			if e.leaving && e.nobodyElse() {
				e.log.Info("hand-off was not acknowledged: all other members have gone as well; what was used is kept where there is a state_dir", "to", h.to.name)
				continue
			}
			e.log.Warn("hand-off was not acknowledged; the new owner of these keys starts them from what it knows", "to", h.to.name)
			continue
		}
		keep = append(keep, h)
		if now >= h.next {
			h.next = now + 3*e.tick
			e.post(h.to.name, h.msg)
		}
	}
	e.handing = keep
}

// nobodyElse says that no other member is alive.
func (e *Engine) nobodyElse() bool {
	for _, p := range e.peers {
		if p.present && p != e.self {
			return false
		}
	}
	return true
}

func (e *Engine) handedOver(ids []uint64) {
	e.handing = slices.DeleteFunc(e.handing, func(h *handing) bool { return slices.Contains(ids, h.id) })
	e.keptHandedOver(ids)
}

// Leave hands all partitions to their heirs and returns the number of hand-offs in flight; call Handing until it is
// 0 or patience ends. The node goes on deciding as a member that owns nothing.
func (e *Engine) Leave(now int64) error {
	e.mu.Lock()
	defer e.unlock()
	if e.self == nil || e.view.Ring == nil || e.leaving {
		return nil
	}
	e.leaving = true
	v := e.view
	rest := slices.DeleteFunc(slices.Clone(v.Ring.Members()), func(n string) bool { return n == e.cfg.Node })
	if len(rest) == 0 {
		return nil
	}
	r, err := e.newRing(rest)
	if err != nil {
		return fmt.Errorf("hybrid: no ring without this node: %w", err)
	}
	v.Ring = r
	for _, a := range slices.Clone(e.active) {
		if a.owner == e.self && a.ask == nil { // so that nothing of it is lost if the next owner stops as well
			if n := a.drain(); n > 0 {
				a.r += n
				e.say(a, now)
			}
		}
	}
	e.setView(now, v)
	return nil
}

// Retire gives up the node's share, lent or not. It comes before the others are told that this node is gone: settle after they
// heard of it they divide its share among themselves, however long the telling takes.
func (e *Engine) Retire() {
	e.mu.Lock()
	e.retired = true
	e.mu.Unlock()
}

// Handing is the number of hand-offs that are not acknowledged.
func (e *Engine) Handing() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.handing)
}

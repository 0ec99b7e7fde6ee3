package hybrid

import (
	"cmp"
	"slices"
	"time"

	"github.com/jatah-io/jatah/bucket"
)

// kept is what this node knows from before the cluster stopped, by partition, until the owners of these keys have been told.
//
// A record is only a candidate. It counts where the owner began a partition because nobody knew anything of it, as in a cluster
// that starts; whoever got balances from a hand-off, from an heir, or as one, drops it. Records of the same key, from several nodes,
// are merged to the lowest: a balance that was written earlier can only have fallen since, but for refunds and resets.
type kept struct {
	parts map[int]*keptPart
	local map[string][]keptRecord // by limit: of buckets that this node decides on alone; used when the limit is defined
}

type keptPart struct {
	records map[keptKey]keptRecord
	until   int64 // own clock: then only those of limits that are not defined here are kept on; 0: keepFor after the next tick
	// To whom they were sent last.
	owner *peer
	inc   uint64
	id    uint64 // of the transfer
	at    int64
	acked bool
}

type keptKey struct {
	limit, plan, key string // plan of a base only: a key has one at a time
	base             bool
	lineage          uint64
}

type keptRecord struct {
	savedRecord
	at int64 // own clock: when age is meant
}

// keepFor is how long records are offered to owners that come and go while a cluster starts.
const keepFor = int64(time.Minute)

// Restore takes in a Snapshot of an earlier process, before SetView and Run. wall is the time of day now: what passed since the snapshot refills keys; a
// clock that went back counts as no time. The error wraps ErrSnapshot; then nothing was taken in.
func (e *Engine) Restore(now int64, wall time.Time, snapshot []byte) error {
	s, err := decodeSaved(kindSnapshot, snapshot)
	if err != nil {
		return err
	}
	e.mu.Lock()
	defer e.unlock()
	for _, r := range s.records {
		r.older(wall.UnixNano() - s.wall)
		e.keep(r, now)
	}
	e.limits.Range(func(_ string, l *Limit) bool {
		e.restoreBuckets(l, now)
		return true
	})
	return nil
}

// keep adds a record to those that wait for their use.
func (e *Engine) keep(r savedRecord, now int64) {
	if e.alone() || r.def.k > 0 {
		if e.kept.local == nil {
			e.kept.local = map[string][]keptRecord{}
		}
		e.kept.local[r.def.limit] = append(e.kept.local[r.def.limit], keptRecord{r, now})
		return
	}
	if e.kept.parts == nil {
		e.kept.parts = map[int]*keptPart{}
	}
	part := e.partOf(e.ringHash(r.def.limit, r.key))
	if r.base {
		if part = r.part; part >= len(e.parts) {
			return
		}
	}
	p := e.kept.parts[part]
	if p == nil {
		p = &keptPart{records: map[keptKey]keptRecord{}}
		e.kept.parts[part] = p
	}
	k, x := keptKey{limit: r.def.limit, key: r.key, base: r.base, lineage: r.lineage}, keptRecord{r, now}
	if r.base {
		k.plan = r.def.plan
	}
	if old, ok := p.records[k]; ok {
		low := e.lower(old, x, now)
		if old.older(now - old.at); !low.tells(&old.savedRecord, e.wall(now)) {
			old.at, old.exact = now, low.exact
			p.records[k] = old
			return // nothing new: two nodes that take each other for the owner do not exchange it for ever
		}
		x = low
	}
	p.records[k] = x
	p.until, p.owner, p.acked = 0, nil, false
}

// tells says whether a record is worth telling to who has the other: the way that it came may have taken time.
func (r *savedRecord) tells(other *savedRecord, wall int64) bool {
	const way = int64(time.Second)
	return r.used(wall) > other.used(wall)+float64(way)*r.def.perNs()+1e-6
}

// lower is the one place that says which of two records of a key counts: the one that says that more was used.
func (e *Engine) lower(a, b keptRecord, now int64) keptRecord {
	a.older(now - a.at)
	b.older(now - b.at)
	a.at, b.at = now, now
	low := a
	if b.used(e.wall(now)) > a.used(e.wall(now)) {
		low = b
	}
	if b.age < a.age {
		low.exact = b.exact
	} else if a.age < b.age {
		low.exact = a.exact
	} else {
		low.exact = a.exact && b.exact
	}
	return low
}

// tokens is the level once the record's age has been counted.
func (r *savedRecord) tokens() float64 {
	return min(max(r.level.Tokens(), float64(r.def.burst)), r.level.Tokens()+float64(r.age)*r.def.perNs())
}

// fits is what a record means for the limit as it is defined now: tokens used stay used. A limit that denies everything, now
// or then, has nothing to tell.
func (r *savedRecord) fits(l *Limit) (tokens float64, ok bool) {
	s := &l.spec
	if r.def.rate.Count == 0 || s.Rate.Count == 0 || r.def.alg != nil || l.alg != nil {
		return 0, false
	}
	burst := s.Burst
	if r.def.k > 0 {
		burst /= int64(r.def.k)
	}
	tokens = r.tokens()
	if r.def.rate == s.Rate && (r.def.burst == burst || r.def.k > 0 && r.def.burst == burst+1) {
		return tokens, true
	}
	if r.def.plan != l.plan { // the key changed to another plan
		return float64(burst) - (float64(r.def.burst) - tokens), true
	}
	return max(min(0, tokens), float64(burst)-(float64(r.def.burst)-tokens)), true
}

// saveKept adds what waits here to a snapshot. Of a node that ends, what an owner has confirmed is not its own any more.
func (e *Engine) saveKept(s *saved, exact bool, now int64) {
	add := func(r keptRecord) {
		r.older(now - r.at)
		r.exact = r.exact && exact // until the node has ended it may yet be used
		s.records = append(s.records, r.savedRecord)
	}
	for _, p := range e.kept.parts {
		if exact && p.acked {
			continue
		}
		for _, r := range p.records {
			add(r)
		}
	}
	for _, rs := range e.kept.local {
		for _, r := range rs {
			add(r)
		}
	}
}

// restoreBuckets is the one place that makes this node's own buckets go on, when a limit is defined.
func (e *Engine) restoreBuckets(l *Limit, now int64) {
	records := e.kept.local[l.spec.Name]
	delete(e.kept.local, l.spec.Name)
	shares := map[*bucket.Algorithm]*bucket.Algorithm{}
	for i := range records {
		r := &records[i]
		r.older(now - r.at)
		if r.base || e.alone() != (r.def.k == 0) || !e.alone() && l.spec.Mode != Split {
			continue
		}
		v := l.planOf(r.def.plan, r.key)
		if r.def.alg != nil {
			e.restoreMeter(v, r, shares, now)
		} else if tokens, ok := r.fits(v); ok {
			e.restoreBucket(v, r, tokens, now)
		}
	}
}

// tickKept gives records to who owns their partitions now, and forgets them when the cluster has been up for a while.
func (e *Engine) tickKept(now int64) {
	if len(e.kept.parts) == 0 {
		return
	}
	to := map[*peer][]int{}
	for part, k := range e.kept.parts {
		owner := e.ownerOf(part)
		if k.until == 0 {
			k.until = now + keepFor
		}
		switch {
		case now > k.until:
			e.expireKept(part, k)
		case owner == e.self:
			e.useKept(e.parts[part], now, false)
		case owner == nil || !owner.present || owner.inc == 0:
		case k.owner != owner || k.inc != owner.inc || !k.acked && now-k.at > e.settle():
			to[owner] = append(to[owner], part)
		}
	}
	for _, p := range e.peers {
		e.sendKept(p, to[p], now)
	}
}

// expireKept drops what was for limits that are defined here: the owners had time to take it. The rest waits for its definition.
func (e *Engine) expireKept(part int, k *keptPart) {
	for key := range k.records {
		if _, ok := e.limits.Load(key.limit); ok {
			delete(k.records, key)
		}
	}
	if len(k.records) == 0 {
		delete(e.kept.parts, part)
	}
}

// defined is called when a limit appears: its records are offered again.
func (e *Engine) defined(l *Limit, now int64) {
	e.restoreBuckets(l, now)
	for _, k := range e.kept.parts {
		for key := range k.records {
			if key.limit == l.spec.Name {
				k.until, k.owner, k.acked = 0, nil, false
				break
			}
		}
	}
}

func (e *Engine) sendKept(owner *peer, parts []int, now int64) {
	slices.Sort(parts)
	for len(parts) > 0 {
		e.handSeq++
		s, size := saved{id: e.handSeq}, 0
		for len(parts) > 0 && size < handOffBytes {
			k := e.kept.parts[parts[0]]
			k.owner, k.inc, k.id, k.at, k.acked = owner, owner.inc, s.id, now, false
			for _, r := range k.records {
				r.older(now - r.at)
				s.records = append(s.records, r.savedRecord)
				size += 50 + len(r.key) + len(r.state)
			}
			parts = parts[1:]
		}
		e.handing = append(e.handing, &handing{to: owner, id: s.id, msg: encodeSaved(kindSaved, &s), until: now + e.settle(), saved: true})
	}
}

// isSaved says whether a transfer carries saved records.
func isSaved(msg []byte) bool {
	r := newReader(msg)
	return r.u() == savedVersion && r.u() == kindSaved && r.err == nil
}

// receiveSaved takes in records that another node has from before.
func (e *Engine) receiveSaved(now int64, from string, msg []byte) {
	s, err := decodeSaved(kindSaved, msg)
	if err != nil {
		e.stats.malformed.Add(1)
		e.log.Warn("saved records dropped", "from", from, "err", err)
		return
	}
	e.mu.Lock()
	defer e.unlock()
	if e.self == nil || from == e.cfg.Node {
		return
	}
	for _, r := range s.records {
		if r.def.k == 0 {
			e.keep(r, now)
		}
	}
	e.send(e.peer(from), &message{handed: []uint64{s.id}}, now, false)
}

func (e *Engine) keptHandedOver(ids []uint64) {
	for _, k := range e.kept.parts {
		if k.owner != nil && slices.Contains(ids, k.id) {
			k.acked = true
		}
	}
}

// useKept applies the records of a partition that this node owns. starts is at the very moment at which the partition begins, since
// nobody told anything of it.
func (e *Engine) useKept(p *partition, now int64, starts bool) {
	k := e.kept.parts[p.id]
	if k == nil || !p.owned || p.fresh && !p.told {
		return
	}
	var keys []keptKey
	for key := range k.records {
		if _, ok := e.limits.Load(key.limit); ok {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, func(a, b keptKey) int {
		return cmp.Or(cmp.Compare(a.limit, b.limit), cmp.Compare(a.key, b.key), boolCompare(a.base, b.base), cmp.Compare(a.plan, b.plan), cmp.Compare(a.lineage, b.lineage))
	})
	if !starts {
		e.settleShares(p, now)
	}
	for i := 0; i < len(keys); {
		var r keptRecord
		n := 0
		for j := i; i < len(keys) && keys[i].limit == keys[j].limit && keys[i].key == keys[j].key && keys[i].base == keys[j].base && keys[i].plan == keys[j].plan; i++ {
			x := k.records[keys[i]]
			delete(k.records, keys[i])
			// A ledger that was told, or that went on from these very records, knows more.
			if p.lineage == 0 || x.lineage == p.lineage || x.lineage == 0 && !starts {
				continue
			}
			if n++; n > 1 {
				x = e.lower(r, x, now)
			}
			r = x
		}
		if n > 0 {
			r.older(now - r.at)
			l, _ := e.limits.Load(r.def.limit)
			e.restoreLedger(p, l, &r.savedRecord, now)
		}
	}
	if len(k.records) == 0 {
		delete(e.kept.parts, p.id)
	}
}

func boolCompare(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// restoreLedger is the one place that brings a record into the pool of a key: what it says was used is taken from what the shares
// bring, and where they have brought it, from the pool. Records that come later, from other nodes, count for what they say beyond that.
//
// With fallback wait keys start empty, and only what was certainly left is brought: an exact record's level.
func (e *Engine) restoreLedger(p *partition, l *Limit, r *savedRecord, now int64) {
	wait := l.spec.Fallback == FallbackWait
	if r.base {
		if v, ok := l.Plan(r.def.plan); ok && wait && r.exact && p.brought == 0 {
			e.restoreBase(p, v, r, now)
		}
		return
	}
	l = l.planOf(r.def.plan, r.key)
	tokens, ok := r.fits(l)
	if !ok && r.def.alg == nil || ok && tokens >= float64(l.spec.Burst) && !wait {
		return
	}
	x := e.mustLedger(p, l, r.key, e.hash(l, r.key), now)
	switch {
	case x == nil:
		e.stats.ownerFull.Add(1)
		return
	case x.m != nil:
		e.restoreLedgerMeter(p, x, r, now)
		return
	}
	if tokens, ok = r.fits(x.limit); !ok { // which may have another plan by now
		return
	}
	burst := float64(x.limit.spec.Burst)
	tokens = min(bound(tokens), burst)
	p.refill(x, now)
	first, more := x.saved == 0, burst-tokens-x.saved
	if wait {
		if !first {
			x.start -= min(x.start, max(0, more))
		} else if x.start, x.exact = 0, r.exact; r.exact && p.bringing {
			x.start = max(0, tokens)
		}
		// Of what was used only a debt is missing in a pool that began empty.
		more = max(0, -tokens-max(0, x.saved-burst))
		x.saved = max(x.saved, burst-tokens)
		x.pool -= more
	} else if more > 0 {
		x.saved += more
		if p.bringing {
			fromStart := min(max(0, x.start), more)
			x.start -= fromStart
			more -= fromStart * (1 - p.brought)
		}
		x.pool -= more
	}
	e.changed(p, x)
}

// restoreBase is what keys without a record have, with fallback wait.
func (e *Engine) restoreBase(p *partition, l *Limit, r *savedRecord, now int64) {
	b := p.base(l)
	if b.m == nil {
		if tokens, ok := r.fits(l); ok {
			b.start, b.exact = max(0, min(bound(tokens), float64(l.spec.Burst))), true
		}
		return
	}
	if m := r.meter(l.alg, e.wall(now)); m != nil {
		p.refill(b, now)
		e.holdMeter(p, b, m, now, true)
		b.start, b.exact = float64(l.spec.Burst), true
	}
}

// restoreBucket is restoreLedger for a key that this node decides on a bare bucket.
func (e *Engine) restoreBucket(l *Limit, r *keptRecord, tokens float64, now int64) {
	s, level, ago := &l.spec, r.level, r.age
	burst := s.Burst
	if k := int64(r.def.k); k > 0 {
		burst = r.def.burst
		if burst != s.Burst/k && burst != s.Burst/k+1 {
			burst = s.Burst / k
		}
	}
	if r.def.rate != s.Rate || r.def.burst != burst {
		level, ago = bucket.LevelOf(bound(tokens)), 0
	}
	var share *bucket.Params
	if r.def.k > 0 {
		// The key goes on with the share that it had, and gets the present one when it is used next.
		var err error
		if share, err = bucket.NewShare(s.Rate, 1, int64(r.def.k), burst); err != nil {
			return
		}
	} else if sh := l.whole.Load(); sh != nil {
		share = sh.floor // of the plan
	}
	l.buckets.RestoreBeyond(r.key, share, now, level, ago)
}

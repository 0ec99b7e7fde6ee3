package hybrid

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/jatah-io/jatah/bucket"
)

// ErrSnapshot is wrapped by every error about bytes that are not a snapshot.
var ErrSnapshot = errors.New("hybrid: not a snapshot")

// Snapshots and the transfers that carry their records to owners have one encoding. kindSaved follows kindHandOff and kindRestore.
const (
	kindSaved    = 3 // records on their way to the owner of their keys
	kindSnapshot = 4

	// savedVersion begins both. 1 had token buckets only.
	savedVersion = 2
)

// saved is a collection of records, all as of one moment.
type saved struct {
	id      uint64 // of the transfer
	wall    int64  // of a snapshot: time of day, ns since 1970
	records []savedRecord
}

// savedRecord is what one key held when its limit was defined as def says.
type savedRecord struct {
	def     savedDef
	key     string
	part    int          // of a base
	base    bool         // what keys without a record had, key is ""; only where they may not have been full
	level   bucket.Level // tokens
	state   []byte       // of a bucket.Meter, for algorithms that a number of tokens does not describe; nil: there is none
	age     int64        // ns from the moment that level and state were meant for until that of the collection
	lineage uint64       // of the ledger, see partition.lineage; 0: unknown
	exact   bool         // nothing was used since: written when the node had ended
}

// savedDef is a definition, as far as it says what a record means.
type savedDef struct {
	limit string
	plan  string // "": the limit itself
	rate  bucket.Rate
	burst int64             // of the key: of the share where k > 0
	k     int               // 0: a record of the whole limit; otherwise of a share in split mode, 1/k of the rate
	alg   *bucket.Algorithm // another rule than a token bucket of rate and burst, or the share of it; nil: none
}

// perNs is the rate at which the key refilled.
func (d *savedDef) perNs() float64 {
	if d.rate.Per <= 0 {
		return 0
	}
	return float64(d.rate.Count) / float64(d.rate.Per) / float64(max(1, d.k))
}

// Snapshot is what this node knows of keys that are not full, in bytes for Restore: the ledgers of the partitions it owns, the standby records
// that it keeps as heir, what it handed over and nobody confirmed, its own buckets, and what Restore was given and
// is not used yet. wall is the time of day now.
//
// Credit that other nodes hold counts as spent, since nobody will know. Permits are left out: they end with the node that holds them.
// It takes the engine's lock for one partition at a time, so that requests that need an owner wait for a moment only. After Close the
// snapshot is exact; until then what is used after it was taken is forgotten by who restores it.
func (e *Engine) Snapshot(now int64, wall time.Time) []byte {
	s := &saved{wall: wall.UnixNano()}
	exact := e.closed.Load()
	e.saveSolo(s, exact, now)
	s.records = slices.Grow(s.records, e.toSave()) // or all of it is moved again and again, under the lock
	for _, p := range e.parts {
		e.mu.Lock()
		e.savePartition(s, p, exact, now)
		e.mu.Unlock()
	}
	e.mu.Lock()
	e.saveTransfers(s, exact)
	e.saveKept(s, exact, now)
	e.mu.Unlock()
	e.limits.Range(func(_ string, l *Limit) bool {
		e.saveBuckets(s, l, exact, now)
		return true
	})
	return encodeSaved(kindSnapshot, s)
}

// toSave is about how many records owners and heirs make.
func (e *Engine) toSave() (n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i, p := range e.parts {
		n += len(p.ledgers)
		if s := e.standby[i]; s != nil {
			n += len(s.records)
		}
	}
	return n + n/16 + 16
}

func (l *Limit) saved() savedDef {
	return savedDef{limit: l.spec.Name, plan: l.plan, rate: l.spec.Rate, burst: l.spec.Burst, alg: l.alg}
}

func (e *Engine) savePartition(s *saved, p *partition, exact bool, now int64) {
	for _, h := range p.pending { // confirmed, so nobody else has it
		if e.leaving || now < h.until {
			e.saveCopies(s, h.h, p.id, exact)
		}
	}
	switch {
	case !p.owned:
		e.saveStandby(s, p.id, now)
		return
	case p.fresh && !p.told:
		return // nothing is known yet; what may become known is among the kept records
	}
	e.settleShares(p, now)
	lineage := p.lineage
	if lineage == 0 {
		lineage = e.inc
	}
	for _, x := range p.ledgers {
		if x.isPermits() { // who holds them tells the owner what is held
			continue
		}
		p.refill(x, now)
		level := e.own(x, p.level(x, now))
		if x.m == nil && level >= x.cap && x.cap >= float64(x.limit.spec.Burst) {
			continue
		}
		r := savedRecord{def: x.limit.saved(), key: x.key, lineage: lineage, exact: exact}
		var full bool
		if r.level, r.state, full = e.saveLedger(p, x, level, now); !full {
			s.records = append(s.records, r)
		}
	}
	for l, b := range p.bases {
		if l.spec.Fallback != FallbackWait || l.spec.permits() {
			continue // starts full, or with what its holders tell
		}
		p.refill(b, now)
		r := savedRecord{def: l.saved(), part: p.id, base: true, lineage: lineage, exact: exact}
		r.level, r.state, _ = e.saveLedger(p, b, p.level(b, now), now)
		s.records = append(s.records, r)
	}
}

// saveLedger is the one place that says what is kept of a ledger: its level as a part of the whole limit, since
// the shares that are missing here will bring their part again when they come. full: it holds nothing that a new one would not.
func (e *Engine) saveLedger(p *partition, x *ledger, level float64, now int64) (l bucket.Level, state []byte, full bool) {
	if x.m != nil {
		m := e.saveMeter(p, x, now)
		return bucket.LevelOf(bound(m.Free())), m.State(nil), m.Fresh()
	}
	burst := float64(x.limit.spec.Burst)
	switch {
	case level <= 0 && x.cap >= 1:
	case x.cap >= 1:
		level = min(burst, level*burst/x.cap)
	case p.bringing && now <= p.bringEnd && (x.limit.spec.Fallback != FallbackWait || x.exact):
		level += x.start * (1 - p.brought)
	}
	return bucket.LevelOf(bound(level)), nil, false
}

// own is a ledger's level if this node's own credit came back now: what it has spent of it is known exactly.
func (e *Engine) own(x *ledger, level float64) float64 {
	y := x.find(e.cfg.Node)
	if y == nil || y.void || y.inc != e.inc {
		return level
	}
	a := e.byGen[y.gen]
	if a == nil || a.owner != e.self || a.limit != x.limit || a.key != x.key {
		return level
	}
	k := a.counters()
	return level + float64(y.g-y.r-k.c) + float64(max(0, k.u-y.u))
}

// saveStandby adds what this node keeps as heir. Its lineage is not known: it counts for a cluster that starts only.
func (e *Engine) saveStandby(s *saved, part int, now int64) {
	kept := e.standby[part]
	if kept == nil || e.leaving { // the owner goes on, or writes itself
		return
	}
	for _, r := range kept.records {
		// What its owner did not report again has grown since, as long as the owner was there; and then it was gone.
		e.saveCopy(s, &r.c, 0, false, max(0, now-r.at))
	}
}

func (e *Engine) saveCopies(s *saved, h *handOff, part int, exact bool) {
	for i := range h.copies {
		if c := &h.copies[i]; c.part == part || part < 0 {
			e.saveCopy(s, c, h.lineageOf(c.part), exact, 0)
		}
	}
}

// saveCopy is the one place that says what is kept of another owner's ledger.
func (e *Engine) saveCopy(s *saved, c *copyOf, lineage uint64, exact bool, age int64) {
	l, ok := e.limits.Load(c.limit)
	if !ok || c.base && l.spec.Fallback != FallbackWait || l.spec.permits() {
		return
	}
	l = l.copied(c)
	r := savedRecord{def: l.saved(), part: c.part, key: c.key, base: c.base, age: age, lineage: lineage, exact: exact}
	if c.base {
		r.key = "" // there it is the plan
	}
	level := c.bal
	switch {
	case l.alg != nil:
		m := e.copiedMeter(l, c, age)
		if m == nil {
			return
		}
		level, r.state = m.Free(), m.State(nil)
	case level > 0 && c.cap >= 1:
		level = min(float64(l.spec.Burst), level*float64(l.spec.Burst)/c.cap)
	}
	r.level = bucket.LevelOf(bound(level))
	s.records = append(s.records, r)
}

// saveTransfers adds hand-offs of this node that nobody has confirmed.
func (e *Engine) saveTransfers(s *saved, exact bool) {
	for _, h := range e.handing {
		if !h.saved {
			e.saveTransfer(s, h.msg, exact)
		}
	}
	for _, msg := range e.undelivered {
		e.saveTransfer(s, msg, exact)
	}
}

func (e *Engine) saveTransfer(s *saved, msg []byte, exact bool) {
	if h, err := decodeHandOff(msg); err == nil && !h.restore {
		e.saveCopies(s, h, -1, exact)
	}
}

// saveBuckets adds the keys that this node decides on bare buckets. It is the one place that does.
func (e *Engine) saveBuckets(s *saved, l *Limit, exact bool, now int64) {
	spec := l.def.Load()
	if !e.alone() && spec.Mode != Split || l.gone.Load() || spec.permits() {
		return
	}
	if t := l.meters.Load(); t != nil {
		e.saveMeters(s, l, t, exact, now)
		return
	}
	k := 0
	if !e.alone() {
		k = max(1, int(e.splitK.Load()))
		if sh := l.split.Load(); sh != nil {
			k = sh.k
		}
	}
	all := l.all()
	l.buckets.Each(now, func(key string, p *bucket.Params, left bucket.Level) bool {
		def := savedDef{limit: spec.Name, plan: planFor(all, p, k), rate: p.Rate(), burst: p.Burst(), k: k}
		if left.Whole < maxTokens && left.Whole > -maxTokens {
			s.records = append(s.records, savedRecord{def: def, key: key, level: left, lineage: e.life(), exact: exact})
		}
		return true
	})
}

// planFor is the plan whose amounts a bucket has.
func planFor(all []*Limit, p *bucket.Params, k int) string {
	for _, v := range all {
		s := v.def.Load()
		if share := s.Burst / int64(max(1, k)); p.Rate() == s.Rate && (p.Burst() == share || k > 0 && p.Burst() == share+1) {
			return v.plan
		}
	}
	return ""
}

// life is the incarnation, for those who do not hold the lock.
func (e *Engine) life() uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.inc
}

func encodeSaved(kind uint64, s *saved) []byte {
	defs := map[savedDef]int{}
	var list []savedDef
	for i := range s.records {
		if _, ok := defs[s.records[i].def]; !ok {
			defs[s.records[i].def] = len(list)
			list = append(list, s.records[i].def)
		}
	}
	w := newWriter()
	w.u(savedVersion)
	w.u(kind)
	w.u(s.id)
	w.i(s.wall)
	w.list(len(list))
	for i := range list {
		d := &list[i]
		w.s(d.limit)
		w.s(d.plan)
		w.rate(d.rate)
		w.i(d.burst)
		w.u(uint64(d.k))
		w.rule(d.alg)
	}
	w.list(len(s.records))
	for i := range s.records {
		r := &s.records[i]
		var flags uint64
		if r.base {
			flags |= 1
		}
		if r.exact {
			flags |= 2
		}
		w.u(uint64(defs[r.def]))
		w.u(uint64(r.part))
		w.s(r.key)
		w.u(flags)
		w.i(r.level.Whole)
		w.u(r.level.Part)
		w.u(r.level.Unit)
		w.b(r.state)
		w.i(r.age)
		w.u(r.lineage)
	}
	return w.buf
}

// decodeSaved reads what encodeSaved wrote. Anything else is an error, never a panic.
func decodeSaved(kind uint64, b []byte) (*saved, error) {
	r := newReader(b)
	if v := r.u(); r.err == nil && v != savedVersion {
		return nil, fmt.Errorf("%w: version %d, this node understands %d", ErrSnapshot, v, savedVersion)
	}
	if k := r.u(); r.err == nil && k != kind {
		return nil, fmt.Errorf("%w: of kind %d", ErrSnapshot, k)
	}
	s := &saved{id: r.u(), wall: r.i()}
	defs := make([]savedDef, r.list(7))
	for i := range defs {
		defs[i] = r.savedDef()
	}
	s.records = make([]savedRecord, r.list(10))
	for i := range s.records {
		s.records[i] = r.savedRecord(defs)
		if r.err != nil {
			break
		}
	}
	if r.err == nil && r.left() > 0 {
		r.err = fmt.Errorf("%d bytes too many", r.left())
	}
	if r.err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSnapshot, r.err)
	}
	return s, nil
}

func (r *reader) savedDef() savedDef {
	d := savedDef{limit: r.s(), plan: r.s(), rate: r.rate(), burst: r.i()}
	k := r.u()
	d.k = int(min(k, maxMembers))
	d.alg = r.rule(d.k)
	if r.err == nil {
		if err := d.rate.Validate(); err != nil {
			r.err = err
		} else if d.burst < 0 || d.burst > maxBurst || k > maxMembers {
			r.err = errors.New("a definition out of range")
		}
	}
	return d
}

func (r *reader) savedRecord(defs []savedDef) savedRecord {
	def := r.u()
	x := savedRecord{part: int(min(r.u(), 1<<20)), key: r.s()}
	flags := r.u()
	x.base, x.exact = flags&1 != 0, flags&2 != 0
	x.level = bucket.Level{Whole: r.i(), Part: r.u(), Unit: r.u()}
	x.state, x.age, x.lineage = r.b(), r.i(), r.u()
	switch {
	case r.err != nil:
		return x
	case def >= uint64(len(defs)):
		r.err = errors.New("a record of no limit")
		return x
	case x.age < 0 || x.level.Whole >= maxTokens || x.level.Whole <= -maxTokens || x.level.Unit == 0 || x.level.Part >= x.level.Unit:
		r.err = errors.New("a level out of range")
	}
	x.def = defs[def]
	return x
}

// older adds time to a record's age, without overflow.
func (r *savedRecord) older(by int64) {
	if by = max(by, 0); r.age > math.MaxInt64-by {
		by = math.MaxInt64 - r.age
	}
	r.age += by
}

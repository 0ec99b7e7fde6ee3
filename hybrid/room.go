package hybrid

import (
	"math"
	"time"
	"unsafe"

	"github.com/jatah-io/jatah/bucket"
	"github.com/jatah-io/jatah/internal/budget"
)

// What a key takes beside its bytes and its purse, in bytes as measured: the value, with what the allocator rounds it up to, and what leads to it.
const (
	accountBytes = int64(unsafe.Sizeof(account{})) + 180 // byGen, the number's slot, a denial
	ledgerBytes  = int64(unsafe.Sizeof(ledger{})) + 120  // the partition's map
	entryBytes   = int64(unsafe.Sizeof(entry{})) + 24
	recordBytes  = int64(unsafe.Sizeof(record{})) + 130 // the standby's map
	permitBytes  = int64(unsafe.Sizeof(Permit{})) + 150 // id, map and queue
)

// reserveOf is what is kept back for shared keys.
func reserveOf(maxMemory int64, o Overflow) int64 {
	if o != OverflowShared {
		return 0
	}
	return maxMemory / 16
}

// crowdedFor is how long new keys are refused at once when one has looked for room in vain. Under a flood that keeps the work of looking below a
// tenth of a core.
const crowdedFor = int64(time.Millisecond)

// looks is how many keys a new key looks at for room, of either kind.
const looks = 256

// crowded says that a new key would find no room.
func (e *Engine) crowded(now int64) bool { return now < e.crowdedUntil.Load() }

// overflowed counts a key that found no room.
func (e *Engine) overflowed(o Overflow) {
	e.stats.overflowed[o].Add(1)
	if !e.full.Load() {
		e.full.Store(true)
	}
}

// ownerFull counts a key that this node owns and has no room for.
func (e *Engine) ownerFull() {
	e.stats.ownerFull.Add(1)
	if !e.full.Load() {
		e.full.Store(true)
	}
}

// roomForKey takes room for one more key with so many bytes beside its purse, having made some if there was none. A solo key has none.
func (e *Engine) roomForKey(l *Limit, size int64, reserved bool, now int64) bool {
	if e.takeRoom(size, reserved) {
		return true
	}
	if e.crowded(now) {
		return false
	}
	e.sweepAccounts(now, looks)
	e.makeRoom(l, now, looks)
	if e.takeRoom(size, reserved) {
		return true
	}
	e.crowdedUntil.Store(now + crowdedFor)
	return false
}

func (e *Engine) takeRoom(size int64, reserved bool) bool {
	if !e.budget.Key(reserved) {
		return false
	}
	if !e.budget.Take(budget.Accounts, size, reserved) {
		e.budget.DropKey()
		return false
	}
	return true
}

// giveRoom gives back what roomForKey took, for a key that there was no memory for.
func (e *Engine) giveRoom(size, now int64) {
	e.budget.DropKey()
	e.budget.Add(budget.Accounts, -size)
	e.crowdedUntil.Store(now + crowdedFor)
}

func (a *account) size() int64 { return accountBytes + int64(len(a.key)) }

// roomForLedger says whether there is room for one more ledger, having made some if there was none.
func (e *Engine) roomForLedger(size int64, reserved bool, now int64) bool {
	has := func() bool {
		return (reserved || int64(e.nledgers) < e.budget.MaxKeys()) && e.budget.Take(budget.Ledgers, size, reserved)
	}
	if has() {
		return true
	}
	if now < e.ledgersFull {
		return false
	}
	e.sweepLedgers(now, looks)
	if has() {
		return true
	}
	e.ledgersFull = now + crowdedFor
	return false
}

func (l *ledger) bytes() int64 {
	n := ledgerBytes + int64(len(l.key)) + int64(len(l.entries))*entryBytes
	if l.m != nil {
		n += int64(bucket.Size(l.m))
	}
	return n
}

// weigh counts what a ledger has grown or shrunk by. A log that there is no room for is kept coarsely.
func (e *Engine) weigh(p *partition, x *ledger) {
	n := x.bytes()
	if n == x.size || x.size == 0 { // 0: it is not stored
		return
	}
	if d := n - x.size; d < 0 || x.m == nil {
		e.budget.Add(budget.Ledgers, d)
	} else if !e.budget.Take(budget.Ledgers, d, false) {
		x.m = bucket.Smaller(x.m)
		n = x.bytes()
		e.budget.Add(budget.Ledgers, n-x.size)
	}
	p.bytes += n - x.size
	x.size = n
}

// store puts a ledger into its partition, for which size bytes were taken.
func (e *Engine) store(p *partition, x *ledger, size int64) {
	x.size = size
	p.bytes += size
	p.ledgers[ledgerKey{x.limit.root, x.key}] = x
	p.roomy = max(p.roomy, len(p.ledgers))
	e.nledgers++
}

// unstore forgets a ledger.
func (e *Engine) unstore(p *partition, k ledgerKey, x *ledger) {
	delete(p.ledgers, k)
	e.nledgers--
	e.budget.Add(budget.Ledgers, -x.size)
	p.bytes -= x.size
	x.size = 0
}

// unstoreAll is before a partition forgets all of its ledgers.
func (e *Engine) unstoreAll(p *partition) {
	e.nledgers -= len(p.ledgers)
	e.budget.Add(budget.Ledgers, -p.bytes)
	p.bytes = 0
	for _, x := range p.ledgers {
		x.size = 0
	}
}

// shrink gives back what a partition's map keeps for more ledgers, when a flood has gone. Not while somebody goes through it.
func (p *partition) shrink() {
	if p.roomy < 128 || len(p.ledgers) > p.roomy/8 {
		return
	}
	ledgers := make(map[ledgerKey]*ledger, len(p.ledgers))
	for k, x := range p.ledgers {
		ledgers[k] = x
	}
	p.ledgers, p.roomy = ledgers, len(ledgers)
}

func (k standbyKey) size(r *record) int64 {
	return recordBytes + int64(len(k.key)) + int64(cap(r.c.state))
}

// dropStandby forgets what this node kept of a partition as heir.
func (e *Engine) dropStandby(part int) {
	if s := e.standby[part]; s != nil {
		e.budget.Add(budget.Standby, -s.bytes)
		delete(e.standby, part)
	}
}

// count adds to what the records take.
func (s *standby) count(e *Engine, n int64) {
	s.bytes += n
	e.budget.Add(budget.Standby, n)
}

// ownerHasNoRoom decides a waiter whose key the owner has no room for: who waits goes on as the policy says, see finished; a take-all, which does not go on
// with a shared key by then, is decided here.
func (e *Engine) ownerHasNoRoom(a *account, w *waiter) Decision {
	if w.hold != nil {
		return e.noRoomForPart(a)
	}
	return e.noRoom(&a.limit.spec)
}

// noRoomForPart decides a part of a take-all whose owner has no room for the key.
func (e *Engine) noRoomForPart(a *account) Decision {
	s := &a.limit.spec
	if a.limit.policy(s, a.key) == OverflowAllow {
		e.overflowed(OverflowAllow)
		return s.uncounted()
	}
	e.overflowed(OverflowDeny)
	return e.noRoom(s)
}

// forgetTables gives back what the tables of a limit that was removed take.
func (l *Limit) forgetTables() {
	l.keys.Close()
	l.buckets.Close()
	if t := l.meters.Load(); t != nil {
		t.Close()
	}
}

// sayings is how often at most a line about memory is logged.
const sayings = int64(time.Minute)

// recovered is for how long no key must have overflowed before there is room again.
const recoveredAfter = int64(10 * time.Second)

// roomLog is what the tick has said of memory. Of the tick alone.
type roomLog struct {
	seen           uint64 // overflows
	at             int64  // when there was one last
	said, saidFree int64
	told           bool // that it is full
}

// tickRoom says in the log that there was no room for new keys, and that there is again.
func (e *Engine) tickRoom(now int64) {
	r := &e.roomLog
	n := e.stats.ownerFull.Load()
	for i := range e.stats.overflowed {
		n += e.stats.overflowed[i].Load()
	}
	switch {
	case n != r.seen:
		if r.seen, r.at = n, now; !r.told && (r.said == 0 || now-r.said >= sayings) {
			r.said, r.told = now, true
			m := e.Memory()
			e.log.Warn("no room for new keys: all that are kept have been used and are not full again; raise max_keys or max_memory, or see what sends so many keys",
				"overflow", e.cfg.Overflow.String(), "keys", m.Keys, "max_keys", m.MaxKeys, "bytes", m.Used, "max_memory", m.Limit)
		}
	case e.full.Load() && now-r.at >= recoveredAfter && !e.budget.Tight():
		e.full.Store(false)
		if r.told && (r.saidFree == 0 || now-r.saidFree >= sayings) {
			r.saidFree, r.told = now, false
			m := e.Memory()
			e.log.Info("there is room for new keys again", "overflows", n, "keys", m.Keys, "bytes", m.Used)
		}
	}
}

// Memory is what the keys of an engine take.
type Memory struct {
	Keys, MaxKeys int64             // keys used here, and their bound; 0: none
	Used, Limit   int64             // bytes, and their bound; 0: none
	Parts         map[string]int64  // bytes by what they are for
	Overflowed    [Overflows]uint64 // requests of new keys that found no room, by what they got
	Full          bool              // a new key found no room in the last seconds
}

// Memory counts the memory of keys.
func (e *Engine) Memory() Memory {
	unbounded := func(n int64) int64 {
		if n == math.MaxInt64 {
			return 0
		}
		return n
	}
	b := e.budget
	m := Memory{Keys: b.Keys(), MaxKeys: unbounded(b.MaxKeys()), Used: b.Bytes(), Limit: unbounded(b.MaxBytes()), Parts: make(map[string]int64, budget.Parts), Full: e.full.Load()}
	for p := range budget.Part(budget.Parts) {
		m.Parts[p.String()] = b.Part(p)
	}
	for i := range m.Overflowed {
		m.Overflowed[i] = e.stats.overflowed[i].Load()
	}
	return m
}

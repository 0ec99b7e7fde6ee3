package hybrid

import (
	"sync/atomic"
	"time"

	"github.com/puzpuzpuz/xsync/v4"

	"github.com/jatah-io/jatah/bucket"
)

// purse is what a take on credit touches of a key: the credit, and what describes it. It is a record of the limit's table of keys, and lies there
// beside the key. It has no pointers, so that a million keys are no work for the garbage collector.
//
// There are two kinds. That of an account, which has the rest of the key's state. And that of a key that nobody else knows: see solo.go.
type purse struct {
	state   atomic.Uint64 // of an account: its number in Engine.accounts; solo: TAT of all that was used
	moment  atomic.Int64  // of an account: own clock of the owner's last answer, 0: never; solo: the credit when it was last looked at
	balance atomic.Int64  // whole tokens in the pool when the owner last answered
	credit  credit        // beside the key: most takes look no further
}

// credit is a number of tokens and some flags in one word. The word is G - C - R - held of an account: a take lowers it by one
// compare-and-swap, so C needs no counter of its own. It is raised only under the engine's lock. Below zero it is what was spent
// beyond credit: owed to the owner.
//
// Flags and version are in the lower bits. The version is another one when the record is used for another key; see package keytable.
type credit struct{ word atomic.Uint64 }

const (
	creditDirty  = 1 << iota // spent from since Engine.settleSpent came by: the purse is marked in the table
	creditHot                // several processors spend at once: the tokens are in account.hot
	creditSolo               // the key of nobody else, see solo.go
	creditRecent             // solo: spent from since the sweep came by
	creditBusy               // solo: somebody with the engine's lock is changing it
	creditVersion

	creditShift  = 10 // leaves 54 bits: what can be owed is at most 2^52, see Engine.sync
	versions     = 1<<creditShift - creditVersion
	mostOnCredit = maxBurst // what a take can cost
)

func (c *credit) load() int64 { return int64(c.word.Load()) >> creditShift }

func (c *credit) has(flag uint64) bool { return c.word.Load()&flag != 0 }

// add changes the tokens, under the engine's lock.
func (c *credit) add(n int64) { c.word.Add(uint64(n) << creditShift) }

// flags sets and clears flags, under the engine's lock.
func (c *credit) flags(set, clear uint64) {
	for {
		w := c.word.Load()
		if c.word.CompareAndSwap(w, w&^clear|set) {
			return
		}
	}
}

// drain takes all tokens, which are not below zero, and sets a flag.
func (c *credit) drain(set uint64) int64 {
	for {
		w := c.word.Load()
		n := max(0, int64(w)>>creditShift)
		if c.word.CompareAndSwap(w, w-uint64(n)<<creditShift|set) {
			return n
		}
	}
}

// reuse is for another key: no tokens, these flags, the next version. Whoever still has a word of before cannot swap it.
func (c *credit) reuse(flags uint64) {
	c.word.Store((c.word.Load()+creditVersion)&versions | flags)
}

// spend takes cost tokens, if there are as many; w is the word as it was when the key was found. It takes no lock and reads no clock. first says that
// the purse must be marked: nobody has spent from it since the tick came by.
func (c *credit) spend(w uint64, cost int64) (left int64, first, ok bool) {
	need := uint64(cost) << creditShift
	for int64(w) >= int64(need) { // flags and version make no difference
		n := (w - need) | creditDirty
		if c.word.CompareAndSwap(w, n) {
			return int64(n) >> creditShift, w&creditDirty == 0, true
		}
		now := c.word.Load()
		if (now^w)&versions != 0 {
			break // another key's by now
		}
		w = now
	}
	return 0, false, false
}

// take is spend under the engine's lock, by who does not want the purse marked.
func (c *credit) take(cost int64) (left int64, ok bool) {
	need := uint64(cost) << creditShift
	for {
		w := c.word.Load()
		if int64(w) < int64(need) {
			return int64(w) >> creditShift, false
		}
		if c.word.CompareAndSwap(w, w-need) {
			return int64(w-need) >> creditShift, true
		}
	}
}

// quick is all that a take on credit needs of a limit. A limit has none where every take needs more: plans, a parent, another rule, another mode.
type quick struct {
	burst     int64
	near      int64   // see nearly
	interval  int64   // ns per token, where that is a whole number and a full key takes less than a year; else 0
	perToken  float64 // ns per token
	mode      Mode
	maxExcess int64
	spec      *Spec
	params    *bucket.Params // as Limit.params
}

// setQuick is called whenever the definition or what is around it has changed.
func (l *Limit) setQuick() {
	s := l.def.Load()
	if l.e.alone() || s.Mode != Hybrid || s.Rule != nil || s.Rate.Count == 0 || l.plans.Load() != nil || l.parent.Load() != nil || l.gone.Load() || l.e.closed.Load() {
		l.quick.Store(nil)
		return
	}
	q := &quick{burst: s.Burst, near: nearly(s.Burst), perToken: float64(s.Rate.Per) / float64(s.Rate.Count), mode: s.Mode, maxExcess: int64(s.Overshoot * float64(s.Burst)), spec: s, params: l.params}
	if n := int64(s.Rate.Per) / s.Rate.Count; n*s.Rate.Count == int64(s.Rate.Per) && s.Burst <= int64(366*24*time.Hour)/n {
		q.interval = n
	}
	l.quick.Store(q)
}

// OnCredit decides a request that credit at this node covers, and says so; d must be zero. That is most of them in mode hybrid, and the rest of this package
// is there to make it so. It takes no lock, reads no clock and allocates nothing. Where it says no, nothing has happened, and Take decides.
func (l *Limit) OnCredit(d *Decision, key string, cost int64) bool {
	q := l.quick.Load()
	if q == nil || uint64(cost-1) >= uint64(mostOnCredit) {
		return false
	}
	p, w := l.keys.Find(key)
	if p == nil {
		return false
	}
	var left int64
	need := uint64(cost) << creditShift
	if int64(w) < int64(need) && w&creditHot == 0 {
		return false
	}
	if cost > 1 {
		l.several(cost, 1)
	}
	if n := (w - need) | creditDirty; int64(w) >= int64(need) && p.credit.word.CompareAndSwap(w, n) {
		if left = int64(n) >> creditShift; w&creditDirty == 0 {
			l.keys.Mark(p)
		}
	} else {
		var ok bool
		if left, ok = l.spendAgain(p, w, key, cost); !ok {
			if cost > 1 {
				l.several(cost, -1)
			}
			return false
		}
	}
	if cost == 0 {
		l.bulk.takes.Inc()
	}
	rest := min(max(0, p.balance.Load())+left, q.burst)
	d.OK, d.Mode, d.Remaining, d.MaxExcess = true, q.mode, rest, q.maxExcess
	if rest < q.near {
		l.near.Inc()
	}
	if q.interval > 0 {
		d.ResetAfter = time.Duration((q.burst - rest) * q.interval)
	} else {
		d.ResetAfter = time.Duration(float64(q.burst-rest)*q.perToken) + 1
	}
	if w&creditSolo == 0 {
		d.asOf = l.e.unix(p.moment.Load())
	}
	return true
}

// spendAgain is for a take that found too little, or was not the only one.
func (l *Limit) spendAgain(p *purse, w uint64, key string, cost int64) (left int64, ok bool) {
	if w&creditHot != 0 {
		return l.spendHot(p, w, cost)
	}
	if int64(w) < cost<<creditShift {
		return 0, false
	}
	left, first, ok := p.credit.spend(w, cost)
	if first {
		l.keys.Mark(p)
	}
	l.heat(key)
	return left, ok
}

// bulkCount counts decisions on credit whose cost is not 1: all others are counted by what was spent. A take counts before it spends, and apart from that
// if it came to nothing, so that Stats, which looks the other way round, never sees tokens for decisions.
type bulkCount struct {
	takes, tokens   *xsync.Counter // and what they cost
	undone, unspent *xsync.Counter // of these, those that found too little credit
}

func newBulkCount() *bulkCount {
	return &bulkCount{xsync.NewCounter(), xsync.NewCounter(), xsync.NewCounter(), xsync.NewCounter()}
}

// beyond is by how much there were more decisions than tokens were spent; negative where most cost more than 1.
func (b *bulkCount) beyond() int64 {
	n := b.unspent.Value() // each before what is written before it
	n -= b.undone.Value()
	n += b.takes.Value()
	return n - b.tokens.Value()
}

// several notes a take on credit whose cost is not 1, or with n -1 that it came to nothing.
func (l *Limit) several(cost, n int64) {
	switch {
	case cost <= 1: // a look spends nothing, and is counted once it has come to something
	case n > 0:
		l.bulk.tokens.Add(cost)
		l.bulk.takes.Inc()
	default:
		l.bulk.undone.Inc()
		l.bulk.unspent.Add(cost)
	}
}

package hybrid

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"
)

// hotCredit is the credit of an account that several processors spend from at once. A word that all of them swap goes from cache to cache, which takes
// longer than all the rest of a take; so each has a part of the tokens in a word of its own, and only who finds too few there looks at the others'.
//
// Spending lowers one part by a compare-and-swap. Whatever moves tokens between parts, or adds them all up, holds mu: so no token is on its way
// when they are counted. The account's own word has the flag creditHot and no tokens meanwhile.
type hotCredit struct {
	purse  *purse
	word   uint64 // of the purse meanwhile: no tokens, but number
	number int    // in Engine.hots
	mu     sync.Mutex
	parts  []hotPart
	last   int64 // of account.spent, when the tick came by: to see that it is hot no more
}

type hotPart struct {
	n atomic.Int64 // closed: spend elsewhere
	_ [120]byte    // processors fetch two lines of 64 bytes at a time
}

const (
	closed = math.MinInt64
	// maxHot bounds the accounts that are hot at once, and so what they cost: 128 bytes for each processor.
	maxHot = 256
	// coolBelow is how many tokens a tick an account must spend to stay hot: below, processors hardly ever meet.
	coolBelow = 500
)

// processors gives each processor a number, as far as can be told: what sync.Pool gave back last to one of them stays with it.
type processors struct {
	pool sync.Pool
	next atomic.Uint32
}

type processor struct{ number uint32 }

func (p *processors) get() *processor {
	if x, ok := p.pool.Get().(*processor); ok {
		return x
	}
	return &processor{p.next.Add(1)}
}

func (p *processors) put(x *processor) { p.pool.Put(x) }

// spend takes cost tokens, if there are as many. left is about what is left.
func (h *hotCredit) spend(number uint32, cost int64) (left int64, ok bool) {
	part := &h.parts[number%uint32(len(h.parts))].n
	for {
		n := part.Load()
		if n < cost {
			return h.collect(part, cost)
		}
		if part.CompareAndSwap(n, n-cost) {
			return (n - cost) * int64(len(h.parts)), true
		}
	}
}

// collect takes cost tokens of all parts together, and divides the rest anew.
func (h *hotCredit) collect(part *atomic.Int64, cost int64) (left int64, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if part.Load() == closed {
		return 0, false
	}
	sum := h.gather(0)
	if ok = sum >= cost; ok {
		sum -= cost
	}
	h.divide(sum)
	return sum, ok
}

// gather takes all tokens out and leaves n in each part.
func (h *hotCredit) gather(n int64) (sum int64) {
	for i := range h.parts {
		sum += h.parts[i].n.Swap(n)
	}
	return sum
}

func (h *hotCredit) divide(sum int64) {
	each := max(0, sum) / int64(len(h.parts))
	for i := range h.parts {
		if i == 0 {
			h.parts[i].n.Add(sum - each*int64(len(h.parts)-1))
		} else {
			h.parts[i].n.Add(each)
		}
	}
}

func (h *hotCredit) load() (sum int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.parts[0].n.Load() == closed {
		return 0 // who asks has no lock, and comes too late
	}
	for i := range h.parts {
		sum += h.parts[i].n.Load()
	}
	return sum
}

func (h *hotCredit) add(n int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.divide(h.gather(0) + n)
}

// drain takes all tokens that are above zero.
func (h *hotCredit) drain() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	sum := h.gather(0)
	h.divide(min(0, sum))
	return max(0, sum)
}

func (h *hotCredit) close() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.gather(closed)
}

// hotTable has what is hot at present, by the number that is in the words of their purses.
type hotTable [maxHot]atomic.Pointer[hotCredit]

// hotWord is the word of a purse whose credit has this number in the table: below zero, so that no take finds any.
func hotWord(number int) uint64 { return uint64(-1-number) << creditShift }

// spendHot is spend for a key whose credit is divided; w is the word as it was when the key was found.
func (l *Limit) spendHot(p *purse, w uint64, cost int64) (left int64, ok bool) {
	h := l.e.hots[^(int64(w)>>creditShift)&(maxHot-1)].Load()
	if h == nil || h.purse != p || h.word != w|creditDirty {
		return 0, false // it has cooled, and may be another's
	}
	x := l.e.processors.get()
	left, ok = h.spend(x.number, cost)
	l.e.processors.put(x)
	return left, ok
}

// heat divides the credit of a key whose word two processors swapped at once, unless the engine is busy: there will be another time.
func (l *Limit) heat(key string) {
	e := l.e
	if e.parallel < 2 || !e.mu.TryLock() {
		return
	}
	defer e.unlock()
	a := e.accountOf(l, key)
	if a == nil && e.started && !e.closed.Load() {
		a, _ = e.account(l, key) // its credit went back to the pool: it comes again with the next take
	}
	if a == nil || a.hot.Load() != nil {
		return
	}
	number := 0
	for number < maxHot && e.hots[number].Load() != nil {
		number++
	}
	if number == maxHot {
		return
	}
	e.bind(a)
	e.activate(a)
	a.settleSpent()
	h := &hotCredit{purse: a.purse, parts: make([]hotPart, e.parallel), last: a.spent, number: number}
	for {
		w := a.credit.word.Load()
		h.word = w&versions | hotWord(number) | creditHot | creditDirty
		e.hots[number].Store(h)
		if a.credit.word.CompareAndSwap(w, h.word) {
			h.add(int64(w) >> creditShift)
			break
		}
	}
	a.hot.Store(h)
	e.hot = append(e.hot, a)
}

// coolHot ends what is hot no more, once a tick.
func (e *Engine) coolHot() {
	for _, a := range slices.Clone(e.hot) {
		h := a.hot.Load()
		a.settleSpent()
		used := a.spent - h.last
		if h.last = a.spent; used < coolBelow {
			e.cool(a)
		}
	}
}

// cool puts the tokens back into the one word.
func (e *Engine) cool(a *account) {
	h := a.hot.Load()
	if h == nil {
		return
	}
	a.hot.Store(nil)
	e.hots[h.number].Store(nil)
	a.credit.word.Store(h.word&versions | uint64(h.close())<<creditShift | creditDirty)
	a.limit.keys.Mark(a.purse)
	e.hot = slices.DeleteFunc(e.hot, func(b *account) bool { return b == a })
}

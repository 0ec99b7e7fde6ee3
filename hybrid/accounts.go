package hybrid

import (
	"slices"
	"sync/atomic"
)

// accountTable numbers accounts, so that a purse, which has no pointers, can name its own. Numbers are given again. get may be called by anybody, the
// rest under the engine's lock.
type accountTable struct {
	blocks atomic.Pointer[[]*accountBlock]
	free   []uint32
	given  uint32 // numbers from 0 that were ever given
	n      int
	cursor uint32 // of the sweep
}

type accountBlock [1024]atomic.Pointer[account]

// get is the account with this number, nil if there is none.
func (t *accountTable) get(number uint64) *account {
	b := t.blocks.Load()
	if i := number / 1024; b != nil && i < uint64(len(*b)) {
		return (*b)[i][number%1024].Load()
	}
	return nil
}

func (t *accountTable) at(number uint32) *atomic.Pointer[account] {
	return &(*t.blocks.Load())[number/1024][number%1024]
}

func (t *accountTable) add(a *account) {
	if n := len(t.free); n > 0 {
		a.number, t.free = t.free[n-1], t.free[:n-1]
	} else {
		if t.given%1024 == 0 {
			var blocks []*accountBlock
			if b := t.blocks.Load(); b != nil {
				blocks = slices.Clip(*b)
			}
			blocks = append(blocks, new(accountBlock))
			t.blocks.Store(&blocks)
		}
		a.number = t.given
		t.given++
	}
	t.at(a.number).Store(a)
	t.n++
}

func (t *accountTable) drop(a *account) {
	t.at(a.number).Store(nil)
	t.free = append(t.free, a.number)
	t.n--
}

// each calls f for every account; f may drop the one it is given.
func (t *accountTable) each(f func(*account)) {
	for i := range t.given {
		if a := t.at(i).Load(); a != nil {
			f(a)
		}
	}
}

// sweep calls f for the next accounts, having looked at so many numbers at most.
func (t *accountTable) sweep(budget int, f func(*account)) {
	for n := min(budget, int(t.given)); n > 0; n-- {
		if t.cursor >= t.given {
			t.cursor = 0
		}
		if a := t.at(t.cursor).Load(); a != nil {
			f(a)
		}
		t.cursor++
	}
}

// accountIn is the account that a purse belongs to, for anybody: the purse may have become another key's since it was found. nil: it is solo, or there is none.
func (e *Engine) accountIn(p *purse, key string) *account {
	if p == nil || p.credit.has(creditSolo) {
		return nil
	}
	if a := e.accounts.get(p.state.Load()); a != nil && a.purse == p && a.key == key {
		return a
	}
	return nil
}

// accountOf is the account of a key, nil if there is none, under the engine's lock.
func (e *Engine) accountOf(l *Limit, key string) *account {
	p, _ := l.keys.Find(key)
	return e.accountIn(p, key)
}

// eachAccount calls f for every account of a limit and its plans, under the engine's lock.
func (e *Engine) eachAccount(l *Limit, f func(*account)) {
	e.accounts.each(func(a *account) {
		if a.limit.root == l.root {
			f(a)
		}
	})
}

package hybrid

import (
	"errors"
	"maps"
	"math"
	"slices"
)

// began is what is to be known of a partition that began in a cluster that started: shares that come for the first time
// still bring their part, at the next owner as well.
type began struct {
	lineage uint64
	brought float64  // weights that were brought
	lenders []string // whose shares brought theirs
}

func (h *handOff) lineageOf(part int) uint64 { return h.began[part].lineage }

// began is what a hand-off says of the partition's beginning.
func (p *partition) began() began {
	b := began{lineage: p.lineage, brought: 1}
	if p.bringing && p.bringEnd == math.MaxInt64 {
		b.brought = p.brought
		for _, s := range p.shares {
			if s.brought {
				b.lenders = append(b.lenders, s.lender)
			}
		}
	}
	return b
}

// coming is what shares that have not come yet bring a key, all shares together.
func (p *partition) coming(x *ledger) float64 {
	if !p.bringing || p.bringEnd != math.MaxInt64 || x.limit.spec.Fallback == FallbackWait && !x.exact {
		return 0
	}
	return bound(x.start)
}

// goOn makes a partition go on where a former owner ended. Shares that have not brought their part yet do so here, unless
// somebody else has told the balances before.
func (p *partition) goOn(h *handOff) {
	b, begins := h.began[p.id]
	begins = begins && !p.told && b.brought < 1
	p.told, p.fresh, p.bringing, p.lineage = true, false, begins, b.lineage
	if !begins {
		return
	}
	p.brought, p.bringEnd = b.brought, math.MaxInt64
	for _, lender := range b.lenders {
		p.shareOf(lender).brought = true
	}
}

// began is the end of a hand-off: how its partitions began, what snapshots said of its copies and what they have coming. It is left
// out where there is nothing to say.
func (w *writer) began(h *handOff) {
	var some []int
	for i := range h.copies {
		if h.copies[i].saved > 0 || h.copies[i].start > 0 {
			some = append(some, i)
		}
	}
	if len(h.began) == 0 && len(some) == 0 {
		return
	}
	w.list(len(h.began))
	for _, part := range slices.Sorted(maps.Keys(h.began)) {
		b := h.began[part]
		w.u(uint64(part))
		w.u(b.lineage)
		w.f(b.brought)
		w.list(len(b.lenders))
		for _, l := range b.lenders {
			w.s(l)
		}
	}
	w.list(len(some))
	for _, i := range some {
		w.u(uint64(i))
		w.f(bound(h.copies[i].saved))
		w.f(h.copies[i].start)
	}
}

func (r *reader) began(h *handOff) {
	if r.err != nil || r.left() == 0 {
		return
	}
	bad := func(v, most float64) {
		if !(v >= 0 && v <= most) && r.err == nil {
			r.err = errors.New("a beginning out of range")
		}
	}
	if n := r.list(4); n > 0 {
		h.began = make(map[int]began, n)
		for range n {
			part := int(min(r.u(), 1<<20))
			b := began{lineage: r.u(), brought: r.f()}
			bad(b.brought, 1)
			if n := r.list(1); n > 0 {
				b.lenders = make([]string, n)
				for i := range b.lenders {
					b.lenders[i] = r.s()
				}
			}
			h.began[part] = b
		}
	}
	for range r.list(3) {
		i, saved, start := r.u(), r.f(), r.f()
		bad(saved, maxTokens-1)
		bad(start, maxTokens-1)
		if bad(float64(i), float64(len(h.copies))-1); r.err != nil {
			return
		}
		h.copies[i].saved, h.copies[i].start = saved, start
	}
}

package httpapi

import (
	"bytes"
	"context"
	"net/http"
	"strconv"

	"github.com/jatah-io/jatah"
)

// batch decides many takes, each on its own.
func (h *Handler) batch(w http.ResponseWriter, r *http.Request) {
	s := h.borrow()
	defer h.giveBack(s)
	if p := h.answerBatch(r, s); p != nil {
		refuse(w, r, p)
		return
	}
	head := w.Header()
	head["Content-Type"] = h.json
	head.Set("Content-Length", strconv.Itoa(len(s.out)))
	w.Write(s.out)
}

// answerBatch leaves the body of the answer in s.out.
func (h *Handler) answerBatch(r *http.Request, s *scratch) (p *problem) {
	if r.URL.RawQuery != "" {
		if _, p = readQuery(r); p != nil {
			return p
		}
	}
	if p = checkType(r.Header); p != nil {
		return p
	}
	if s.in, p = readBody(r, s.in); p != nil {
		return p
	}
	if p = h.readTakes(r.Context(), s); p != nil {
		return p
	}
	defer s.forget()
	for i := range s.items {
		if it := &s.items[i]; it.bad == nil {
			s.asks = append(s.asks, jatah.Ask{Limiter: it.limiter, Key: it.key, Cost: it.cost})
		}
	}
	began := h.now()
	s.decisions = h.node.AppendBatch(r.Context(), s.decisions, s.asks)
	h.tellOfItems(r.Context(), "batch", began, s.items, s.decisions)
	h.appendResults(s)
	return nil
}

// appendResults writes what was decided.
func (h *Handler) appendResults(s *scratch) {
	s.out = append(s.out[:0], `{"results":[`...)
	decisions := s.decisions
	for i := range s.items {
		if i > 0 {
			s.out = append(s.out, ',')
		}
		it := &s.items[i]
		if it.bad == nil {
			d := &decisions[0]
			decisions = decisions[1:]
			if d.Err == nil {
				if !d.OK {
					h.refused.Note(it.face.Name, it.key, d.RetryAfter)
				}
				s.out = appendDecision(s.out, it.face, d, it.echo, it.cost)
				continue
			}
			it.bad = h.problemOf(d.Err, it.face.Name)
		}
		s.out = append(s.out, `{"error":`...)
		s.out = append(appendProblem(s.out, it.bad), '}')
	}
	s.out = append(s.out, "]}\n"...)
}

// item is one take of several. bad says why it cannot be decided; limiter and face are nil then.
type item struct {
	take
	limiter *jatah.Limiter
	face    *face
	bad     *problem
}

// readTakes reads {"takes":[...]} from s.in into s.items, with the limit of each. The problem is that of the whole body.
func (h *Handler) readTakes(ctx context.Context, s *scratch) *problem {
	items, ok := takesIn(s.in, s.items[:0], h.cfg.MaxBatch)
	if !ok {
		clear(items)
		items = items[:0]
		bodies, p := decodeBatch(s.in, h.cfg.MaxBatch)
		if p != nil {
			return p
		}
		for _, body := range bodies {
			t, p := decodeTake(body)
			items = append(items, item{take: t, bad: p})
		}
	}
	s.items = items
	var last *item
	for i := range items {
		it := &items[i]
		if it.bad != nil {
			continue
		}
		if last != nil && it.likely(last) {
			it.limiter = last.limiter
		} else if it.limiter, it.bad = h.limiterOf(ctx, &it.take); it.bad != nil {
			continue
		}
		if terms := it.limiter.Terms(it.key); last != nil && last.face.Terms == terms {
			it.face = last.face
		} else {
			it.face = h.faces.Of(terms, newFace)
		}
		last = it
	}
	return nil
}

// likely says that a take is of the same limit as the one before, as most are in most batches, and needs nothing else of it.
func (it *item) likely(last *item) bool {
	return len(it.plan) == 0 && len(last.plan) == 0 && it.route == nil && bytes.Equal(it.limit, last.limit)
}

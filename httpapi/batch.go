package httpapi

import (
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
	if _, p = readQuery(r); p != nil {
		return p
	}
	if p = checkType(r.Header); p != nil {
		return p
	}
	if s.in, p = readBody(r, s.in); p != nil {
		return p
	}
	items, p := decodeBatch(s.in, h.cfg.MaxBatch)
	if p != nil {
		return p
	}
	takes, bad := make([]take, len(items)), make([]*problem, len(items))
	limits := make([]terms, len(items))
	asks := make([]jatah.Request, 0, len(items))
	for i, item := range items {
		if takes[i], limits[i], bad[i] = h.readItem(item); bad[i] == nil {
			asks = append(asks, jatah.Request{Limit: limits[i].Name, Key: takes[i].key, Cost: takes[i].cost, Plan: string(takes[i].plan)})
		}
	}
	decisions := h.node.Batch(r.Context(), asks)
	s.out = append(s.out[:0], `{"results":[`...)
	for i := range takes {
		if i > 0 {
			s.out = append(s.out, ',')
		}
		if bad[i] == nil {
			d := &decisions[0]
			decisions = decisions[1:]
			if d.Err == nil {
				if !d.OK {
					h.refused.Note(limits[i].Name, takes[i].key, d.RetryAfter)
				}
				s.out = appendDecision(s.out, &limits[i], d, takes[i].echo, takes[i].cost)
				continue
			}
			bad[i] = h.problemOf(d.Err, limits[i].Name)
		}
		s.out = append(s.out, `{"error":`...)
		s.out = append(appendProblem(s.out, bad[i]), '}')
	}
	s.out = append(s.out, "]}\n"...)
	return nil
}

// readItem decodes one take and finds what holds for its key.
func (h *Handler) readItem(item []byte) (t take, l terms, p *problem) {
	if t, p = decodeTake(item); p != nil {
		return t, l, p
	}
	limiter, p := h.limiterOf(&t)
	if p != nil {
		return t, l, p
	}
	return t, termsOf(limiter, t.key), nil
}

package httpapi

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/jatah-io/jatah"
	"github.com/jatah-io/jatah/httpapi/internal/fields"
)

// decideAll makes the decision about all takes in s.in together. The answer's body is s.out.
func (h *Handler) decideAll(ctx context.Context, s *scratch, deny int) (a answer, p *problem) {
	if p = h.readTakes(ctx, s); p != nil {
		return a, p
	}
	defer s.forget()
	items := s.items
	if len(items) == 0 {
		return a, badField("takes", "takes is empty; name at least one limit and key.")
	}
	asks := make([]jatah.Request, len(items))
	for i := range items {
		it := &items[i]
		if it.bad != nil {
			return a, inItem(i, it.bad)
		}
		asks[i] = jatah.Request{Limit: it.face.Name, Key: it.key, Cost: it.cost, Plan: string(it.plan)}
	}
	began := h.now()
	r := h.node.TakeAll(ctx, asks)
	h.tellOfItems(ctx, "take-all", began, items, r.Decisions)
	if r.Err != nil {
		return a, h.problemOfAll(r, items)
	}
	s.out = appendAll(s.out[:0], &r, items)
	i := tightest(&r)
	h.cfg.decisionHeads(&s.heads, items[i].face, &r.Decisions[i], len(s.out), time.Now)
	a = answer{status: http.StatusOK, head: s.heads.Values(), body: s.out}
	if !r.OK {
		all := make([]*jatah.Decision, len(r.Decisions))
		for i := range r.Decisions {
			d := &r.Decisions[i]
			if all[i] = d; !d.OK {
				h.refused.Note(items[i].face.Name, items[i].key, d.RetryAfter)
			}
		}
		a.status = deniedAs(deny, all...)
	}
	return a, nil
}

func appendAll(b []byte, r *jatah.Result, items []item) []byte {
	b = append(b, `{"allowed":false,"violated":[`...)
	if r.OK {
		b = append(b[:0], `{"allowed":true,"violated":[`...)
	}
	for i, name := range r.Violated {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendJSON(b, name)
	}
	b = append(b, `],"results":[`...)
	for i := range items {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendDecision(b, items[i].face, &r.Decisions[i], items[i].echo, items[i].cost)
	}
	return append(b, "]}\n"...)
}

// tightest is the decision that the headers tell of: the refusal that lasts longest, or else where the least is left.
func tightest(r *jatah.Result) (at int) {
	for i := range r.Decisions {
		if fields.Tighter(&r.Decisions[i], &r.Decisions[at]) {
			at = i
		}
	}
	return at
}

// problemOfAll is the problem of the take that could not be decided, because of which none was.
func (h *Handler) problemOfAll(r jatah.Result, items []item) *problem {
	for i, d := range r.Decisions {
		if d.Err != nil {
			return inItem(i, h.problemOf(d.Err, items[i].face.Name))
		}
	}
	return h.problemOf(r.Err, "")
}

// inItem says of a problem in which take it is; nothing was taken for the others either.
func inItem(i int, p *problem) *problem {
	q, where := *p, fmt.Sprintf("takes[%d]", i)
	switch {
	case q.status == http.StatusServiceUnavailable:
		return p // of the node, not of the take
	case q.field == "":
		q.field = where
	default:
		q.field = where + "." + q.field
	}
	return &q
}

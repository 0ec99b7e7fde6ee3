package httpapi

import (
	"bytes"
	"context"
	"hash/maphash"
	"net/http"
	"time"

	"github.com/jatah-io/jatah"
)

// operation is a method of a limiter that makes a decision.
type operation func(l *jatah.Limiter, ctx context.Context, key string, cost int64) jatah.Decision

// decider decides what the body in s.in asks for. Denials have the status deny; the answer's body is s.out.
type decider func(ctx context.Context, s *scratch, deny int) (answer, *problem)

// decision serves take, refund and charge, which differ in the operation only.
func (h *Handler) decision(op operation) http.HandlerFunc {
	return h.answering(func(ctx context.Context, s *scratch, deny int) (answer, *problem) { return h.decide(ctx, op, s, deny) })
}

// answering serves a call that charges, and so may be repeated with an Idempotency-Key.
func (h *Handler) answering(decide decider) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		s := h.borrow()
		defer h.giveBack(s)
		a, p := h.answerTo(r, decide, s)
		if p != nil {
			refuse(w, r, p)
			return
		}
		h.write(w, a)
	}
}

// answerTo checks all of a request before it decides, so that a problem has charged nothing.
func (h *Handler) answerTo(r *http.Request, decide decider, s *scratch) (a answer, p *problem) {
	deny, p := denyStatus(r)
	if p != nil {
		return a, p
	}
	if p = checkType(r.Header); p != nil {
		return a, p
	}
	key, repeatable, p := repeatKey(r.Header)
	if p != nil {
		return a, p
	}
	if s.in, p = readBody(r, s.in); p != nil {
		return a, p
	}
	if repeatable {
		return h.decideOnce(r, key, decide, s, deny)
	}
	return decide(r.Context(), s, deny)
}

// decide makes the decision that s.in asks for. The answer's body is s.out.
func (h *Handler) decide(ctx context.Context, op operation, s *scratch, deny int) (a answer, p *problem) {
	t, p := decodeTake(s.in)
	if p != nil {
		return a, p
	}
	limiter, p := h.limiterOf(ctx, &t)
	if p != nil {
		return a, p
	}
	d := op(limiter, ctx, t.key, t.cost)
	if d.Err != nil {
		return a, h.problemOf(d.Err, string(t.limit))
	}
	f := h.faceOf(limiter, t.key)
	s.out = append(appendDecision(s.out[:0], f, &d, t.echo, t.cost), '\n')
	h.cfg.decisionHeads(&s.heads, f, &d, len(s.out), time.Now)
	a = answer{status: http.StatusOK, head: s.heads.Values(), body: s.out}
	if !d.OK {
		a.status = deniedAs(deny, &d)
		h.refused.Note(f.Name, t.key, d.RetryAfter)
	}
	return a, nil
}

// deniedAs is the status of denials, deny unless all of them are by fallback deny: then nobody has used too much, the owner is silent. A status
// that was asked for holds for those too.
func deniedAs(deny int, ds ...*jatah.Decision) int {
	silent := false
	for _, d := range ds {
		if !d.OK && d.Source != jatah.SourceDeny {
			return deny
		}
		silent = silent || !d.OK
	}
	if silent && deny == http.StatusTooManyRequests {
		return http.StatusServiceUnavailable
	}
	return deny
}

// decideOnce is decide for a request with an Idempotency-Key: the first decides,
// the others get its answer. Problems are not remembered, they charged nothing; so the
// next request with the key decides anew.
func (h *Handler) decideOnce(r *http.Request, key string, decide decider, s *scratch, deny int) (answer, *problem) {
	// The path is part of the key, so that a take and the charge after it may share a request's id.
	key = r.URL.Path + " " + key
	if token := scopeOf(r.Context()); token != nil { // nor may it get the answer to one that it could not send
		key = token.Name + " " + key
	}
	print := h.fingerprint(r.URL.RawQuery, s.in)
	for {
		e, role := h.repeats.begin(time.Since(h.start), key, print)
		switch role {
		case lead:
			return h.lead(r, e, decide, s, deny)
		case conflict:
			return answer{}, &problem{
				slug: "idempotency-key-reused", status: http.StatusUnprocessableEntity, field: "Idempotency-Key",
				detail: "This Idempotency-Key was used within the last minute with another body or query; use a new key for a new request.",
			}
		case crowded:
			p := undecided("Too many requests with an Idempotency-Key are in flight; try again, or send it without.")
			return answer{}, p
		}
		select {
		case <-e.done:
			if e.answer != nil {
				return *e.answer, nil
			}
		case <-r.Context().Done():
			return answer{}, h.problemOf(context.Cause(r.Context()), "")
		}
	}
}

// lead decides for all requests with the same key.
func (h *Handler) lead(r *http.Request, e *repeat, decide decider, s *scratch, deny int) (a answer, p *problem) {
	var kept *answer
	defer func() { // also when decide panics: nobody may wait for ever
		now := time.Since(h.start)
		h.repeats.finish(now, e, kept)
		if n := h.repeats.droppedEarly(now); n > 0 {
			h.cfg.Logger.Warn("answers for repeats were forgotten before their minute was over; raise the bounds for idempotency keys", "answers", n)
		}
	}()
	// A client that hangs up is the very one that repeats. So the decision is made
	// without it and remembered; the limiter bounds how long that takes.
	a, p = decide(context.WithoutCancel(r.Context()), s, deny)
	if p == nil {
		kept = &answer{status: a.status, head: a.head, body: bytes.Clone(a.body)}
	}
	return a, p
}

// fingerprint tells requests apart; the seed is random, so nobody can make two alike.
func (h *Handler) fingerprint(query string, body []byte) uint64 {
	var m maphash.Hash
	m.SetSeed(h.seed)
	m.WriteString(query)
	m.WriteByte(0) // not in a query: it would be escaped
	m.Write(body)
	return m.Sum64()
}

// write sends an answer. Its header values are shared with the header map,
// which no handler changes in place.
func (h *Handler) write(w http.ResponseWriter, a answer) {
	head := w.Header()
	head["Content-Type"] = h.json
	a.head.Put(head, h.cfg.fields())
	if a.status == http.StatusNoContent || a.status == http.StatusResetContent {
		// As deny_status only: these have no body, the headers must do.
		delete(head, "Content-Type")
		delete(head, "Content-Length")
		w.WriteHeader(a.status)
		return
	}
	w.WriteHeader(a.status)
	w.Write(a.body)
}

// refuse writes a problem about the body of a request. What was not read of
// a body that is too large is not worth reading, so the connection ends.
func refuse(w http.ResponseWriter, r *http.Request, p *problem) {
	if p.status == http.StatusRequestEntityTooLarge && r.ProtoMajor == 1 {
		w.Header().Set("Connection", "close")
	}
	writeProblem(w, p)
}

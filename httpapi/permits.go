package httpapi

import (
	"encoding/json"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/jatah-io/jatah"
)

// permitBody is the decoded body of an acquire or a release.
type permitBody struct {
	take
	permit string
	ttl    time.Duration
}

// decodePermit splits off what a take does not have, and reads the rest as one. ttl says whether the call takes ttl_ms.
func decodePermit(body []byte, ttl bool) (b permitBody, p *problem) {
	if p := checkJSON(body); len(body) > 0 && p != nil {
		return b, p
	}
	s := scanner{b: body}
	if !s.accept('{') { // the reader of a take says what is wrong
		b.take, p = decodeTake(body)
		return b, p
	}
	rest, seen := []byte{'{'}, map[string]bool{}
	for more := !s.accept('}'); more; more = s.accept(',') {
		s.space()
		start := s.i
		_, name, p := s.str()
		if p != nil {
			return b, p
		}
		field := string(name)
		if field == "permit" || field == "ttl_ms" && ttl {
			if seen[field] {
				return b, badField(field, "%s is there twice; send each field once.", field)
			}
			seen[field] = true
		}
		s.accept(':')
		value := s.skip()
		switch {
		case field == "permit":
			if json.Unmarshal(value, &b.permit) != nil || b.permit == "" {
				return b, badField(field, "permit must be the string that /v1/acquire gave.")
			}
		case field == "ttl_ms" && ttl:
			ms, err := strconv.ParseInt(string(value), 10, 64)
			if err != nil || ms < 1 || ms > math.MaxInt64/int64(time.Millisecond) {
				return b, badField(field, "ttl_ms must be a whole number of milliseconds, of at least 1, or left out for the ttl of the limit.")
			}
			b.ttl = time.Duration(ms) * time.Millisecond
		case field == "limit" || field == "key":
			if len(rest) > 1 {
				rest = append(rest, ',')
			}
			rest = append(rest, body[start:s.i]...)
		default:
			known := "limit, key and permit"
			if ttl {
				known = "limit, key, ttl_ms and permit"
			}
			return b, badField(field, "There is no field %s; the fields are %s.", quote(field), known)
		}
	}
	b.take, p = decodeTake(append(rest, '}'))
	return b, p
}

// readPermit reads a request about permits, and finds its limit.
func (h *Handler) readPermit(r *http.Request, s *scratch, ttl bool) (b permitBody, l *jatah.Limiter, p *problem) {
	if p = checkType(r.Header); p != nil {
		return b, nil, p
	}
	if s.in, p = readBody(r, s.in); p != nil {
		return b, nil, p
	}
	if b, p = decodePermit(s.in, ttl); p != nil {
		return b, nil, p
	}
	if p = h.outOfScope(r.Context(), b.limit); p != nil {
		return b, nil, p
	}
	l, ok := h.node.Lookup(string(b.limit))
	if !ok {
		return b, nil, h.unknownTo(r.Context(), string(b.limit))
	}
	return b, l, nil
}

// acquire takes a permit, or renews the one that is named.
func (h *Handler) acquire(w http.ResponseWriter, r *http.Request) {
	s := h.borrow()
	defer h.giveBack(s)
	deny, p := denyStatus(r)
	var b permitBody
	var l *jatah.Limiter
	if p == nil {
		b, l, p = h.readPermit(r, s, true)
	}
	if p != nil {
		refuse(w, r, p)
		return
	}
	if b.permit != "" {
		h.renew(w, r, l, &b)
		return
	}
	began := h.now()
	permit, d := l.Acquire(r.Context(), b.key, b.ttl)
	if h.cfg.Decided != nil {
		h.tell(r.Context(), "acquire", began, DecidedTake{l.Terms(b.key).Name, b.key, 1, d})
	}
	if d.Err != nil {
		writeProblem(w, h.problemOf(d.Err, string(b.limit)))
		return
	}
	if r.Context().Err() != nil { // nobody is there to take it
		_ = permit.Release(r.Context())
		writeProblem(w, undecided("The request ended before it was answered."))
		return
	}
	limit := h.faceOf(l, b.key)
	s.out = appendDecision(s.out[:0], limit, &d, b.echo, 1)
	a := answer{status: deniedAs(deny, &d)}
	if d.OK {
		a.status = http.StatusOK
		s.out = appendPermit(s.out[:len(s.out)-1], permit.ID(), life(b.ttl, limit.TTL))
	} else {
		h.refused.Note(limit.Name, b.key, d.RetryAfter)
	}
	s.out = append(s.out, '\n')
	h.cfg.decisionHeads(&s.heads, limit, &d, len(s.out), time.Now)
	a.head, a.body = s.heads.Values(), s.out
	h.write(w, a)
}

func life(asked, most time.Duration) time.Duration {
	if asked == 0 {
		return most
	}
	return asked
}

// appendPermit closes an object with a permit in it. The time that is left is rounded down: until then it lives.
func appendPermit(b []byte, id string, left time.Duration) []byte {
	b = append(b, `,"permit":`...)
	b = appendJSON(b, id)
	b = append(b, `,"expires_in_ms":`...)
	b = strconv.AppendInt(b, left.Milliseconds(), 10)
	return append(b, '}')
}

func (h *Handler) renew(w http.ResponseWriter, r *http.Request, l *jatah.Limiter, b *permitBody) {
	left, err := l.Renew(r.Context(), b.key, b.permit, b.ttl)
	if err != nil {
		writeProblem(w, h.permitProblem(err, string(b.limit)))
		return
	}
	body := append([]byte(`{"limit":`), appendJSON(nil, string(b.limit))...)
	body = appendEcho(append(body, `,"key":`...), b.echo)
	h.writeBody(w, append(appendPermit(body, b.permit, left), '\n'))
}

// release gives a permit back.
func (h *Handler) release(w http.ResponseWriter, r *http.Request) {
	s := h.borrow()
	defer h.giveBack(s)
	_, p := readQuery(r)
	var b permitBody
	var l *jatah.Limiter
	if p == nil {
		b, l, p = h.readPermit(r, s, false)
	}
	if p == nil && b.permit == "" {
		p = badField("permit", "permit is missing; send the one that /v1/acquire gave.")
	}
	if p != nil {
		refuse(w, r, p)
		return
	}
	if err := l.Release(r.Context(), b.key, b.permit); err != nil {
		writeProblem(w, h.permitProblem(err, string(b.limit)))
		return
	}
	h.writeBody(w, []byte("{\"released\":true}\n"))
}

// permitProblem is problemOf for a permit that another node may hold.
func (h *Handler) permitProblem(err error, limit string) *problem {
	p := h.problemOf(err, limit)
	if p.slug == "undecided" {
		p.detail = "The node that holds the permit did not answer; try again."
	}
	return p
}

func (h *Handler) writeBody(w http.ResponseWriter, body []byte) {
	w.Header()["Content-Type"] = h.json
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = w.Write(body)
}

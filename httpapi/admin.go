package httpapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strings"
	"time"

	"github.com/jatah-io/jatah"
)

// keyBody is the key of a query as JSON: one string, or the parts of an array.
func keyBody(parts []string) any {
	if len(parts) == 1 {
		return parts[0]
	}
	return parts
}

// limiterAndKey reads ?limit=&key=&plan=; more than one key makes an array, as in a body.
func (h *Handler) limiterAndKey(r *http.Request) (l *jatah.Limiter, parts []string, p *problem) {
	query, p := readQuery(r, "limit", "key", "plan")
	if p != nil {
		return nil, nil, p
	}
	name, p := oneOf(query, "limit")
	if p != nil {
		return nil, nil, p
	}
	parts = query["key"]
	if len(parts) == 0 {
		return nil, nil, badQuery("key", "key is missing; add &key=... to the address, several times for an array.")
	}
	l, ok := h.node.Lookup(name)
	if !ok {
		return nil, nil, h.unknownLimit(name)
	}
	if query.Has("plan") {
		plan, p := oneOf(query, "plan")
		if p != nil {
			return nil, nil, p
		}
		if l, p = underPlan(l, plan); p != nil {
			return nil, nil, p
		}
	}
	return l, parts, nil
}

type peekBody struct {
	Limit        string  `json:"limit"`
	Key          any     `json:"key"`
	Plan         string  `json:"plan,omitempty"` // that the amounts are of; "": the limit's own, or an override's
	Owner        string  `json:"owner"`
	Mode         string  `json:"mode"`
	Burst        int64   `json:"burst"`
	Remaining    int64   `json:"remaining"`
	Balance      float64 `json:"balance"`        // tokens in the owner's pool; negative: debt
	Outstanding  int64   `json:"outstanding"`    // tokens out as credit
	Credit       int64   `json:"credit"`         // of these, with this node
	Held         *int64  `json:"held,omitempty"` // permits, where the limit counts them
	RetryAfterMS *int64  `json:"retry_after_ms"`
	ResetAfterMS *int64  `json:"reset_after_ms"`
	AgeMS        int64   `json:"age_ms"` // since this node last heard of the balance
}

// peek shows one key as its owner sees it, and changes nothing.
func (h *Handler) peek(w http.ResponseWriter, r *http.Request) {
	l, parts, p := h.limiterAndKey(r)
	if p != nil {
		writeProblem(w, p)
		return
	}
	st, err := l.Peek(r.Context(), jatah.Key(parts...))
	if errors.Is(err, jatah.ErrUnreachable) {
		writeProblem(w, ownerSilent(st))
		return
	}
	if err != nil {
		writeProblem(w, h.problemOf(err, l.Limit().Name))
		return
	}
	var held *int64
	if l.Limit().Algorithm == jatah.Concurrency {
		held = &st.Held
	}
	writeJSON(w, peekBody{
		Held:  held,
		Limit: l.Limit().Name, Key: keyBody(parts), Plan: st.Plan, Owner: st.Owner, Mode: l.Limit().Mode.String(),
		Burst: st.Burst, Remaining: st.Remaining, Balance: finite(st.Balance), Outstanding: st.Outstanding, Credit: st.Credit,
		RetryAfterMS: millis(st.RetryAfter), ResetAfterMS: millis(st.ResetAfter), AgeMS: ceilDiv(st.Age, time.Millisecond),
	})
}

// ownerSilent is the problem of a look that the key's owner did not answer.
func ownerSilent(st jatah.State) *problem {
	p := undecided("The owner of the key did not answer; look again.")
	if st.Age > 0 {
		p.detail += fmt.Sprintf(" What this node knew %v ago: %d tokens left.", st.Age.Round(time.Millisecond), st.Remaining)
	}
	return p
}

// millis is a wait in whole milliseconds, rounded up; nil: never.
func millis(d time.Duration) *int64 {
	if d == jatah.Never {
		return nil
	}
	ms := ceilDiv(d, time.Millisecond)
	return &ms
}

// resetKey makes one key full again.
func (h *Handler) resetKey(w http.ResponseWriter, r *http.Request) {
	l, parts, p := h.limiterAndKey(r)
	if p == nil {
		if err := l.Reset(r.Context(), jatah.Key(parts...)); err != nil {
			p = h.problemOf(err, l.Limit().Name)
		}
	}
	if p != nil {
		writeProblem(w, p)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func (h *Handler) listLimits(w http.ResponseWriter, r *http.Request) {
	if _, p := readQuery(r); p != nil {
		writeProblem(w, p)
		return
	}
	limits := h.node.Limits()
	bodies := make([]limitBody, len(limits)) // not nil: an empty list is [], not null
	for i, l := range limits {
		bodies[i] = h.bodyOf(l)
	}
	writeJSON(w, map[string]any{"limits": bodies})
}

func (h *Handler) getLimit(w http.ResponseWriter, r *http.Request) {
	if _, p := readQuery(r); p != nil {
		writeProblem(w, p)
		return
	}
	name := r.PathValue("name")
	l, ok := h.node.Lookup(name)
	if !ok {
		writeProblem(w, h.unknownLimit(name))
		return
	}
	writeJSON(w, h.bodyOf(l.Limit()))
}

// forget makes the cluster stop waiting for a member that will not come back.
func (h *Handler) forget(w http.ResponseWriter, r *http.Request) {
	query, p := readQuery(r, "node")
	if p != nil {
		writeProblem(w, p)
		return
	}
	name, p := oneOf(query, "node")
	if p != nil {
		writeProblem(w, p)
		return
	}
	if err := h.node.Forget(r.Context(), name); err != nil {
		writeProblem(w, forgetProblem(err, name))
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func (h *Handler) healthy(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, map[string]string{"status": "ok"})
}

// ready says whether this node may get requests.
func (h *Handler) ready(w http.ResponseWriter, _ *http.Request) {
	if err := h.node.Ready(); err != nil {
		writeProblem(w, &problem{
			slug: "not-ready", status: http.StatusServiceUnavailable, retry: time.Second,
			detail: "This node is not ready: " + strings.TrimPrefix(err.Error(), jatah.ErrNotReady.Error()+": ") + ".",
		})
		return
	}
	writeJSON(w, map[string]string{"status": "ready"})
}

// writeJSON answers 200 with something that changes from moment to moment.
func writeJSON(w http.ResponseWriter, v any) { writeJSONAs(w, http.StatusOK, v) }

func writeJSONAs(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.Encode(v) // fails only if the client is gone
}

// finite keeps what JSON cannot say out of a body.
func finite(f float64) float64 {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return 0
	}
	return f
}

// forgetProblem says why a member was not forgotten.
func forgetProblem(err error, name string) *problem {
	switch {
	case errors.Is(err, jatah.ErrUnknownNode):
		return &problem{
			slug: "unknown-node", status: http.StatusNotFound, field: "node",
			detail: "No member is named " + quote(name) + "; GET /v1/cluster lists them.",
		}
	case errors.Is(err, jatah.ErrAlive):
		return &problem{
			slug: "cannot-forget", status: http.StatusConflict, field: "node",
			detail: "Member " + quote(name) + " is alive and uses its share; stop it first.",
		}
	}
	return undecided("Member %s was not forgotten: %v.", quote(name), err)
}

package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jatah-io/jatah"
	"github.com/jatah-io/jatah/httpapi/internal/fields"
	"github.com/jatah-io/jatah/httpapi/internal/problems"
)

// knownLimits bounds how many limits the detail of an unknown-limit problem lists.
const knownLimits = 10

// problem is an error as the client sees it. It is not a Go error, so that a
// nil *problem cannot become a non-nil error by accident.
type problem struct {
	slug   string
	status int
	detail string        // a sentence that says what to do
	field  string        // of the body or the query; empty: none
	retry  time.Duration // for Retry-After; 0: no such header
	allow  string        // for Allow; empty: no such header

	challenge string // for WWW-Authenticate; empty: no such header
}

func badField(field, format string, args ...any) *problem {
	return &problem{slug: "bad-field", status: http.StatusBadRequest, field: field, detail: fmt.Sprintf(format, args...)}
}

func badBody(format string, args ...any) *problem {
	return &problem{slug: "bad-body", status: http.StatusBadRequest, detail: fmt.Sprintf(format, args...)}
}

func badQuery(field, format string, args ...any) *problem {
	return &problem{slug: "bad-query", status: http.StatusBadRequest, field: field, detail: fmt.Sprintf(format, args...)}
}

// undecided is the problem of a request that the node could not decide.
func undecided(format string, args ...any) *problem {
	return &problem{slug: "undecided", status: http.StatusServiceUnavailable, detail: fmt.Sprintf(format, args...), retry: time.Second}
}

// problemOf translates what the node says instead of deciding.
func (h *Handler) problemOf(err error, limit string) *problem {
	switch {
	case errors.Is(err, jatah.ErrUnknownLimit):
		return h.unknownLimit(limit)
	case errors.Is(err, jatah.ErrUnknownPlan): // removed since it was looked up
		return unknownPlan("The limit %s has no such plan any more.", quote(limit))
	case errors.Is(err, jatah.ErrNegativeCost):
		return badField("cost", "cost must not be negative; use /v1/refund to give tokens back.")
	case errors.Is(err, jatah.ErrKeyEmpty):
		return badField("key", "key must not be empty; say whose usage is counted, for example a user or an address.")
	case errors.Is(err, jatah.ErrKeyTooLong):
		return badField("key", "key is longer than %d bytes; send a hash of it instead.", jatah.MaxKey)
	case errors.Is(err, jatah.ErrConcurrency):
		return badField("limit", "The limit %s counts permits; use /v1/acquire and /v1/release.", quote(limit))
	case errors.Is(err, jatah.ErrNotConcurrency):
		return badField("limit", "The limit %s gives no permits, since its algorithm is not concurrency; use /v1/take.", quote(limit))
	case errors.Is(err, jatah.ErrTTL):
		return badField("ttl_ms", "ttl_ms must be more than 0 and at most the ttl of the limit; leave it out for that, and renew.")
	case errors.Is(err, jatah.ErrPermit):
		return &problem{slug: "unknown-permit", status: http.StatusNotFound, field: "permit",
			detail: "There is no such permit for this limit and key: it was released, or has expired, or the node that gave it is gone."}
	case errors.Is(err, jatah.ErrClosed):
		if _, ok := h.node.Lookup(limit); !ok && h.node.Ready() == nil {
			return h.unknownLimit(limit) // removed since it was looked up
		}
		return undecided("This node is shutting down; ask another one.")
	case errors.Is(err, jatah.ErrOverflow):
		return undecided("The memory for keys is full and no key can be forgotten yet; raise the bound on keys, or the rate so that they fill sooner.")
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return undecided("The request ended before it was decided.")
	}
	return undecided("The request could not be decided: %v.", err)
}

// unknownTo is unknownLimit for who may know of the limits of its token only.
func (h *Handler) unknownTo(ctx context.Context, name string) *problem {
	token := scopeOf(ctx)
	if token == nil {
		return h.unknownLimit(name)
	}
	limits := slices.DeleteFunc(h.node.Limits(), func(l jatah.Limit) bool { return !token.covers(l.Name) })
	p := unknownAmong(name, limits)
	if len(limits) == 0 {
		p.detail = fmt.Sprintf("No limit is named %s, nor is there another one that this token is for.", quote(name))
	}
	return p
}

func (h *Handler) unknownLimit(name string) *problem { return unknownAmong(name, h.node.Limits()) }

func unknownAmong(name string, limits []jatah.Limit) *problem {
	var known strings.Builder
	for i, l := range limits {
		if i == knownLimits {
			fmt.Fprintf(&known, " and %d more", len(limits)-i)
			break
		}
		if i > 0 {
			known.WriteString(", ")
		}
		known.WriteString(l.Name)
	}
	p := &problem{slug: "unknown-limit", status: http.StatusNotFound, field: "limit"}
	if len(limits) == 0 {
		p.detail = fmt.Sprintf("No limit is named %s; this node has no limits yet, define one first.", quote(name))
	} else {
		p.detail = fmt.Sprintf("No limit is named %s; this node knows %s.", quote(name), known.String())
	}
	return p
}

// quote shows a piece of the request in a detail, cut to a bounded length.
func quote(s string) string {
	const most = 80
	if len(s) > most {
		return strconv.Quote(s[:most]) + "..."
	}
	return strconv.Quote(s)
}

func appendProblem(b []byte, p *problem) []byte {
	b = problems.Append(b, p.slug, p.status, p.detail)
	if p.field != "" {
		b = append(b, `,"field":`...)
		b = appendJSON(b, p.field)
	}
	return append(b, '}')
}

func writeProblem(w http.ResponseWriter, p *problem) {
	body := append(appendProblem(nil, p), '\n')
	head := w.Header()
	head.Set("Content-Type", problems.ContentType)
	head.Set("Content-Length", strconv.Itoa(len(body)))
	if p.allow != "" {
		head.Set("Allow", p.allow)
	}
	if p.challenge != "" {
		head.Set("WWW-Authenticate", p.challenge)
	}
	if p.retry > 0 {
		head.Set("Retry-After", strconv.FormatInt(fields.CeilSeconds(p.retry), 10))
	}
	w.WriteHeader(p.status)
	w.Write(body)
}

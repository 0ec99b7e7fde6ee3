package client

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Errors of this package; match them with errors.Is.
var (
	// ErrConfig: a setting is wrong; the text names it and says what to write.
	ErrConfig = errors.New("client: bad setting")
	// ErrUncertain: the request was sent, but no answer says whether it was carried out. Only for what changes something when repeated.
	ErrUncertain = errors.New("client: the request may have been carried out")
	// ErrDeadline: the context ends before the next try could be made, or before the request could pass.
	ErrDeadline = errors.New("client: the context ends before the request can pass")
	// ErrImpossible: no wait lets the request pass: its cost is above what can ever pass at once, or the rate is 0.
	ErrImpossible = errors.New("client: no wait lets the request pass")
	// ErrPaused: the remote told to stay away for longer than Retry.MaxRetryAfter, and that is not over.
	ErrPaused = errors.New("client: paused by the remote")
	// ErrAnswer: what came back is no answer of this API.
	ErrAnswer = errors.New("client: not an answer of the HTTP API")

	// ErrUnauthenticated: any 401; the token is missing, or no token of the nodes. ErrForbidden: any 403; it has not the role, or not the limit.
	ErrUnauthenticated = errors.New("client: unauthenticated")
	ErrForbidden       = errors.New("client: forbidden")

	// The following are types of problems: errors.Is of a *Problem.

	ErrUnknownLimit  = errors.New("client: unknown limit")
	ErrUnknownPlan   = errors.New("client: unknown plan")
	ErrUnknownPermit = errors.New("client: unknown permit") // released, expired, or its node is gone
	ErrUnknownNode   = errors.New("client: unknown node")
	ErrUndecided     = errors.New("client: undecided") // the node could not tell
	ErrNotReady      = errors.New("client: not ready")
	ErrConflict      = errors.New("client: conflict") // any 409: the limit is defined in a file, the member is alive
)

// slugs are the fixed ends of the types of problems that have an error.
var slugs = map[string]error{
	"unknown-limit": ErrUnknownLimit, "unknown-plan": ErrUnknownPlan, "unknown-permit": ErrUnknownPermit,
	"unknown-node": ErrUnknownNode, "undecided": ErrUndecided, "not-ready": ErrNotReady,
}

const problemType = "urn:jatah:problem:"

// Problem is an answer that is no result: one of a node (application/problem+json), or the error page of a proxy, of which the
// status is known. Get it from an error with errors.As. It must not be changed.
type Problem struct {
	Addr   string // who answered
	Status int
	Type   string // such as urn:jatah:problem:unknown-limit; may be compared. "": not of a node.
	Title  string
	Detail string // for people
	Field  string // of the request that is to blame; "": none
	// RetryAfter is the header of that name. 0: there was none.
	RetryAfter time.Duration
}

// Error is one line.
func (p *Problem) Error() string {
	var b strings.Builder
	b.WriteString("client: ")
	b.WriteString(p.Addr + " answered ")
	b.WriteString(strconv.Itoa(p.Status))
	if title := http.StatusText(p.Status); title != "" {
		b.WriteString(" " + title)
	} else if p.Title != "" {
		b.WriteString(" " + p.Title)
	}
	if p.Field != "" {
		b.WriteString(" for " + p.Field)
	}
	if p.Detail != "" {
		b.WriteString(": " + strings.TrimSuffix(p.Detail, "."))
	}
	return b.String()
}

// Is matches the errors of this package that stand for types of problems.
func (p *Problem) Is(target error) bool {
	switch target {
	case ErrConflict:
		return p.Status == http.StatusConflict
	case ErrUnauthenticated:
		return p.Status == http.StatusUnauthorized
	case ErrForbidden:
		return p.Status == http.StatusForbidden
	}
	slug, ours := strings.CutPrefix(p.Type, problemType)
	return ours && slugs[slug] == target
}

// problemOf reads an answer that is no result.
func problemOf(addr string, status int, head http.Header, body []byte) *Problem {
	p := parseProblem(body)
	p.Addr, p.Status = addr, status // the status of the body is advisory
	p.RetryAfter, _ = retryAfter(head, time.Now())
	return p
}

func parseProblem(body []byte) *Problem {
	var b struct {
		Type, Title, Detail, Field string
		Status                     int
	}
	if json.Unmarshal(body, &b) != nil { // the page of a proxy: show how it begins
		b.Type, b.Title, b.Field, b.Detail = "", "", "", excerpt(body)
	}
	return &Problem{Status: b.Status, Type: b.Type, Title: b.Title, Detail: b.Detail, Field: b.Field}
}

// excerpt is the beginning of a text, on one line; "" if it is no text.
func excerpt(body []byte) string {
	const most = 120
	if len(body) > most {
		body = body[:most]
		for i := 0; i < utf8.UTFMax && !utf8.Valid(body); i++ { // cut inside a character
			body = body[:len(body)-1]
		}
	}
	if !utf8.Valid(body) {
		return ""
	}
	return strings.Join(strings.Fields(string(body)), " ")
}

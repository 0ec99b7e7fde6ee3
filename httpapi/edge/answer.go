package edge

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	"github.com/jatah-io/jatah"
	"github.com/jatah-io/jatah/httpapi/internal/fields"
	"github.com/jatah-io/jatah/httpapi/internal/problems"
)

// Answer is how a rule refuses, and which headers it sets.
type Answer struct {
	// Status of a refusal by tokens, 400 to 599; 0: 429.
	Status int
	// PermitStatus is the status of a refusal by a concurrency limit, 400 to 599; 0: 429. Another usual choice is 503.
	PermitStatus int
	// OmitRateLimit leaves out RateLimit and RateLimit-Policy, OmitXRateLimit the X-RateLimit-* headers. Legacy adds the older
	// RateLimit-Limit, -Remaining and -Reset. ResetEpoch makes resets Unix times in seconds instead of seconds from now.
	OmitRateLimit, OmitXRateLimit, Legacy, ResetEpoch bool
	// Jitter is added to Retry-After: up to so much, at random, so that the refused do not come back all at once. 0: none.
	Jitter time.Duration
	// Page is the body of refusals, of the type ContentType ("": text/html; charset=utf-8). Nil: problem+json. What could not be
	// decided, and what is a bad request, is always answered with problem+json.
	Page        []byte
	ContentType string
	// Handler writes refusals itself, all of them, after the headers were set; it finds the verdict with FromContext. If it names no status it is
	// that which it would be without it. Nil: Page or problem+json.
	Handler http.Handler
	// Drop ends the connection without an answer while a key is refused far too often. Nil: every refusal is answered.
	Drop *Drop
}

// Problems of refusals; what clients may compare.
const (
	slugLimited   = "rate-limited"
	slugInFlight  = "too-many-in-flight"
	slugUndecided = "undecided"
	slugBad       = "bad-request"
)

func (a *Answer) check(where string) error {
	for _, status := range []int{a.Status, a.PermitStatus} {
		if status != 0 && (status < 400 || status > 599) {
			return fmt.Errorf("%w: %s refuses with the status %d: give one from 400 to 599, or 0 for 429", ErrConfig, where, status)
		}
	}
	if a.Jitter < 0 {
		return fmt.Errorf("%w: %s has a jitter of %v: give 0 or more", ErrConfig, where, a.Jitter)
	}
	return a.Drop.check(where)
}

func (a *Answer) fields() fields.Options {
	return fields.Options{OmitRateLimit: a.OmitRateLimit, OmitXRateLimit: a.OmitXRateLimit, Legacy: a.Legacy, ResetEpoch: a.ResetEpoch}
}

// compileAnswer checks how a rule answers.
func (e *Edge) compileAnswer(c *rule) error {
	if err := c.answer.check(fmt.Sprintf("rule %q", c.Name)); err != nil {
		return err
	}
	for i := range c.Uses {
		c.observed = c.observed || c.Uses[i].Counts != nil || len(c.Uses[i].After) > 0
	}
	c.pageType = []string{cmp.Or(c.answer.ContentType, "text/html; charset=utf-8")}
	if c.answer.Drop != nil && e.drops == nil {
		e.drops = newDrops()
	}
	return e.compileSoft(c)
}

// scratch is memory to render an answer in, reused by others once it was written.
type scratch struct {
	set   fields.Set
	items [4]fields.Item
	body  []byte
}

// decided says whether a decision was made: a rule stops asking at the first permit that it is refused.
func decided(d *jatah.Decision) bool { return d.Err == nil && (d.OK || d.RetryAfter > 0) }

// render makes the values of all headers that are about limits. A rule in dry run tells nobody of its limits.
func (v *Verdict) render(s *scratch, length int, wait time.Duration) *fields.Values {
	s.set.Begin(length, wait)
	o, items := v.rule.answer.fields(), s.items[:0]
	var one *Taken
	for i := 0; i < len(v.Takes) && !v.rule.DryRun; i++ {
		if t := &v.Takes[i]; decided(&t.Decision) {
			one = t
			items = append(items, fields.Item{Limit: &t.terms().Limit, Decision: &t.Decision})
		}
	}
	if len(items) == 1 && one.limiter != nil {
		s.set.One(o, time.Now, v.edge.told.Of(one.terms(), fixedOf), &one.Decision)
	} else {
		s.set.Add(o, time.Now, items...)
	}
	return s.set.Values()
}

func fixedOf(t *jatah.Terms) *fields.Fixed {
	f := fields.FixedOf(&t.Limit)
	return &f
}

// SetHeaders sets the headers of a response that the verdict is about: RateLimit, RateLimit-Policy, X-RateLimit-* and so on, as the rule's Answer
// says, that of a softer step, and for a refusal Retry-After. What other limiters have set is kept: lists are appended to, and in the other fields
// there is what is tightest. It must be called before the response is written. Refuse does it too.
func (v *Verdict) SetHeaders(head http.Header) {
	if v.rule == nil {
		return
	}
	if v.near != "" {
		head[v.rule.Soft.Header] = []string{v.near}
	}
	if len(v.Takes) == 0 || v.rule.DryRun {
		return
	}
	wait := time.Duration(0)
	if !v.OK {
		wait = v.wait()
	}
	s := v.edge.borrow()
	v.render(s, -1, wait).Merge(head, v.rule.answer.fields())
	v.edge.giveBack(s)
}

// Refuse answers a request that is refused: with the rule's status, Retry-After and what else its Answer says. It does not read the request's body.
// The verdict must be a refusal (OK is false).
//
// A problem has the type urn:jatah:problem: with rate-limited, too-many-in-flight, undecided or bad-request, the names of the limits in
// violated, and in retry_after_ms what Retry-After says in seconds; null: no wait helps.
func (v *Verdict) Refuse(w http.ResponseWriter, r *http.Request) {
	a, s := v.rule.answer, v.edge.borrow()
	defer v.edge.giveBack(s)
	status, wait := v.status(), v.wait()
	head := w.Header()
	head["Cache-Control"] = v.edge.noStore
	for _, name := range ofAnotherBody {
		delete(head, name)
	}
	if a.Handler != nil {
		v.render(s, -1, wait).Merge(head, a.fields())
		var answered writer
		a.Handler.ServeHTTP(answered.wrap(w, status), r.WithContext(NewContext(r.Context(), v)))
		if answered.status == 0 {
			w.WriteHeader(status)
		}
		return
	}
	body := a.Page
	if body != nil && v.Err == nil && !v.Undecided() {
		head["Content-Type"] = v.rule.pageType
	} else {
		head["Content-Type"] = v.edge.problem
		s.body = v.appendProblem(s.body[:0], status, wait)
		body = s.body
	}
	v.render(s, len(body), wait).Merge(head, a.fields())
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(body) // an error says that nobody is there to read it
	}
}

// ofAnotherBody are headers that a handler around this one may have set for what would have been served.
var ofAnotherBody = [...]string{"Content-Encoding", "Etag", "Last-Modified"}

// status is that of a refusal.
func (v *Verdict) status() int {
	switch {
	case errors.Is(v.Err, ErrRequest):
		return http.StatusBadRequest
	case v.Undecided():
		return http.StatusServiceUnavailable
	case v.inFlight():
		return cmp.Or(v.rule.answer.PermitStatus, http.StatusTooManyRequests)
	}
	return cmp.Or(v.rule.answer.Status, http.StatusTooManyRequests)
}

// inFlight says whether a concurrency limit refuses.
func (v *Verdict) inFlight() bool {
	for _, i := range v.rule.permits {
		if d := &v.Takes[i].Decision; decided(d) && !d.OK {
			return true
		}
	}
	return false
}

// wait is what Retry-After says: never less than is true; 0: nothing.
func (v *Verdict) wait() time.Duration {
	switch {
	case errors.Is(v.Err, ErrRequest):
		return 0
	case v.Err != nil:
		return time.Second
	}
	wait := max(1, v.RetryAfter)
	if jitter := v.rule.answer.Jitter; jitter > 0 && wait < jatah.Never-jitter {
		wait += rand.N(jitter + 1)
	}
	return wait
}

// appendProblem writes the body of a refusal. Who asked is not in it, nor whether there is such an account: it is the same for all that are refused
// by the same limits for as long.
func (v *Verdict) appendProblem(b []byte, status int, wait time.Duration) []byte {
	switch {
	case errors.Is(v.Err, ErrRequest):
		return append(problems.Append(b, slugBad, status, badDetail(v.Err)), "}\n"...)
	case v.Undecided():
		b = problems.Append(b, slugUndecided, status, "The request could not be decided; try again.")
		return append(fields.AppendMillis(append(b, `,"retry_after_ms":`...), wait), "}\n"...)
	case v.inFlight():
		b = problems.Append(b, slugInFlight, status, "Too many requests are being served at once; try again when one of them has ended.")
	case wait == jatah.Never:
		b = problems.Append(b, slugLimited, status, "The limit does not allow this request, and no wait helps.")
	default:
		b = problems.Append(b, slugLimited, status, "Too many requests; try again when retry_after_ms have passed.")
	}
	b = append(b, `,"violated":[`...)
	for i, name := range v.Violated {
		if i > 0 {
			b = append(b, ',')
		}
		b = problems.AppendString(b, name)
	}
	b = append(b, `],"retry_after_ms":`...)
	b = fields.AppendMillis(b, wait)
	return append(b, "}\n"...)
}

// badDetail says what is wrong with a request.
func badDetail(err error) string {
	const most = 200
	text := strings.TrimPrefix(err.Error(), ErrRequest.Error())
	text = strings.TrimPrefix(text, ": ")
	if len(text) > most {
		text = text[:most] + "..."
	}
	if text == "" {
		return "Something in the request cannot be read."
	}
	return "The request cannot be read: " + text + "."
}

// borrow takes scratch memory; give it back when nothing refers to it any more.
func (e *Edge) borrow() *scratch { return e.scratch.Get().(*scratch) }

func (e *Edge) giveBack(s *scratch) { e.scratch.Put(s) }

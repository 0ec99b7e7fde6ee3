package edge

import (
	"net/http"
	"time"
)

// Answer is how a rule refuses, and which headers it sets.
type Answer struct {
	// Status of a refusal by tokens; 0: 429.
	Status int
	// PermitStatus is the status of a refusal by a concurrency limit; 0: 429. Another usual choice is 503.
	PermitStatus int
	// OmitRateLimit leaves out RateLimit and RateLimit-Policy, OmitXRateLimit the X-RateLimit-* headers. Legacy adds the older
	// RateLimit-Limit, -Remaining and -Reset. ResetEpoch makes resets Unix times instead of seconds from now.
	OmitRateLimit, OmitXRateLimit, Legacy, ResetEpoch bool
	// Jitter is added to Retry-After: up to so much, at random, so that the refused do not come back all at once.
	Jitter time.Duration
	// Page is the body of refusals, of the type ContentType ("": text/html; charset=utf-8). Nil: problem+json.
	Page        []byte
	ContentType string
	// Handler writes refusals itself, after the headers were set; it finds the verdict with FromContext. Nil: Page or problem+json.
	Handler http.Handler
}

// Middleware limits what next serves.
func (e *Edge) Middleware(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v := e.Decide(r.Context(), e.RequestOf(r))
		if !v.OK {
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		defer v.Settle(r.Context(), Outcome{})
		next.ServeHTTP(w, r)
	})
}

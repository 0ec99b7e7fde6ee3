package edge

import (
	"context"
	"maps"
	"net/http"
)

// flight is what one request needs of the middleware. Those of refused requests are used again; what a handler has seen belongs to it for good, as it
// may have left goroutines behind.
type flight struct {
	request Request
	verdict Verdict
	writer  writer
	ctx     carrier
}

// carrier is the context of the handler: a request's, with the verdict.
type carrier struct {
	context.Context
	verdict *Verdict
}

func (c *carrier) Value(key any) any {
	if _, ok := key.(contextKey); ok {
		return c.verdict
	}
	return c.Context.Value(key)
}

// Middleware limits what next serves. Headers are set before next is called, which may change or remove them; next finds the verdict with
// [FromContext]. The ResponseWriter is wrapped only where a rule needs to know how the request ended, and then still can what it could: Flush,
// Hijack, ReadFrom, Push, and what http.ResponseController does. A panic of next goes on when what the request held was given back. Where
// the rule says so (see [Drop]) the middleware panics with http.ErrAbortHandler itself.
//
// Middleware of several edges can be nested: each adds its limits to the headers.
func (e *Edge) Middleware(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if clean := e.withoutSoft(r); clean != r {
			defer handBack(r, clean)
			r = clean
		}
		f := e.flights.Get().(*flight)
		e.describe(&f.request, r)
		v := &f.verdict
		e.decide(r.Context(), v, &f.request)
		switch {
		case v.rule == nil:
			e.flights.Put(f)
			next.ServeHTTP(w, r)
		case v.OK:
			f.serve(next, w, r)
		default:
			drop := v.drops()
			if !drop {
				v.Refuse(w, r)
			}
			if v.rule.answer.Handler == nil {
				e.flights.Put(f)
			}
			if drop {
				panic(http.ErrAbortHandler)
			}
		}
	})
}

// serve lets the handler serve an admitted request, and settles.
func (f *flight) serve(next http.Handler, w http.ResponseWriter, r *http.Request) {
	v := &f.verdict
	v.SetHeaders(w.Header())
	f.ctx = carrier{r.Context(), v}
	served := r.WithContext(&f.ctx)
	if v.near != "" {
		served.Header = maps.Clone(r.Header)
		served.Header[v.rule.Soft.Header] = []string{v.near}
	}
	if v.rule.observed {
		w = f.writer.wrap(w, 0)
	}
	done := false
	defer func() {
		handBack(r, served)
		o := v.answered
		if o.Status == 0 {
			o.Status, o.Bytes = f.writer.status, f.writer.bytes
		}
		if r.Method == http.MethodHead {
			o.Bytes = 0 // the server sends none of them
		}
		o.Failed = !done
		if o.Failed && v.rule.observed && o.Status == 0 {
			o.Status = http.StatusInternalServerError // nothing was answered, and nothing will be
		}
		v.Settle(r.Context(), o)
	}()
	next.ServeHTTP(w, served)
	done = true
}

// Answered tells the middleware how the request was answered, where it cannot see it: in frameworks whose handlers do not write to the
// ResponseWriter that they are given, such as gin. It is called before next returns.
func (v *Verdict) Answered(status int, bytes int64) {
	v.answered = Outcome{Status: status, Bytes: max(0, bytes)}
}

// handBack tells a request what its copy has learned: a handler around this one looks for the pattern at its own request, and the server
// for files that it has to remove.
func handBack(r, from *http.Request) {
	r.Pattern = from.Pattern
	if r.MultipartForm == nil {
		r.MultipartForm = from.MultipartForm
	}
}

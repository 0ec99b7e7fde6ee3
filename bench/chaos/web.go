package chaos

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptrace"
)

// errUnused is of a request that was sent over a connection on which there had been none, a while after it was made. A server closes such
// connections after some seconds, and net/http makes them when it dials for a request that another connection is free for first. That it
// closes one just when it is used at last is not that it makes no decision.
var errUnused = errors.New("chaos: over a connection that was never used before")

// web marks errors of connections that were never used.
type web struct{ *http.Transport }

func (w web) RoundTrip(r *http.Request) (*http.Response, error) {
	var conn httptrace.GotConnInfo
	trace := &httptrace.ClientTrace{GotConn: func(got httptrace.GotConnInfo) { conn = got }}
	resp, err := w.Transport.RoundTrip(r.WithContext(httptrace.WithClientTrace(r.Context(), trace)))
	if err != nil && conn.WasIdle && !conn.Reused {
		err = fmt.Errorf("%w: %w", errUnused, err)
	}
	return resp, err
}

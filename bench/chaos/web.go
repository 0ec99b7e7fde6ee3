package chaos

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"time"
)

// errUnused is of a request that was sent over a connection on which there had been none, a while after it was made. A server closes such
// connections after some seconds, and net/http makes them when it dials for a request that another connection is free for first. That it
// closes one just when it is used at last is not that it makes no decision.
var errUnused = errors.New("chaos: over a connection that was never used before")

// web marks errors of connections that were never used.
type web struct {
	*http.Transport
	young time.Duration // a connection over which nothing came is in its first use for as long as that
}

// newWeb makes one that dials by a function.
func newWeb(dial func(context.Context, string, string) (net.Conn, error)) web {
	return web{young: patience, Transport: &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &wire{Conn: conn, born: time.Now()}, nil
	}}}
}

// wire is a connection that knows whether something came over it.
type wire struct {
	net.Conn
	born time.Time
	read atomic.Bool
}

func (w *wire) Read(b []byte) (int, error) {
	n, err := w.Conn.Read(b)
	if n > 0 {
		w.read.Store(true)
	}
	return n, err
}

func (w web) RoundTrip(r *http.Request) (*http.Response, error) {
	var got httptrace.GotConnInfo
	trace := &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) { got = i }}
	resp, err := w.Transport.RoundTrip(r.WithContext(httptrace.WithClientTrace(r.Context(), trace)))
	if conn, ok := got.Conn.(*wire); err != nil && ok && !conn.read.Load() && time.Since(conn.born) >= w.young {
		err = fmt.Errorf("%w: %w", errUnused, err)
	}
	return resp, err
}

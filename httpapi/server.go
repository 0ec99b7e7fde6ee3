package httpapi

import (
	"context"
	"errors"
	"fmt"
	stdlog "log"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// NewServer makes a server with bounds for slow or endless clients. Close it with
// its own Shutdown, or use [Serve]. A nil log is slog.Default.
//
// What net/http reports (broken connections, panics) goes to log as warnings, at most ten a second. For HTTPS set its TLSConfig.
func NewServer(handler http.Handler, log *slog.Logger) *http.Server {
	if log == nil {
		log = slog.Default()
	}
	return &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       15 * time.Second, // 1 MiB at 70 kB/s
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       2 * time.Minute, // longer than the usual 60 s of proxies, so that they close first
		MaxHeaderBytes:    64 << 10,        // of forward auth they are the client's, of which proxies let through 32 KiB and more
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: maxStreams},
		ErrorLog:          stdlog.New(&errorLog{log: log}, "", 0),
	}
}

// maxStreams are the requests that one connection may have at once. Those that it breaks off count until their handler is done, and when four times
// as many wait net/http ends the connection.
const maxStreams = 128

// Serve answers on ln, by TLS if srv has a TLSConfig, until ctx ends, then takes no new connections and lets
// running requests finish for at most drain. It closes ln. It returns nil after an orderly
// end, and an error if the server failed or requests were cut off.
func Serve(ctx context.Context, srv *http.Server, ln net.Listener, drain time.Duration) error {
	failed := make(chan error, 1)
	go func() {
		if srv.TLSConfig != nil {
			failed <- srv.ServeTLS(ln, "", "")
			return
		}
		failed <- srv.Serve(ln)
	}()
	select {
	case err := <-failed:
		return fmt.Errorf("httpapi: serving on %s: %w", ln.Addr(), err)
	case <-ctx.Done():
	}
	// ctx has ended, but what is told to finish in it may not have.
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), drain)
	defer cancel()
	err := srv.Shutdown(end)
	if err != nil {
		err = fmt.Errorf("httpapi: requests were cut off after %v: %w", drain, errors.Join(err, srv.Close()))
	}
	<-failed
	return err
}

// ListenAndServe is [NewServer] and [Serve] on a TCP address such as 127.0.0.1:8080.
func ListenAndServe(ctx context.Context, addr string, handler http.Handler, log *slog.Logger, drain time.Duration) error {
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if err != nil {
		return fmt.Errorf("httpapi: %w", err)
	}
	return Serve(ctx, NewServer(handler, log), ln, drain)
}

package client_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jatah-io/jatah"
	"github.com/jatah-io/jatah/httpapi"
	"github.com/jatah-io/jatah/httpapi/client"
)

// lab is a network in memory, so that tests with waits run in synctest bubbles.
type lab struct {
	t     testing.TB
	http  *http.Client
	mu    sync.Mutex
	hosts map[string]*listener
}

type listener struct {
	addr  string
	conns chan net.Conn
	once  sync.Once
	done  chan struct{}
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *listener) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}

func (l *listener) Addr() net.Addr { return &net.UnixAddr{Name: l.addr} }

func newLab(t testing.TB) *lab {
	l := &lab{t: t, hosts: make(map[string]*listener)}
	pool := &http.Transport{DialContext: l.dial, MaxIdleConnsPerHost: 100}
	l.http = &http.Client{Transport: pool}
	t.Cleanup(pool.CloseIdleConnections)
	return l
}

// serve lets a host answer until the test ends or stop is called, which cuts its connections off. The end of the test waits for handlers that still run, as
// those do whose clients have gone: in a bubble nothing may be left asleep.
func (l *lab) serve(host string, h http.Handler) (stop func()) {
	ln := &listener{addr: host, conns: make(chan net.Conn), done: make(chan struct{})}
	l.mu.Lock()
	l.hosts[host+":80"] = ln
	l.mu.Unlock()
	var serving, conns sync.WaitGroup
	srv := &http.Server{Handler: h, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)}
	srv.ConnState = func(_ net.Conn, s http.ConnState) {
		switch s {
		case http.StateNew:
			conns.Add(1)
		case http.StateClosed, http.StateHijacked:
			conns.Done()
		}
	}
	serving.Go(func() { srv.Serve(ln) })
	stop = func() { srv.Close() }
	l.t.Cleanup(func() {
		stop()
		serving.Wait()
		stop() // of what was accepted meanwhile
		conns.Wait()
	})
	return stop
}

func (l *lab) dial(ctx context.Context, _, addr string) (net.Conn, error) {
	l.mu.Lock()
	ln := l.hosts[strings.ToLower(addr)]
	l.mu.Unlock()
	refused := &net.OpError{Op: "dial", Net: "mem", Err: syscall.ECONNREFUSED}
	if ln == nil {
		return nil, refused
	}
	here, there := net.Pipe()
	select {
	case ln.conns <- there:
		return here, nil
	case <-ln.done:
		return nil, refused
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// client asks hosts of the lab. With several it begins with the first, however often that takes.
func (l *lab) client(cfg client.Config, hosts ...string) *client.Client {
	l.t.Helper()
	cfg.HTTP, cfg.Addrs = l.http, hosts
	c, err := client.New(cfg)
	for err == nil && client.Current(c) != 0 {
		c, err = client.New(cfg)
	}
	if err != nil {
		l.t.Fatal(err)
	}
	return c
}

// node is a real node, alone.
func node(t testing.TB, limits ...jatah.Limit) *jatah.Node {
	t.Helper()
	n, err := jatah.Start(t.Context(), jatah.Config{Node: "n1", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Close() })
	for _, l := range limits {
		if _, err := n.Limit(l); err != nil {
			t.Fatal(err)
		}
	}
	return n
}

func api(n *jatah.Node) http.Handler {
	return httpapi.New(n, httpapi.Config{Logger: slog.New(slog.DiscardHandler), Access: httpapi.Access{InsecureAdmin: true}})
}

// cluster is a client of a real node.
func cluster(t testing.TB, cfg client.Config, limits ...jatah.Limit) *client.Client {
	l := newLab(t)
	l.serve("n1", api(node(t, limits...)))
	return l.client(cfg, "n1")
}

// script answers the n-th request, from 0, as its n-th step says, and those after the last as the last. It remembers them.
type script struct {
	steps []http.HandlerFunc
	mu    sync.Mutex
	seen  []seen
}

type seen struct {
	at           time.Time
	method, uri  string
	body, repeat string
}

func (s *script) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	s.mu.Lock()
	n := len(s.seen)
	s.seen = append(s.seen, seen{time.Now(), r.Method, r.RequestURI, string(body), r.Header.Get("Idempotency-Key")})
	s.mu.Unlock()
	s.steps[min(n, len(s.steps)-1)](w, r)
}

func (s *script) requests() []seen {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen
}

// says answers with a status, a body, and headers in turn.
func says(status int, body string, head ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		for i := 0; i < len(head); i += 2 {
			w.Header().Set(head[i], head[i+1])
		}
		w.WriteHeader(status)
		io.WriteString(w, body)
	}
}

const allowed = `{"allowed":true,"limit":"api","key":"u1","cost":1,"remaining":19,"retry_after_ms":0,"reset_after_ms":600,"mode":"hybrid","source":"local"}`

var yes = says(200, allowed)

func denied(retry string) http.HandlerFunc {
	return says(429, `{"allowed":false,"limit":"api","key":"u1","cost":1,"remaining":0,"retry_after_ms":`+retry+
		`,"reset_after_ms":600,"mode":"hybrid","source":"owner"}`, "Retry-After", "1")
}

func problem(status int, slug string, head ...string) http.HandlerFunc {
	return says(status, fmt.Sprintf(`{"type":"urn:jatah:problem:%s","title":"x","status":%d,"detail":"Why."}`, slug, status), head...)
}

// cut sends the beginning of an answer.
func cut(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Length", "100")
	io.WriteString(w, allowed[:20])
	http.NewResponseController(w).Flush()
	panic(http.ErrAbortHandler)
}

// silent answers when it is too late.
func silent(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

func take1(c *client.Client, ctx context.Context) (client.Decision, error) {
	return c.Take(ctx, client.Request{Limit: "api", Key: client.Key{"u1"}, Cost: 1})
}

func perSecond(name string, n, burst int64) jatah.Limit {
	return jatah.Limit{Name: name, Rate: jatah.Per(n, time.Second), Burst: burst}
}

func perMinute(name string, n, burst int64) jatah.Limit {
	return jatah.Limit{Name: name, Rate: jatah.Per(n, time.Minute), Burst: burst}
}

func testContext(t testing.TB) (context.Context, context.CancelFunc) {
	return context.WithCancel(t.Context())
}

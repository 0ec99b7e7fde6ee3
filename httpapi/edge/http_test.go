package edge_test

import (
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/jatah-io/jatah"
	"github.com/jatah-io/jatah/httpapi/edge"
)

// pipes is a listener in memory, so that a server and its clients can live in a bubble.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}
func (p *pipes) Close() error   { p.once.Do(func() { close(p.done) }); return nil }
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 80} }

func (p *pipes) dial(context.Context, string, string) (net.Conn, error) {
	client, server := net.Pipe()
	p.conns <- server
	return client, nil
}

// site serves a handler over HTTP and has a client for it.
type site struct {
	t      *testing.T
	pipes  *pipes
	client *http.Client
}

// serveHTTP serves h until the test ends.
func serveHTTP(t *testing.T, h http.Handler) *site {
	t.Helper()
	p := &pipes{conns: make(chan net.Conn), done: make(chan struct{})}
	srv := &http.Server{Handler: h, ErrorLog: log.New(io.Discard, "", 0)}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = srv.Serve(p) }()
	transport := &http.Transport{DialContext: p.dial}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		_ = srv.Close()
		<-ended
	})
	return &site{t, p, &http.Client{Transport: transport}}
}

// answer is a response whose body was read.
type answer struct {
	*http.Response
	body string
}

func (s *site) do(method, path string, body io.Reader, headers ...string) answer {
	s.t.Helper()
	a, err := s.try(method, path, body, headers...)
	if err != nil {
		s.t.Fatalf("%s %s: %v", method, path, err)
	}
	return a
}

func (s *site) try(method, path string, body io.Reader, headers ...string) (answer, error) {
	r, err := http.NewRequestWithContext(s.t.Context(), method, "http://site.test"+path, body)
	if err != nil {
		return answer{}, err
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	res, err := s.client.Do(r)
	if err != nil {
		return answer{}, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	return answer{res, string(text)}, err
}

func (s *site) get(headers ...string) answer { s.t.Helper(); return s.do("GET", "/", nil, headers...) }

// lists are the lines of a header, as one list.
func (a answer) lists(name string) string { return strings.Join(a.Header.Values(name), ", ") }

// hello is a handler that answers 200.
var hello = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") })

// forAll is a use of a limit by which all requests share a key.
func forAll(limit string) edge.Use { return edge.Use{Limit: limit, Key: []edge.Part{edge.Text("all")}} }

// limiting is the middleware of one rule, which uses limits for all requests together.
func limiting(t *testing.T, node *jatah.Node, a edge.Answer, limits ...string) func(http.Handler) http.Handler {
	t.Helper()
	r := edge.Rule{}
	for _, l := range limits {
		r.Uses = append(r.Uses, forAll(l))
	}
	return mustNew(t, node, edge.Config{Answer: a, Rules: []edge.Rule{r}}).Middleware
}

package edge_test

import (
	"bytes"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jatah-io/jatah"
	"github.com/jatah-io/jatah/httpapi/clientip"
	"github.com/jatah-io/jatah/httpapi/edge"
)

// behindTunnel serves an application that limits each address to three requests, with a tunnel's daemon before it on the same
// host: whoever visits comes from 127.0.0.1, and is named in CF-Connecting-IP. It returns the tunnel's address.
func behindTunnel(t *testing.T, client *clientip.Resolver, log *slog.Logger) string {
	t.Helper()
	node, err := jatah.Start(t.Context(), jatah.Config{Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { node.Close() })
	if _, err := node.Limit(jatah.Limit{Name: "address", Rate: jatah.Per(1, time.Hour), Burst: 3}); err != nil {
		t.Fatal(err)
	}
	e := mustNew(t, node, edge.Config{Client: client, Logger: log, Rules: []edge.Rule{{Uses: []edge.Use{{Limit: "address", Key: []edge.Part{edge.Address()}}}}}})
	app := httptest.NewServer(e.Middleware(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
	t.Cleanup(app.Close)
	to, err := url.Parse(app.URL)
	if err != nil {
		t.Fatal(err)
	}
	tunnel := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(to)
		visitor, _, _ := net.SplitHostPort(r.In.RemoteAddr)
		r.Out.Header.Set("CF-Connecting-IP", visitor)
	}})
	t.Cleanup(tunnel.Close)
	return tunnel.Listener.Addr().String()
}

// sharedLog is a buffer that a server writes and a test reads.
type sharedLog struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *sharedLog) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *sharedLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// visit sends requests from an address and says how many passed. The visitor claims to be somebody else.
func visit(t *testing.T, server, from string, n int) (passed int) {
	t.Helper()
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	transport := &http.Transport{DialContext: dialer.DialContext}
	defer transport.CloseIdleConnections()
	for range n {
		r, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+server+"/", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("CF-Connecting-IP", "203.0.113.9")
		r.Header.Set("X-Forwarded-For", "203.0.113.9")
		resp, err := transport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode == http.StatusOK {
			passed++
		}
	}
	return passed
}

func TestVisitorsBehindATunnel(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.2:0")
	if err != nil {
		t.Skip("this system has only one loopback address, so that there is only one visitor:", err)
	}
	ln.Close()

	t.Run("are apart where it is trusted", func(t *testing.T) {
		var log sharedLog
		logger := slog.New(slog.NewTextHandler(&log, nil))
		proxies, err := clientip.ParseProxies([]string{"127.0.0.1"})
		if err != nil {
			t.Fatal(err)
		}
		client, err := clientip.New(clientip.Config{TrustedProxies: proxies, Header: "CF-Connecting-IP", Logger: logger})
		if err != nil {
			t.Fatal(err)
		}
		server := behindTunnel(t, client, logger)
		for i, want := range []int{3, 3, 0} { // the last one is the first again
			from := []string{"127.0.0.2", "127.0.0.3"}[i%2]
			if got := visit(t, server, from, 5); got != want {
				t.Errorf("%s: %d of 5 passed, want %d", from, got, want)
			}
		}
		if text := log.String(); text != "" {
			t.Errorf("log:\n%s", text)
		}
	})
	t.Run("share one key where it is not, and the log says so", func(t *testing.T) {
		var log sharedLog
		server := behindTunnel(t, nil, slog.New(slog.NewTextHandler(&log, nil)))
		if got := visit(t, server, "127.0.0.2", 5); got != 3 {
			t.Errorf("the first visitor: %d of 5 passed, want 3", got)
		}
		if got := visit(t, server, "127.0.0.3", 1); got != 0 {
			t.Errorf("the second visitor passed: are all who come from 127.0.0.1 apart?")
		}
		if text := log.String(); strings.Count(text, "level=WARN") != 1 || !strings.Contains(text, "trusted_proxies") || !strings.Contains(text, "loopback") {
			t.Errorf("log:\n%s", text)
		}
	})
}

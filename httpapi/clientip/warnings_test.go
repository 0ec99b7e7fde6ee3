package clientip

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
)

var quiet = slog.New(slog.DiscardHandler)

// logged gives a logger and what it was told, a line each.
func logged() (*slog.Logger, func() []string) {
	var buf bytes.Buffer
	return slog.New(slog.NewTextHandler(&buf, nil)), func() []string {
		return strings.FieldsFunc(buf.String(), func(c rune) bool { return c == '\n' })
	}
}

func TestWarnings(t *testing.T) {
	const none, ten = "", "10.0.0.0/8"
	for _, c := range []struct {
		what    string
		trusted string
		header  string // configured
		reqs    []*http.Request
		says    []string // parts of the only line; none: no line
	}{
		{"a tunnel on the same machine", none, "", []*http.Request{request("127.0.0.1:1", "CF-Connecting-IP", "203.0.113.9")},
			[]string{"level=WARN", "trusted_proxies", "peer=127.0.0.1", "header=Cf-Connecting-Ip", "no proxy is trusted"}},
		{"a proxy that sends nothing", none, "", []*http.Request{request("[::1]:1", "")}, []string{"trusted_proxies", "peer=::1"}},
		{"a private network", none, "", []*http.Request{request("192.168.0.1:1", ""), request("172.16.0.1:1", "")},
			[]string{"trusted_proxies", "peer=192.168.0.1"}},
		{"a unique local network", none, "", []*http.Request{request("[fd00::1]:1", "")}, []string{"peer=fd00::1"}},
		{"link-local", none, "", []*http.Request{request("[fe80::1%eth0]:1", "")}, []string{"peer=fe80::1"}},
		{"shared address space", none, "", []*http.Request{request("100.64.0.1:1", "")}, []string{"peer=100.64.0.1"}},
		{"mapped", none, "", []*http.Request{request("[::ffff:10.0.0.5]:1", "")}, []string{"peer=10.0.0.5"}},
		{"a unix socket", none, "", []*http.Request{request("@", "X-Real-IP", "203.0.113.9")}, []string{"TrustUnix", "header=X-Real-Ip"}},
		{"visitors from outside", none, "",
			[]*http.Request{request("203.0.113.9:1", "X-Forwarded-For", "6.6.6.6"), request("[2001:db8::1]:1", "")}, nil},
		{"trusted", ten, "", []*http.Request{request("10.0.0.5:1", "X-Forwarded-For", "203.0.113.9"), request("10.0.0.5:1", "")}, nil},
		{"clients from inside, besides a proxy", ten, "", []*http.Request{request("127.0.0.1:1", "")}, nil},
		{"a proxy that was forgotten", ten, "", []*http.Request{request("172.17.0.1:1", "X-Forwarded-For", "203.0.113.9")},
			[]string{"trusted_proxies", "peer=172.17.0.1", "header=X-Forwarded-For"}},
		{"the wrong header", ten, "Forwarded",
			[]*http.Request{request("10.0.0.5:1", ""), request("10.0.0.5:1", "X-Forwarded-For", "203.0.113.9")},
			[]string{"level=WARN", "set the header", "peer=10.0.0.5", "header=Forwarded", "has=X-Forwarded-For"}},
		{"everybody is trusted", "0.0.0.0/0", "", nil, []string{"every address is a trusted proxy", "header=X-Forwarded-For"}},
		{"everybody may send a header with one address", "0.0.0.0/0", "X-Real-IP", nil, nil},
	} {
		log, lines := logged()
		var proxies []string
		if c.trusted != "" {
			proxies = []string{c.trusted}
		}
		list, err := ParseProxies(proxies)
		if err != nil {
			t.Fatal(err)
		}
		r, err := New(Config{TrustedProxies: list, Header: c.header, Logger: log})
		if err != nil {
			t.Fatal(err)
		}
		for range 3 { // once, however many come
			for _, req := range c.reqs {
				r.Addr(req)
			}
		}
		got := lines()
		if c.says == nil {
			if len(got) != 0 {
				t.Errorf("%s: %q, want silence", c.what, got)
			}
			continue
		}
		if len(got) != 1 {
			t.Errorf("%s: %d lines: %q, want one", c.what, len(got), got)
			continue
		}
		for _, part := range c.says {
			if !strings.Contains(got[0], part) {
				t.Errorf("%s: %q, want %q in it", c.what, got[0], part)
			}
		}
		if strings.Contains(got[0], "203.0.113.9") {
			t.Errorf("%s: %q shows what a header held", c.what, got[0])
		}
	}
}

func TestTheDefaultLoggerIsUsed(t *testing.T) {
	log, lines := logged()
	before := slog.Default()
	defer slog.SetDefault(before)
	slog.SetDefault(log)
	r, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	r.Addr(request("127.0.0.1:1", ""))
	if got := lines(); len(got) != 1 || !strings.Contains(got[0], "trusted_proxies") {
		t.Errorf("%q", got)
	}
}

func TestOneWarningWhoeverComesFirst(t *testing.T) {
	log, lines := logged()
	r, err := New(Config{Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 100 {
				r.Addr(request("127.0.0.1:1", "X-Forwarded-For", "203.0.113.9"))
			}
		})
	}
	all.Wait()
	if got := lines(); len(got) != 1 {
		t.Errorf("%d lines: %q", len(got), got)
	}
}

// TestTunnel is the story of a site behind a tunnel: a process on the same machine brings all visitors, from 127.0.0.1.
// The tunnel is a real proxy here, and the site a real server.
func TestTunnel(t *testing.T) {
	visitors := []string{"203.0.113.9", "203.0.113.10", "2001:db8:1:2::7", "2001:db8:1:3::7"}
	for _, c := range []struct {
		what    string
		trusted []string
		header  string
		keys    []string
		warned  int
	}{
		{"nobody is trusted", nil, "", []string{"127.0.0.1", "127.0.0.1", "127.0.0.1", "127.0.0.1"}, 1},
		{"the tunnel is trusted", []string{"loopback"}, "",
			[]string{"203.0.113.9", "203.0.113.10", "2001:db8:1:2::/64", "2001:db8:1:3::/64"}, 0},
		{"and its own header taken", []string{"127.0.0.1"}, "CF-Connecting-IP",
			[]string{"203.0.113.9", "203.0.113.10", "2001:db8:1:2::/64", "2001:db8:1:3::/64"}, 0},
	} {
		t.Run(c.what, func(t *testing.T) {
			log, lines := logged()
			proxies, err := ParseProxies(c.trusted)
			if err != nil {
				t.Fatal(err)
			}
			r, err := New(Config{TrustedProxies: proxies, Header: c.header, Logger: log})
			if err != nil {
				t.Fatal(err)
			}
			site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				_, _ = w.Write([]byte(r.Key(r.Addr(req))))
			}))
			defer site.Close()
			to, err := url.Parse(site.URL)
			if err != nil {
				t.Fatal(err)
			}
			tunnel := &httputil.ReverseProxy{Rewrite: func(p *httputil.ProxyRequest) {
				p.SetURL(to)
				p.Out.Header["X-Forwarded-For"] = p.In.Header["X-Forwarded-For"] // what came is kept, and the visitor appended
				p.SetXForwarded()
				p.Out.Header.Set("CF-Connecting-IP", readVisitor(p.In))
			}}
			for i, visitor := range visitors {
				req := request("["+visitor+"]:4000", "X-Forwarded-For", "6.6.6.6", "for=\"7.7.7.7")
				if !strings.Contains(visitor, ":") {
					req.RemoteAddr = visitor + ":4000"
				}
				req.Header.Set("CF-Connecting-IP", "6.6.6.6")
				answer := httptest.NewRecorder()
				tunnel.ServeHTTP(answer, req)
				if got := answer.Body.String(); answer.Code != http.StatusOK || got != c.keys[i] {
					t.Errorf("%s: status %d, key %s, want %s", visitor, answer.Code, got, c.keys[i])
				}
			}
			if got := lines(); len(got) != c.warned {
				t.Errorf("%d warnings: %q, want %d", len(got), got, c.warned)
			}
		})
	}
}

func readVisitor(req *http.Request) string {
	a, _ := readAddr(req.RemoteAddr)
	return a.String()
}

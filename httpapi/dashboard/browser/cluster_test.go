package browser

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jatah-io/jatah"
	"github.com/jatah-io/jatah/cluster/simnet"
	"github.com/jatah-io/jatah/httpapi"
	"github.com/jatah-io/jatah/httpapi/dashboard"
)

// site is a cluster in this process, on a network in memory, of which the first node is served.
type site struct {
	t     testing.TB
	net   *simnet.Network
	nodes []*jatah.Node
	addrs []string
	url   string
	load  sync.WaitGroup
}

var quiet = slog.New(slog.DiscardHandler)

// newSite starts nodes with these names, all at once; guard may stand before the API.
func newSite(t testing.TB, guard func(http.Handler) http.Handler, names ...string) *site {
	t.Helper()
	s := &site{t: t, net: simnet.New(1)}
	for i, name := range names {
		cfg := jatah.Config{Node: name, Version: "v0.9.0", HTTP: fmt.Sprintf("10.0.0.%d:8080", i+1), Logger: quiet, Settle: time.Second, Profile: "local"}
		if len(names) > 1 {
			addr := fmt.Sprintf("10.0.0.%d:7946", i+1)
			tr, err := s.net.Transport(addr)
			if err != nil {
				t.Fatal(err)
			}
			cfg.Transport, cfg.Expect, s.addrs = tr, len(names), append(s.addrs, addr)
			if i > 0 {
				cfg.Join = []string{s.addrs[0]}
			}
		}
		n, err := jatah.Open(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
			defer cancel()
			_ = n.Shutdown(ctx) // some of them cannot hand anything over
		})
		s.nodes = append(s.nodes, n)
	}
	page := dashboard.New(s.nodes[0])
	t.Cleanup(page.Close)
	var h http.Handler = httpapi.New(s.nodes[0], httpapi.Config{Dashboard: page, Logger: quiet})
	if guard != nil {
		h = guard(h)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := httpapi.NewServer(h, quiet)
	srv.RegisterOnShutdown(page.Close)
	go srv.Serve(ln)
	t.Cleanup(func() { srv.Close() })
	s.url = "http://" + ln.Addr().String() + "/"
	for _, n := range s.nodes {
		if err := n.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func (s *site) define(limits ...jatah.Limit) {
	s.t.Helper()
	for _, n := range s.nodes {
		if err := n.SetLimits(limits...); err != nil {
			s.t.Fatal(err)
		}
	}
}

// use takes for one key at one node, so many times a second until the test ends.
func (s *site) use(node int, limit, key string, perSecond float64) {
	l, ok := s.nodes[node].Lookup(limit)
	if !ok {
		s.t.Fatalf("no limit %q", limit)
	}
	ctx := s.t.Context()
	s.load.Go(func() {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for begun, done := time.Now(), 0; ctx.Err() == nil; <-tick.C {
			for want := int(perSecond * time.Since(begun).Seconds()); done < want && ctx.Err() == nil; done++ {
				l.Take(ctx, key, 1)
			}
		}
	})
	s.t.Cleanup(s.load.Wait)
}

// busy is a load as a service has it.
func (s *site) busy() {
	s.define(
		jatah.Limit{Name: "api", Rate: jatah.PerSecond(100), Burst: 200},
		jatah.Limit{Name: "login", Rate: jatah.PerMinute(20), Burst: 5, Mode: jatah.Strict, Fallback: jatah.FallbackDeny},
		jatah.Limit{Name: "search", Rate: jatah.PerSecond(30), Mode: jatah.Split},
		jatah.Limit{Name: "export", Rate: jatah.PerHour(10)},
		jatah.Limit{Name: "mail/out", Rate: jatah.PerMinute(300), Algorithm: jatah.SlidingWindow, DryRun: true},
		jatah.Limit{Name: "reports", Algorithm: jatah.Concurrency, Max: 4, TTL: time.Minute},
	)
	for i := range s.nodes {
		for j := range 9 {
			s.use(i, "api", jatah.Key("acme", fmt.Sprintf("user-%d", 40+j)), 5+float64(11*j*(j%3)))
		}
		s.use(i, "login", "203.0.113."+fmt.Sprint(7+i), 3)
		s.use(i, "search", "tenant-"+strings.Repeat("b", i%3+1), 22)
		s.use(i, "mail/out", "campaign-12", 8)
	}
}

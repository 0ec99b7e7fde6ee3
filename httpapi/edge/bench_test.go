package edge_test

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/jatah-io/jatah"
	"github.com/jatah-io/jatah/httpapi/edge"
)

// reply is a ResponseWriter that keeps nothing but its header map, as net/http does between two requests of a connection.
type reply struct {
	head   http.Header
	status int
}

func (r *reply) Header() http.Header         { return r.head }
func (r *reply) WriteHeader(status int)      { r.status = status }
func (r *reply) Write(b []byte) (int, error) { return len(b), nil }

// measured are the handlers of BenchmarkMiddleware, each with the status that it answers.
func measured(tb testing.TB) (all []struct {
	name   string
	status int
	h      http.Handler
}) {
	node, err := jatah.Start(tb.Context(), jatah.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { node.Close() })
	for _, l := range []jatah.Limit{
		{Name: "coarse", Rate: jatah.PerSecond(1e9)}, {Name: "fine", Rate: jatah.PerSecond(1e9)},
		{Name: "none", Rate: jatah.Per(1, 365*24*60*60e9)}, {Name: "flight", Algorithm: jatah.Concurrency, Max: 100},
	} {
		if _, err := node.Limit(l); err != nil {
			tb.Fatal(err)
		}
	}
	bare := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	add := func(name string, status int, h http.Handler) {
		all = append(all, struct {
			name   string
			status int
			h      http.Handler
		}{name, status, h})
	}
	limited := func(name string, status int, uses ...edge.Use) {
		for i := range uses {
			uses[i].Key = []edge.Part{edge.Address()}
		}
		e, err := edge.New(node, edge.Config{Rules: []edge.Rule{{Uses: uses}}})
		if err != nil {
			tb.Fatal(err)
		}
		add(name, status, e.Middleware(bare))
	}
	add("bare", 200, bare)
	limited("admit", 200, edge.Use{Limit: "coarse"})
	limited("refuse", 429, edge.Use{Limit: "none"})
	limited("two-limits", 200, edge.Use{Limit: "coarse"}, edge.Use{Limit: "fine"})
	limited("two-limits-refuse", 429, edge.Use{Limit: "coarse"}, edge.Use{Limit: "none"})
	limited("permit", 200, edge.Use{Limit: "flight"})
	limited("observed", 200, edge.Use{Limit: "coarse", Counts: func(int) bool { return true }})
	return all
}

func newGet() (*reply, *http.Request) {
	r := httptest.NewRequest("GET", "/some/path", nil)
	r.RemoteAddr = "203.0.113.7:4711"
	return &reply{head: http.Header{}}, r
}

// BenchmarkMiddleware is what limiting costs beside a handler that does nothing.
func BenchmarkMiddleware(b *testing.B) {
	for _, m := range measured(b) {
		b.Run(m.name, func(b *testing.B) {
			w, r := newGet()
			m.h.ServeHTTP(w, r) // uses up the limit of those that are to be refused
			b.ReportAllocs()
			for b.Loop() {
				clear(w.head)
				m.h.ServeHTTP(w, r)
			}
			if w.status != m.status {
				b.Fatalf("status %d, want %d", w.status, m.status)
			}
		})
	}
}

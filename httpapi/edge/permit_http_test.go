package edge_test

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jatah-io/jatah"
	"github.com/jatah-io/jatah/httpapi/edge"
)

// One request at a time, over HTTP. Its place is free again when its handler has ended, whether that panics or its client is long gone, and not before;
// and whoever another limit refuses has held no place, wherever that limit stands.
func TestAPlaceIsFreeWhenTheHandlerHasEnded(t *testing.T) {
	limits := []jatah.Limit{{Name: "flight", Algorithm: jatah.Concurrency, Max: 1}, {Name: "none", Rate: jatah.PerSecond(0)}}
	for _, nested := range []bool{false, true} { // the other limit stands in the same rule, or in a middleware inside
		inBubble(t, limits, func(t *testing.T, node *jatah.Node) {
			begin := time.Now()
			at := func(seconds float64) {
				time.Sleep(time.Until(begin.Add(time.Duration(seconds * float64(time.Second)))))
			}
			inFlight := func(when string, want int64) {
				t.Helper()
				synctest.Wait()
				if n := held(t, node, "flight", "all"); n != want {
					t.Errorf("%s %d are in flight, want %d", when, n, want)
				}
			}
			var sawGone atomic.Bool
			work := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch r.URL.Path {
				case "/panic":
					panic("broken")
				case "/slow":
					at(2)
					sawGone.Store(r.Context().Err() != nil)
				}
			})
			both := edge.Rule{When: []edge.Condition{edge.Path("/closed")}, Uses: []edge.Use{forAll("flight"), forAll("none")}}
			inner := http.Handler(work)
			if nested {
				both.Uses = both.Uses[:1]
				inner = mustNew(t, node, edge.Config{Rules: []edge.Rule{{When: both.When, Uses: []edge.Use{forAll("none")}}}}).Middleware(work)
			}
			s := serveHTTP(t, mustNew(t, node, edge.Config{Rules: []edge.Rule{both, {Uses: []edge.Use{forAll("flight")}}}}).Middleware(inner))

			if _, err := s.try("GET", "/panic", nil); err == nil {
				t.Error("a handler that panics answers")
			}
			inFlight("after the panic", 0)

			at(0.1)
			ctx, hangUp := context.WithCancel(t.Context())
			gone := make(chan error)
			go func() {
				r, _ := http.NewRequestWithContext(ctx, "GET", "http://site.test/slow", nil)
				_, err := s.client.Do(r)
				gone <- err
			}()
			at(0.2)
			hangUp()
			if err := <-gone; err == nil {
				t.Error("the client that hung up got an answer")
			}
			at(1)
			inFlight("while the handler works without a client", 1)
			if a := s.get(); a.StatusCode != 429 || a.Header.Get("Retry-After") == "" {
				t.Errorf("beside it: %d with Retry-After %q, want 429 and a wait", a.StatusCode, a.Header.Get("Retry-After"))
			}
			at(2.1)
			if !sawGone.Load() {
				t.Error("the handler did not notice that its client is gone; this test proves nothing")
			}
			if a := s.get(); a.StatusCode != 200 {
				t.Errorf("after it: %d", a.StatusCode)
			}
			inFlight("after all have ended", 0)

			at(3)
			for range 5 {
				if a := s.do("GET", "/closed", nil); a.StatusCode != 429 {
					t.Errorf("on the route that is closed: %d", a.StatusCode)
				}
				inFlight("after a refusal by the other limit", 0)
			}
			at(3.1)
			if a := s.get(); a.StatusCode != 200 {
				t.Errorf("at the end: %d", a.StatusCode)
			}
		})
	}
}

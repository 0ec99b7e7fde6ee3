package edge_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jatah-io/jatah"
	"github.com/jatah-io/jatah/httpapi/edge"
)

// http.TimeoutHandler leaves handlers behind, which go on to read their request and their verdict, inside of the edge and around it. Nothing of it is
// used again, and what was held comes back once.
func TestHandlersThatAreLeftBehind(t *testing.T) {
	limits := []jatah.Limit{{Name: "flight", Algorithm: jatah.Concurrency, Max: 1000, TTL: time.Minute}, {Name: "api", Rate: jatah.PerDay(1000)}}
	inBubble(t, limits, func(t *testing.T, node *jatah.Node) {
		user := edge.Use{Limit: "api", Key: []edge.Part{edge.Body("user").Part()}, Counts: edge.Failures(), After: []edge.After{edge.ResponseBytes(1)}}
		e := mustNew(t, node, edge.Config{Rules: []edge.Rule{{
			Uses: []edge.Use{{Limit: "flight", Key: []edge.Part{edge.Text("all")}}, user}, Soft: &edge.Soft{From: 0.5},
		}}})
		slow := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			for range 5 {
				takes := append([]edge.Taken(nil), edge.FromContext(r.Context()).Takes...)
				if user := r.Header.Get("User"); takes[1].Key != user || takes[1].Limit().Name != "api" {
					t.Errorf("%s has the verdict on %s", user, takes[1].Key)
				}
				_, _ = fmt.Fprint(w, r.URL.Path, r.Pattern)
				time.Sleep(2 * time.Millisecond)
				if body, err := io.ReadAll(r.Body); err == nil && len(body) > 0 && !bytes.Contains(body, []byte(r.Header.Get("User"))) {
					t.Errorf("%s has the body %s", r.Header.Get("User"), body)
				}
			}
		})
		const patience = 3 * time.Millisecond
		mux := http.NewServeMux()
		mux.Handle("POST /{name}", e.Middleware(slow))
		for name, h := range map[string]http.Handler{
			"inside": e.Middleware(http.TimeoutHandler(slow, patience, "late")),
			"around": http.TimeoutHandler(e.Middleware(slow), patience, "late"),
			"mux":    http.TimeoutHandler(mux, patience, "late"),
			"twice":  e.Middleware(e.Middleware(http.TimeoutHandler(slow, patience, "late"))),
		} {
			var clients sync.WaitGroup
			for i := range 8 {
				clients.Go(func() {
					for n := range 20 {
						user := fmt.Sprintf("user-%s-%d-%d", name, i, n)
						ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+n%8)*time.Millisecond)
						r := httptest.NewRequestWithContext(ctx, "POST", "/x", strings.NewReader(`{"user":"`+user+`"}`))
						r.Header.Set("User", user)
						h.ServeHTTP(httptest.NewRecorder(), r)
						cancel()
					}
				})
			}
			clients.Wait()
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if n := held(t, node, "flight", "all"); n != 0 {
			t.Errorf("%d permits are held at the end", n)
		}
	})
}

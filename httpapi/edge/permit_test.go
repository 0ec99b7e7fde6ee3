package edge_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jatah-io/jatah"
	"github.com/jatah-io/jatah/httpapi/edge"
)

// serve runs a request through a handler and returns the status; a panic of the handler is -1.
func serve(h http.Handler, r *http.Request) (status int) {
	defer func() {
		if recover() != nil {
			status = -1
		}
	}()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code
}

func TestAPermitLivesAsLongAsTheHandler(t *testing.T) {
	limits := []jatah.Limit{
		{Name: "flight", Algorithm: jatah.Concurrency, Max: 1, TTL: 3 * time.Second},
		{Name: "none", Rate: jatah.PerSecond(0)},
	}
	inBubble(t, limits, func(t *testing.T, node *jatah.Node) {
		all := []edge.Part{edge.Text("all")}
		e := mustNew(t, node, edge.Config{Rules: []edge.Rule{
			{When: []edge.Condition{edge.Path("/closed")}, Uses: []edge.Use{{Limit: "flight", Key: all}, {Limit: "none", Key: all}}},
			{Uses: []edge.Use{{Limit: "flight", Key: all}}},
		}})
		var work func()
		h := e.Middleware(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { work() }))

		work = func() { panic("broken") }
		if got := serve(h, request("GET", "/", someone)); got != -1 {
			t.Errorf("a handler that panics: status %d, want the panic", got)
		}
		if n := held(t, node, "flight", "all"); n != 0 {
			t.Fatalf("after a panic %d permits are held", n)
		}

		// The handler goes on after its client has gone, and for longer than a permit lives unless it is renewed.
		work = func() { time.Sleep(20 * time.Second) }
		gone, first := request("GET", "/", someone), make(chan int)
		go func() { first <- serve(h, gone) }()
		for range 19 {
			time.Sleep(time.Second)
			if n := held(t, node, "flight", "all"); n != 1 {
				t.Fatalf("%d permits are held while the handler works, want 1", n)
			}
			if got := serve(h, request("GET", "/", someone)); got != http.StatusTooManyRequests {
				t.Fatalf("a second request: status %d, want 429", got)
			}
		}
		if got := <-first; got != http.StatusOK {
			t.Errorf("the first request: status %d", got)
		}
		synctest.Wait()
		if n := held(t, node, "flight", "all"); n != 0 {
			t.Fatalf("after the handler has ended %d permits are held", n)
		}

		work = func() {}
		for range 5 { // refused by the other limit of the rule
			if got := serve(h, request("GET", "/closed", someone)); got != http.StatusTooManyRequests {
				t.Errorf("status %d, want 429", got)
			}
		}
		if got := serve(h, request("GET", "/", someone)); got != http.StatusOK {
			t.Errorf("at the end: status %d, want 200", got)
		}
		if n := held(t, node, "flight", "all"); n != 0 {
			t.Errorf("at the end %d permits are held", n)
		}
	})
}

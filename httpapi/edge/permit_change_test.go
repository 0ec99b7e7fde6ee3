package edge_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jatah-io/jatah"
	"github.com/jatah-io/jatah/httpapi/edge"
)

// A limit that is defined anew while a handler runs does not lose its permit: neither a shorter nor a longer time to live does that.
func TestAPermitOutlivesAChangeOfItsLimit(t *testing.T) {
	for _, ttl := range []time.Duration{2 * time.Second, time.Minute} {
		inBubble(t, []jatah.Limit{{Name: "flight", Algorithm: jatah.Concurrency, Max: 1, TTL: 30 * time.Second}}, func(t *testing.T, node *jatah.Node) {
			all := []edge.Part{edge.Text("all")}
			e := mustNew(t, node, edge.Config{Rules: []edge.Rule{{Uses: []edge.Use{{Limit: "flight", Key: all}}}}})
			h := e.Middleware(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { time.Sleep(10 * time.Minute) }))
			go serve(h, request("GET", "/", someone))
			time.Sleep(time.Second)
			if _, err := node.Limit(jatah.Limit{Name: "flight", Algorithm: jatah.Concurrency, Max: 1, TTL: ttl}); err != nil {
				t.Fatal(err)
			}
			for range 118 {
				time.Sleep(5 * time.Second)
				if n := held(t, node, "flight", "all"); n != 1 {
					t.Fatalf("ttl %v: %d permits are held while the handler works, want 1", ttl, n)
				}
			}
			time.Sleep(20 * time.Second)
			synctest.Wait()
			if n := held(t, node, "flight", "all"); n != 0 {
				t.Errorf("ttl %v: %d permits are held at the end", ttl, n)
			}
		})
	}
}

// A limit that is removed, or counts tokens from now on, leaves handlers to end as they like, and nothing spins.
func TestAPermitWhoseLimitIsGone(t *testing.T) {
	inBubble(t, []jatah.Limit{{Name: "flight", Algorithm: jatah.Concurrency, Max: 1, TTL: 3 * time.Second}}, func(t *testing.T, node *jatah.Node) {
		all := []edge.Part{edge.Text("all")}
		e := mustNew(t, node, edge.Config{Rules: []edge.Rule{{Uses: []edge.Use{{Limit: "flight", Key: all}}}}})
		h := e.Middleware(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { time.Sleep(time.Minute) }))
		status := make(chan int, 1)
		go func() { status <- serve(h, request("GET", "/", someone)) }()
		time.Sleep(time.Second)
		if !node.RemoveLimit("flight") {
			t.Fatal("there is no limit to remove")
		}
		time.Sleep(10 * time.Second)
		if got := serve(h, request("GET", "/", someone)); got != http.StatusServiceUnavailable {
			t.Errorf("without the limit: status %d, want 503", got)
		}
		if _, err := node.Limit(jatah.Limit{Name: "flight", Rate: jatah.PerSecond(1)}); err != nil {
			t.Fatal(err)
		}
		if got := serve(h, request("GET", "/", someone)); got != http.StatusServiceUnavailable {
			t.Errorf("while it counts tokens: status %d, want 503", got)
		}
		if got := <-status; got != http.StatusOK {
			t.Errorf("the first request: status %d", got)
		}
	})
}

package edge_test

import (
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jatah-io/jatah"
	"github.com/jatah-io/jatah/httpapi/edge"
)

func TestWhoIsRefusedFarTooOftenIsDropped(t *testing.T) {
	inBubble(t, []jatah.Limit{{Name: "api", Rate: jatah.PerMinute(2)}}, func(t *testing.T, node *jatah.Node) {
		use := edge.Use{Limit: "api", Key: []edge.Part{edge.Header("Key")}}
		e := mustNew(t, node, edge.Config{Answer: edge.Answer{Drop: &edge.Drop{After: 10, Within: time.Minute}}, Rules: []edge.Rule{{Uses: []edge.Use{use}}}})
		s := serveHTTP(t, e.Middleware(hello))
		// status of an answer, 0 for a connection that ends without one. POST, as clients do not repeat those by themselves.
		status := func(key string) int {
			a, err := s.try("POST", "/", nil, "Key", key)
			if err != nil {
				if !errors.Is(err, io.EOF) {
					t.Fatalf("the connection ended with %v, want EOF", err)
				}
				return 0
			}
			return a.StatusCode
		}
		count := func(key string, n int, every time.Duration) (answers map[int]int) {
			answers = map[int]int{}
			for range n {
				answers[status(key)]++
				time.Sleep(every)
			}
			return answers
		}
		if got := count("flood", 100, 0); got[200] != 2 || got[429] != 10 || got[0] != 88 {
			t.Errorf("a flood: %v, want 2 admitted, 10 refused, 88 dropped", got)
		}
		if got := count("other", 12, 0); got[200] != 2 || got[429] != 10 {
			t.Errorf("another key: %v", got)
		}
		if got := count("flood", 30, time.Second); got[0] < 28 {
			t.Errorf("a flood that goes on: %v, want no answers but where the limit admits", got)
		}
		time.Sleep(7 * time.Second) // more than a tenth of the minute
		if got := status("flood"); got == 0 {
			t.Error("after a pause: dropped, want an answer")
		}
		// Who comes at most as often as is answered never is dropped, however long that goes on.
		if got := count("patient", 200, 6*time.Second); got[0] != 0 || got[429] < 100 {
			t.Errorf("a patient client: %v", got)
		}
		if s := e.Stats()[0]; s.Dropped < 88 || s.Refused < s.Dropped {
			t.Errorf("counters %+v", s)
		}
	})
}

// Of a connection of HTTP/2 only the stream ends.
func TestADropOverHTTP2(t *testing.T) {
	node, err := jatah.Start(t.Context(), jatah.Config{Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	defer node.Close()
	if _, err := node.Limit(jatah.Limit{Name: "closed", Rate: jatah.PerSecond(0)}); err != nil {
		t.Fatal(err)
	}
	e := mustNew(t, node, edge.Config{Rules: []edge.Rule{{
		When: []edge.Condition{edge.Path("/closed")}, Uses: []edge.Use{forAll("closed")}, Answer: &edge.Answer{Drop: &edge.Drop{After: 1, Within: time.Hour}},
	}}})
	srv := httptest.NewUnstartedServer(e.Middleware(hello))
	srv.EnableHTTP2 = true
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	var connections atomic.Int64
	srv.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			connections.Add(1)
		}
	}
	srv.StartTLS()
	defer srv.Close()
	for i, want := range []int{429, 0, 200} {
		path := "/closed"
		if want == 200 {
			path = "/"
		}
		res, err := srv.Client().Get(srv.URL + path)
		if err != nil {
			if want != 0 {
				t.Errorf("request %d: %v", i, err)
			}
			continue
		}
		_, _ = io.Copy(io.Discard, res.Body)
		_ = res.Body.Close()
		if res.StatusCode != want || res.ProtoMajor != 2 {
			t.Errorf("request %d: %d over %s, want %d", i, res.StatusCode, res.Proto, want)
		}
	}
	if n := connections.Load(); n != 1 {
		t.Errorf("%d connections, want 1", n)
	}
}

// Only a refusal by a limit is dropped.
func TestWhatCannotBeDecidedIsAnswered(t *testing.T) {
	inBubble(t, []jatah.Limit{{Name: "gone", Rate: jatah.PerMinute(2)}}, func(t *testing.T, node *jatah.Node) {
		h := limiting(t, node, edge.Answer{Drop: &edge.Drop{After: 1, Within: time.Minute}}, "gone")(hello)
		node.RemoveLimit("gone")
		for range 5 {
			if got := serve(h, request("GET", "/", someone)); got != http.StatusServiceUnavailable {
				t.Errorf("status %d, want 503", got)
			}
		}
	})
}

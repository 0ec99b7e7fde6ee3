package frameworks_test

import (
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/jatah-io/jatah"
	"github.com/jatah-io/jatah/examples/frameworks"
	"github.com/jatah-io/jatah/httpapi/edge"
)

// A request that is dropped has no answer, least of all one that says it was served; with HTTP/2 at most a refusal.
func TestADroppedRequestIsNotServed(t *testing.T) {
	for name, build := range map[string]site{"gin": ginSite, "echo": echoSite, "chi": chiSite} {
		for _, http2 := range []bool{false, true} {
			node, err := jatah.Start(t.Context(), jatah.Config{Logger: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			defer node.Close()
			if _, err := node.Limit(jatah.Limit{Name: "api", Rate: jatah.PerDay(1)}); err != nil {
				t.Fatal(err)
			}
			e, err := edge.New(node, edge.Config{
				Answer: edge.Answer{Drop: &edge.Drop{After: 1, Within: time.Hour}},
				Rules:  []edge.Rule{{Name: "login", Uses: []edge.Use{{Limit: "api", Key: []edge.Part{edge.Address()}}}}},
			})
			if err != nil {
				t.Fatal(err)
			}
			srv := httptest.NewUnstartedServer(build(e, func(*http.Request) {}))
			srv.Config.ErrorLog = log.New(failing{t}, "", 0)
			srv.EnableHTTP2 = http2
			srv.StartTLS()
			defer srv.Close()
			for i, want := range []int{200, 429, 0} {
				res, err := srv.Client().Post(srv.URL+"/login?ok=1", "text/plain", nil)
				got := 0
				if err == nil {
					got = res.StatusCode
					_ = res.Body.Close()
				}
				if dropped := want == 0 && http2 && got == 429; got != want && !dropped {
					t.Errorf("%s, HTTP/2 %v: request %d: status %d, want %d", name, http2, i, got, want)
				}
			}
		}
	}
}

// failing takes a line of a server's log for an error.
type failing struct{ t *testing.T }

func (f failing) Write(b []byte) (int, error) {
	f.t.Errorf("the server logs %s", b)
	return len(b), nil
}

// All of gin is a handler that wants CloseNotify of the writer below, also where that is the edge's.
func TestGinStreamsBehindTheEdge(t *testing.T) {
	node, err := jatah.Start(t.Context(), jatah.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer node.Close()
	if _, err := node.Limit(jatah.Limit{Name: "api", Rate: jatah.PerDay(100)}); err != nil {
		t.Fatal(err)
	}
	use := edge.Use{Limit: "api", Key: []edge.Part{edge.Address()}, After: []edge.After{edge.ResponseBytes(1)}}
	e, err := edge.New(node, edge.Config{Rules: []edge.Rule{{Uses: []edge.Use{use}}}})
	if err != nil {
		t.Fatal(err)
	}
	stream := func(c *gin.Context) {
		n := 0
		c.Stream(func(w io.Writer) bool { n++; _, _ = io.WriteString(w, "x"); return n < 3 })
	}
	gin.SetMode(gin.ReleaseMode)
	whole, inside := gin.New(), gin.New()
	whole.GET("/", stream)
	inside.GET("/", frameworks.Gin(e), stream)
	for name, h := range map[string]http.Handler{"around": e.Middleware(whole), "inside": inside} {
		srv := httptest.NewServer(h)
		defer srv.Close()
		res, err := http.Get(srv.URL)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		body, _ := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if res.StatusCode != 200 || string(body) != "xxx" {
			t.Errorf("%s: %d %q", name, res.StatusCode, body)
		}
	}
	l, _ := node.Lookup("api")
	if s, err := l.Peek(t.Context(), "127.0.0.1"); err != nil || s.Balance < 92 || s.Balance >= 93 {
		t.Errorf("%v are left, want 92: %v", s.Balance, err)
	}
}

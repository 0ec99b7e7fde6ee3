package frameworks_test

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	chimiddleware "github.com/go-chi/chi/v5/middleware"
	"github.com/labstack/echo/v5"
	echomiddleware "github.com/labstack/echo/v5/middleware"

	"github.com/jatah-io/jatah"
	"github.com/jatah-io/jatah/examples/frameworks"
	"github.com/jatah-io/jatah/httpapi/edge"
)

// site is the same for all frameworks: POST /login?ok=1 answers 200, POST /login 401, GET /panic panics; /open is not limited.
type site func(e *edge.Edge, called func(r *http.Request)) http.Handler

func ginSite(e *edge.Edge, called func(*http.Request)) http.Handler {
	gin.SetMode(gin.ReleaseMode)
	r := gin.New()
	r.Use(gin.CustomRecoveryWithWriter(io.Discard, func(c *gin.Context, _ any) { c.AbortWithStatus(http.StatusInternalServerError) }))
	r.GET("/open", func(c *gin.Context) { c.String(http.StatusOK, "open") })
	limited := r.Group("/", frameworks.Gin(e))
	limited.POST("/login", func(c *gin.Context) {
		called(c.Request)
		if c.Query("ok") == "" {
			c.JSON(http.StatusUnauthorized, gin.H{"error": "wrong"})
			return
		}
		c.String(http.StatusOK, "welcome")
	})
	limited.GET("/panic", func(*gin.Context) { panic("broken") })
	return r
}

func echoSite(e *edge.Edge, called func(*http.Request)) http.Handler {
	r := echo.New()
	r.Logger = slog.New(slog.DiscardHandler)
	r.Use(echomiddleware.Recover())
	r.GET("/open", func(c *echo.Context) error { return c.String(http.StatusOK, "open") })
	limited := r.Group("", frameworks.Echo(e))
	limited.POST("/login", func(c *echo.Context) error {
		called(c.Request())
		if c.QueryParam("ok") == "" {
			return echo.NewHTTPError(http.StatusUnauthorized, "wrong") // the response is made of this later
		}
		return c.String(http.StatusOK, "welcome")
	})
	limited.GET("/panic", func(*echo.Context) error { panic("broken") })
	return r
}

func chiSite(e *edge.Edge, called func(*http.Request)) http.Handler {
	r := chi.NewRouter()
	r.Use(chimiddleware.Recoverer)
	r.Get("/open", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "open") })
	r.Group(func(r chi.Router) {
		r.Use(e.Middleware) // all that chi needs
		r.Post("/login", func(w http.ResponseWriter, r *http.Request) {
			called(r)
			if r.URL.Query().Get("ok") == "" {
				http.Error(w, "wrong", http.StatusUnauthorized)
				return
			}
			_, _ = io.WriteString(w, "welcome")
		})
		r.Get("/panic", func(http.ResponseWriter, *http.Request) { panic("broken") })
	})
	return r
}

// Logins that fail cost one of three tries, those that work none; who has no try left is refused before the handler is asked.
func TestLoginsThatFailAreCounted(t *testing.T) {
	for name, build := range map[string]site{"gin": ginSite, "echo": echoSite, "chi": chiSite} {
		t.Run(name, func(t *testing.T) {
			node, err := jatah.Start(t.Context(), jatah.Config{Logger: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			defer node.Close()
			for _, l := range []jatah.Limit{{Name: "login", Rate: jatah.PerDay(3)}, {Name: "flight", Algorithm: jatah.Concurrency, Max: 1}} {
				if _, err := node.Limit(l); err != nil {
					t.Fatal(err)
				}
			}
			key := []edge.Part{edge.Address()}
			e, err := edge.New(node, edge.Config{Rules: []edge.Rule{
				{Name: "login", When: []edge.Condition{edge.Path("/login")}, Uses: []edge.Use{
					{Limit: "login", Key: key, Counts: edge.Failures()}, {Limit: "flight", Key: key},
				}},
				{Name: "panic", When: []edge.Condition{edge.Path("/panic")}, Uses: []edge.Use{{Limit: "flight", Key: key}}},
			}})
			if err != nil {
				t.Fatal(err)
			}
			calls := 0
			h := build(e, func(r *http.Request) {
				calls++
				if v := edge.FromContext(r.Context()); v == nil || v.Rule != "login" {
					t.Errorf("the handler sees the verdict %+v", v)
				}
			})
			call := func(method, target string, status int, remaining string) {
				t.Helper()
				w := httptest.NewRecorder()
				h.ServeHTTP(w, httptest.NewRequest(method, target, nil))
				if got := w.Header().Get("X-RateLimit-Remaining"); w.Code != status || got != remaining {
					t.Errorf("%s %s: %d with %q left, want %d with %q: %s", method, target, w.Code, got, status, remaining, w.Body)
				}
			}
			for range 5 {
				call("POST", "/login?ok=1", 200, "0") // of flight, which has least left
			}
			call("GET", "/panic", 500, "0")
			for range 3 {
				call("POST", "/login", 401, "0")
			}
			call("POST", "/login", 429, "0")
			call("POST", "/login?ok=1", 429, "0")
			call("GET", "/open", 200, "")
			if calls != 8 {
				t.Errorf("the handler was called %d times, want 8", calls)
			}
			if s := e.Stats()[0]; s.Admitted != 8 || s.Refused != 2 {
				t.Errorf("counters %+v", s)
			}
		})
	}
}

// A router as a whole is a handler like any other.
func TestAllOfARouterIsLimited(t *testing.T) {
	node, err := jatah.Start(t.Context(), jatah.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer node.Close()
	if _, err := node.Limit(jatah.Limit{Name: "api", Rate: jatah.PerDay(2)}); err != nil {
		t.Fatal(err)
	}
	for name, build := range map[string]site{"gin": ginSite, "echo": echoSite, "chi": chiSite} {
		none, err := edge.New(node, edge.Config{})
		if err != nil {
			t.Fatal(err)
		}
		e, err := edge.New(node, edge.Config{Rules: []edge.Rule{{Uses: []edge.Use{{Limit: "api", Key: []edge.Part{edge.Text(name)}}}}}})
		if err != nil {
			t.Fatal(err)
		}
		srv := httptest.NewServer(e.Middleware(build(none, nil)))
		defer srv.Close()
		for i, want := range []int{200, 200, 429} {
			res, err := http.Get(srv.URL + "/open")
			if err != nil {
				t.Fatal(err)
			}
			body, _ := io.ReadAll(res.Body)
			_ = res.Body.Close()
			if res.StatusCode != want || want == 200 && string(body) != "open" {
				t.Errorf("%s: request %d: %d %s", name, i, res.StatusCode, body)
			}
		}
	}
}

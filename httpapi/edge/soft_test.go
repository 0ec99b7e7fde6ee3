package edge_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jatah-io/jatah"
	"github.com/jatah-io/jatah/httpapi/edge"
)

// seen answers with what the handler sees under a name.
func seen(name string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Seen", strings.Join(r.Header.Values(name), "+"))
	})
}

func TestASofterStepBeforeRefusal(t *testing.T) {
	limits := []jatah.Limit{{Name: "login", Rate: jatah.PerMinute(10)}, {Name: "daily", Rate: jatah.PerDay(1000)}}
	inBubble(t, limits, func(t *testing.T, node *jatah.Node) {
		var hooked atomic.Int64
		hook := func(q *edge.Request, v *edge.Verdict) {
			if q.Path != "/login" || !v.Soft || !v.OK {
				t.Errorf("the hook got %s, soft %v, OK %v", q.Path, v.Soft, v.OK)
			}
			hooked.Add(1)
		}
		e := mustNew(t, node, edge.Config{Rules: []edge.Rule{
			{Name: "login", When: []edge.Condition{edge.Path("/login")}, Uses: []edge.Use{forAll("login"), forAll("daily")}, Soft: &edge.Soft{From: 0.7, Hook: hook}},
			{Name: "exempt", When: []edge.Condition{edge.Path("/exempt")}},
		}})
		h := e.Middleware(seen("Jatah-Soft"))
		for i := 1; i <= 12; i++ {
			w := httptest.NewRecorder()
			r := request("POST", "/login", someone, "Jatah-Soft", "made up")
			h.ServeHTTP(w, r)
			want := ""
			if i >= 7 && i <= 10 { // 70 % of 10; then refused
				want = "login"
			}
			if got := w.Header().Get("Jatah-Soft"); got != want || w.Header().Get("Seen") != want || (w.Code == 429) != (i > 10) {
				t.Errorf("request %d: status %d, header %q, the handler saw %q, want %q", i, w.Code, got, w.Header().Get("Seen"), want)
			}
			if r.Header.Get("Jatah-Soft") != "made up" {
				t.Error("the request of the caller was changed")
			}
		}
		if s := e.Stats()[0]; hooked.Load() != 4 || s.Soft != 4 || s.Admitted != 10 {
			t.Errorf("the hook was called %d times, counters %+v, want 4", hooked.Load(), s)
		}
		for _, path := range []string{"/exempt", "/none"} { // what is made up is believed nowhere
			w := httptest.NewRecorder()
			h.ServeHTTP(w, request("GET", path, someone, "Jatah-Soft", "made up"))
			if got := w.Header().Get("Seen"); got != "" || w.Code != 200 {
				t.Errorf("%s: the handler saw %q", path, got)
			}
		}
		time.Sleep(time.Minute) // it ends by itself
		w := httptest.NewRecorder()
		h.ServeHTTP(w, request("POST", "/login", someone))
		if w.Code != 200 || w.Header()["Jatah-Soft"] != nil {
			t.Errorf("a minute later: %d, %v", w.Code, w.Header()["Jatah-Soft"])
		}
	})
}

func TestASofterStepInDryRunIsOnlyCounted(t *testing.T) {
	inBubble(t, []jatah.Limit{{Name: "api", Rate: jatah.PerMinute(4)}}, func(t *testing.T, node *jatah.Node) {
		hook := func(*edge.Request, *edge.Verdict) { t.Error("the hook was called") }
		e := mustNew(t, node, edge.Config{Rules: []edge.Rule{{DryRun: true, Uses: []edge.Use{forAll("api")}, Soft: &edge.Soft{From: 0.5, Header: "x-near", Hook: hook}}}})
		for range 4 {
			w := httptest.NewRecorder()
			e.Middleware(seen("X-Near")).ServeHTTP(w, request("GET", "/", someone, "X-Near", "made up"))
			if w.Header().Get("Seen") != "" || w.Header().Get("X-Near") != "" {
				t.Errorf("headers %v", w.Header())
			}
		}
		if s := e.Stats()[0]; s.Soft != 3 {
			t.Errorf("counters %+v, want 3 soft", s)
		}
	})
}

// A hook that panics leaves nothing held.
func TestAHookThatPanicsReleasesPermits(t *testing.T) {
	inBubble(t, []jatah.Limit{{Name: "flight", Algorithm: jatah.Concurrency, Max: 2}}, func(t *testing.T, node *jatah.Node) {
		hook := func(*edge.Request, *edge.Verdict) { panic("hook") }
		e := mustNew(t, node, edge.Config{Rules: []edge.Rule{{Uses: []edge.Use{forAll("flight")}, Soft: &edge.Soft{From: 0.5, Hook: hook}}}})
		if got := panicOf(func() { e.Middleware(hello).ServeHTTP(httptest.NewRecorder(), request("GET", "/", someone)) }); got != "hook" {
			t.Errorf("the panic is %v", got)
		}
		if n := held(t, node, "flight", "all"); n != 0 {
			t.Errorf("%d permits are held", n)
		}
	})
}

package edge_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/jatah-io/jatah"
	"github.com/jatah-io/jatah/httpapi/edge"
)

// Programs read .. and %2F in different ways. No client chooses its rule, or its cost, by that.
func TestAPathThatIsReadInTwoWays(t *testing.T) {
	limits := []jatah.Limit{
		{Name: "search", Rate: jatah.PerDay(1000), Costs: map[string]int64{"/search/slow": 50}},
		{Name: "login", Rate: jatah.PerDay(1000)}, {Name: "rest", Rate: jatah.PerDay(1000)},
	}
	inBubble(t, limits, func(t *testing.T, node *jatah.Node) {
		use := func(limit string) []edge.Use { return []edge.Use{{Limit: limit, Key: []edge.Part{edge.Address()}}} }
		e := mustNew(t, node, edge.Config{FailOpen: true, Rules: []edge.Rule{
			{Name: "health", When: []edge.Condition{edge.Path("/health")}},
			{Name: "static", When: []edge.Condition{edge.Path("/static/*")}},
			{Name: "search", When: []edge.Condition{edge.Path("/search/*")}, Uses: use("search")},
			{Name: "login", When: []edge.Condition{edge.Path("/login/")}, Uses: use("login")},
			{Name: "export", When: []edge.Condition{edge.Path("/v1/*/export")}, Uses: use("login")},
			{Name: "tried", When: []edge.Condition{edge.Path("/tried/*")}, DryRun: true, Uses: use("login")},
			{Name: "rest", When: []edge.Condition{edge.Not(edge.Path("/free/*"))}, Uses: use("rest")},
		}})
		for _, c := range []struct {
			target, rule string
			ok           bool
			cost         int64
		}{
			{"/search/x%2f..%2f..%2fhealth", "search", false, 0}, // to http.ServeMux one element behind /search/
			{"/search/x/../../health", "search", false, 0},       // to chi and gin something below /search/
			{"/search/%2e%2e/health", "search", false, 0},
			{"/search//.././health", "search", false, 0},
			{"/health%2f..%2fsearch%2fx", "search", false, 0}, // to http.FileServer
			{"/search%2fx", "search", false, 0},
			{"/search/..%2Fstatic/x", "search", false, 0},
			{"/v1/a%2fb/export", "rest", false, 0},
			{"/tried/../health", "tried", true, 0}, // who is not limited either way
			{"/tried/../search/x", "search", false, 0},
			{"/free/../x", "rest", false, 0},
			{"/static/../health", "health", true, 0},
			{"/static/a%2fb", "static", true, 0},
			{"/free/a%2f..%2fb", "", true, 0},
			{"/search/a%2fb", "search", true, 1},
			{"/search/a/../b", "search", true, 1},
			{"/search/a/..", "search", true, 1},
			{"/search/..a/b", "search", true, 1},
			{"/search/slow", "search", true, 50},
			{"/search/slow/", "search", true, 50},
			{"/search//slow/.", "search", true, 50},
			{"/search/x/../slow", "search", true, 50},
			{"/search/x%2F..%2fslow", "search", true, 50},
			{"/login/", "login", true, 1},
			{"/login//", "login", true, 1},
			{"/.//login/.", "login", true, 1},
			{"/a%20b", "rest", true, 1},
			{"http://example.com/search/slow", "search", true, 50}, // absolute form
		} {
			r := httptest.NewRequest("GET", c.target, nil)
			r.RemoteAddr = someone
			v := e.Decide(t.Context(), e.RequestOf(r))
			var cost int64
			if len(v.Takes) > 0 {
				cost = v.Takes[0].Cost
			}
			if v.OK != c.ok || v.Rule != c.rule || cost != c.cost || !v.OK && !errors.Is(v.Err, edge.ErrRequest) {
				t.Errorf("%s: OK %v by rule %q, costs %d, want %v by %q, %d: %v", c.target, v.OK, v.Rule, cost, c.ok, c.rule, c.cost, v.Err)
			}
			v.Settle(t.Context(), edge.Outcome{})
			if q, err := e.Describe(t.Context(), "GET", "h", c.target, someone, nil); err != nil {
				t.Error(err)
			} else if of := e.Decide(t.Context(), q); of.OK != v.OK || of.Rule != v.Rule {
				t.Errorf("%s described: OK %v by rule %q", c.target, of.OK, of.Rule)
			}
		}
		w := httptest.NewRecorder()
		e.Middleware(http.NotFoundHandler()).ServeHTTP(w, request("GET", "/search/../health", someone))
		if w.Code != http.StatusBadRequest {
			t.Errorf("answered %d %s", w.Code, w.Body)
		}
	})
}

package httpapi

import (
	"fmt"
	"net/http"
	"testing"
)

// TestDashboardIsMounted: it gets its own paths and no other, and what is unknown stays a problem.
func TestDashboardIsMounted(t *testing.T) {
	page := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "page ", r.URL.Path) })
	a := newAPI(t, Config{Dashboard: page}, perMinute("api", 1, 1))
	for _, path := range []string{"/", "/dashboard/app.js", "/v1/dashboard/stream"} {
		if w := a.call("GET", path, ""); w.Code != 200 || w.Body.String() != "page "+path {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
		wantProblem(t, a.call("POST", path, ""), 405, "method-not-allowed", "", "use GET, HEAD")
	}
	for _, path := range []string{"/other", "/index.html", "/v1/", "/v1/none"} {
		wantProblem(t, a.call("GET", path, ""), 404, "unknown-path", "", "There is nothing at")
	}
	without := newAPI(t, Config{})
	for _, path := range []string{"/", "/dashboard/app.js", "/v1/dashboard/stream"} {
		wantProblem(t, without.call("GET", path, ""), 404, "unknown-path", "", "There is nothing at")
	}
}

package httpapi

import (
	"testing"

	"github.com/jatah-io/jatah/httpapi/edge"
)

// A proxy that lets pass what is undecided, as nginx does of all but 2xx, 401 and 403 if it is told to, must not be led to it by what a client sends.
func TestNoClientMakesItsQuestionUndecided(t *testing.T) {
	costly := edge.Rule{Name: "costly", When: []edge.Condition{edge.Path("/search/*")}, Uses: []edge.Use{{Limit: "address", Key: []edge.Part{edge.Address()},
		Cost: edge.Query("rows").Per(500, edge.Bounds{})}}}
	a := gateAPI(t, Config{}, health, costly)
	for _, target := range []string{"/search/x?rows=1.5", "/search/x?rows=%zz", "/search/../health", "/search/x%2f..%2f..%2fhealth", "/search/x#y", "/%zz", "search"} {
		head := []string{"X-Forwarded-Method", "GET", "X-Forwarded-Uri", target, "X-Forwarded-For", "203.0.113.9"}
		if w := a.call("GET", "/v1/forward-auth?deny_status=403", "", head...); w.Code != 403 {
			t.Errorf("%s for nginx: %d %s", target, w.Code, w.Body)
		}
		if w := a.call("GET", "/v1/forward-auth", "", head...); w.Code != 400 {
			t.Errorf("%s: %d %s", target, w.Code, w.Body)
		}
	}
}

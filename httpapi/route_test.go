package httpapi

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/jatah-io/jatah"
)

// A request may name its route instead of its cost; the limit knows what that costs.
func TestARouteStandsForItsCost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := perMinute("api", 60, 200)
		limit.Costs = map[string]int64{"/export": 100, "/search/*": 5, "/health": 0}
		a := newAPI(t, Config{}, limit, perMinute("plain", 60, 200))
		for _, c := range []struct {
			path, body string
			status     int
			want       string // part of the answer
		}{
			{"/v1/take", `{"limit":"api","key":"u","route":"/export"}`, 200, `"cost":100,"remaining":100,`},
			{"/v1/take", `{"route":"/search/shoes","limit":"api","key":"u"}`, 200, `"cost":5,"remaining":95,`},
			{"/v1/take", `{"limit":"api","key":"u","route":"\u002fexport"}`, 429, `"cost":100,"remaining":95,`},
			{"/v1/take", `{"limit":"api","key":"u","route":"/other"}`, 200, `"cost":1,"remaining":94,`},
			{"/v1/take", `{"limit":"api","key":"u","route":""}`, 200, `"cost":1,"remaining":93,`},
			{"/v1/take", `{"limit":"api","key":"u","route":"/health"}`, 200, `"cost":0,"remaining":93,`},
			{"/v1/take", `{"limit":"plain","key":"u","route":"/export"}`, 200, `"cost":1,"remaining":199,`},
			{"/v1/refund", `{"limit":"api","key":"u","route":"/search/"}`, 200, `"cost":5,"remaining":98,`},
			{"/v1/charge", `{"limit":"api","key":"u","route":"/search/"}`, 200, `"cost":5,"remaining":93,`},
			{"/v1/batch", `{"takes":[{"limit":"api","key":"v","route":"/export"},{"limit":"api","key":"v","route":"/x","cost":1},{"limit":"api","key":"v","route":"/search/*"}]}`,
				200, `"cost":100,"remaining":100,`},
			{"/v1/take", `{"limit":"api","key":"u","route":"/export","cost":1}`, 400, "cost and route are both there"},
			{"/v1/take", `{"limit":"api","key":"u","cost":100,"route":"/export"}`, 400, "cost and route are both there"},
			{"/v1/take", `{"limit":"api","key":"u","route":5}`, 400, "route must be a string"},
			{"/v1/take", `{"limit":"api","key":"u","route":null}`, 400, "route must be a string"},
			{"/v1/take", `{"limit":"api","key":"u","route":"/a","route":"/a"}`, 400, "route is there twice"},
			{"/v1/take", `{"limit":"nope","key":"u","route":"/a"}`, 404, "No limit is named"},
		} {
			r := a.call("POST", c.path, c.body)
			if r.Code != c.status || !strings.Contains(r.Body.String(), c.want) {
				t.Errorf("%s %s: %d %s; want %d and %s", c.path, c.body, r.Code, r.Body, c.status, c.want)
			}
			if c.path == "/v1/batch" && (!strings.Contains(r.Body.String(), "cost and route are both there") || !strings.Contains(r.Body.String(), `"cost":5,"remaining":95,`)) {
				t.Errorf("batch: %s", r.Body)
			}
		}
		if st, err := mustLookup(t, a.node, "api").Peek(t.Context(), "u"); err != nil || st.Remaining != 93 {
			t.Errorf("%+v, %v; want 93 tokens left, the bad requests took some", st, err)
		}
		body := a.call("GET", "/v1/limits", "").Body.String()
		if !strings.Contains(body, `"dry_run":false,"origin":"local","costs":{"/export":100,"/health":0,"/search/*":5}}`) || strings.Count(body, "costs") != 1 {
			t.Errorf("the limits are shown as %s", body)
		}
	})
}

func mustLookup(t *testing.T, n *jatah.Node, name string) *jatah.Limiter {
	t.Helper()
	l, ok := n.Lookup(name)
	if !ok {
		t.Fatalf("no limit %s", name)
	}
	return l
}

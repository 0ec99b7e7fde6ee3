package metrics

import (
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/jatah-io/jatah"
	"github.com/jatah-io/jatah/httpapi"
	"github.com/jatah-io/jatah/httpapi/edge"
)

func TestWhatTheRulesOfTheEdgeDid(t *testing.T) {
	node := newNode(t, jatah.Limit{Name: "api", Rate: jatah.PerHour(3)}, jatah.Limit{Name: "api-1", Rate: jatah.PerHour(1)})
	var current *edge.Edge
	h := httpapi.New(node, httpapi.Config{Metrics: Handler(node, "v", NewEdgeCollector(func() *edge.Edge { return current }))})
	ofEdge := func() map[string]float64 {
		all := scrape(t, h)
		maps.DeleteFunc(all, func(name string, _ float64) bool { return !strings.HasPrefix(name, "jatah_edge_") })
		return all
	}
	if got := ofEdge(); len(got) != 0 {
		t.Errorf("without an edge there are %v", got)
	}
	open := func(before *edge.Edge) *edge.Edge {
		e, err := edge.New(node, edge.Config{Before: before, Rules: []edge.Rule{
			{Name: "first", Uses: []edge.Use{{Limit: "api", Key: []edge.Part{edge.Header("Key")}, Candidates: []string{"api-1"}}}},
			{Name: "rest", DryRun: true, Uses: []edge.Use{{Limit: "api", Key: []edge.Part{edge.Text("all")}}}},
		}})
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	current = open(nil)
	fresh := ofEdge()
	ask := func(key string) {
		r := httptest.NewRequestWithContext(t.Context(), "GET", "/", nil)
		r.Header.Set("Key", key)
		if v := current.Decide(t.Context(), current.RequestOf(r)); v.OK {
			v.Settle(t.Context(), edge.Outcome{Status: 200})
		}
	}
	for range 5 {
		ask("\xff\xfe{}\"\n")
		ask("")
	}
	for _, c := range current.Candidates() {
		for c.Requests+c.Missed < 5 { // measured beside the requests
			c = current.Candidates()[0]
		}
	}
	got := ofEdge()
	for series, want := range map[string]float64{
		"jatah_edge_requests_total{result=admitted,rule=first}":                           3,
		"jatah_edge_requests_total{result=refused,rule=first}":                            2,
		"jatah_edge_requests_total{result=admitted,rule=rest}":                            5,
		"jatah_edge_events_total{event=would_refuse,rule=rest}":                           2,
		"jatah_edge_events_total{event=would_refuse,rule=first}":                          0,
		"jatah_edge_candidate_requests_total{candidate=api-1,result=admitted,rule=first}": 1,
		"jatah_edge_candidate_requests_total{candidate=api-1,result=refused,rule=first}":  4,
		"jatah_edge_candidate_missed_total{candidate=api-1,rule=first}":                   0,
	} {
		if n, ok := got[series]; !ok || n != want {
			t.Errorf("%s is %v (%v), want %v", series, n, ok, want)
		}
	}
	if a, b := slices.Sorted(maps.Keys(fresh)), slices.Sorted(maps.Keys(got)); !slices.Equal(a, b) {
		t.Errorf("the series are %v before any request and %v after", a, b)
	}

	current = open(current) // as a reload does
	if n := ofEdge()["jatah_edge_requests_total{result=refused,rule=first}"]; n != 2 {
		t.Errorf("after a reload the counter of refusals is %v, want 2 still", n)
	}
}

// A hundred thousand keys, addresses and paths through the middleware leave as many series as ten did, and none of them in a label.
func TestRequestsMakeNoSeries(t *testing.T) {
	node := newNode(t, jatah.Limit{Name: "api", Rate: jatah.PerHour(3)}, jatah.Limit{Name: "address", Rate: jatah.PerSecond(1000)})
	e, err := edge.New(node, edge.Config{Rules: []edge.Rule{{Name: "known", Pause: &edge.Pause{}, Soft: &edge.Soft{From: 0.5}, Uses: []edge.Use{
		{Limit: "api", Key: []edge.Part{edge.Header("Key"), edge.Route()}}, {Limit: "address", Key: []edge.Part{edge.Address()}},
	}}}})
	if err != nil {
		t.Fatal(err)
	}
	h := httpapi.New(node, httpapi.Config{Metrics: Handler(node, "v", NewEdgeCollector(func() *edge.Edge { return e }))})
	site := e.Middleware(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	ask := func(key, path, from string) {
		t.Helper()
		r := httptest.NewRequest("GET", path, nil)
		r.Header.Set("Key", key)
		r.RemoteAddr = from + ":4000"
		w := httptest.NewRecorder()
		if site.ServeHTTP(w, r); w.Code != 200 && w.Code != 429 {
			t.Fatalf("%q at %s: %d", key, path, w.Code)
		}
	}
	for i := range 10 {
		ask(fmt.Sprint("ordinary-", i), "/", "203.0.113.7")
	}
	before := scrape(t, h)
	for range 5 {
		for _, key := range []string{"\xff", "\xfe", "\xff\xfe", "a\"b{}\n"} {
			ask(key, "/%c0", "203.0.113.7")
		}
	}
	for i := range many() {
		ask(fmt.Sprint("many-", i), "/p", fmt.Sprintf("198.51.%d.%d", i>>8&255, i&255))
	}
	after := scrape(t, h)
	if b, a := slices.Sorted(maps.Keys(before)), slices.Sorted(maps.Keys(after)); !slices.Equal(b, a) {
		t.Errorf("%d series before, %d after:\n%v\n%v", len(b), len(a), b, a)
	}
	for series := range after {
		for _, value := range []string{"many-", "ordinary-", "198.51", "203.0.113", "%c0", "/p"} {
			if strings.Contains(series, value) {
				t.Errorf("%s of a request is in %s", value, series)
			}
		}
	}
	if n := after["jatah_edge_requests_total{result=admitted,rule=known}"] + after["jatah_edge_requests_total{result=refused,rule=known}"]; n != float64(many()+30) {
		t.Errorf("%v requests were decided, want %d", n, many()+30)
	}
}

package metrics

import (
	"maps"
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

package edge_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jatah-io/jatah"
	"github.com/jatah-io/jatah/httpapi/edge"
)

// report is the only one, once all is measured.
func report(t *testing.T, e *edge.Edge) edge.CandidateReport {
	t.Helper()
	synctest.Wait()
	all := e.Candidates()
	if len(all) != 1 {
		t.Fatalf("%d reports", len(all))
	}
	return all[0]
}

func TestACandidateIsMeasuredAndChangesNothing(t *testing.T) {
	for _, dry := range []bool{false, true} {
		limits := []jatah.Limit{{Name: "api", Rate: jatah.PerHour(100)}, {Name: "api-50", Rate: jatah.PerHour(50), DryRun: dry}}
		inBubble(t, limits, func(t *testing.T, node *jatah.Node) {
			e := mustNew(t, node, aUse(func(u *edge.Use) { u.Candidates = []string{"api-50"} }))
			passed := 0
			for range 120 {
				if decide(t, e, request("GET", "/", someone)).OK {
					passed++
				}
			}
			r := report(t, e)
			if passed != 100 || r != (edge.CandidateReport{Rule: "rule-1", Limit: "api", Candidate: "api-50", Requests: 120, Refused: 70, RefusedLive: 20}) {
				t.Errorf("%d passed; %+v", passed, r)
			}
			if got := r.String(); got != "rule rule-1: with api-50 58.3 % of 120 requests would have been refused; with api it is 16.7 %" {
				t.Errorf("it reads: %s", got)
			}
		})
	}
}

// A looser candidate says how many of those that are refused now would pass.
func TestALooserCandidate(t *testing.T) {
	limits := []jatah.Limit{{Name: "api", Rate: jatah.PerSecond(1)}, {Name: "api-9", Rate: jatah.PerHour(9)}}
	inBubble(t, limits, func(t *testing.T, node *jatah.Node) {
		cfg := aUse(func(u *edge.Use) { u.Candidates, u.Cost = []string{"api-9"}, edge.Query("cost").Per(1, edge.Bounds{}) })
		cfg.Rules[0].Pause = &edge.Pause{After: 3, Base: time.Minute}
		e := mustNew(t, node, cfg)
		for range 8 { // one passes, three are refused, four are in the pause
			decide(t, e, request("GET", "/", someone))
		}
		decide(t, e, request("GET", "/?cost=2", someone)) // in the pause too
		decide(t, e, request("GET", "/?cost=x", someone)) // what has no cost is not measured
		if r := report(t, e); r.Requests != 9 || r.Refused != 1 || r.RefusedLive != 8 || r.Missed != 0 {
			t.Errorf("%+v", r)
		}
	})
}

// What a request costs in the end, it costs the candidate too.
func TestACandidateIsSettled(t *testing.T) {
	limits := []jatah.Limit{{Name: "api", Rate: jatah.PerDay(20)}, {Name: "other", Rate: jatah.PerDay(10)}}
	inBubble(t, limits, func(t *testing.T, node *jatah.Node) {
		e := mustNew(t, node, aUse(func(u *edge.Use) {
			u.Candidates, u.Counts, u.After = []string{"other"}, edge.Failures(), []edge.After{edge.ResponseBytes(1)}
		}))
		one := func(o edge.Outcome) {
			v := e.Decide(t.Context(), e.RequestOf(request("GET", "/", someone)))
			v.Settle(t.Context(), o)
			synctest.Wait()
		}
		one(edge.Outcome{Status: 200})
		one(edge.Outcome{Status: 401})
		one(edge.Outcome{Status: 401, Bytes: 4})
		if got := left(t, node, "other", "203.0.113.7"); got != 4 {
			t.Errorf("%v tokens of the candidate are left, want 10-1-5", got)
		}
		one(edge.Outcome{Status: 200, Bytes: 12}) // into debt
		one(edge.Outcome{Status: 200, Bytes: 1})  // the candidate would have refused it, so it does not owe for it
		if got, live := left(t, node, "other", "203.0.113.7"), left(t, node, "api", "203.0.113.7"); got != -8 || live != 20-6-12-1 {
			t.Errorf("%v tokens of the candidate are left and %v of the limit", got, live)
		}
		if r := report(t, e); r.Requests != 5 || r.Refused != 1 || r.RefusedLive != 0 {
			t.Errorf("%+v", r)
		}
	})
}

func TestACandidateThatIsGoneIsMissed(t *testing.T) {
	limits := []jatah.Limit{{Name: "api", Rate: jatah.PerDay(20)}, {Name: "other", Rate: jatah.PerDay(10)}}
	inBubble(t, limits, func(t *testing.T, node *jatah.Node) {
		e := mustNew(t, node, aUse(func(u *edge.Use) { u.Candidates = []string{"other"} }))
		decide(t, e, request("GET", "/", someone))
		if r := report(t, e); r.Requests != 1 {
			t.Errorf("%+v", r)
		}
		if !node.RemoveLimit("other") {
			t.Fatal("it was not there")
		}
		if v := decide(t, e, request("GET", "/", someone)); !v.OK {
			t.Errorf("without its candidate: %+v", v)
		}
		if r := report(t, e); r.Requests != 1 || r.Missed != 1 || !strings.HasSuffix(r.String(), "(1 were not measured)") {
			t.Errorf("%+v", r)
		}
	})
}

func TestWrongCandidatesAreRefused(t *testing.T) {
	limits := []jatah.Limit{
		{Name: "api", Rate: jatah.PerDay(20)}, {Name: "other", Rate: jatah.PerDay(10)}, {Name: "open", Algorithm: jatah.Concurrency, Max: 5},
		{Name: "child", Rate: jatah.PerDay(10), Parent: "other"},
	}
	inBubble(t, limits, func(t *testing.T, node *jatah.Node) {
		for want, names := range map[string][]string{
			"not defined": {"none"}, "decides": {"api"}, "twice": {"other", "other"}, "in flight": {"open"}, "parent": {"child"},
		} {
			_, err := edge.New(node, aUse(func(u *edge.Use) { u.Candidates = names }))
			if !errors.Is(err, edge.ErrConfig) || !strings.Contains(err.Error(), want) {
				t.Errorf("%v: %v", names, err)
			}
		}
		_, err := edge.New(node, edge.Config{Rules: []edge.Rule{{Uses: []edge.Use{{Limit: "open", Key: []edge.Part{edge.Address()}, Candidates: []string{"other"}}}}}})
		if !errors.Is(err, edge.ErrConfig) {
			t.Errorf("beside a limit of permits: %v", err)
		}
	})
}

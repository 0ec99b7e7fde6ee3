package edge_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/jatah-io/jatah"
	"github.com/jatah-io/jatah/httpapi/edge"
)

func TestAKeyThatGoesOnIsPaused(t *testing.T) {
	limits := []jatah.Limit{{Name: "api", Rate: jatah.PerSecond(1)}, {Name: "all", Rate: jatah.PerHour(1000)}}
	inBubble(t, limits, func(t *testing.T, node *jatah.Node) {
		e := mustNew(t, node, edge.Config{Rules: []edge.Rule{
			{Name: "r", Pause: &edge.Pause{After: 3, Base: 10 * time.Second, Max: 30 * time.Second, Forget: time.Minute}, Uses: []edge.Use{
				{Limit: "api", Key: []edge.Part{edge.Address()}}, {Limit: "all", Key: []edge.Part{edge.Text("all")}},
			}},
		}})
		ask := func() *edge.Verdict { return decide(t, e, request("GET", "/", someone)) }
		for i := range 4 {
			if v := ask(); v.OK != (i == 0) || v.Paused != (i == 3) {
				t.Fatalf("request %d: OK %v, paused %v", i, v.OK, v.Paused)
			} else if v.Paused && v.RetryAfter != 10*time.Second {
				t.Errorf("the pause is told as %v", v.RetryAfter)
			}
		}
		time.Sleep(4 * time.Second)
		before := left(t, node, "all", "all")
		for range 20 {
			v := ask()
			if v.OK || !v.Paused || v.RetryAfter != 6*time.Second || len(v.Violated) != 1 || v.Violated[0] != "api" || v.Err != nil {
				t.Fatalf("in the pause: %+v", v)
			}
			if d := v.Takes[0].Decision; d.OK || d.RetryAfter != 6*time.Second || v.Takes[0].Limit().Name != "api" {
				t.Fatalf("in the pause the decision is %+v", d)
			}
		}
		if v := decide(t, e, request("GET", "/", "203.0.113.8:1")); !v.OK {
			t.Error("another address is paused too")
		}
		if got := left(t, node, "all", "all"); got != before-1 {
			t.Errorf("a pause takes: %v tokens were left, now %v", before, got)
		}
		if got := e.Penalties("", 10); len(got) != 1 || got[0].Key != "203.0.113.7" || got[0].Rule != "r" || got[0].Level != 1 || got[0].Until != time.Now().Add(6*time.Second).Round(0) {
			t.Errorf("the penalties are %+v", got)
		}
		time.Sleep(6 * time.Second) // 20 requests in it did not make it longer
		for i := range 4 {
			if v := ask(); v.OK != (i == 0) || i == 3 && v.RetryAfter != 20*time.Second {
				t.Fatalf("after the pause, request %d: %+v", i, v)
			}
		}
		if e.Lift("r", "203.0.113.8") || e.Lift("x", "203.0.113.7") || !e.Lift("r", "203.0.113.7") || e.Lift("r", "203.0.113.7") {
			t.Error("lifted what is not there, or did not lift what is")
		}
		time.Sleep(time.Second)
		if v := ask(); !v.OK || len(e.Penalties("", 0)) != 0 {
			t.Errorf("after it was lifted: %+v, %+v", v, e.Penalties("", 0))
		}
	})
}

// The limit may ask for a longer wait than the pause, or say that none helps.
func TestTheLongerWaitIsTold(t *testing.T) {
	limits := []jatah.Limit{{Name: "slow", Rate: jatah.PerHour(1)}, {Name: "never", Rate: jatah.PerHour(0)}}
	inBubble(t, limits, func(t *testing.T, node *jatah.Node) {
		for limit, want := range map[string]time.Duration{"slow": time.Hour, "never": jatah.Never} {
			e := mustNew(t, node, edge.Config{Rules: []edge.Rule{{
				Pause: &edge.Pause{After: 1, Base: time.Minute}, Uses: []edge.Use{{Limit: limit, Key: []edge.Part{edge.Address()}}},
			}}})
			if limit == "slow" {
				decide(t, e, request("GET", "/", someone))
			}
			if v := decide(t, e, request("GET", "/", someone)); v.OK || !v.Paused || v.RetryAfter != want {
				t.Errorf("%s: %+v", limit, v)
			}
			time.Sleep(20 * time.Second)
			// While it is paused nobody asks the limit: what it said holds, but that no wait helps holds for that request only.
			if want -= 20 * time.Second; limit == "never" {
				want = 40 * time.Second
			}
			if v := decide(t, e, request("GET", "/", someone)); v.OK || !v.Paused || v.RetryAfter != want {
				t.Errorf("%s, in the pause: %+v", limit, v)
			}
		}
	})
}

// Only refusals by the limit that the pause names count, and a request that nothing could decide is none.
func TestWhatMakesAPause(t *testing.T) {
	limits := []jatah.Limit{
		{Name: "mine", Rate: jatah.PerHour(2)}, {Name: "all", Rate: jatah.PerHour(1)}, {Name: "open", Algorithm: jatah.Concurrency, Max: 1},
		{Name: "dry", Rate: jatah.PerHour(1), DryRun: true},
	}
	inBubble(t, limits, func(t *testing.T, node *jatah.Node) {
		mine, all := edge.Use{Limit: "mine", Key: []edge.Part{edge.Address()}}, edge.Use{Limit: "all", Key: []edge.Part{edge.Text("all")}}
		open, dry := edge.Use{Limit: "open", Key: []edge.Part{edge.Address()}}, edge.Use{Limit: "dry", Key: []edge.Part{edge.Address()}}
		bad := mine
		bad.Cost = edge.Query("rows").Per(1, edge.Bounds{})
		rules := []edge.Rule{
			{Name: "other", Pause: &edge.Pause{After: 1}, Uses: []edge.Use{mine, all}},
			{Name: "that", Pause: &edge.Pause{After: 1, Limit: "all"}, Uses: []edge.Use{mine, all}},
			{Name: "open", Pause: &edge.Pause{After: 1}, Uses: []edge.Use{open}},
			{Name: "dry", Pause: &edge.Pause{After: 1}, Uses: []edge.Use{dry}},
			{Name: "bad", Pause: &edge.Pause{After: 1}, Uses: []edge.Use{bad}},
			{Name: "dry rule", Pause: &edge.Pause{After: 1}, DryRun: true, Uses: []edge.Use{all}},
		}
		for i := range rules {
			rules[i].When = []edge.Condition{edge.HeaderIs("Rule", rules[i].Name)}
		}
		e := mustNew(t, node, edge.Config{Rules: rules})
		ask := func(rule, query string) *edge.Verdict {
			return e.Decide(t.Context(), e.RequestOf(request("GET", "/"+query, someone, "Rule", rule)))
		}
		if v := ask("other", ""); !v.OK {
			t.Fatal("the first request is refused")
		}
		for range 3 {
			if v := ask("other", ""); v.OK || v.Paused || len(e.Penalties("other", 0)) > 0 {
				t.Errorf("refused by another limit: %+v", v)
			}
		}
		if v := ask("that", ""); v.OK || !v.Paused || e.Penalties("that", 0)[0].Key != "all" {
			t.Errorf("refused by that limit: %+v", v)
		}
		first := ask("open", "")
		if v := ask("open", ""); !first.OK || v.OK || !v.Paused {
			t.Errorf("refused by a limit of permits: %+v", v)
		}
		first.Settle(t.Context(), edge.Outcome{})
		if ask("dry", ""); !ask("dry", "").OK || len(e.Penalties("dry", 0)) > 0 {
			t.Error("a limit in dry run pauses")
		}
		for range 2 {
			if v := ask("bad", "?rows=x"); v.Paused || !errors.Is(v.Err, edge.ErrRequest) {
				t.Errorf("a bad request: %+v", v)
			}
		}
		for range 2 {
			if v := ask("dry rule", ""); !v.OK || !v.Paused || !v.WouldRefuse {
				t.Errorf("a rule in dry run: %+v", v)
			}
		}
	})
}

// What a paused client sees is a refusal like others.
func TestAPauseOverHTTP(t *testing.T) {
	inBubble(t, []jatah.Limit{{Name: "api", Rate: jatah.PerSecond(1)}}, func(t *testing.T, node *jatah.Node) {
		e := mustNew(t, node, edge.Config{Rules: []edge.Rule{{
			Pause: &edge.Pause{After: 1, Base: 40 * time.Second}, Uses: []edge.Use{{Limit: "api", Key: []edge.Part{edge.Address()}}},
		}}})
		served := e.Middleware(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		get := func() *httptest.ResponseRecorder {
			w := httptest.NewRecorder()
			served.ServeHTTP(w, request("GET", "/", someone))
			return w
		}
		get()
		get()
		time.Sleep(10 * time.Second)
		w := get()
		if h := w.Header(); w.Code != 429 || h.Get("Retry-After") != "30" || h.Get("RateLimit") != `"api";r=0;t=30` || !strings.Contains(w.Body.String(), `"violated":["api"],"retry_after_ms":30000`) {
			t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
		}
	})
}

func TestWrongPausesAreRefused(t *testing.T) {
	inBubble(t, []jatah.Limit{{Name: "api", Rate: jatah.PerSecond(1)}}, func(t *testing.T, node *jatah.Node) {
		uses := []edge.Use{{Limit: "api", Key: []edge.Part{edge.Address()}}}
		for want, p := range map[string]edge.Pause{
			"does not use":            {Limit: "other"},
			"below 0":                 {After: -1},
			"below 0: ":               {Forget: -1},
			"longer than the longest": {Base: time.Hour, Max: time.Minute},
			"1 or more":               {Factor: 0.5},
		} {
			_, err := edge.New(node, edge.Config{Rules: []edge.Rule{{Uses: uses, Pause: &p}}})
			if !errors.Is(err, edge.ErrConfig) || !strings.Contains(err.Error(), strings.TrimSuffix(want, ": ")) {
				t.Errorf("%+v: %v", p, err)
			}
		}
		if _, err := edge.New(node, edge.Config{Rules: []edge.Rule{{Pause: &edge.Pause{}}}}); !errors.Is(err, edge.ErrConfig) {
			t.Errorf("a rule that exempts: %v", err)
		}
	})
}

// Nobody gets out by a reload.
func TestPausesGoOnInTheNextEdge(t *testing.T) {
	inBubble(t, []jatah.Limit{{Name: "api", Rate: jatah.PerSecond(1)}}, func(t *testing.T, node *jatah.Node) {
		cfg := aUse(func(*edge.Use) {})
		cfg.Rules[0].Pause = &edge.Pause{After: 1, Base: time.Minute}
		old := mustNew(t, node, cfg)
		decide(t, old, request("GET", "/", someone))
		decide(t, old, request("GET", "/", someone))
		time.Sleep(20 * time.Second)
		cfg.Before = old
		cfg.Rules[0].Pause = &edge.Pause{After: 1, Base: time.Second, Max: time.Second}
		e := mustNew(t, node, cfg)
		if v := decide(t, e, request("GET", "/", someone)); v.OK || v.RetryAfter != 40*time.Second {
			t.Errorf("after a reload: %+v", v)
		}
		time.Sleep(40 * time.Second)
		decide(t, e, request("GET", "/", someone))
		if v := decide(t, e, request("GET", "/", someone)); v.OK || v.RetryAfter != time.Second {
			t.Errorf("a pause by the new rule: %+v", v)
		}
	})
}

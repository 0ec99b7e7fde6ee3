package edge_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jatah-io/jatah"
	"github.com/jatah-io/jatah/httpapi/edge"
)

func quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

// inBubble runs f in virtual time with a node that is alone and has these limits.
func inBubble(t *testing.T, limits []jatah.Limit, f func(t *testing.T, node *jatah.Node)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		node, err := jatah.Start(t.Context(), jatah.Config{Logger: quiet()})
		if err != nil {
			t.Fatal(err)
		}
		defer node.Close()
		for _, l := range limits {
			if _, err := node.Limit(l); err != nil {
				t.Fatal(err)
			}
		}
		f(t, node)
	})
}

func mustNew(t *testing.T, node *jatah.Node, cfg edge.Config) *edge.Edge {
	t.Helper()
	if cfg.Logger == nil {
		cfg.Logger = quiet()
	}
	e, err := edge.New(node, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// request makes a request from an address; headers are pairs of name and value.
func request(method, target, from string, headers ...string) *http.Request {
	r := httptest.NewRequest(method, target, nil)
	r.RemoteAddr = from
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	return r
}

// decide decides and settles at once.
func decide(t *testing.T, e *edge.Edge, r *http.Request) *edge.Verdict {
	t.Helper()
	v := e.Decide(t.Context(), e.RequestOf(r))
	if v.OK {
		v.Settle(t.Context(), edge.Outcome{Status: 200})
	}
	return v
}

const someone = "203.0.113.7:4711"

// byHeader trusts a header, as a test may.
func byHeader(q *edge.Request) string { return q.Header.Get("Test-Account") }

func TestTheFirstRuleThatIsForARequestDecides(t *testing.T) {
	limits := []jatah.Limit{
		{Name: "login", Rate: jatah.PerMinute(5)},
		{Name: "account", Rate: jatah.PerMinute(5)},
		{Name: "anonymous", Rate: jatah.PerMinute(5)},
	}
	inBubble(t, limits, func(t *testing.T, node *jatah.Node) {
		e := mustNew(t, node, edge.Config{Account: byHeader, Rules: []edge.Rule{
			{Name: "health", When: []edge.Condition{edge.Path("/healthz")}},
			{Name: "login", When: []edge.Condition{edge.Method("POST"), edge.Path("/login")}, Uses: []edge.Use{{Limit: "login", Key: []edge.Part{edge.Address()}}}},
			{Name: "key", Uses: []edge.Use{{Limit: "account", Key: []edge.Part{edge.Header("X-Api-Key")}}}}, // for who has one
			{Uses: []edge.Use{{Limit: "account", Key: []edge.Part{edge.Account()}}}},
			{Uses: []edge.Use{{Limit: "anonymous", Key: []edge.Part{edge.Address()}}}, When: []edge.Condition{edge.Anonymous(), edge.Not(edge.Path("/open/*"))}},
		}})
		for _, c := range []struct {
			r         *http.Request
			rule, key string
		}{
			{request("GET", "/healthz", someone), "health", ""},
			{request("POST", "/login", someone, "Test-Account", "bob"), "login", "203.0.113.7"},
			{request("GET", "/login", someone, "Test-Account", "bob"), "rule-4", "bob"},
			{request("GET", "/", someone, "Test-Account", "bob", "X-Api-Key", "k1"), "key", "k1"},
			{request("GET", "/", someone), "rule-5", "203.0.113.7"},
			{request("GET", "/", "[2001:db8:1:2:3::4]:80"), "rule-5", "2001:db8:1:2::/64"},
			{request("GET", "/open/x", someone), "", ""},
		} {
			v := decide(t, e, c.r)
			key := ""
			if len(v.Takes) > 0 {
				key = v.Takes[0].Key
			}
			if !v.OK || v.Rule != c.rule || key != c.key {
				t.Errorf("%s %s: OK %v by rule %q with key %q, want rule %q with key %q", c.r.Method, c.r.URL, v.OK, v.Rule, key, c.rule, c.key)
			}
		}
		if s := e.Stats(); s[4].Admitted != 2 || s[0].Admitted != 1 || s[4].Refused != 0 {
			t.Errorf("the counters are %+v", s)
		}
	})
}

// An office of 35 people has one address and one paid account at 8 % of its quota. Whoever is known does not count against the address.
func TestAnOfficeBehindOneAddressIsCountedByItsAccount(t *testing.T) {
	limits := []jatah.Limit{
		{Name: "address", Rate: jatah.PerMinute(60), Burst: 20},
		{Name: "account", Rate: jatah.PerMinute(10_000), Burst: 10_000},
	}
	inBubble(t, limits, func(t *testing.T, node *jatah.Node) {
		e := mustNew(t, node, edge.Config{Account: byHeader, Rules: []edge.Rule{
			{Name: "known", When: []edge.Condition{edge.Authenticated()}, Uses: []edge.Use{{Limit: "account", Key: []edge.Part{edge.Account()}}}},
			{Name: "unknown", Uses: []edge.Use{{Limit: "address", Key: []edge.Part{edge.Address()}}}},
		}})
		refused := 0
		for range 200 { // somebody in the office who is not signed in uses up what the address has
			if !decide(t, e, request("GET", "/", someone)).OK {
				refused++
			}
		}
		if refused != 180 {
			t.Errorf("%d of 200 anonymous requests were refused, want 180", refused)
		}
		for range 800 { // 8 % of the quota
			if v := decide(t, e, request("GET", "/", someone, "Test-Account", "office")); !v.OK {
				t.Fatalf("the account was refused by %v", v.Violated)
			}
		}
	})
}

func TestAllUsesOfARuleAreChargedOrNone(t *testing.T) {
	limits := []jatah.Limit{
		{Name: "coarse", Rate: jatah.PerMinute(100)},
		{Name: "fine", Rate: jatah.PerMinute(3)},
	}
	inBubble(t, limits, func(t *testing.T, node *jatah.Node) {
		e := mustNew(t, node, edge.Config{Account: byHeader, Rules: []edge.Rule{{
			Uses: []edge.Use{{Limit: "coarse", Key: []edge.Part{edge.Address()}}, {Limit: "fine", Key: []edge.Part{edge.Account(), edge.Text("x")}}},
		}}})
		var last *edge.Verdict
		for i := range 10 {
			last = decide(t, e, request("GET", "/", someone, "Test-Account", "bob"))
			if last.OK != (i < 3) {
				t.Fatalf("request %d: OK %v", i, last.OK)
			}
		}
		if len(last.Violated) != 1 || last.Violated[0] != "fine" || last.RetryAfter != 20*time.Second {
			t.Errorf("refused by %v for %v, want fine for 20s", last.Violated, last.RetryAfter)
		}
		coarse, _ := node.Lookup("coarse")
		if st, err := coarse.Peek(t.Context(), "203.0.113.7"); err != nil || st.Remaining != 97 {
			t.Errorf("coarse has %d left (%v), want 97: the refused must not have paid", st.Remaining, err)
		}
	})
}

func TestDryRunRefusesNothing(t *testing.T) {
	limits := []jatah.Limit{{Name: "api", Rate: jatah.PerMinute(3)}, {Name: "flight", Algorithm: jatah.Concurrency, Max: 1}}
	inBubble(t, limits, func(t *testing.T, node *jatah.Node) {
		e := mustNew(t, node, edge.Config{Rules: []edge.Rule{{DryRun: true,
			Uses: []edge.Use{{Limit: "flight", Key: []edge.Part{edge.Text("all")}}, {Limit: "api", Key: []edge.Part{edge.Address()}}}}}})
		would := 0
		for range 10 {
			v := decide(t, e, request("GET", "/", someone))
			if !v.OK {
				t.Fatal("refused in dry run")
			}
			if v.WouldRefuse {
				would++
			}
		}
		if s := e.Stats()[0]; would != 7 || s.WouldRefuse != 7 || s.Admitted != 10 || s.Refused != 0 {
			t.Errorf("%d would have been refused, counters %+v, want 7", would, s)
		}
		if n := held(t, node, "flight", "all"); n != 0 {
			t.Errorf("%d permits are held", n)
		}
	})
}

// held is how many permits of a key are held.
func held(t *testing.T, node *jatah.Node, limit, key string) int64 {
	t.Helper()
	l, _ := node.Lookup(limit)
	st, err := l.Peek(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	return st.Held
}

func TestWhatCannotBeDecided(t *testing.T) {
	limits := []jatah.Limit{{Name: "api", Rate: jatah.PerMinute(3)}}
	rules := []edge.Rule{{Uses: []edge.Use{{Limit: "api", Key: []edge.Part{edge.Address()}}}}}
	inBubble(t, limits, func(t *testing.T, node *jatah.Node) {
		closed := mustNew(t, node, edge.Config{Rules: rules})
		open := mustNew(t, node, edge.Config{Rules: rules, FailOpen: true})
		node.RemoveLimit("api")
		if v := decide(t, closed, request("GET", "/", someone)); v.OK || !errors.Is(v.Err, jatah.ErrUnknownLimit) {
			t.Errorf("OK %v, %v", v.OK, v.Err)
		}
		if v := decide(t, open, request("GET", "/", someone)); !v.OK || !errors.Is(v.Err, jatah.ErrUnknownLimit) {
			t.Errorf("fail open: OK %v, %v", v.OK, v.Err)
		}
		if _, err := node.Limit(limits[0]); err != nil {
			t.Fatal(err)
		}
		if v := decide(t, closed, request("GET", "/", someone)); !v.OK || v.Err != nil {
			t.Errorf("after the limit came back: OK %v, %v", v.OK, v.Err)
		}
		if s := closed.Stats()[0]; s.Undecided != 1 || s.Admitted != 1 || s.Refused != 0 {
			t.Errorf("counters %+v", s)
		}
	})
}

func TestACostThatCannotBeReadIsABadRequest(t *testing.T) {
	limits := []jatah.Limit{{Name: "api", Rate: jatah.PerMinute(3)}}
	inBubble(t, limits, func(t *testing.T, node *jatah.Node) {
		for _, cost := range []edge.Cost{
			func(*edge.Request) (int64, error) { return 0, edge.ErrRequest },
			func(*edge.Request) (int64, error) { return -1, nil },
		} {
			e := mustNew(t, node, edge.Config{FailOpen: true, Rules: []edge.Rule{{Uses: []edge.Use{{Limit: "api", Key: []edge.Part{edge.Address()}, Cost: cost}}}}})
			if v := decide(t, e, request("GET", "/", someone)); v.OK || !errors.Is(v.Err, edge.ErrRequest) || e.Stats()[0].BadRequests != 1 {
				t.Errorf("OK %v, %v", v.OK, v.Err)
			}
		}
	})
}

func TestPlansAndCostsOfPaths(t *testing.T) {
	limits := []jatah.Limit{{Name: "api", Rate: jatah.PerMinute(10), Costs: map[string]int64{"/export": 10},
		Plans: map[string]jatah.Plan{"gold": {Rate: jatah.PerMinute(1000)}}}}
	inBubble(t, limits, func(t *testing.T, node *jatah.Node) {
		plan := func(q *edge.Request) string { return q.Header.Get("Plan") }
		e := mustNew(t, node, edge.Config{Account: byHeader, Rules: []edge.Rule{{Uses: []edge.Use{{Limit: "api", Key: []edge.Part{edge.Account()}, Plan: plan}}}}})
		for _, c := range []struct {
			account, plan string
			remaining     int64
		}{{"a", "", 0}, {"b", "gold", 990}, {"c", "unheard-of", 0}} {
			v := decide(t, e, request("GET", "/export", someone, "Test-Account", c.account, "Plan", c.plan))
			if !v.OK || v.Takes[0].Cost != 10 || v.Takes[0].Decision.Remaining != c.remaining {
				t.Errorf("%+v: OK %v, cost %d, %d left", c, v.OK, v.Takes[0].Cost, v.Takes[0].Decision.Remaining)
			}
		}
	})
}

func TestKeysAreBounded(t *testing.T) {
	limits := []jatah.Limit{{Name: "api", Rate: jatah.PerMinute(1)}}
	inBubble(t, limits, func(t *testing.T, node *jatah.Node) {
		e := mustNew(t, node, edge.Config{Rules: []edge.Rule{{Uses: []edge.Use{{Limit: "api", Key: []edge.Part{edge.Header("Key")}}}}}})
		long := strings.Repeat("x", 5000)
		first := decide(t, e, request("GET", "/", someone, "Key", long))
		again := decide(t, e, request("GET", "/", someone, "Key", long))
		other := decide(t, e, request("GET", "/", someone, "Key", long+"y"))
		if !first.OK || again.OK || !other.OK {
			t.Errorf("a long key: %v (%v), again %v, another %v; want true, false, true", first.OK, first.Err, again.OK, other.OK)
		}
	})
}

func TestWrongRulesAreRefused(t *testing.T) {
	limits := []jatah.Limit{{Name: "api", Rate: jatah.PerMinute(1)}, {Name: "flight", Algorithm: jatah.Concurrency, Max: 1}}
	key := []edge.Part{edge.Address()}
	inBubble(t, limits, func(t *testing.T, node *jatah.Node) {
		for _, c := range []struct {
			want  string
			rules []edge.Rule
		}{
			{`the limit "nope", which is not defined`, []edge.Rule{{Uses: []edge.Use{{Limit: "nope", Key: key}}}}},
			{`no key for the limit "api"`, []edge.Rule{{Uses: []edge.Use{{Limit: "api"}}}}},
			{`two rules are named "a"`, []edge.Rule{{Name: "a"}, {Name: "a"}}},
			{`in flight: remove it`, []edge.Rule{{Uses: []edge.Use{{Limit: "flight", Key: key, Cost: edge.Fixed(1)}}}}},
			{`"flight" twice`, []edge.Rule{{Uses: []edge.Use{{Limit: "flight", Key: key}, {Limit: "flight", Key: key}}}}},
		} {
			_, err := edge.New(node, edge.Config{Rules: c.rules})
			if !errors.Is(err, edge.ErrConfig) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want ... %s", err, c.want)
			}
		}
	})
}

// The account of a header is believed of nobody while no proxy is trusted.
func TestAnAccountInAHeaderIsBelievedOfATrustedProxyOnly(t *testing.T) {
	limits := []jatah.Limit{{Name: "api", Rate: jatah.PerMinute(1)}}
	inBubble(t, limits, func(t *testing.T, node *jatah.Node) {
		for _, c := range []struct{ from, want string }{{"10.0.0.5:80", "bob"}, {someone, ""}} {
			e := mustNew(t, node, edge.Config{Account: edge.AccountFromHeader("X-User"), Client: trusting(t, "10.0.0.0/8")})
			if q := e.RequestOf(request("GET", "/", c.from, "X-User", "bob")); q.Account != c.want {
				t.Errorf("from %s the account is %q, want %q", c.from, q.Account, c.want)
			}
		}
	})
}

func TestAnAccountInTheContext(t *testing.T) {
	type user struct{}
	inBubble(t, nil, func(t *testing.T, node *jatah.Node) {
		e := mustNew(t, node, edge.Config{Account: edge.AccountFromContext(user{})})
		r := request("GET", "/", someone)
		if q := e.RequestOf(r.WithContext(context.WithValue(t.Context(), user{}, "bob"))); q.Account != "bob" {
			t.Errorf("the account is %q, want bob", q.Account)
		}
		if q := e.RequestOf(r); q.Account != "" {
			t.Errorf("the account is %q, want none", q.Account)
		}
	})
}

func TestCountingTheKnownByTheirAddressIsWarnedOfOnce(t *testing.T) {
	limits := []jatah.Limit{{Name: "api", Rate: jatah.PerMinute(100)}}
	inBubble(t, limits, func(t *testing.T, node *jatah.Node) {
		var log bytes.Buffer
		use := func(parts ...edge.Part) []edge.Use { return []edge.Use{{Limit: "api", Key: parts}} }
		e := mustNew(t, node, edge.Config{Account: byHeader, Logger: slog.New(slog.NewTextHandler(&log, nil)), Client: trusting(t, "192.0.2.1"), Rules: []edge.Rule{
			{Name: "both", When: []edge.Condition{edge.Path("/both")}, Uses: use(edge.Address(), edge.Account())},
			{Name: "all", Uses: use(edge.Address())},
		}})
		decide(t, e, request("GET", "/", someone))
		decide(t, e, request("GET", "/both", someone, "Test-Account", "bob"))
		if log.Len() > 0 {
			t.Errorf("a warning without reason: %s", &log)
		}
		for range 3 {
			decide(t, e, request("GET", "/", someone, "Test-Account", "bob"))
		}
		if got := log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "rule=all") {
			t.Errorf("the log is %q, want one line about the rule all", got)
		}
	})
}

func TestRefusalsAreLoggedAtMostOnceASecond(t *testing.T) {
	limits := []jatah.Limit{{Name: "api", Rate: jatah.PerHour(3)}}
	inBubble(t, limits, func(t *testing.T, node *jatah.Node) {
		var log bytes.Buffer
		e := mustNew(t, node, edge.Config{LogRefusals: true, Logger: slog.New(slog.NewTextHandler(&log, nil)), Client: trusting(t, "192.0.2.1"),
			Rules: []edge.Rule{{Uses: []edge.Use{{Limit: "api", Key: []edge.Part{edge.Header("Key")}}}}}})
		for range 1000 {
			decide(t, e, request("GET", "/", someone, "Key", "a\x1b[31mb"))
		}
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if got := log.String(); strings.Count(got, "\n") != 2 || strings.Count(got, "msg=refused") != 2 || strings.Contains(got, "\x1b") {
			t.Errorf("the log is %q, want a line for the first and one for the others, with the key quoted", got)
		}
	})
}

// A part that says it is there, and is empty, must not be a way around its rule.
func TestAnEmptyPartIsAKey(t *testing.T) {
	limits := []jatah.Limit{{Name: "api", Rate: jatah.PerHour(1)}}
	empty := func(*edge.Request) (string, bool) { return "", true }
	inBubble(t, limits, func(t *testing.T, node *jatah.Node) {
		for name, key := range map[string][]edge.Part{"one": {empty}, "two": {empty, empty}} {
			e := mustNew(t, node, edge.Config{Rules: []edge.Rule{{Uses: []edge.Use{{Limit: "api", Key: key}}}}})
			first, second := decide(t, e, request("GET", "/", someone)), decide(t, e, request("GET", "/", someone))
			if !first.OK || first.Rule == "" || second.OK {
				t.Errorf("%s: %v by %q, then %v; want one of two to pass", name, first.OK, first.Rule, second.OK)
			}
		}
	})
}

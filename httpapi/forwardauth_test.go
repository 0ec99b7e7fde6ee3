package httpapi

import (
	"bytes"
	"errors"
	"log/slog"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jatah-io/jatah"
	"github.com/jatah-io/jatah/httpapi/clientip"
	"github.com/jatah-io/jatah/httpapi/edge"
)

// perHour gives next to nothing back while a test runs.
func perHour(name string, burst int64) jatah.Limit {
	return jatah.Limit{Name: name, Rate: jatah.Per(1, time.Hour), Burst: burst}
}

// waits says whether an answer tells to wait, for a while that is true of perHour.
func waits(w *httptest.ResponseRecorder) bool {
	seconds, err := strconv.Atoi(w.Header().Get("Retry-After"))
	return err == nil && seconds > 0 && seconds <= 3600
}

// gateAPI answers forward auth of the proxy that httptest's requests come from, by rules for known and other visitors.
func gateAPI(t *testing.T, cfg Config, rules ...edge.Rule) *api {
	t.Helper()
	a := newAPI(t, cfg, perHour("api", 2), perHour("address", 3),
		jatah.Limit{Name: "jobs", Algorithm: jatah.Concurrency, Max: 1},
		jatah.Limit{Name: "mail", Rate: jatah.PerSecond(1), Algorithm: jatah.LeakyBucket, Queue: 3})
	a.setEdge(rules...)
	return a
}

func (a *api) newEdge(rules ...edge.Rule) *edge.Edge {
	a.t.Helper()
	proxies, err := clientip.ParseProxies([]string{"192.0.2.1"})
	if err != nil {
		a.t.Fatal(err)
	}
	client, err := clientip.New(clientip.Config{TrustedProxies: proxies, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		a.t.Fatal(err)
	}
	e, err := edge.New(a.node, edge.Config{Rules: rules, Client: client, Account: edge.AccountFromHeader("X-User"), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		a.t.Fatal(err)
	}
	return e
}

func (a *api) setEdge(rules ...edge.Rule) {
	a.t.Helper()
	if err := a.h.SetEdge(a.newEdge(rules...)); err != nil {
		a.t.Fatal(err)
	}
}

// ask asks as Caddy and Traefik do about a request of a client.
func (a *api) ask(target, client string, head ...string) *httptest.ResponseRecorder {
	a.t.Helper()
	return a.call("GET", "/v1/forward-auth", "", append([]string{
		"X-Forwarded-Method", "GET", "X-Forwarded-Uri", target, "X-Forwarded-For", client}, head...)...)
}

var (
	known     = edge.Rule{Name: "known", When: []edge.Condition{edge.Authenticated()}, Uses: []edge.Use{{Limit: "api", Key: []edge.Part{edge.Account()}}}}
	byAddress = edge.Rule{Name: "address", Uses: []edge.Use{{Limit: "address", Key: []edge.Part{edge.Address()}}}}
	health    = edge.Rule{Name: "health", When: []edge.Condition{edge.Path("/health"), edge.Method("GET")}}
)

func TestForwardAuthAdmitsUpToTheLimitOfEachClient(t *testing.T) {
	a := gateAPI(t, Config{}, health, known, byAddress)
	for _, client := range []string{"203.0.113.1", "203.0.113.2", "2001:db8::1"} {
		for i := range 3 {
			w := a.ask("/x", client)
			if w.Code != 200 || w.Body.Len() != 0 || w.Header().Get("Cache-Control") != "no-store" {
				t.Fatalf("%s, request %d: %d %v %s", client, i, w.Code, w.Header(), w.Body)
			}
			if got, want := w.Header().Get("RateLimit"), `"address";r=`+strconv.Itoa(2-i); !strings.HasPrefix(got, want) {
				t.Errorf("%s, request %d: RateLimit %s, want %s", client, i, got, want)
			}
		}
		w := a.ask("/x", client)
		if head := w.Header(); w.Code != 429 || !waits(w) || head.Get("Cache-Control") != "no-store" ||
			!strings.HasPrefix(head.Get("RateLimit"), `"address";r=0`) || head.Get("RateLimit-Policy") == "" ||
			head.Get("Content-Type") != "application/problem+json" || !strings.Contains(w.Body.String(), `"violated":["address"]`) {
			t.Errorf("%s: %d %v %s", client, w.Code, head, w.Body)
		}
	}
	// Somebody in the network of an IPv6 client shares its key. What a client has put before its own address changes nothing.
	for _, client := range []string{"2001:db8::2", "198.51.100.7, 203.0.113.1"} {
		if w := a.ask("/x", client); w.Code != 429 {
			t.Errorf("%s: %d", client, w.Code)
		}
	}
	for range 9 {
		if w := a.ask("/health?a=b", "203.0.113.1"); w.Code != 200 || w.Header().Get("RateLimit") != "" {
			t.Fatalf("exempt: %d %v", w.Code, w.Header())
		}
	}
}

func TestForwardAuthIsAboutTheRequestOfTheClient(t *testing.T) {
	one := func(c ...edge.Condition) edge.Rule {
		return edge.Rule{Name: "one", When: c, Uses: []edge.Use{{Limit: "api", Key: []edge.Part{edge.Text("all")}, Cost: edge.Fixed(3)}}} // never passes
	}
	for _, test := range []struct {
		name string
		rule edge.Rule
		head []string
		want int
	}{
		{"path", one(edge.Path("/export/*")), []string{"X-Forwarded-Method", "GET", "X-Forwarded-Uri", "/export/1?x=y"}, 429},
		{"another path", one(edge.Path("/export/*")), []string{"X-Forwarded-Method", "GET", "X-Forwarded-Uri", "/exports"}, 200},
		{"a path that is escaped", one(edge.Path("/export/*")), []string{"X-Forwarded-Method", "GET", "X-Forwarded-Uri", "/%65xport/1"}, 429},
		{"method", one(edge.Method("POST")), []string{"X-Forwarded-Method", "POST", "X-Forwarded-Uri", "/"}, 429},
		{"another method", one(edge.Method("POST")), []string{"X-Forwarded-Method", "GET", "X-Forwarded-Uri", "/"}, 200},
		{"a header", one(edge.HasHeader("X-Api-Key")), []string{"X-Forwarded-Method", "GET", "X-Forwarded-Uri", "/", "X-Api-Key", "k"}, 429},
		{"a cookie", one(edge.HasCookie("sid")), []string{"X-Forwarded-Method", "GET", "X-Forwarded-Uri", "/", "Cookie", "a=b; sid=c"}, 429},
		{"nginx's names", one(edge.Path("/export/*"), edge.Method("POST")), []string{"X-Original-Method", "POST", "X-Original-URI", "/export/1"}, 429},
		{"the names of its ingress", one(edge.Path("/export/*")), []string{"X-Original-Method", "POST", "X-Original-URL", "https://shop.example/export/1"}, 429},
		{"all names, of one opinion", one(edge.Path("/a")),
			[]string{"X-Forwarded-Method", "GET", "X-Original-Method", "GET", "X-Forwarded-Uri", "/a", "X-Original-URI", "/a"}, 429},
	} {
		a := gateAPI(t, Config{}, test.rule)
		for _, method := range []string{"GET", "HEAD", "POST"} {
			if w := a.call(method, "/v1/forward-auth", "", test.head...); w.Code != test.want {
				t.Errorf("%s, asked by %s: %d, want %d: %s", test.name, method, w.Code, test.want, w.Body)
			}
		}
	}
}

func TestAQuestionThatIsNotClearIsNotAnswered(t *testing.T) {
	a := gateAPI(t, Config{}, byAddress)
	for _, test := range []struct {
		name, field, sentence string
		head                  []string
	}{
		{"no path", "X-Forwarded-Uri", "is missing: let the proxy say which request", []string{"X-Forwarded-Method", "GET"}},
		{"no method", "X-Forwarded-Method", "is missing", []string{"X-Forwarded-Uri", "/"}},
		{"two paths", "X-Original-Uri", `X-Forwarded-Uri says "/planted" and X-Original-Uri says "/true": let the proxy set one and remove the other.`,
			[]string{"X-Forwarded-Method", "GET", "X-Forwarded-Uri", "/planted", "X-Original-Uri", "/true"}},
		{"two lines", "X-Forwarded-Method", `X-Forwarded-Method says "GET" and X-Forwarded-Method says "POST"`,
			[]string{"X-Forwarded-Method", "GET", "X-Forwarded-Method", "POST", "X-Forwarded-Uri", "/"}},
		{"no path with a query", "X-Forwarded-Uri", `X-Forwarded-Uri is "%zz", which is no path`, []string{"X-Forwarded-Method", "GET", "X-Forwarded-Uri", "%zz"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			wantProblem(t, a.call("GET", "/v1/forward-auth", "", test.head...), 400, "bad-question", test.field, test.sentence)
		})
	}
	if left := a.remaining("address", "192.0.2.1"); left != 3 {
		t.Errorf("%d of 3 left: a question that was not answered has cost something", left)
	}
}

func TestNobodyButATrustedProxyIsBelieved(t *testing.T) {
	var log bytes.Buffer
	a := gateAPI(t, Config{Logger: slog.New(slog.NewTextHandler(&log, nil))}, byAddress)
	for range 3 {
		r := httptest.NewRequestWithContext(t.Context(), "GET", "/v1/forward-auth", nil)
		r.RemoteAddr = "192.0.2.2:4000"
		r.Header.Set("X-Forwarded-Method", "GET")
		r.Header.Set("X-Forwarded-Uri", "/")
		r.Header.Set("X-Forwarded-For", "203.0.113.1")
		w := httptest.NewRecorder()
		a.h.ServeHTTP(w, r)
		wantProblem(t, w, 400, "untrusted-proxy", "", "add the address of the proxy, which is in the log of this node, to trusted_proxies")
	}
	if got := strings.Count(log.String(), "192.0.2.2:4000"); got != 1 {
		t.Errorf("the peer is logged %d times: %s", got, &log)
	}
	for _, key := range []string{"203.0.113.1", "192.0.2.2"} {
		if left := a.remaining("address", key); left != 3 {
			t.Errorf("%d of 3 left of %s", left, key)
		}
	}
}

func TestADenialHasTheStatusThatTheProxyUnderstands(t *testing.T) {
	a := gateAPI(t, Config{}, byAddress)
	for want, query := range map[int]string{429: "", 403: "?deny_status=403", 401: "?deny_status=401&a=b;c", 400: "?deny_status=500"} {
		var w *httptest.ResponseRecorder
		for range 4 {
			w = a.call("GET", "/v1/forward-auth"+query, "", "X-Forwarded-Method", "GET", "X-Forwarded-Uri", "/", "X-Forwarded-For", "203.0.113."+strconv.Itoa(want%256))
		}
		if w.Code != want || want != 400 && !waits(w) {
			t.Errorf("%q: %d %v", query, w.Code, w.Header())
		}
	}
}

// Some proxies leave the client's query in their question.
func TestAClientDoesNotChooseTheRuleByItsQuery(t *testing.T) {
	a := gateAPI(t, Config{}, health, known, byAddress)
	var w *httptest.ResponseRecorder
	for range 4 {
		w = a.call("GET", "/v1/forward-auth?rule=health&rules=health&a=b", "", "X-Forwarded-Method", "GET", "X-Forwarded-Uri", "/x", "X-Forwarded-For", "203.0.113.1")
	}
	if w.Code != 429 {
		t.Errorf("%d", w.Code)
	}
}

func TestAPathNamesTheRulesToChooseFrom(t *testing.T) {
	a := gateAPI(t, Config{}, health, known, byAddress)
	ask := func(rules, user string) *httptest.ResponseRecorder {
		return a.call("GET", "/v1/forward-auth/"+rules, "", "X-Forwarded-Method", "GET", "X-Forwarded-Uri", "/health", "X-Forwarded-For", "203.0.113.1", "X-User", user)
	}
	for _, test := range []struct{ rules, user, want string }{
		{"address", "", `"address";r=2`}, {"address", "u1", `"address";r=1`}, {"address,known", "u1", `"api";r=1`}, {"known", "", ""}, {"", "u1", ""},
	} {
		if w := ask(test.rules, test.user); w.Code != 200 || !strings.HasPrefix(w.Header().Get("RateLimit"), test.want) || (test.want == "") != (w.Header().Get("RateLimit") == "") {
			t.Errorf("%+v: %d %v", test, w.Code, w.Header())
		}
	}
	wantProblem(t, ask("addres", ""), 404, "unknown-rule", "", `There is no rule "addres"; there are health, known, address.`)
}

func TestRulesThatNeedTheEndOfARequestAreRefused(t *testing.T) {
	a := gateAPI(t, Config{}, byAddress)
	key := []edge.Part{edge.Address()}
	for name, test := range map[string]struct {
		use  edge.Use
		want string
	}{
		"permits": {edge.Use{Limit: "jobs", Key: key}, "counts requests in flight"},
		"counts":  {edge.Use{Limit: "api", Key: key, Counts: func(status int) bool { return status >= 400 }}, "charges for the limit"},
		"after":   {edge.Use{Limit: "api", Key: key, After: []edge.After{func(*edge.Request, edge.Outcome) int64 { return 1 }}}, "charges for the limit"},
		"queue":   {edge.Use{Limit: "mail", Key: key}, "has a queue"},
	} {
		err := a.h.SetEdge(a.newEdge(edge.Rule{Name: "r", Uses: []edge.Use{test.use}}))
		if !errors.Is(err, edge.ErrConfig) || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), `rule "r"`) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if w := a.ask("/", "203.0.113.1"); w.Code != 200 || w.Header().Get("RateLimit") == "" {
		t.Errorf("the edge from before does not decide any more: %d %v", w.Code, w.Header())
	}
}

func TestAnotherEdgeDecidesAtOnceAndWhatWasUsedStays(t *testing.T) {
	a := newAPI(t, Config{}, perHour("address", 3))
	wantProblem(t, a.ask("/", "203.0.113.1"), 404, "unknown-path", "", "in the section edge")
	a.setEdge(byAddress)
	for range 3 {
		a.ask("/", "203.0.113.1")
	}
	again := byAddress
	again.Name = "again"
	a.setEdge(health, again)
	if w := a.ask("/", "203.0.113.1"); w.Code != 429 {
		t.Errorf("what was used is forgotten: %d", w.Code)
	}
	if w := a.ask("/health", "203.0.113.1"); w.Code != 200 {
		t.Errorf("the new rule does not hold: %d", w.Code)
	}
	if err := a.h.SetEdge(nil); err != nil {
		t.Fatal(err)
	}
	wantProblem(t, a.ask("/", "203.0.113.1"), 404, "unknown-path", "", "in the section edge")
}

func TestWhatCannotBeDecidedIsNoDenial(t *testing.T) {
	a := gateAPI(t, Config{}, byAddress)
	a.node.Close()
	w := a.call("GET", "/v1/forward-auth?deny_status=403", "", "X-Forwarded-Method", "GET", "X-Forwarded-Uri", "/", "X-Forwarded-For", "203.0.113.1")
	if w.Code != 503 || w.Header().Get("Retry-After") == "" {
		t.Errorf("%d %v", w.Code, w.Header())
	}
}

func TestAnOccasionComesOnceAMinute(t *testing.T) {
	var o occasion
	start := time.Unix(1000, 0)
	for _, step := range []struct {
		after time.Duration
		want  bool
	}{{0, true}, {time.Second, false}, {59 * time.Second, false}, {time.Minute, true}, {61 * time.Second, false}} {
		if got := o.comes(start.Add(step.after)); got != step.want {
			t.Errorf("after %v: %v", step.after, got)
		}
	}
}

func TestRulesAndCandidatesAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(t, Config{}, perHour("address", 3), perHour("five", 5), perHour("trial", 1))
		defer a.node.Close()
		body := func() string {
			synctest.Wait() // candidates are asked beside the request
			return a.call("GET", "/v1/edge", "").Body.String()
		}
		if got, want := body(), `{"rules":[],"candidates":[]}`+"\n"; got != want {
			t.Errorf("without an edge: got %s, want %s", got, want)
		}
		a.setEdge(
			edge.Rule{Name: "trial", When: []edge.Condition{edge.Path("/trial")}, DryRun: true, Uses: []edge.Use{{Limit: "trial", Key: []edge.Part{edge.Address()}}}},
			edge.Rule{Name: "address", Uses: []edge.Use{{Limit: "address", Key: []edge.Part{edge.Address()}, Candidates: []string{"five"}}}},
		)
		for range 8 {
			a.ask("/x", "203.0.113.1")
		}
		for range 3 {
			a.ask("/trial", "203.0.113.1")
		}
		const want = `{"rules":[` +
			`{"rule":"trial","admitted":3,"refused":0,"would_refuse":2,"undecided":0,"bad_requests":0,"soft":0,"paused":0,"dropped":0},` +
			`{"rule":"address","admitted":3,"refused":5,"would_refuse":0,"undecided":0,"bad_requests":0,"soft":0,"paused":0,"dropped":0}],` +
			`"candidates":[{"rule":"address","limit":"address","candidate":"five","requests":8,"refused":3,"refused_percent":37.5,` +
			`"refused_live":5,"refused_live_percent":62.5,"missed":0}]}` + "\n"
		if got := body(); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	})
}

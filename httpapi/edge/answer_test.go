package edge_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jatah-io/jatah"
	"github.com/jatah-io/jatah/httpapi/edge"
)

func TestRetryAfterIsWholeSecondsRoundedUpAndTrue(t *testing.T) {
	digits := regexp.MustCompile(`^[1-9][0-9]*$`)
	for _, row := range []struct {
		rate   jatah.Rate
		passes int
		pause  time.Duration
		want   string
	}{
		{jatah.Per(10, time.Second), 10, 30 * time.Millisecond, "1"}, // 0.07 s are left
		{jatah.Per(1, time.Second), 1, 0, "1"},
		{jatah.Per(1, 1000100*time.Microsecond), 1, 0, "2"},
		{jatah.Per(2, 20*time.Second), 2, 500 * time.Millisecond, "10"}, // 9.5 s
	} {
		inBubble(t, []jatah.Limit{{Name: "x", Rate: row.rate}}, func(t *testing.T, node *jatah.Node) {
			s := serveHTTP(t, limiting(t, node, edge.Answer{}, "x")(hello))
			for range row.passes {
				if a := s.get(); a.StatusCode != 200 || a.Header["Retry-After"] != nil || a.body != "hello" {
					t.Fatalf("%v: %d with Retry-After %q, want 200 without", row.rate, a.StatusCode, a.Header["Retry-After"])
				}
			}
			time.Sleep(row.pause)
			a := s.get()
			got := a.Header.Get("Retry-After")
			if a.StatusCode != 429 || got != row.want || !digits.MatchString(got) {
				t.Fatalf("%v: %d with Retry-After %q, want 429 with %s", row.rate, a.StatusCode, got, row.want)
			}
			wait, _ := strconv.Atoi(got)
			time.Sleep(time.Duration(wait) * time.Second)
			if a := s.get(); a.StatusCode != 200 {
				t.Errorf("%v: %d after the wait", row.rate, a.StatusCode)
			}
		})
	}
}

// Two limits at once: in one middleware, and in two that are nested.
func TestHeadersOfSeveralLimits(t *testing.T) {
	limits := []jatah.Limit{
		{Name: "burst", Algorithm: jatah.FixedWindow, Rate: jatah.Per(100, time.Minute)},
		{Name: "daily", Algorithm: jatah.FixedWindow, Rate: jatah.Per(1000, 24*time.Hour)},
	}
	on := edge.Answer{Legacy: true}
	for _, nested := range []bool{false, true} {
		inBubble(t, limits, func(t *testing.T, node *jatah.Node) {
			h := limiting(t, node, on, "burst", "daily")(hello)
			policies := `"burst";q=100;w=60, "daily";q=1000;w=86400`
			first, refused := `"burst";r=99;t=50, "daily";r=999;t=86390`, `"burst";r=0;t=50, "daily";r=900;t=86390`
			if nested {
				h = limiting(t, node, on, "daily")(limiting(t, node, on, "burst")(hello))
				policies = `"daily";q=1000;w=86400, "burst";q=100;w=60`
				first, refused = `"daily";r=999;t=86390, "burst";r=99;t=50`, `"daily";r=899;t=86390, "burst";r=0;t=50` // 101 came by the outer one
			}
			s := serveHTTP(t, h)
			time.Sleep(10 * time.Second) // the bubble begins at midnight
			var a answer
			want := func(status int, limits, least string) {
				t.Helper()
				if a.StatusCode != status || a.lists("RateLimit") != limits || a.lists("RateLimit-Policy") != policies {
					t.Errorf("nested %v: %d\n%s\n%s\nwant %d\n%s\n%s", nested, a.StatusCode, a.lists("RateLimit"), a.lists("RateLimit-Policy"), status, limits, policies)
				}
				for _, family := range []string{"X-RateLimit", "RateLimit"} {
					got := a.lists(family+"-Limit") + " " + a.lists(family+"-Remaining") + " " + a.lists(family+"-Reset")
					if got != least {
						t.Errorf("nested %v: %s-* is %s, want %s", nested, family, got, least)
					}
				}
			}
			a = s.get()
			want(200, first, "100 99 50")
			for range 100 {
				a = s.get()
			}
			want(429, refused, "100 0 50")
			if got := a.Header.Values("Retry-After"); len(got) != 1 || got[0] != "50" {
				t.Errorf("nested %v: Retry-After %q, want 50, when the window ends", nested, got)
			}
		})
	}
}

func TestHeadersCanBeChosen(t *testing.T) {
	inBubble(t, []jatah.Limit{{Name: "api", Rate: jatah.PerSecond(2)}}, func(t *testing.T, node *jatah.Node) {
		names := []string{"RateLimit", "RateLimit-Policy", "X-RateLimit-Limit", "X-RateLimit-Reset", "RateLimit-Limit", "RateLimit-Reset"}
		epoch := strconv.FormatInt(time.Now().Unix()+1, 10)
		for _, c := range []struct {
			a    edge.Answer
			want string
		}{
			{edge.Answer{}, `"api";r=1;t=1|"api";q=2;w=1|2|1||`},
			{edge.Answer{OmitRateLimit: true}, `||2|1||`},
			{edge.Answer{OmitXRateLimit: true, Legacy: true}, `"api";r=1;t=1|"api";q=2;w=1|||2|1`},
			{edge.Answer{Legacy: true, ResetEpoch: true}, `"api";r=1;t=1|"api";q=2;w=1|2|` + epoch + `|2|` + epoch},
			{edge.Answer{OmitRateLimit: true, OmitXRateLimit: true}, `|||||`},
		} {
			w := httptest.NewRecorder()
			l, _ := node.Lookup("api")
			_ = l.Reset(t.Context(), "all")
			limiting(t, node, c.a, "api")(hello).ServeHTTP(w, request("GET", "/", someone))
			var got []string
			for _, name := range names {
				got = append(got, w.Header().Get(name))
			}
			if strings.Join(got, "|") != c.want {
				t.Errorf("%+v\n got %s\nwant %s", c.a, strings.Join(got, "|"), c.want)
			}
		}
	})
}

// Who has nothing to do with a limit is told nothing of it, and a handler has the last word.
func TestHeadersOnlyWhereARuleApplies(t *testing.T) {
	limits := []jatah.Limit{{Name: "api", Rate: jatah.PerMinute(5)}}
	inBubble(t, limits, func(t *testing.T, node *jatah.Node) {
		e := mustNew(t, node, edge.Config{Rules: []edge.Rule{
			{When: []edge.Condition{edge.Path("/exempt")}},
			{When: []edge.Condition{edge.Path("/dry")}, Uses: []edge.Use{forAll("api")}, DryRun: true},
			{When: []edge.Condition{edge.Path("/api", "/silent")}, Uses: []edge.Use{forAll("api")}},
		}})
		h := e.Middleware(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/silent" {
				w.Header().Del("RateLimit")
			}
		}))
		for path, want := range map[string]bool{"/exempt": false, "/none": false, "/dry": false, "/api": true, "/silent": false} {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, request("GET", path, someone))
			if got := w.Header().Get("RateLimit") != ""; got != want {
				t.Errorf("%s: RateLimit is there: %v, want %v", path, got, want)
			}
		}
	})
}

// refusalBody is what the body of a refusal says.
type refusalBody struct {
	Type, Title, Detail string
	Status              int
	Violated            []string
	RetryAfterMS        *int64 `json:"retry_after_ms"`
}

func TestRefusalsAsProblems(t *testing.T) {
	limits := []jatah.Limit{
		{Name: "api", Rate: jatah.PerMinute(1)}, {Name: "other", Rate: jatah.PerHour(1)}, {Name: "closed", Rate: jatah.PerSecond(0)},
		{Name: "flight", Algorithm: jatah.Concurrency, Max: 1}, {Name: "gone", Rate: jatah.PerSecond(1)},
	}
	inBubble(t, limits, func(t *testing.T, node *jatah.Node) {
		broken := forAll("api")
		broken.Cost = func(*edge.Request) (int64, error) { return 0, fmt.Errorf("%w: rows is not a number", edge.ErrRequest) }
		odd := forAll("api")
		odd.Cost = func(*edge.Request) (int64, error) { return 0, errors.New("secret of the application") }
		rule := func(path string, uses ...edge.Use) edge.Rule {
			return edge.Rule{When: []edge.Condition{edge.Path(path)}, Uses: uses}
		}
		e := mustNew(t, node, edge.Config{Answer: edge.Answer{Status: 420, PermitStatus: 503}, Rules: []edge.Rule{
			rule("/tokens", forAll("api"), forAll("other")), rule("/closed", forAll("closed")), rule("/flight", forAll("flight")),
			rule("/broken", broken), rule("/odd", odd), rule("/gone", forAll("gone")),
		}})
		node.RemoveLimit("gone")
		api, _ := node.Lookup("api")
		api.Take(t.Context(), "all", 1)
		other, _ := node.Lookup("other")
		other.Take(t.Context(), "all", 1)
		flight, _ := node.Lookup("flight")
		if _, d := flight.Acquire(t.Context(), "all", 0); !d.OK {
			t.Fatal(d)
		}
		s := serveHTTP(t, e.Middleware(hello))
		for _, c := range []struct {
			path     string
			status   int
			slug     string
			violated string
			retry    string // Retry-After
			detail   string
		}{
			{"/tokens", 420, "rate-limited", "api other", "3600", "Too many requests"},
			{"/closed", 420, "rate-limited", "closed", "", "no wait helps"},
			{"/flight", 503, "too-many-in-flight", "flight", "1", "at once"},
			{"/broken", 400, "bad-request", "", "", "cannot be read: rows is not a number."},
			{"/odd", 503, "undecided", "", "1", "try again"},
			{"/gone", 503, "undecided", "", "1", "try again"},
		} {
			a := s.do("GET", c.path, nil, "X-Secret", "k-123")
			var p refusalBody
			if err := json.Unmarshal([]byte(a.body), &p); err != nil {
				t.Fatalf("%s: %v in %s", c.path, err, a.body)
			}
			if a.StatusCode != c.status || p.Status != c.status || p.Title != http.StatusText(c.status) || p.Type != "urn:jatah:problem:"+c.slug ||
				strings.Join(p.Violated, " ") != c.violated || !strings.Contains(p.Detail, c.detail) {
				t.Errorf("%s: %d %s", c.path, a.StatusCode, a.body)
			}
			if got := a.Header.Get("Retry-After"); got != c.retry {
				t.Errorf("%s: Retry-After %q, want %q", c.path, got, c.retry)
			}
			if (p.RetryAfterMS != nil) != (c.retry != "") {
				t.Errorf("%s: retry_after_ms %v beside Retry-After %q", c.path, p.RetryAfterMS, c.retry)
			}
			if a.Header.Get("Cache-Control") != "no-store" || a.Header.Get("Content-Type") != "application/problem+json" || a.ContentLength != int64(len(a.body)) {
				t.Errorf("%s: %v", c.path, a.Header)
			}
			for _, hidden := range []string{"k-123", "all\"", "pipe", "secret", "rule-"} {
				if strings.Contains(a.body, hidden) {
					t.Errorf("%s tells %s: %s", c.path, hidden, a.body)
				}
			}
		}
	})
}

// An account that exists is refused with the same bytes as one that does not.
func TestARefusalDoesNotTellWhetherThereIsSuchAnAccount(t *testing.T) {
	inBubble(t, []jatah.Limit{{Name: "login", Rate: jatah.PerMinute(1)}}, func(t *testing.T, node *jatah.Node) {
		e := mustNew(t, node, edge.Config{Rules: []edge.Rule{{Uses: []edge.Use{{Limit: "login", Key: []edge.Part{edge.Header("User")}}}}}})
		s := serveHTTP(t, e.Middleware(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(401) })))
		var all []string
		for _, user := range []string{"alice", "nobody"} {
			s.get("User", user)
			a := s.get("User", user)
			a.Header.Del("Date")
			all = append(all, fmt.Sprint(a.StatusCode, a.Header, a.body))
		}
		if all[0] != all[1] || !strings.HasPrefix(all[0], "429") {
			t.Errorf("\n%s\n%s", all[0], all[1])
		}
	})
}

func TestJitterNeverShortensAWait(t *testing.T) {
	limits := []jatah.Limit{{Name: "api", Rate: jatah.PerMinute(1)}, {Name: "closed", Rate: jatah.PerSecond(0)}}
	inBubble(t, limits, func(t *testing.T, node *jatah.Node) {
		h := limiting(t, node, edge.Answer{Jitter: 20 * time.Second}, "api")(hello)
		seen := map[int]bool{}
		serve(h, request("GET", "/", someone))
		for range 200 {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, request("GET", "/", someone))
			var p refusalBody
			if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil {
				t.Fatal(err)
			}
			wait, err := strconv.Atoi(w.Header().Get("Retry-After"))
			if err != nil || wait < 60 || wait > 80 || *p.RetryAfterMS < 60_000 || *p.RetryAfterMS > int64(wait)*1000 || w.Header().Get("X-RateLimit-Reset") != "60" {
				t.Fatalf("Retry-After %d (%v), %d ms, reset %s", wait, err, *p.RetryAfterMS, w.Header().Get("X-RateLimit-Reset"))
			}
			seen[wait] = true
		}
		if len(seen) < 5 {
			t.Errorf("200 waits were of %d lengths only", len(seen))
		}
		w := httptest.NewRecorder()
		limiting(t, node, edge.Answer{Jitter: time.Minute}, "closed")(hello).ServeHTTP(w, request("GET", "/", someone))
		if got := w.Header()["Retry-After"]; w.Code != 429 || got != nil {
			t.Errorf("%d, Retry-After %q where no wait helps", w.Code, got)
		}
	})
}

func TestAPageOrAHandlerRefuses(t *testing.T) {
	inBubble(t, []jatah.Limit{{Name: "closed", Rate: jatah.PerSecond(0)}, {Name: "gone", Rate: jatah.PerSecond(1)}}, func(t *testing.T, node *jatah.Node) {
		page := []byte("<h1>Slow down</h1>")
		var own http.HandlerFunc
		handler := edge.Answer{Status: 418, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { own(w, r) })}
		undecided := limiting(t, node, edge.Answer{Page: page}, "gone")(hello)
		node.RemoveLimit("gone")
		for _, c := range []struct {
			name, method string
			h            http.Handler
			own          http.HandlerFunc
			status       int
			kind, body   string
		}{
			{"a page", "GET", limiting(t, node, edge.Answer{Page: page}, "closed")(hello), nil, 429, "text/html; charset=utf-8", string(page)},
			{"a page of a type", "GET", limiting(t, node, edge.Answer{Page: page, ContentType: "text/plain"}, "closed")(hello), nil, 429, "text/plain", string(page)},
			{"HEAD", "HEAD", limiting(t, node, edge.Answer{Page: page}, "closed")(hello), nil, 429, "text/html; charset=utf-8", ""},
			{"a page is not for what cannot be decided", "GET", undecided, nil, 503, "application/problem+json", `{"type":"urn:jatah:problem:undecided",`},
			{"a handler that names no status", "GET", limiting(t, node, handler, "closed")(hello), func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.WriteString(w, strings.Join(edge.FromContext(r.Context()).Violated, " "))
			}, 418, "text/plain; charset=utf-8", "closed"},
			{"a handler that names one", "GET", limiting(t, node, handler, "closed")(hello), func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(403) }, 403, "", ""},
			{"a handler that does nothing", "GET", limiting(t, node, handler, "closed")(hello), func(http.ResponseWriter, *http.Request) {}, 418, "", ""},
		} {
			own = c.own
			a := serveHTTP(t, c.h).do(c.method, "/", nil)
			if a.StatusCode != c.status || a.Header.Get("Content-Type") != c.kind || !strings.HasPrefix(a.body, c.body) || c.body == "" && a.body != "" {
				t.Errorf("%s: %d %s %q", c.name, a.StatusCode, a.Header.Get("Content-Type"), a.body)
			}
			if a.Header.Get("Cache-Control") != "no-store" || c.status != 503 && a.Header.Get("X-RateLimit-Limit") != "0" {
				t.Errorf("%s: %v", c.name, a.Header)
			}
		}
	})
}

func TestWrongAnswersAreRefused(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, node *jatah.Node) {
		for _, c := range []struct {
			want string
			a    edge.Answer
			soft *edge.Soft
		}{
			{"refuses with the status 200", edge.Answer{Status: 200}, nil},
			{"refuses with the status 99", edge.Answer{PermitStatus: 99}, nil},
			{"jitter of -1s", edge.Answer{Jitter: -time.Second}, nil},
			{"after 0 refusals", edge.Answer{Drop: &edge.Drop{Within: time.Second}}, nil},
			{"within 0s", edge.Answer{Drop: &edge.Drop{After: 5}}, nil},
			{"from the part 80", edge.Answer{}, &edge.Soft{From: 80}},
			{"from the part 0 ", edge.Answer{}, &edge.Soft{}},
			{`the header "a b"`, edge.Answer{}, &edge.Soft{From: 0.5, Header: "a b"}},
		} {
			_, err := edge.New(node, edge.Config{Answer: c.a, Rules: []edge.Rule{{Name: "r", Soft: c.soft}}})
			if !errors.Is(err, edge.ErrConfig) || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), `rule "r"`) {
				t.Errorf("%v, want ... %s", err, c.want)
			}
		}
	})
}

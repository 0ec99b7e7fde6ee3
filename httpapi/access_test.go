package httpapi

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jatah-io/jatah"
)

const (
	takeToken  = "take-0123456789abcdef0123456789"
	readToken  = "read-0123456789abcdef0123456789"
	adminToken = "admin-0123456789abcdef0123456789"
	someToken  = "some-0123456789abcdef0123456789"
)

func tokensFor(t testing.TB) *Tokens {
	t.Helper()
	digest := func(s string) [32]byte {
		d, err := DigestToken(s)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	tokens, err := NewTokens(
		Token{Name: "web", Roles: RoleTake, Digest: digest(takeToken)},
		Token{Name: "dash", Roles: RoleRead, Digest: digest(readToken)},
		Token{Name: "ops", Roles: RoleAdmin, Digest: digest(adminToken)},
		Token{Name: "some", Roles: RoleTake, Limits: []string{"api", "login*"}, Digest: digest(someToken)},
	)
	if err != nil {
		t.Fatal(err)
	}
	return tokens
}

// needs is the table of the documentation, by hand.
var needs = map[string]Role{
	"POST /v1/take": RoleTake, "POST /v1/take-all": RoleTake, "POST /v1/batch": RoleTake, "POST /v1/refund": RoleTake, "POST /v1/charge": RoleTake,
	"POST /v1/acquire": RoleTake, "POST /v1/release": RoleTake,
	"GET /v1/peek": RoleRead, "GET /v1/limits": RoleRead, "GET /v1/limits/{name...}": RoleRead, "GET /v1/cluster": RoleRead, "GET /v1/top": RoleRead, "GET /v1/doctor": RoleRead,
	"GET /v1/edge": RoleRead, "GET /v1/penalties": RoleRead, "GET /metrics": RoleRead,
	"DELETE /v1/keys": RoleAdmin, "PUT /v1/limits/{name...}": RoleAdmin, "DELETE /v1/limits/{name...}": RoleAdmin, "POST /v1/forget": RoleAdmin,
	"DELETE /v1/penalties": RoleAdmin,
	"GET /healthz":         0, "GET /readyz": 0,
}

func TestEachCallNeedsItsRoleAndNothingElse(t *testing.T) {
	served := false
	a := newAPI(t, Config{Metrics: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served = true }), Access: Access{Tokens: tokensFor(t)}})
	callers := map[string]Role{"": 0, takeToken: RoleTake, readToken: RoleRead, adminToken: RoleAdmin}
	seen := map[string]bool{}
	for _, r := range a.h.routes() {
		call := r.method + " " + r.path
		need, known := needs[call]
		if !known {
			continue // of a page or part that says itself what it needs
		}
		seen[call] = true
		for token, role := range callers {
			head := []string{"Authorization", "bearer " + token}
			if token == "" {
				head = nil
			}
			w := a.call(r.method, strings.Replace(r.path, "{name...}", "x/y", 1), "", head...)
			switch may := need == 0 || role == need || role == RoleAdmin; {
			case may && (w.Code == 401 || w.Code == 403):
				t.Errorf("%s with the role %q: %d %s", call, role, w.Code, w.Body)
			case !may && token == "":
				wantProblem(t, w, 401, "unauthenticated", "", "Authorization: Bearer")
				if got := w.Header().Get("WWW-Authenticate"); got != `Bearer realm="jatah"` {
					t.Errorf("%s: WWW-Authenticate %q", call, got)
				}
			case !may:
				wantProblem(t, w, 403, "forbidden", "", "needs a token with the role "+need.String()+"; that of")
				if got := w.Header().Get("WWW-Authenticate"); !strings.Contains(got, `error="insufficient_scope", scope="`+need.String()+`"`) {
					t.Errorf("%s: WWW-Authenticate %q", call, got)
				}
			}
		}
	}
	if len(seen) != len(needs) || !served {
		t.Errorf("of %d calls %d are there; metrics served: %v", len(needs), len(seen), served)
	}
}

func TestHEADNeedsWhatGETNeeds(t *testing.T) {
	a := newAPI(t, Config{Access: Access{Tokens: tokensFor(t)}})
	if w := a.call("HEAD", "/v1/limits", ""); w.Code != 401 {
		t.Error(w.Code)
	}
}

func TestWhatIsNoTokenIsRefused(t *testing.T) {
	a := newAPI(t, Config{Access: Access{Tokens: tokensFor(t)}}, perMinute("api", 10, 10))
	const body = `{"limit":"api","key":"u"}`
	for _, c := range []struct {
		head []string
		slug string
	}{
		{[]string{"Authorization", "Bearer"}, "unauthenticated"},
		{[]string{"Authorization", "Bearer "}, "unauthenticated"},
		{[]string{"Authorization", "Basic " + takeToken}, "unauthenticated"},
		{[]string{"Authorization", takeToken}, "unauthenticated"},
		{[]string{"Authorization", "Bearer " + takeToken, "Authorization", "Bearer " + takeToken}, "unauthenticated"},
		{[]string{TokenHeader, takeToken, TokenHeader, takeToken}, "unauthenticated"},
		{[]string{TokenHeader, "x", TokenHeader, "y", "Authorization", "Bearer " + takeToken}, "unauthenticated"},
		{[]string{"Authorization", "Bearer " + takeToken[1:]}, "unauthenticated"},
		{[]string{"Authorization", "Bearer " + takeToken + "0"}, "unauthenticated"},
		{[]string{"Authorization", "Bearer " + strings.Repeat("x", 100_000)}, "unauthenticated"},
		{[]string{TokenHeader, "x", "Authorization", "Bearer " + takeToken}, "unauthenticated"}, // the one that is for us counts
	} {
		w := a.take(body, c.head...)
		wantProblem(t, w, 401, c.slug, "", "token")
		if strings.Contains(w.Body.String(), takeToken[5:]) || w.Header().Get("WWW-Authenticate") == "" {
			t.Errorf("%.60q: %s %v", c.head, w.Body, w.Header())
		}
	}
	for _, head := range [][]string{{"Authorization", "Bearer  " + takeToken}, {TokenHeader, takeToken}, {TokenHeader, takeToken, "Authorization", "Basic x"}} {
		if w := a.take(body, head...); w.Code != 200 {
			t.Errorf("%q: %d %s", head, w.Code, w.Body)
		}
	}
	if s := a.h.AccessStats(); s.Missing != 7 || s.Unknown != 4 || s.Forbidden != 0 {
		t.Errorf("%+v", s)
	}
}

func TestATokenForSomeLimitsAsksAboutNoOther(t *testing.T) {
	a := newAPI(t, Config{Access: Access{Tokens: tokensFor(t)}}, perMinute("api", 100, 100), perMinute("login/web", 9, 9), perMinute("other", 9, 9),
		jatah.Limit{Name: "jobs", Algorithm: jatah.Concurrency, Max: 2})
	as := []string{"Authorization", "Bearer " + someToken}
	for limit, want := range map[string]int{"api": 200, "login/web": 200, "other": 403, "apis": 403, "nothing": 403} {
		for _, path := range []string{"/v1/take", "/v1/charge", "/v1/refund"} {
			if w := a.call("POST", path, `{"limit":"`+limit+`","key":"u"}`, as...); w.Code != want {
				t.Errorf("%s %s: %d %s", path, limit, w.Code, w.Body)
			}
		}
	}
	wantProblem(t, a.take(`{"limit":"other","key":"u"}`, as...), 403, "forbidden", "limit", "for api, login*")
	wantProblem(t, a.call("POST", "/v1/acquire", `{"limit":"jobs","key":"u"}`, as...), 403, "forbidden", "limit", "not for the limit")
	wantProblem(t, a.call("POST", "/v1/take-all", `{"takes":[{"limit":"api","key":"u"},{"limit":"other","key":"u"}]}`, as...), 403, "forbidden", "takes[1].limit", "")
	w := a.call("POST", "/v1/batch", `{"takes":[{"limit":"api","key":"b"},{"limit":"other","key":"b"}]}`, as...)
	if w.Code != 200 || !strings.Contains(w.Body.String(), `"remaining":99`) || !strings.Contains(w.Body.String(), `urn:jatah:problem:forbidden`) {
		t.Errorf("batch: %d %s", w.Code, w.Body)
	}
	// Nor does it get the answer that somebody else's request got.
	full := []string{"Authorization", "Bearer " + takeToken, "Idempotency-Key", `"k"`}
	some := []string{"Authorization", "Bearer " + someToken, "Idempotency-Key", `"k"`}
	if w := a.take(`{"limit":"other","key":"r"}`, full...); w.Code != 200 {
		t.Fatal(w.Code, w.Body)
	}
	if w := a.take(`{"limit":"other","key":"r"}`, some...); w.Code != 403 {
		t.Errorf("a repeat under another token: %d %s", w.Code, w.Body)
	}
	if got := a.call("GET", "/v1/peek?limit=other&key=u", "", "Authorization", "Bearer "+readToken); !strings.Contains(got.Body.String(), `"remaining":9,`) {
		t.Errorf("something was taken: %s", got.Body)
	}
}

func TestWithoutTokensAdminIsForThisMachine(t *testing.T) {
	a := newAPI(t, Config{}, perMinute("api", 10, 10))
	a.h.SetAccess(Access{})
	send := func(peer, host string, head ...string) *httptest.ResponseRecorder {
		r := httptest.NewRequestWithContext(t.Context(), "DELETE", "/v1/keys?limit=api&key=u", nil)
		r.RemoteAddr, r.Host = peer, host
		for i := 0; i < len(head); i += 2 {
			r.Header.Set(head[i], head[i+1])
		}
		w := httptest.NewRecorder()
		a.h.ServeHTTP(w, r)
		return w
	}
	for _, c := range [][2]string{
		{"127.0.0.1:9", "127.0.0.1:8080"}, {"127.8.8.8:9", "localhost:8080"}, {"[::1]:9", "[::1]:8080"}, {"[::1]:9", "[::1]"},
		{"[::ffff:127.0.0.1]:9", "LOCALHOST"}, {"127.0.0.1:9", "jatah.localhost:80"}, {"127.0.0.1:9", "10.0.0.1:8080"},
	} {
		if w := send(c[0], c[1]); w.Code != 204 {
			t.Errorf("%q: %d %s", c, w.Code, w.Body)
		}
	}
	for _, c := range []struct{ peer, host, why string }{
		{"192.0.2.1:9", "127.0.0.1:8080", "comes from another machine"},
		{"[2001:db8::1]:9", "localhost", "comes from another machine"},
		{"", "localhost", "comes from another machine"},
		{"@", "localhost", "comes from another machine"},
		{"127.0.0.1:9", "evil.example:8080", `asks for the name "evil.example"`}, // a name that was made to mean 127.0.0.1
		{"127.0.0.1:9", "notlocalhost", "asks for the name"},
		{"127.0.0.1:9", "127.0.0.1.evil.example", "asks for the name"},
	} {
		wantProblem(t, send(c.peer, c.host), 403, "admin-is-local", "", c.why)
	}
	for _, name := range passedOn {
		wantProblem(t, send("127.0.0.1:9", "localhost", name, "127.0.0.1"), 403, "admin-is-local", "", "a proxy has passed it on ("+name+")")
	}
	if n := a.h.AccessStats().NotLocal; n != 7+uint64(len(passedOn)) {
		t.Errorf("%d counted", n)
	}
	if w := a.take(`{"limit":"api","key":"u"}`); w.Code != 200 { // of 192.0.2.1, as httptest has it
		t.Errorf("a take: %d %s", w.Code, w.Body)
	}
	a.h.SetAccess(Access{InsecureAdmin: true})
	if w := send("192.0.2.1:9", "x"); w.Code != 204 {
		t.Errorf("with InsecureAdmin: %d %s", w.Code, w.Body)
	}
	a.h.SetAccess(Access{InsecureAdmin: true, Tokens: tokensFor(t)})
	if w := send("127.0.0.1:9", "localhost"); w.Code != 401 {
		t.Errorf("with tokens: %d %s", w.Code, w.Body)
	}
}

func TestAPageOfAnotherSiteChangesNothing(t *testing.T) {
	a := newAPI(t, Config{}, perMinute("api", 10, 10))
	const body = `{"limit":"api","key":"u"}`
	for _, head := range [][]string{
		{"Origin", "https://evil.example"}, {"Origin", "null"}, {"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site", "Origin", "http://a.example.com"},
	} {
		wantProblem(t, a.take(body, head...), 403, "cross-site", "", "another site")
		wantProblem(t, a.call("DELETE", "/v1/keys?limit=api&key=u", "", head...), 403, "cross-site", "", "another site")
		wantProblem(t, a.call("POST", "/v1/batch", "{}", head...), 403, "cross-site", "", "another site")
		if w := a.call("GET", "/v1/limits", "", head...); w.Code != 200 { // it changes nothing, and the browser does not show it to the page
			t.Errorf("GET: %d", w.Code)
		}
	}
	for _, head := range [][]string{{"Origin", "http://example.com"}, {"Sec-Fetch-Site", "same-origin"}, {"Sec-Fetch-Site", "none"}} {
		if w := a.take(body, head...); w.Code != 200 {
			t.Errorf("%q: %d %s", head, w.Code, w.Body)
		}
	}
}

func TestForwardAuthTakesItsTokenFromTheProxyOnly(t *testing.T) {
	a := gateAPI(t, Config{Access: Access{Tokens: tokensFor(t)}}, byAddress)
	ask := func(head ...string) *httptest.ResponseRecorder {
		// What the client sent comes along: its token is for the service, its page of whatever site.
		head = append([]string{"X-Forwarded-Method", "POST", "X-Forwarded-Uri", "/", "X-Forwarded-For", "192.0.2.7", "Origin", "https://a.example"}, head...)
		return a.call("POST", forwardAuthPath, "", head...)
	}
	wantProblem(t, ask(), 400, "unauthenticated", "", TokenHeader)
	wantProblem(t, ask("Authorization", "Bearer "+takeToken), 400, "unauthenticated", "", TokenHeader)
	wantProblem(t, ask(TokenHeader, readToken), 400, "forbidden", "", "the role take")
	wantProblem(t, ask(TokenHeader, someToken), 400, "forbidden", "", "for some limits only")
	wantProblem(t, ask(TokenHeader, takeToken[1:]), 400, "unauthenticated", "", "no such token")
	if w := ask(TokenHeader, takeToken, "Authorization", "Bearer of the client"); w.Code != 200 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

func TestTokensThatAreRefused(t *testing.T) {
	good, err := DigestToken(takeToken)
	if err != nil {
		t.Fatal(err)
	}
	one := Token{Name: "a", Roles: RoleTake, Digest: good}
	other := func(change func(*Token)) Token { o := one; change(&o); return o }
	many := make([]Token, MaxTokens+1)
	for _, c := range []struct {
		all  []Token
		want string
	}{
		{nil, "there are none"},
		{many, "at most 256"},
		{[]Token{other(func(o *Token) { o.Name = "" })}, "no name"},
		{[]Token{other(func(o *Token) { o.Roles = 0 })}, "no role"},
		{[]Token{other(func(o *Token) { o.Roles = 64 })}, "no role"},
		{[]Token{other(func(o *Token) { o.Roles, o.Limits = RoleTake|RoleRead, []string{"x"} })}, "whose only role is take"},
		{[]Token{other(func(o *Token) { o.Limits = []string{""} })}, "without a name"},
		{[]Token{one, other(func(o *Token) { o.Digest[0]++ })}, `two are named "a"`},
		{[]Token{one, other(func(o *Token) { o.Name = "b" })}, `"a" and "b" are the same secret`},
	} {
		if _, err := NewTokens(c.all...); !errors.Is(err, ErrToken) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
	for _, s := range []string{"", "short", strings.Repeat("x", MinToken-1), strings.Repeat("x", MaxToken+1), takeToken + " ", takeToken + "é", takeToken + "\n"} {
		if _, err := DigestToken(s); !errors.Is(err, ErrToken) || s != "" && strings.Contains(err.Error(), s) {
			t.Errorf("%q: %v", s, err)
		}
	}
}

func TestRefusalsAreLoggedOncePerSecondAndAdminCallsByName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		a := newAPI(t, Config{Logger: slog.New(slog.NewTextHandler(&log, nil)), Access: Access{Tokens: tokensFor(t)}}, perMinute("api", 10, 10))
		for i, want := range []string{"others=0", "others=1999", "others=0"} {
			log.Reset()
			for range []int{2000, 1, 1}[i] {
				a.call("DELETE", "/v1/keys?limit=api&key=u", "", "Authorization", "Bearer "+adminToken[1:])
			}
			if got := log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, want) || strings.Contains(got, adminToken[1:]) {
				t.Errorf("in second %d the log has %s, want one line with %s", i+1, got, want)
			}
			time.Sleep(time.Second)
		}
		if n := a.h.AccessStats().Unknown; n != 2002 {
			t.Errorf("%d refusals are counted, want 2002", n)
		}
		log.Reset()
		a.call("DELETE", "/v1/keys?limit=api&key=u", "", "Authorization", "Bearer "+adminToken)
		if !strings.Contains(log.String(), `call="DELETE /v1/keys" token=ops`) || strings.Contains(log.String(), adminToken) {
			t.Error(log.String())
		}
	})
}

func TestATokenCostsNoMemoryPerTake(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector makes pools forget")
	}
	a := newAPI(t, Config{Access: Access{Tokens: tokensFor(t)}}, bigLimit())
	req := newAgain("/v1/take", benchBody)
	req.r.Header.Set("Authorization", "Bearer "+takeToken)
	if n := testing.AllocsPerRun(1000, func() {
		if req.serve(a.h) != 200 {
			t.Fatal(req.w.status)
		}
	}); n > 2 {
		t.Errorf("%v allocations for one take with a token, want at most 2", n)
	}
}

func BenchmarkTakeHandlerToken(b *testing.B) {
	a := newAPI(b, Config{Access: Access{Tokens: tokensFor(b)}}, bigLimit())
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		req := newAgain("/v1/take", benchBody)
		for req.r.Header.Set("Authorization", "Bearer "+takeToken); pb.Next(); {
			if req.serve(a.h) != 200 {
				b.Fatal(req.w.status)
			}
		}
	})
}

// hooked is a body during whose reading something happens.
type hooked struct {
	*strings.Reader
	once sync.Once
	do   func()
}

func (h *hooked) Read(b []byte) (int, error) {
	h.once.Do(h.do)
	return h.Reader.Read(b)
}

// Tokens that are replaced while a request is read do not widen it: who sends its body slowly could wait for that.
func TestAScopedRequestStaysScopedWhenTokensChange(t *testing.T) {
	all := tokensFor(t)
	later, err := NewTokens(all.all[:3]...)
	if err != nil {
		t.Fatal(err)
	}
	for name, next := range map[string]Access{"no scoped ones": {Tokens: later}, "none": {}} {
		a := newAPI(t, Config{Access: Access{Tokens: all}}, perMinute("api", 10, 10), perMinute("other", 10, 10))
		body := &hooked{Reader: strings.NewReader(`{"limit":"other","key":"u"}`), do: func() { a.h.SetAccess(next) }}
		r := httptest.NewRequestWithContext(t.Context(), "POST", "/v1/take", body)
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Authorization", "Bearer "+someToken)
		w := httptest.NewRecorder()
		if a.h.ServeHTTP(w, r); w.Code != 403 {
			t.Errorf("%s: %d %s", name, w.Code, w.Body)
		}
	}
}

// What goes on for long ends when its token is no longer good, and only then.
func TestStreamsEndWithTheirToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := 0
		page := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			begun++
			<-r.Context().Done()
		})
		all := tokensFor(t)
		a := newAPI(t, Config{Dashboard: page, Access: Access{Tokens: all}})
		open := func(token string) (ended chan struct{}) {
			ended = make(chan struct{})
			ctx, cancel := context.WithCancel(t.Context())
			t.Cleanup(cancel)
			r := httptest.NewRequestWithContext(ctx, "GET", "/v1/dashboard/stream", nil)
			r.Header.Set("Authorization", "Bearer "+token)
			go func() {
				defer close(ended)
				a.h.ServeHTTP(httptest.NewRecorder(), r)
			}()
			synctest.Wait()
			return ended
		}
		over := func(c chan struct{}) bool {
			synctest.Wait()
			select {
			case <-c:
				return true
			default:
				return false
			}
		}
		dash, ops := open(readToken), open(adminToken)
		if begun != 2 || over(dash) || over(ops) {
			t.Fatal("they do not go on")
		}
		a.h.SetAccess(Access{Tokens: all})
		if over(dash) || over(ops) {
			t.Error("ended though the tokens are the same")
		}
		later, err := NewTokens(all.all[0], all.all[2])
		if err != nil {
			t.Fatal(err)
		}
		a.h.SetAccess(Access{Tokens: later})
		if !over(dash) || over(ops) {
			t.Errorf("without its token: ended %v; with it: %v", over(dash), over(ops))
		}
		a.h.SetAccess(Access{})
		if over(ops) {
			t.Error("ended though everybody may read")
		}
	})
}

// The tokens change after a request was let in, and before anybody watches for that.
func TestAStreamThatBeginsWithoutItsTokenEndsAtOnce(t *testing.T) {
	all := tokensFor(t)
	a := newAPI(t, Config{Access: Access{Tokens: all}})
	for name, tokens := range map[string][]Token{"there still": all.all, "gone": {all.all[0], all.all[2]}} {
		left, err := NewTokens(tokens...)
		if err != nil {
			t.Fatal(err)
		}
		a.h.SetAccess(Access{Tokens: left})
		r := httptest.NewRequestWithContext(t.Context(), "GET", "/v1/dashboard/stream", nil)
		r.Header.Set("Authorization", "Bearer "+readToken)
		a.h.watched(RoleRead, func(_ http.ResponseWriter, r *http.Request) {
			if over := r.Context().Err() != nil; over != (name == "gone") {
				t.Errorf("its token is %s: ended %v", name, over)
			}
		})(httptest.NewRecorder(), r)
	}
	if n := len(a.h.gate.watching); n != 0 {
		t.Errorf("%d are still watched", n)
	}
}

func TestAScopedTokenHearsOfItsLimitsOnly(t *testing.T) {
	a := newAPI(t, Config{Access: Access{Tokens: tokensFor(t)}}, perMinute("api", 10, 10), perMinute("secret", 10, 10))
	for _, path := range []string{"/v1/take", "/v1/acquire", "/v1/batch"} {
		body := `{"limit":"login-x","key":"u"}`
		if path == "/v1/batch" {
			body = `{"takes":[` + body + `]}`
		}
		for token, others := range map[string]bool{someToken: false, takeToken: true} {
			w := a.call("POST", path, body, "Authorization", "Bearer "+token)
			if got := w.Body.String(); !strings.Contains(got, "unknown-limit") || !strings.Contains(got, "knows api") || strings.Contains(got, "secret") != others {
				t.Errorf("%s: %d %s", path, w.Code, got)
			}
		}
	}
}

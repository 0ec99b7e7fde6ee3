package edge_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jatah-io/jatah"
	"github.com/jatah-io/jatah/httpapi/edge"
)

// left is what a key has left of a limit.
func left(t *testing.T, node *jatah.Node, limit, key string) float64 {
	t.Helper()
	l, ok := node.Lookup(limit)
	if !ok {
		t.Fatalf("no limit %s", limit)
	}
	s, err := l.Peek(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	return s.Balance
}

// aUse is one of the limit api, by address. Of api nothing comes back while time stands still.
func aUse(change func(*edge.Use)) edge.Config {
	u := edge.Use{Limit: "api", Key: []edge.Part{edge.Address()}}
	change(&u)
	return edge.Config{Rules: []edge.Rule{{Uses: []edge.Use{u}}}}
}

func TestWhatARequestHasCostInTheEnd(t *testing.T) {
	failures := func(u *edge.Use) { u.Counts, u.Cost = edge.Failures(), edge.Fixed(3) }
	after := func(u *edge.Use) {
		u.After = []edge.After{edge.ResponseBytes(1000), edge.HandlerTime(time.Second), func(*edge.Request, edge.Outcome) int64 { return -7 }}
	}
	both := func(u *edge.Use) { failures(u); after(u) }
	for _, c := range []struct {
		name   string
		use    func(*edge.Use)
		gone   bool
		o      edge.Outcome
		charge float64
	}{
		{"a failure", failures, false, edge.Outcome{Status: 401}, 3},
		{"another", failures, false, edge.Outcome{Status: 403}, 3},
		{"a success", failures, false, edge.Outcome{Status: 200}, 0},
		{"no status", failures, false, edge.Outcome{}, 0},
		{"an error of the server's", failures, false, edge.Outcome{Status: 500}, 0},
		{"a panic", failures, false, edge.Outcome{Status: 500, Failed: true}, 3},
		{"a panic after a success", failures, false, edge.Outcome{Status: 200, Failed: true}, 3},
		{"hung up, and the proxy made an error of it", failures, true, edge.Outcome{Status: 502}, 3},
		{"hung up, and the handler said so", failures, true, edge.Outcome{Status: 499}, 3},
		{"hung up, and the handler took it for slow", failures, true, edge.Outcome{Status: 408}, 3},
		{"hung up, and the handler said nothing", failures, true, edge.Outcome{}, 3},
		{"hung up after a success", failures, true, edge.Outcome{Status: 200}, 0},
		{"hung up after a failure", failures, true, edge.Outcome{Status: 401}, 3},
		{"hung up on a path that is not there", failures, true, edge.Outcome{Status: 404}, 0},
		{"a small response", after, false, edge.Outcome{Bytes: 999, Took: time.Second - 1}, 1},
		{"a large one", after, false, edge.Outcome{Bytes: 5999}, 6},
		{"a slow one", after, false, edge.Outcome{Took: 4 * time.Second}, 5},
		{"large and slow, and the client gone", after, true, edge.Outcome{Bytes: 2000, Took: 2 * time.Second}, 5},
		{"large, and then a panic", after, false, edge.Outcome{Bytes: 2000, Failed: true}, 3},
		{"far beyond what is left", after, false, edge.Outcome{Bytes: 100_000}, 101},
		{"a success that was large", both, false, edge.Outcome{Status: 200, Bytes: 2000}, 2},
		{"a success as large as it costs", both, false, edge.Outcome{Status: 200, Bytes: 3000}, 3},
		{"a failure that was large", both, false, edge.Outcome{Status: 401, Bytes: 2000}, 5},
	} {
		inBubble(t, []jatah.Limit{{Name: "api", Rate: jatah.PerDay(50)}}, func(t *testing.T, node *jatah.Node) {
			e := mustNew(t, node, aUse(c.use))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			v := e.Decide(ctx, e.RequestOf(request("GET", "/", someone)))
			if c.gone {
				cancel()
			}
			v.Settle(ctx, c.o)
			v.Settle(ctx, c.o) // changes nothing
			if got := 50 - left(t, node, "api", "203.0.113.7"); got != c.charge {
				t.Errorf("%s: %v tokens were charged, want %v", c.name, got, c.charge)
			}
		})
	}
}

func TestTheTimeOfAHandlerIsMeasured(t *testing.T) {
	inBubble(t, []jatah.Limit{{Name: "api", Rate: jatah.PerDay(50)}}, func(t *testing.T, node *jatah.Node) {
		e := mustNew(t, node, aUse(func(u *edge.Use) { u.After = []edge.After{edge.HandlerTime(time.Second)} }))
		served := e.Middleware(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { time.Sleep(4500 * time.Millisecond) }))
		served.ServeHTTP(httptest.NewRecorder(), request("GET", "/", someone))
		if got := 50 - left(t, node, "api", "203.0.113.7"); got < 4.99 || got > 5 {
			t.Errorf("%v tokens were charged for 4.5 s, want 5", got)
		}
	})
}

// Nothing comes back of what was not taken.
func TestWhatWasNotTakenDoesNotComeBack(t *testing.T) {
	everything := func(u *edge.Use) {
		u.Counts, u.Cost, u.After = edge.Statuses(), edge.Fixed(5), []edge.After{edge.ResponseBytes(1000)}
	}
	for name, dryRule := range map[string]bool{"a limit in dry run": false, "a rule in dry run": true} {
		inBubble(t, []jatah.Limit{{Name: "api", Rate: jatah.PerDay(12), DryRun: !dryRule}}, func(t *testing.T, node *jatah.Node) {
			cfg := aUse(everything)
			cfg.Rules[0].DryRun = dryRule
			e := mustNew(t, node, cfg)
			var open []*edge.Verdict
			for i := range 5 { // 2 of them pass
				v := e.Decide(t.Context(), e.RequestOf(request("GET", "/", someone)))
				if !v.OK || dryRule && v.WouldRefuse != (i >= 2) {
					t.Fatalf("%s: request %d: OK %v, would be refused %v", name, i, v.OK, v.WouldRefuse)
				}
				open = append(open, v)
			}
			for _, v := range open[2:] {
				v.Settle(t.Context(), edge.Outcome{Status: 200, Bytes: 9000})
			}
			if got := left(t, node, "api", "203.0.113.7"); got != 2 {
				t.Errorf("%s: %v tokens are left, want 2", name, got)
			}
			for _, v := range open[:2] {
				v.Settle(t.Context(), edge.Outcome{Status: 200, Bytes: 1000})
			}
			if got := left(t, node, "api", "203.0.113.7"); got != 10 {
				t.Errorf("%s: %v tokens are left, want 10", name, got)
			}
		})
	}
}

func TestARefusalSettlesNothing(t *testing.T) {
	inBubble(t, []jatah.Limit{{Name: "api", Rate: jatah.PerDay(5)}}, func(t *testing.T, node *jatah.Node) {
		e := mustNew(t, node, aUse(func(u *edge.Use) { u.Counts, u.Cost = edge.Failures(), edge.Fixed(4) }))
		decide := func() *edge.Verdict { return e.Decide(t.Context(), e.RequestOf(request("GET", "/", someone))) }
		first, second := decide(), decide()
		second.Settle(t.Context(), edge.Outcome{Status: 200})
		if got := left(t, node, "api", "203.0.113.7"); !first.OK || second.OK || got != 1 {
			t.Errorf("OK %v and %v, %v tokens are left", first.OK, second.OK, got)
		}
	})
}

func TestAllLimitsOfARuleAreSettled(t *testing.T) {
	limits := []jatah.Limit{{Name: "a", Rate: jatah.PerDay(10)}, {Name: "b", Rate: jatah.PerDay(10), Plans: map[string]jatah.Plan{"pro": {Rate: jatah.PerDay(40)}}}, {Name: "c", Rate: jatah.PerDay(10)}}
	inBubble(t, limits, func(t *testing.T, node *jatah.Node) {
		key := []edge.Part{edge.Text("k")}
		e := mustNew(t, node, edge.Config{Rules: []edge.Rule{{Uses: []edge.Use{
			{Limit: "a", Key: key, Counts: edge.Failures()},
			{Limit: "b", Key: key, Plan: func(*edge.Request) string { return "pro" }, After: []edge.After{edge.ResponseBytes(1)}},
			{Limit: "c", Key: key},
		}}}})
		v := e.Decide(t.Context(), e.RequestOf(request("GET", "/", someone)))
		v.Settle(t.Context(), edge.Outcome{Bytes: 20})
		l, _ := node.Lookup("b")
		pro, err := l.Plan("pro")
		if err != nil {
			t.Fatal(err)
		}
		b, err := pro.Peek(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		if a, c := left(t, node, "a", "k"), left(t, node, "c", "k"); a != 10 || b.Balance != 40-21 || c != 9 {
			t.Errorf("%v, %v and %v tokens are left", a, b.Balance, c)
		}
	})
}

// A hundred heavy exports passed as a hundred requests. What they send is charged as debt, so they soon pass one by one.
func TestHeavyExportsDoNotPassAsRequests(t *testing.T) {
	node, err := jatah.Start(t.Context(), jatah.Config{Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	defer node.Close()
	if _, err := node.Limit(jatah.Limit{Name: "api", Rate: jatah.PerDay(100)}); err != nil {
		t.Fatal(err)
	}
	e := mustNew(t, node, aUse(func(u *edge.Use) { u.After = []edge.After{edge.ResponseBytes(1 << 10)} }))
	heavy := make([]byte, 30<<10)
	s := httptest.NewServer(e.Middleware(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/export":
			_, _ = w.Write(heavy)
			panic(http.ErrAbortHandler) // charged too
		case "/stream":
			for range 30 {
				_, _ = io.Copy(w, strings.NewReader(string(heavy[:1<<10])))
				_ = http.NewResponseController(w).Flush()
			}
		}
	})))
	defer s.Close()
	get := func(path string) (status, retry string) {
		res, err := http.Get(s.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, res.Body)
		res.Body.Close()
		return res.Status[:3], res.Header.Get("Retry-After")
	}
	passed := 0
	for i := range 100 {
		path := "/export"
		if i%2 == 1 {
			path = "/stream"
		}
		if status, _ := get(path); status == "200" {
			passed++
		}
	}
	// After three there are 100 - 3*31 = 7 left; the fourth leaves a debt of 24.
	if passed != 4 {
		t.Errorf("%d exports of 31 tokens passed at 100 a day", passed)
	}
	if status, retry := get("/small"); status != "429" || len(retry) < 5 {
		t.Errorf("with a debt of 24 a request gets %s, again after %s s", status, retry)
	}
}

// login is a site where one logs in: only failures count, finely by account and address, coarsely by address and by account.
type login struct {
	t      *testing.T
	node   *jatah.Node
	served http.Handler
	hashed int // how often a password was hashed
	mu     sync.Mutex
}

func newLogin(t *testing.T, node *jatah.Node, pause *edge.Pause) *login {
	account, counts := edge.Body("user").Part(), edge.Failures()
	e := mustNew(t, node, edge.Config{Rules: []edge.Rule{{
		Name: "login", When: []edge.Condition{edge.Method("POST"), edge.Path("/login")}, Pause: pause,
		Uses: []edge.Use{
			{Limit: "login", Key: []edge.Part{account, edge.Address()}, Counts: counts},
			{Limit: "login-address", Key: []edge.Part{edge.Address()}, Counts: counts},
			{Limit: "login-account", Key: []edge.Part{account}, Counts: counts},
		},
	}}})
	l := &login{t: t, node: node}
	l.served = e.Middleware(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, password := r.FormValue("user"), r.FormValue("password")
		l.mu.Lock()
		l.hashed++
		l.mu.Unlock()
		time.Sleep(100 * time.Millisecond) // the hash, also of accounts that do not exist
		if user == "alice" && password == "right" {
			return
		}
		http.Error(w, "wrong name or password", http.StatusUnauthorized)
	}))
	return l
}

var loginLimits = []jatah.Limit{
	{Name: "login", Rate: jatah.PerHour(5)},
	{Name: "login-address", Rate: jatah.PerHour(20)},
	{Name: "login-account", Rate: jatah.PerMinute(6), Burst: 100},
}

func (l *login) try(user, password, from string) *http.Response {
	r := httptest.NewRequest("POST", "/login", strings.NewReader(url.Values{"user": {user}, "password": {password}}.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.RemoteAddr = from
	w := httptest.NewRecorder()
	l.served.ServeHTTP(w, r)
	return w.Result()
}

const (
	attacker = "198.51.100.66:1000"
	owner    = "203.0.113.7:4711"
)

func TestLoginsThatFailAreRefusedAndThoseThatWorkCostNothing(t *testing.T) {
	inBubble(t, loginLimits, func(t *testing.T, node *jatah.Node) {
		l := newLogin(t, node, nil)
		for i := range 50 {
			if got := l.try("alice", "right", owner).StatusCode; got != 200 {
				t.Fatalf("the right password, time %d: %d", i, got)
			}
		}
		for i := range 20 {
			want := 401
			if i >= 5 {
				want = 429
			}
			if got := l.try("alice", "guess", attacker).StatusCode; got != want {
				t.Errorf("guess %d: %d, want %d", i, got, want)
			}
		}
		if l.hashed != 55 {
			t.Errorf("%d passwords were hashed, want 50 right and 5 wrong", l.hashed)
		}
		if got := l.try("alice", "right", attacker).StatusCode; got != 429 {
			t.Errorf("after that the right password from there: %d", got)
		}
		if got := l.try("alice", "right", owner).StatusCode; got != 200 {
			t.Errorf("the owner, from elsewhere, is locked out: %d", got)
		}
		time.Sleep(12 * time.Minute) // a token of the five
		if got := l.try("alice", "right", attacker).StatusCode; got != 200 {
			t.Errorf("who guessed is not let in again after 12 minutes: %d", got)
		}
	})
}

// The takes come before the answers, so tries at the same time do not all pass one look.
func TestLoginsAtTheSameTimeDoNotAllPass(t *testing.T) {
	inBubble(t, loginLimits, func(t *testing.T, node *jatah.Node) {
		l := newLogin(t, node, nil)
		var wait sync.WaitGroup
		for range 100 {
			wait.Go(func() { l.try("alice", "guess", attacker) })
		}
		wait.Wait()
		if l.hashed != 5 {
			t.Errorf("%d of 100 tries at the same time were looked at, want 5", l.hashed)
		}
	})
}

// Many who guess the same account slow its owner down, and cannot keep it out: what is refused to all of them comes back with time.
func TestAnAccountIsSlowedAndNotLocked(t *testing.T) {
	inBubble(t, loginLimits, func(t *testing.T, node *jatah.Node) {
		l := newLogin(t, node, nil)
		for i := range 40 {
			for range 5 {
				l.try("alice", "guess", fmt.Sprintf("198.51.100.%d:1", i))
			}
		}
		if l.hashed < 100 || l.hashed > 110 {
			t.Errorf("%d guesses from 40 addresses were looked at, want about 100", l.hashed)
		}
		res := l.try("alice", "right", owner)
		if wait := res.Header.Get("Retry-After"); res.StatusCode != 429 || len(wait) > 2 {
			t.Errorf("right after that the owner gets %d, again after %s s; want to wait for seconds", res.StatusCode, wait)
		}
		time.Sleep(10 * time.Second)
		if got := l.try("alice", "right", owner).StatusCode; got != 200 {
			t.Errorf("10 s later the owner gets %d", got)
		}
	})
}

// Nothing tells an account that exists from one that does not: not the answers, not when they change, not the time they take.
func TestAnAccountThatDoesNotExistIsAnsweredTheSame(t *testing.T) {
	inBubble(t, loginLimits, func(t *testing.T, node *jatah.Node) {
		l := newLogin(t, node, &edge.Pause{After: 3})
		type answer struct {
			status int
			head   string
			body   string
			took   time.Duration
		}
		tell := func(user, from string) (all []answer) {
			for range 15 {
				began := time.Now()
				res := l.try(user, "guess", from)
				body, _ := io.ReadAll(res.Body)
				var head strings.Builder
				_ = res.Header.Write(&head)
				all = append(all, answer{res.StatusCode, head.String(), string(body), time.Since(began)})
			}
			return all
		}
		there, missing := tell("alice", attacker), tell("nobody", "198.51.100.67:1000")
		for i := range there {
			if there[i] != missing[i] {
				t.Errorf("try %d tells them apart:\n%+v\n%+v", i, there[i], missing[i])
			}
		}
		if there[14].status != 429 || there[14].took != 0 {
			t.Errorf("the last answer is %+v", there[14])
		}
	})
}

// A client that has gone owes like all others, over a real connection.
func TestAClientThatHangsUpIsCharged(t *testing.T) {
	node, err := jatah.Start(t.Context(), jatah.Config{Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	defer node.Close()
	if _, err := node.Limit(jatah.Limit{Name: "api", Rate: jatah.PerDay(100)}); err != nil {
		t.Fatal(err)
	}
	e := mustNew(t, node, aUse(func(u *edge.Use) {
		u.Counts, u.After = edge.Failures(), []edge.After{func(*edge.Request, edge.Outcome) int64 { return 7 }}
	}))
	serving, settled := make(chan struct{}), make(chan struct{})
	inner := e.Middleware(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		close(serving)
		<-r.Context().Done()
		w.WriteHeader(http.StatusBadGateway) // as a proxy says where its client has left
	}))
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer close(settled)
		inner.ServeHTTP(w, r)
	}))
	defer s.Close()
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-serving; cancel() }()
	req, err := http.NewRequestWithContext(ctx, "GET", s.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := http.DefaultClient.Do(req); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	<-settled
	if got := left(t, node, "api", "127.0.0.1"); got < 92 || got > 92.1 {
		t.Errorf("%v of 100 tokens are left, want 92", got)
	}
}

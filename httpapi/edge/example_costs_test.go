package edge_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"time"

	"github.com/jatah-io/jatah"
	"github.com/jatah-io/jatah/httpapi/edge"
)

// start makes a node that is alone, with limits.
func start(limits ...jatah.Limit) *jatah.Node {
	node, err := jatah.Start(context.Background(), jatah.Config{})
	if err != nil {
		log.Fatal(err)
	}
	for _, l := range limits {
		if _, err := node.Limit(l); err != nil {
			log.Fatal(err)
		}
	}
	return node
}

// A report costs a token for each 500 rows that are asked for, and one for each MiB that it turns out to have.
func Example_export() {
	node := start(jatah.Limit{Name: "reports", Rate: jatah.PerHour(100)})
	defer node.Close()
	e, err := edge.New(node, edge.Config{Rules: []edge.Rule{{
		Name: "reports", When: []edge.Condition{edge.Path("/reports/*")},
		Uses: []edge.Use{{
			Limit: "reports", Key: []edge.Part{edge.Address()},
			Cost:  edge.Query("rows").Per(500, edge.Bounds{Max: 40, Missing: 2}),
			After: []edge.After{edge.ResponseBytes(1 << 20)},
		}},
	}}})
	if err != nil {
		log.Fatal(err)
	}
	reports := e.Middleware(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write(make([]byte, 64<<20))
	}))
	for _, query := range []string{"?rows=10000", "?rows=10000", "", "?rows=all"} {
		w := httptest.NewRecorder()
		reports.ServeHTTP(w, httptest.NewRequest("GET", "/reports/sales"+query, nil))
		fmt.Println(w.Code, w.Header().Get("X-RateLimit-Remaining"))
	}
	// Output:
	// 200 80
	// 429 16
	// 200 14
	// 400
}

// Only passwords that are wrong count, for an account from an address; whoever goes on is paused.
func Example_login() {
	node := start(
		jatah.Limit{Name: "login", Rate: jatah.PerHour(5)},
		jatah.Limit{Name: "login-address", Rate: jatah.PerHour(50)},
		jatah.Limit{Name: "login-account", Rate: jatah.PerMinute(6), Burst: 100},
	)
	defer node.Close()
	user := edge.Body("user").Part()
	e, err := edge.New(node, edge.Config{Rules: []edge.Rule{{
		Name: "login", When: []edge.Condition{edge.Method("POST"), edge.Path("/login")},
		Uses: []edge.Use{
			{Limit: "login", Key: []edge.Part{user, edge.Address()}, Counts: edge.Failures()},
			{Limit: "login-address", Key: []edge.Part{edge.Address()}, Counts: edge.Failures()},
			{Limit: "login-account", Key: []edge.Part{user}, Counts: edge.Failures()},
		},
		Pause: &edge.Pause{After: 3, Base: time.Hour, Max: 24 * time.Hour},
	}}})
	if err != nil {
		log.Fatal(err)
	}
	login := e.Middleware(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.FormValue("user") != "alice" || r.FormValue("password") != "right" {
			http.Error(w, "wrong name or password", http.StatusUnauthorized)
		}
	}))
	try := func(address, password string) int {
		form := url.Values{"user": {"alice"}, "password": {password}}
		r := httptest.NewRequest("POST", "/login", strings.NewReader(form.Encode()))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.RemoteAddr = address + ":1234"
		w := httptest.NewRecorder()
		login.ServeHTTP(w, r)
		return w.Code
	}
	for range 9 {
		fmt.Print(try("198.51.100.66", "guess"), " ")
	}
	fmt.Println(try("203.0.113.7", "right"))
	for _, p := range e.Penalties("login", 10) {
		fmt.Printf("%q paused for %v\n", p.Key, time.Until(p.Until).Round(time.Minute))
		fmt.Println("lifted:", e.Lift(p.Rule, p.Key))
	}
	// Output:
	// 401 401 401 401 401 429 429 429 429 200
	// "\x00\x05alice\r198.51.100.66" paused for 1h0m0s
	// lifted: true
}

// A limit of 50 is measured beside one of 100.
func Example_candidate() {
	node := start(jatah.Limit{Name: "api", Rate: jatah.PerHour(100)}, jatah.Limit{Name: "api-50", Rate: jatah.PerHour(50)})
	defer node.Close()
	e, err := edge.New(node, edge.Config{Rules: []edge.Rule{{
		Name: "api", Uses: []edge.Use{{Limit: "api", Key: []edge.Part{edge.Address()}, Candidates: []string{"api-50"}}},
	}}})
	if err != nil {
		log.Fatal(err)
	}
	api := e.Middleware(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for range 80 {
		api.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
	}
	for e.Candidates()[0].Requests < 80 { // candidates are asked beside the requests
		time.Sleep(time.Millisecond)
	}
	fmt.Println(e.Candidates()[0])
	// Output: rule api: with api-50 37.5 % of 80 requests would have been refused; with api it is 0.0 %
}

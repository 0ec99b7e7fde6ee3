// Command middleware is a shop whose requests are limited where they come in: customers by their account, visitors by their address,
// wrong passwords, and exports by what they cost.
//
//	go run ./examples/middleware
//	curl -i http://127.0.0.1:8090/                                          # a visitor: 60 an hour
//	curl -i -b session=5e55 http://127.0.0.1:8090/                          # a customer: 500 an hour
//	curl -i -d 'user=alice&password=guess' http://127.0.0.1:8090/login      # 401, from the sixth on 429
//	curl -i -b session=5e55 'http://127.0.0.1:8090/export?rows=1001'        # costs 3 of 100 a day
//	curl http://127.0.0.1:8091/v1/edge                                      # what the rules did
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"os"
	"os/signal"
	"time"

	"github.com/jatah-io/jatah"
	"github.com/jatah-io/jatah/httpapi"
	"github.com/jatah-io/jatah/httpapi/edge"
	"github.com/jatah-io/jatah/httpapi/metrics"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	// With Bind, Join and Secret set, all instances of the service keep the limits together.
	node, err := jatah.Start(ctx, jatah.Config{})
	if err != nil {
		return err
	}
	defer node.Close()
	e, err := newEdge(node)
	if err != nil {
		return err
	}

	// For whoever runs the service, and not for its clients: who is paused and limited, what the rules did, metrics.
	admin := httpapi.New(node, httpapi.Config{
		Edges:   func() []*edge.Edge { return []*edge.Edge{e} },
		Metrics: metrics.Handler(node, "1.0", metrics.NewEdgeCollector(func() *edge.Edge { return e })),
	})
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 2)
	for addr, handler := range map[string]http.Handler{"127.0.0.1:8090": shop(e), "127.0.0.1:8091": admin} {
		go func() { ended <- httpapi.ListenAndServe(ctx, addr, handler, nil, 5*time.Second) }()
	}
	log.Print("try: curl -i http://127.0.0.1:8090/")
	err = <-ended
	cancel() // if one of them fails the other ends too
	return errors.Join(err, <-ended)
}

// newEdge defines the limits and the rules that use them.
func newEdge(node *jatah.Node) (*edge.Edge, error) {
	for _, l := range []jatah.Limit{
		{Name: "account", Rate: jatah.PerHour(500)},
		{Name: "address", Rate: jatah.PerHour(60)},
		{Name: "export", Rate: jatah.PerDay(100)},
		{Name: "login", Rate: jatah.PerHour(5)},
		{Name: "login-address", Rate: jatah.PerHour(50)},
		{Name: "login-account", Rate: jatah.PerMinute(6), Burst: 100},
	} {
		if _, err := node.Limit(l); err != nil {
			return nil, err
		}
	}
	user := edge.Body("user").Part()
	return edge.New(node, edge.Config{
		Account: edge.AccountFromContext(account{}),
		// The first rule that is for a request decides.
		Rules: []edge.Rule{
			{
				Name: "login",
				When: []edge.Condition{edge.Method("POST"), edge.Path("/login")},
				Uses: []edge.Use{
					{Limit: "login", Key: []edge.Part{user, edge.Address()}, Counts: edge.Failures()},
					{Limit: "login-address", Key: []edge.Part{edge.Address()}, Counts: edge.Failures()},
					{Limit: "login-account", Key: []edge.Part{user}, Counts: edge.Failures()},
				},
				Pause: &edge.Pause{After: 10, Base: time.Second, Max: 15 * time.Minute},
			},
			{
				Name: "export",
				When: []edge.Condition{edge.Authenticated(), edge.Path("/export")},
				Uses: []edge.Use{{
					Limit: "export", Key: []edge.Part{edge.Account()},
					Cost:  edge.Query("rows").Per(500, edge.Bounds{Max: 100, Missing: 2}),
					After: []edge.After{edge.ResponseBytes(1 << 20)},
				}},
			},
			{Name: "known", When: []edge.Condition{edge.Authenticated()}, Uses: []edge.Use{{Limit: "account", Key: []edge.Part{edge.Account()}}}},
			{Name: "visitors", Uses: []edge.Use{{Limit: "address", Key: []edge.Part{edge.Address()}}}},
		},
	})
}

// account is where the context of a request has the account.
type account struct{}

// sessions are those who are signed in; a real service has its own.
var sessions = map[string]string{"5e55": "alice"}

// signedIn is the authentication of the service. It comes before the edge, so that the rules know who is asking.
func signedIn(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c, err := r.Cookie("session"); err == nil && sessions[c.Value] != "" {
			r = r.WithContext(context.WithValue(r.Context(), account{}, sessions[c.Value]))
		}
		next.ServeHTTP(w, r)
	})
}

func shop(e *edge.Edge) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /login", func(w http.ResponseWriter, r *http.Request) {
		if r.FormValue("user") != "alice" || r.FormValue("password") != "right" {
			http.Error(w, "wrong name or password", http.StatusUnauthorized)
			return
		}
		http.SetCookie(w, &http.Cookie{Name: "session", Value: "5e55"})
	})
	mux.HandleFunc("GET /export", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "id,name") })
	mux.HandleFunc("GET /", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "welcome") })
	return signedIn(e.Middleware(mux))
}

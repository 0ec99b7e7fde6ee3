// Command middleware is a site that limits who comes in: visitors by their address, those who are known by their account.
//
//	go run ./examples/middleware
//	curl -i http://127.0.0.1:8091/
//	curl -i -u ada:secret http://127.0.0.1:8091/
package main

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"time"

	"github.com/jatah-io/jatah"
	"github.com/jatah-io/jatah/httpapi/edge"
)

func main() {
	node, err := jatah.Start(context.Background(), jatah.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer node.Close()
	site, err := limited(node, http.HandlerFunc(hello))
	if err != nil {
		log.Fatal(err)
	}
	srv := &http.Server{Addr: "127.0.0.1:8091", ReadHeaderTimeout: 5 * time.Second, Handler: site}
	log.Printf("try: curl -i http://%s/", srv.Addr)
	log.Print(srv.ListenAndServe())
}

// limited is the site behind what says who is asking and behind the limits.
func limited(node *jatah.Node, site http.Handler) (http.Handler, error) {
	// README: begin
	for _, l := range []jatah.Limit{{Name: "account", Rate: jatah.PerHour(1000)}, {Name: "visitor", Rate: jatah.PerMinute(5)}} {
		if _, err := node.Limit(l); err != nil {
			return nil, err
		}
	}
	limits, err := edge.New(node, edge.Config{Account: edge.AccountFromContext(userKey{}), Rules: []edge.Rule{
		{Name: "known", When: []edge.Condition{edge.Authenticated()}, Uses: []edge.Use{{Limit: "account", Key: []edge.Part{edge.Account()}}}},
		{Name: "visitors", Uses: []edge.Use{{Limit: "visitor", Key: []edge.Part{edge.Address()}}}},
	}})
	if err != nil {
		return nil, err
	}
	return authenticate(limits.Middleware(site)), nil
	// README: end
}

// userKey is where authenticate leaves the name of who is asking.
type userKey struct{}

// authenticate stands for whatever your program does to know who is asking. Who is not known goes on as a visitor.
func authenticate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, password, ok := r.BasicAuth(); ok && password == "secret" {
			r = r.WithContext(context.WithValue(r.Context(), userKey{}, user))
		}
		next.ServeHTTP(w, r)
	})
}

func hello(w http.ResponseWriter, r *http.Request) {
	_, _ = fmt.Fprintf(w, "hello, by the rule %q\n", edge.FromContext(r.Context()).Rule)
}

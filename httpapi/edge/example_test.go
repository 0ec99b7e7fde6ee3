package edge_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"

	"github.com/jatah-io/jatah"
	"github.com/jatah-io/jatah/httpapi/edge"
)

// Three requests per day and address, for whoever is not signed in.
func ExampleEdge_Middleware() {
	node, err := jatah.Start(context.Background(), jatah.Config{})
	if err != nil {
		panic(err)
	}
	defer node.Close()
	if _, err := node.Limit(jatah.Limit{Name: "visitors", Rate: jatah.PerDay(3)}); err != nil {
		panic(err)
	}
	e, err := edge.New(node, edge.Config{Rules: []edge.Rule{{
		When: []edge.Condition{edge.Anonymous()},
		Uses: []edge.Use{{Limit: "visitors", Key: []edge.Part{edge.Address()}}},
	}}})
	if err != nil {
		panic(err)
	}
	site := e.Middleware(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "hello\n") }))

	for range 4 {
		w := httptest.NewRecorder()
		site.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		fmt.Printf("%d: %s left, Retry-After %q\n", w.Code, w.Header().Get("X-RateLimit-Remaining"), w.Header().Get("Retry-After"))
	}
	// Output:
	// 200: 2 left, Retry-After ""
	// 200: 1 left, Retry-After ""
	// 200: 0 left, Retry-After ""
	// 429: 0 left, Retry-After "28800"
}

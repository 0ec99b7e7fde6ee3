// Command embed is a service that limits its own callers: 5 requests per 10 seconds for each user.
//
//	go run ./examples/embed
//	curl 'http://127.0.0.1:8090/?user=ada'
package main

import (
	"context"
	"fmt"
	"log"
	"math"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"time"

	"github.com/jatah-io/jatah"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	// With Bind, Join and Secret set, all instances of the service keep the limit together.
	node, err := jatah.Start(ctx, jatah.Config{})
	if err != nil {
		return err
	}
	defer node.Close()
	api, err := node.Limit(jatah.Limit{Name: "api", Rate: jatah.Per(5, 10*time.Second)})
	if err != nil {
		return err
	}
	srv := &http.Server{Addr: "127.0.0.1:8090", ReadHeaderTimeout: 5 * time.Second, Handler: limited(api)}
	go func() {
		<-ctx.Done()
		_ = srv.Close()
	}()
	log.Printf("try: curl 'http://%s/?user=ada'", srv.Addr)
	if err := srv.ListenAndServe(); err != http.ErrServerClosed {
		return err
	}
	return nil
}

func limited(api *jatah.Limiter) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user := r.URL.Query().Get("user")
		d := api.Take(r.Context(), user, 1)
		switch {
		case d.Err != nil:
			http.Error(w, d.Err.Error(), http.StatusBadRequest)
		case !d.OK:
			w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(d.RetryAfter.Seconds()))))
			http.Error(w, "too many requests", http.StatusTooManyRequests)
		default:
			fmt.Fprintf(w, "hello %s, %d left\n", user, d.Remaining)
		}
	})
}

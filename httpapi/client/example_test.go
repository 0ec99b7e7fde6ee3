package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/jatah-io/jatah"
	"github.com/jatah-io/jatah/httpapi"
	"github.com/jatah-io/jatah/httpapi/client"
)

// standalone is a node as `jatah serve` runs it.
func standalone() (addr string, stop func()) {
	node, err := jatah.Start(context.Background(), jatah.Config{})
	if err != nil {
		log.Fatal(err)
	}
	for _, l := range []jatah.Limit{
		{Name: "api", Rate: jatah.PerMinute(100), Burst: 3},
		{Name: "jobs", Algorithm: jatah.Concurrency, Max: 1},
	} {
		if _, err := node.Limit(l); err != nil {
			log.Fatal(err)
		}
	}
	srv := httptest.NewServer(httpapi.New(node, httpapi.Config{}))
	return srv.URL, func() { srv.Close(); node.Close() }
}

func Example() {
	addr, stop := standalone()
	defer stop()

	c, err := client.New(client.Config{Addrs: []string{addr}})
	if err != nil {
		log.Fatal(err)
	}
	api := c.Limiter("api")
	for range 2 {
		d, err := api.Take(context.Background(), client.Key{"tenant-7", "alice"}, 2)
		switch {
		case err != nil: // nobody decided: let it pass or not, as the service prefers
			log.Fatal(err)
		case d.Allowed:
			fmt.Println("allowed,", d.Remaining, "left")
		default:
			fmt.Println("denied, retry in", d.RetryAfter.Round(100*time.Millisecond))
		}
	}
	// Output:
	// allowed, 1 left
	// denied, retry in 600ms
}

func ExampleProblem() {
	addr, stop := standalone()
	defer stop()
	c, err := client.New(client.Config{Addrs: []string{addr}})
	if err != nil {
		log.Fatal(err)
	}
	_, err = c.Limiter("apo").Take(context.Background(), client.Key{"alice"}, 1)
	var p *client.Problem
	if errors.As(err, &p) {
		fmt.Println(p.Status, p.Detail)
	}
	fmt.Println(errors.Is(err, client.ErrUnknownLimit))
	// Output:
	// 404 No limit is named "apo"; this node knows api, jobs.
	// true
}

func ExampleClient_Acquire() {
	addr, stop := standalone()
	defer stop()
	c, err := client.New(client.Config{Addrs: []string{addr}})
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	work := func() {
		p, d, err := c.Acquire(ctx, "jobs", client.Key{"alice"}, 0)
		if err != nil || !d.Allowed {
			fmt.Println("busy", err)
			return
		}
		defer p.Release(ctx)
		fmt.Println("working,", d.Remaining, "left")
	}
	work()
	work()
	// Output:
	// working, 0 left
	// working, 0 left
}

// A crawler stays within the limit of its own, and away from who says 429.
func ExampleTransport() {
	addr, stop := standalone()
	defer stop()
	c, err := client.New(client.Config{Addrs: []string{addr}})
	if err != nil {
		log.Fatal(err)
	}
	// With an embedded node: Limit: client.Waiting(limiter.Wait).
	transport, err := client.NewTransport(nil, client.TransportConfig{Limit: c.Limiter("api").Waiter()})
	if err != nil {
		log.Fatal(err)
	}
	crawler := &http.Client{Transport: transport, Timeout: 10 * time.Second}

	site := httptest.NewServer(http.NotFoundHandler())
	defer site.Close()
	for range 2 {
		resp, err := crawler.Get(site.URL)
		if err != nil {
			log.Fatal(err)
		}
		resp.Body.Close()
		fmt.Println(resp.StatusCode)
	}
	// Output:
	// 404
	// 404
}

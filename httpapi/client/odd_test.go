package client_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jatah-io/jatah"
	"github.com/jatah-io/jatah/httpapi/client"
)

// A node remembers an Idempotency-Key for a minute. What may have been carried out is not tried after that.
func TestNothingIsChargedTwiceAfterALongPause(t *testing.T) {
	for name, second := range map[string]http.HandlerFunc{
		"told to wait": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "59")
			w.WriteHeader(http.StatusServiceUnavailable) // of a proxy that has nobody to ask
		},
		"often": func(w http.ResponseWriter, _ *http.Request) {
			time.Sleep(4 * time.Second)
			w.WriteHeader(http.StatusServiceUnavailable)
		},
		"long backoff": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLab(t)
				n := node(t, jatah.Limit{Name: "api", Rate: jatah.PerDay(1000)})
				real, calls, broken := api(n), 0, second
				l.serve("n1", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					switch calls++; {
					case calls == 1: // carried out, and the answer lost
						real.ServeHTTP(discarded{}, r)
						w.WriteHeader(http.StatusGatewayTimeout)
					case calls == 2 || name != "told to wait" && calls < 25:
						broken(w, r)
					default:
						real.ServeHTTP(w, r)
					}
				}))
				retry := client.Retry{Attempts: 30, Max: 30 * time.Second, Base: 20 * time.Second, Jitter: client.EqualJitter}
				if name == "told to wait" {
					retry.Max, retry.Base = 5*time.Second, 5*time.Second
				}
				c := l.client(client.Config{Retry: retry}, "n1")
				begin := time.Now()
				_, err := c.Take(t.Context(), client.Request{Limit: "api", Key: key("a"), Cost: 1})
				lim, _ := n.Lookup("api")
				s, _ := lim.Peek(t.Context(), "a")
				if s.Balance < 999 || s.Balance >= 1000 || err == nil || !errors.Is(err, client.ErrUncertain) {
					t.Errorf("after %v %v of 1000 are left, and the error is %v", time.Since(begin), s.Balance, err)
				}
			})
		})
	}
}

// discarded is an answer that nobody gets.
type discarded struct{}

func (discarded) Header() http.Header         { return http.Header{} }
func (discarded) Write(b []byte) (int, error) { return len(b), nil }
func (discarded) WriteHeader(int)             {}

// A remote whose refusals have bodies without end does not hold those up who would try again.
func TestARefusalWithoutEndIsNotReadToItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		calls := 0
		l.serve("one", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if calls++; calls > 1 {
				return
			}
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
			for r.Context().Err() == nil {
				_, _ = io.WriteString(w, ".")
				_ = http.NewResponseController(w).Flush()
				time.Sleep(10 * time.Second)
			}
		}))
		c, _ := paced(l, client.TransportConfig{})
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		status, err := get(t, c, ctx, "http://one/")
		if status != 200 || err != nil {
			t.Errorf("%d, %v", status, err)
		}
		time.Sleep(time.Minute) // until the handler sees that nobody is there
	})
}

type idle struct {
	http.RoundTripper
	closed int
}

func (i *idle) CloseIdleConnections() { i.closed++ }

func TestIdleConnectionsOfTheBaseAreClosed(t *testing.T) {
	base := &idle{}
	tr, err := client.NewTransport(base, client.TransportConfig{})
	if err != nil {
		t.Fatal(err)
	}
	(&http.Client{Transport: tr}).CloseIdleConnections()
	if base.closed != 1 {
		t.Errorf("closed %d times", base.closed)
	}
	if tr, err = client.NewTransport(struct{ http.RoundTripper }{base}, client.TransportConfig{}); err != nil {
		t.Fatal(err)
	}
	tr.CloseIdleConnections() // the base cannot: nothing happens
}

// One take that a node does not accept spoils no other that shares its request.
func TestAnOddTakeSpoilsNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		s := &slow{next: api(node(t, perMinute("api", 1, 1000))), delay: func() time.Duration { return time.Second }}
		l.serve("n1", s)
		c := l.client(client.Config{Batch: client.Batch{Max: 100}}, "n1")
		odd := []client.Request{
			{Limit: "api", Key: key("first"), Cost: 1}, // alone
			{Limit: "api", Key: nil, Cost: 1},
			{Limit: "api", Key: client.Key{}, Cost: 1},
			{Limit: "", Key: key("x"), Cost: 1},
			{Limit: "api", Key: key("x"), Cost: -1},
			{Limit: "api", Key: key(strings.Repeat("k", 5000)), Cost: 1},
			{Limit: strings.Repeat("l", 5000), Key: key("x"), Cost: 1},
			{Limit: "a\"}]}{[", Key: key("x"), Cost: 1},
			{Limit: "api", Key: key("x"), Cost: 1, Plan: "\x00\xff"},
			{Limit: "api", Key: key("x"), Route: "\xff\u2028\\"},                             // good
			{Limit: "api", Key: client.Key{"\xff", "\x00", "\"", "\u2029", "\x7f"}, Cost: 1}, // good
			{Limit: "api", Key: key("x"), Cost: 1 << 62},                                     // denied
		}
		type result struct {
			i   int
			d   client.Decision
			err error
		}
		results := make(chan result)
		for i, r := range odd {
			go func() { d, err := c.Take(t.Context(), r); results <- result{i, d, err} }()
			go func() {
				k := key("good" + r.Limit + r.Key.String())
				if len(k[0]) > 1000 {
					k[0] = "good long"
				}
				d, err := c.Take(t.Context(), client.Request{Limit: "api", Key: k, Cost: int64(i)})
				if err != nil || !d.Allowed || d.Cost != int64(i) {
					t.Errorf("a good one beside %d: %+v, %v", i, d, err)
				}
			}()
			synctest.Wait()
		}
		for range odd {
			r := <-results
			if good := r.i == 0 || r.i >= 9; good != (r.err == nil) || (r.i == 11) == r.d.Allowed && good {
				t.Errorf("%d: %+v, %v", r.i, r.d, r.err)
			}
		}
	})
}

// The password of an address, which is sent, is not shown in errors.
func TestAPasswordIsNotShown(t *testing.T) {
	l := newLab(t)
	statuses := []http.HandlerFunc{func(w http.ResponseWriter, r *http.Request) {
		if _, password, _ := r.BasicAuth(); password != "s3cret" {
			t.Errorf("sent %q", password)
		}
		w.WriteHeader(http.StatusForbidden)
	}}
	l.serve("n1", &script{steps: statuses})
	for _, host := range []string{"n1", "nobody"} {
		c := l.client(client.Config{Retry: client.Retry{Attempts: 1}}, "http://me:s3cret@"+host)
		_, err := c.Take(t.Context(), client.Request{Limit: "api", Key: key("a"), Cost: 1})
		if err == nil || strings.Contains(err.Error(), "s3cret") || !strings.Contains(err.Error(), "me:xxxxx@"+host) {
			t.Error(err)
		}
	}
}

package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jatah-io/jatah"
	"github.com/jatah-io/jatah/httpapi/client"
)

// paced is an http.Client over a Transport in a lab.
func paced(l *lab, cfg client.TransportConfig) (*http.Client, *client.Transport) {
	l.t.Helper()
	tr, err := client.NewTransport(l.http.Transport, cfg)
	if err != nil {
		l.t.Fatal(err)
	}
	return &http.Client{Transport: tr}, tr
}

func get(t *testing.T, c *http.Client, ctx context.Context, url string) (int, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, "GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := c.Do(r)
	if err != nil {
		return 0, err
	}
	resp.Body.Close()
	return resp.StatusCode, nil
}

func TestRequestsArePacedByALimit(t *testing.T) {
	limit := perSecond("out", 2, 1)
	for name, waiter := range map[string]func(*testing.T) client.Waiter{
		"of a node that is embedded": func(t *testing.T) client.Waiter {
			l, ok := node(t, limit).Lookup("out")
			if !ok {
				t.Fatal("no limit")
			}
			return client.Waiting(l.Wait)
		},
		"of a cluster": func(t *testing.T) client.Waiter { return cluster(t, client.Config{}, limit).Limiter("out").Waiter() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLab(t)
				one, two := &script{steps: []http.HandlerFunc{yes}}, &script{steps: []http.HandlerFunc{yes}}
				l.serve("one", one)
				l.serve("two", two)
				c, _ := paced(l, client.TransportConfig{Limit: waiter(t)})
				var wg sync.WaitGroup
				for _, url := range []string{"http://one/a", "http://ONE/b", "http://one/c", "http://two/"} {
					wg.Go(func() {
						if status, err := get(t, c, t.Context(), url); status != 200 {
							t.Errorf("%s: %d, %v", url, status, err)
						}
					})
				}
				wg.Wait()
				pausesOf(t, one.requests(), [2]time.Duration{500 * ms, 800 * ms}, [2]time.Duration{450 * ms, 900 * ms})
				if len(two.requests()) != 1 {
					t.Error("another host was not asked")
				}
				ctx, cancel := context.WithTimeout(t.Context(), 100*ms)
				defer cancel()
				begin := time.Now()
				if _, err := get(t, c, ctx, "http://one/"); !errors.Is(err, client.ErrDeadline) && !errors.Is(err, jatah.ErrDeadline) || time.Since(begin) != 0 {
					t.Errorf("%v after %v", err, time.Since(begin))
				}
			})
		})
	}
}

func TestCostAndKeyAreToChoose(t *testing.T) {
	var got []string
	l := newLab(t)
	l.serve("one", &script{steps: []http.HandlerFunc{yes}})
	c, _ := paced(l, client.TransportConfig{
		Limit: client.WaitFunc(func(_ context.Context, key string, cost int64) error {
			got = append(got, fmt.Sprint(key, " ", cost))
			if cost > 2 {
				return io.ErrNoProgress
			}
			return nil
		}),
		Key:  func(r *http.Request) string { return r.URL.Path },
		Cost: func(r *http.Request) int64 { return int64(len(r.URL.Path)) },
	})
	if status, err := get(t, c, t.Context(), "http://one/a"); status != 200 {
		t.Error(status, err)
	}
	if _, err := get(t, c, t.Context(), "http://one/abc"); !errors.Is(err, io.ErrNoProgress) {
		t.Error(err)
	}
	if strings.Join(got, ",") != "/a 2,/abc 4" {
		t.Error(got)
	}
}

// A refusal of one request holds back all of its host, and nobody else.
func TestARefusalPausesTheHost(t *testing.T) {
	date := func(d time.Duration) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			says(429, "", "Retry-After", time.Now().Add(d).UTC().Format(http.TimeFormat))(w, r)
		}
	}
	for name, refusal := range map[string]http.HandlerFunc{
		"429 and seconds": says(429, "slow down", "Retry-After", "30"),
		"503 and seconds": says(503, "slow down", "Retry-After", "30"),
		"a date":          date(30 * time.Second),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLab(t)
				one, two := &script{steps: []http.HandlerFunc{refusal, yes}}, &script{steps: []http.HandlerFunc{yes}}
				l.serve("one", one)
				l.serve("two", two)
				c, tr := paced(l, client.TransportConfig{})
				begin := time.Now()
				var wg sync.WaitGroup
				for i := range 5 {
					wg.Go(func() {
						time.Sleep(time.Duration(i) * time.Second)
						if status, err := get(t, c, t.Context(), "http://one/"); status != 200 {
							t.Errorf("%d: %d, %v", i, status, err)
						}
						if took := time.Since(begin); took < 30*time.Second || took > 30200*ms {
							t.Errorf("%d: after %v", i, took)
						}
					})
				}
				time.Sleep(2500 * ms)
				if status, err := get(t, c, t.Context(), "http://two/"); status != 200 || time.Since(begin) != 2500*ms {
					t.Errorf("%d, %v after %v", status, err, time.Since(begin))
				}
				if client.Paused(tr) != 1 {
					t.Errorf("%d keys are paused", client.Paused(tr))
				}
				late, cancel := context.WithTimeout(t.Context(), 27*time.Second)
				defer cancel()
				if _, err := get(t, c, late, "http://one/"); !errors.Is(err, client.ErrDeadline) || !strings.Contains(err.Error(), `paused "one"`) || time.Since(begin) != 2500*ms {
					t.Errorf("%v after %v", err, time.Since(begin))
				}
				gone, cancel := testContext(t)
				time.AfterFunc(time.Second, cancel)
				if _, err := get(t, c, gone, "http://one/"); !errors.Is(err, context.Canceled) || time.Since(begin) != 3500*ms {
					t.Errorf("%v after %v", err, time.Since(begin))
				}
				wg.Wait()
				if n := len(one.requests()); n != 6 {
					t.Errorf("%d requests, want the first and the 5", n)
				}
				if client.Paused(tr) != 0 {
					t.Errorf("%d keys are remembered after the pause", client.Paused(tr))
				}
			})
		})
	}
}

func TestWhatCanBeSentAgainIsSentAgain(t *testing.T) {
	refused := says(429, "slow down", "Retry-After", "1")
	for _, c := range []struct {
		name   string
		method string
		body   io.Reader
		head   string // a header that is set
		steps  []http.HandlerFunc
		status int
		tries  int
	}{
		{"GET", "GET", nil, "", []http.HandlerFunc{refused, refused, yes}, 200, 3},
		{"GET, for ever", "GET", nil, "", []http.HandlerFunc{refused}, 429, 4},
		{"PUT with a body", "PUT", strings.NewReader("text"), "", []http.HandlerFunc{refused, refused, yes}, 200, 3},
		{"PUT with a stream", "PUT", io.MultiReader(strings.NewReader("text")), "", []http.HandlerFunc{refused, yes}, 429, 1},
		{"POST", "POST", strings.NewReader("text"), "", []http.HandlerFunc{refused, yes}, 429, 1},
		{"POST with a key", "POST", strings.NewReader("text"), "Idempotency-Key", []http.HandlerFunc{refused, yes}, 200, 2},
		{"PATCH with a key", "PATCH", strings.NewReader("text"), "X-Idempotency-Key", []http.HandlerFunc{refused, yes}, 200, 2},
		{"503 that names no time", "GET", nil, "", []http.HandlerFunc{says(503, ""), yes}, 503, 1},
		{"too long", "GET", nil, "", []http.HandlerFunc{says(429, "slow down", "Retry-After", "7200"), yes}, 429, 1},
		{"a large answer", "GET", nil, "", []http.HandlerFunc{says(429, strings.Repeat("x", 1<<20), "Retry-After", "1"), yes}, 200, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLab(t)
				s := &script{steps: c.steps}
				l.serve("one", s)
				hc, _ := paced(l, client.TransportConfig{})
				r, err := http.NewRequestWithContext(t.Context(), c.method, "http://one/x", c.body)
				if err != nil {
					t.Fatal(err)
				}
				if c.head != "" {
					r.Header.Set(c.head, "k")
				}
				resp, err := hc.Do(r)
				if err != nil {
					t.Fatal(err)
				}
				body, err := io.ReadAll(resp.Body)
				resp.Body.Close()
				if resp.StatusCode != c.status || err != nil || c.status == 429 && string(body) != "slow down" {
					t.Errorf("%d %q, %v; want %d", resp.StatusCode, body, err, c.status)
				}
				got := s.requests()
				if len(got) != c.tries {
					t.Errorf("%d tries, want %d", len(got), c.tries)
				}
				for i, r := range got {
					if c.body != nil && r.body != "text" || i > 0 && got[i].at.Sub(got[i-1].at) < time.Second {
						t.Errorf("%d: %+v", i, r)
					}
				}
			})
		})
	}
}

func TestALongPauseFailsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		s := &script{steps: []http.HandlerFunc{says(429, "", "Retry-After", "99999999999999999999"), yes}}
		l.serve("one", s)
		c, _ := paced(l, client.TransportConfig{})
		if status, err := get(t, c, t.Context(), "http://one/"); status != 429 {
			t.Error(status, err)
		}
		if _, err := get(t, c, t.Context(), "http://one/"); !errors.Is(err, client.ErrPaused) || len(s.requests()) != 1 {
			t.Error(err)
		}
		time.Sleep(24*time.Hour + time.Minute)
		if status, err := get(t, c, t.Context(), "http://one/"); status != 200 {
			t.Errorf("a day later: %d, %v", status, err)
		}
	})
}

// Without Retry-After pauses grow with each refusal in a row, and begin anew when the remote has taken a request.
func TestPausesGrow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		no := says(429, "")
		s := &script{steps: []http.HandlerFunc{no, no, no, no, no, yes, no, yes}}
		l.serve("one", s)
		c, _ := paced(l, client.TransportConfig{Retry: client.Retry{Attempts: 9, Base: time.Second, Max: 6 * time.Second, Jitter: client.EqualJitter}})
		for range 2 {
			if status, err := get(t, c, t.Context(), "http://one/"); status != 200 {
				t.Error(status, err)
			}
		}
		// Those who wait for the end of a pause come up to Base later.
		pausesOf(t, s.requests(), [2]time.Duration{500 * ms, 2 * time.Second}, [2]time.Duration{time.Second, 3 * time.Second},
			[2]time.Duration{2 * time.Second, 5 * time.Second}, [2]time.Duration{3 * time.Second, 7 * time.Second},
			[2]time.Duration{3 * time.Second, 7 * time.Second}, [2]time.Duration{0, 0}, [2]time.Duration{500 * ms, 2 * time.Second})
	})
}

// Requests that were under way together and are refused together are one refusal in the row.
func TestRefusalsTogetherAreOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		no := func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(10 * ms)
			says(429, "")(w, r)
		}
		s := &script{steps: []http.HandlerFunc{no, no, no, no, no, no, no, no, no, no, yes}}
		l.serve("one", s)
		c, _ := paced(l, client.TransportConfig{Retry: client.Retry{Base: time.Second, Max: time.Hour, Jitter: client.EqualJitter}})
		begin := time.Now()
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				if status, err := get(t, c, t.Context(), "http://one/"); status != 200 || time.Since(begin) > 2011*ms {
					t.Errorf("%d, %v after %v", status, err, time.Since(begin))
				}
			})
		}
		wg.Wait()
	})
}

func TestTheMemoryForPausesIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		s := &script{steps: []http.HandlerFunc{says(429, "", "Retry-After", "60")}}
		l.serve("one", s)
		c, tr := paced(l, client.TransportConfig{MaxKeys: 8, Key: func(r *http.Request) string { return r.URL.Path }, Retry: client.Retry{Attempts: 1}})
		for i := range 40 {
			get(t, c, t.Context(), fmt.Sprintf("http://one/%d", i))
			if n := client.Paused(tr); n > 8 {
				t.Fatalf("%d keys", n)
			}
			time.Sleep(time.Second)
		}
		if len(s.requests()) != 40 {
			t.Errorf("%d requests", len(s.requests()))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := get(t, c, ctx, "http://one/39"); !errors.Is(err, client.ErrDeadline) {
			t.Errorf("the last is not paused: %v", err)
		}
		time.Sleep(time.Hour)
		get(t, c, t.Context(), "http://one/new")
		if n := client.Paused(tr); n != 1 {
			t.Errorf("%d keys are remembered, most of them of pauses that are over", n)
		}
	})
}

// A body is closed whatever happens, and the base's errors come through.
func TestBodiesAreClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, c := range map[string]struct {
			limit client.Waiter
			url   string
			want  error
		}{
			"not let in": {client.WaitFunc(func(context.Context, string, int64) error { return io.ErrNoProgress }), "http://one/", io.ErrNoProgress},
			"not there":  {nil, "http://nowhere/", errAny},
			"answered":   {nil, "http://one/", nil},
		} {
			l := newLab(t)
			l.serve("one", &script{steps: []http.HandlerFunc{yes}})
			_, tr := paced(l, client.TransportConfig{Limit: c.limit})
			body := &closer{Reader: strings.NewReader("text")}
			r, err := http.NewRequestWithContext(t.Context(), "POST", c.url, body)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := tr.RoundTrip(r)
			if (err != nil) != (c.want != nil) || c.want != errAny && !errors.Is(err, c.want) {
				t.Errorf("%s: %v", name, err)
			}
			if err == nil {
				resp.Body.Close()
			}
			synctest.Wait()
			if !body.isClosed() {
				t.Errorf("%s: the body is not closed", name)
			}
		}
	})
}

var errAny = errors.New("any error")

type closer struct {
	io.Reader
	mu     sync.Mutex
	closed bool
}

func (c *closer) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	return nil
}

func (c *closer) isClosed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed
}

func TestBadSettingsOfATransport(t *testing.T) {
	for _, cfg := range []client.TransportConfig{{MaxKeys: -1}, {Retry: client.Retry{Max: -1}}} {
		if _, err := client.NewTransport(nil, cfg); !errors.Is(err, client.ErrConfig) {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
}

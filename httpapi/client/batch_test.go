package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jatah-io/jatah/httpapi/client"
)

// slow passes requests on after a while, and counts them by path and by takes.
type slow struct {
	next  http.Handler
	delay func() time.Duration
	mu    sync.Mutex
	calls map[string]int
	most  int // takes in one request
}

func (s *slow) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	s.mu.Lock()
	if s.calls == nil {
		s.calls = make(map[string]int)
	}
	s.calls[r.URL.Path]++
	s.most = max(s.most, strings.Count(string(body), `"limit":`))
	s.mu.Unlock()
	time.Sleep(s.delay())
	r.Body = io.NopCloser(strings.NewReader(string(body)))
	s.next.ServeHTTP(w, r)
}

// Every caller gets the decision about its own key and cost, or its own error, under any load; and who goes away takes nobody along.
func TestSharedTakesComeBackToTheirCallers(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	for _, calls := range []int{1, 3} {
		synctest.Test(t, func(t *testing.T) {
			l := newLab(t)
			s := &slow{next: api(node(t, perMinute("api", 1, 1000)))}
			random := rand.New(rand.NewPCG(seed, uint64(calls)))
			var mu sync.Mutex
			pick := func(n int) int { mu.Lock(); defer mu.Unlock(); return random.IntN(n) }
			s.delay = func() time.Duration { return time.Duration(pick(3000)) * time.Microsecond }
			l.serve("n1", s)
			c := l.client(client.Config{Batch: client.Batch{Max: 16, Calls: calls}}, "n1")
			var wg sync.WaitGroup
			var gone, refused, decided atomic.Int64
			for i := range 300 {
				pause, kind := time.Duration(pick(30_000))*time.Microsecond, pick(10)
				wg.Go(func() {
					time.Sleep(pause)
					r := client.Request{Limit: "api", Key: key("u" + strconv.Itoa(i)), Cost: int64(i) + 1}
					ctx := t.Context()
					switch kind {
					case 0:
						r.Limit = "no" + strconv.Itoa(i)
					case 1:
						r.Key = key("")
					case 2:
						short, cancel := context.WithTimeout(ctx, time.Duration(pick(2000))*time.Microsecond)
						defer cancel()
						ctx = short
					}
					d, err := c.Take(ctx, r)
					var p *client.Problem
					switch {
					case kind == 0:
						if !errors.Is(err, client.ErrUnknownLimit) || !strings.Contains(err.Error(), strconv.Quote(r.Limit)) || !errors.As(err, &p) || p.Addr != "http://n1" {
							t.Errorf("%d: %+v, %v", i, d, err)
						}
						refused.Add(1)
					case kind == 1:
						if !errors.As(err, &p) || p.Field != "key" || p.Status != 400 {
							t.Errorf("%d: %+v, %v", i, d, err)
						}
						refused.Add(1)
					case kind == 2 && err != nil:
						if !errors.Is(err, context.DeadlineExceeded) {
							t.Errorf("%d: %v", i, err)
						}
						gone.Add(1)
					case err != nil || !d.Allowed || d.Cost != r.Cost || d.Remaining != 1000-r.Cost || d.Key[0] != r.Key[0]:
						t.Errorf("%d: %+v, %v", i, d, err)
					default:
						decided.Add(1)
					}
				})
			}
			wg.Wait()
			if gone.Load() == 0 || refused.Load() == 0 || decided.Load() < 150 {
				t.Errorf("%d gone, %d refused, %d decided: that tests nothing", gone.Load(), refused.Load(), decided.Load())
			}
			s.mu.Lock() // a request whose callers have all gone may still be on its way
			defer s.mu.Unlock()
			if n := s.calls["/v1/take"] + s.calls["/v1/batch"]; s.most < 2 || s.most > 16 || n > 200 {
				t.Errorf("%d requests, the largest with %d takes", n, s.most)
			}
			t.Logf("calls %d: %v, the largest of %d", calls, s.calls, s.most)
		})
	}
}

// The first goes at once and alone; those that come while it is away go together when it is back.
func TestNobodyWaitsForCompany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		s := &slow{next: api(node(t, perMinute("api", 1, 1000))), delay: func() time.Duration { return 10 * ms }}
		l.serve("n1", s)
		c := l.client(client.Config{Batch: client.Batch{Max: 50}}, "n1")
		var wg sync.WaitGroup
		begin := time.Now()
		for i := range 41 {
			wg.Go(func() {
				time.Sleep(time.Duration(i) * 100 * time.Microsecond)
				want := 20 * ms
				if i == 0 {
					want = 10 * ms
				}
				if _, err := take1(c, t.Context()); err != nil || time.Since(begin) != want {
					t.Errorf("%d: after %v, %v", i, time.Since(begin), err)
				}
			})
		}
		wg.Wait()
		if s.calls["/v1/take"] != 1 || s.calls["/v1/batch"] != 1 || s.most != 40 {
			t.Errorf("%v, %d", s.calls, s.most)
		}
		for range 3 {
			take1(c, t.Context())
		}
		if s.calls["/v1/take"] != 4 {
			t.Errorf("takes in turn are no batches: %v", s.calls)
		}
	})
}

// group starts one take that holds up the others, and n others, whose contexts are given; the errors are those of the n.
func group(t *testing.T, c *client.Client, ctxs ...context.Context) []error {
	errs := make([]error, len(ctxs))
	var wg sync.WaitGroup
	wg.Go(func() { take1(c, t.Context()) })
	synctest.Wait()
	for i, ctx := range ctxs {
		wg.Go(func() {
			_, errs[i] = c.Take(ctx, client.Request{Limit: "api", Key: key(strconv.Itoa(i)), Cost: 1})
		})
		synctest.Wait() // until it is in the queue, so that they are there in order
	}
	wg.Wait()
	return errs
}

func TestWhoGoesAwayDoesNotCancelTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var cancelled atomic.Bool
		l := newLab(t)
		first := true
		l.serve("n1", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body) // or the server does not notice who hangs up
			if first {
				first = false
				time.Sleep(10 * ms)
				yes(w, r)
				return
			}
			select {
			case <-time.After(100 * ms):
				io.WriteString(w, `{"results":[`+allowed+strings.Repeat(","+allowed, strings.Count(string(body), `"limit"`)-1)+"]}")
			case <-r.Context().Done():
				cancelled.Store(true)
			}
		}))
		c := l.client(client.Config{Batch: client.Batch{Max: 10}}, "n1")
		within := func(d time.Duration) context.Context {
			ctx, cancel := context.WithTimeout(t.Context(), d)
			t.Cleanup(cancel)
			return ctx
		}
		errs := group(t, c, t.Context(), within(5*ms), within(50*ms), t.Context())
		if errs[0] != nil || errs[3] != nil {
			t.Errorf("those who stayed: %v", errs)
		}
		if !errors.Is(errs[1], context.DeadlineExceeded) || errors.Is(errs[1], client.ErrUncertain) {
			t.Errorf("who left before it was sent: %v", errs[1])
		}
		if !errors.Is(errs[2], context.DeadlineExceeded) || !errors.Is(errs[2], client.ErrUncertain) {
			t.Errorf("who left when it was sent: %v", errs[2])
		}
		if cancelled.Load() {
			t.Error("the request was cancelled though some waited for it")
		}
		first = true
		if errs = group(t, c, within(50*ms), within(60*ms)); errs[0] == nil || errs[1] == nil {
			t.Error(errs)
		}
		if time.Sleep(ms); !cancelled.Load() {
			t.Error("nobody waited for the request any more, and it went on")
		}
	})
}

func TestFaultsOfSharedTakes(t *testing.T) {
	both := func(n int) http.HandlerFunc {
		return says(200, `{"results":[`+allowed+strings.Repeat(","+allowed, n-1)+"]}")
	}
	mixed := says(200, `{"results":[{"error":{"type":"urn:jatah:problem:undecided","status":503,"detail":"Who knows."}},`+allowed+"]}")
	for name, c := range map[string]struct {
		steps []http.HandlerFunc // after the first, which is alone
		want  []error            // of the two that are together; nil: none
		tries int
	}{
		"fine":              {[]http.HandlerFunc{both(2)}, []error{nil, nil}, 1},
		"cut off":           {[]http.HandlerFunc{cut}, []error{client.ErrUncertain, client.ErrUncertain}, 1},
		"one is undecided":  {[]http.HandlerFunc{mixed}, []error{client.ErrUncertain, nil}, 1},
		"an item too few":   {[]http.HandlerFunc{both(1)}, []error{client.ErrAnswer, client.ErrAnswer}, 1},
		"another answer":    {[]http.HandlerFunc{says(200, "hello")}, []error{client.ErrUncertain, client.ErrUncertain}, 1},
		"a bad whole":       {[]http.HandlerFunc{problem(400, "bad-body")}, []error{errProblem, errProblem}, 1},
		"busy, then single": {[]http.HandlerFunc{says(503, "", "Retry-After", "1"), yes, yes}, []error{nil, nil}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLab(t)
				s := &script{steps: append([]http.HandlerFunc{func(w http.ResponseWriter, r *http.Request) { time.Sleep(10 * ms); yes(w, r) }}, c.steps...)}
				l.serve("n1", s)
				errs := group(t, l.client(client.Config{Batch: client.Batch{Max: 10}}, "n1"), t.Context(), t.Context())
				for i, err := range errs {
					var p *client.Problem
					if c.want[i] == errProblem && !errors.As(err, &p) || c.want[i] != errProblem && !errors.Is(err, c.want[i]) {
						t.Errorf("%d: %v, want %v", i, err, c.want[i])
					}
				}
				if got := s.requests(); len(got) != c.tries+1 || got[1].uri != "/v1/batch" || got[1].repeat != "" {
					t.Errorf("%+v", got)
				}
			})
		})
	}
}

// A take that was sent alone is repeated alone, with its key, though others are under way.
func TestALoneTakeIsRepeatedAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		s := &script{steps: []http.HandlerFunc{cut, yes}}
		l.serve("n1", s)
		if _, err := take1(l.client(client.Config{Batch: client.Batch{Max: 10}}, "n1"), t.Context()); err != nil {
			t.Error(err)
		}
		if got := s.requests(); len(got) != 2 || got[0].uri != "/v1/take" || got[0].repeat == "" || got[1].repeat != got[0].repeat || got[1].body != got[0].body {
			t.Errorf("%+v", got)
		}
	})
}

// Bodies of shared requests are below what a node reads.
func TestSharedRequestsAreNotTooLarge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		var largest atomic.Int64
		l.serve("n1", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			largest.Store(max(largest.Load(), int64(len(body))))
			time.Sleep(10 * ms)
			var b struct{ Takes []json.RawMessage }
			if json.Unmarshal(body, &b) != nil || b.Takes == nil {
				yes(w, r)
				return
			}
			io.WriteString(w, `{"results":[`+allowed+strings.Repeat(","+allowed, len(b.Takes)-1)+"]}")
		}))
		c := l.client(client.Config{Batch: client.Batch{Max: 1000}}, "n1")
		var wg sync.WaitGroup
		for range 300 {
			wg.Go(func() {
				if _, err := c.Take(t.Context(), client.Request{Limit: "api", Key: key(strings.Repeat("\x01", 1024))}); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if n := largest.Load(); n > 1<<20 || n < 1<<19 {
			t.Errorf("the largest body has %d bytes", n)
		}
	})
}

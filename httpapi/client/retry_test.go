package client_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jatah-io/jatah/httpapi/client"
)

// pausesOf checks the times between tries. Each is from at least lo on, and below hi.
func pausesOf(t *testing.T, got []seen, want ...[2]time.Duration) {
	t.Helper()
	if len(got) != len(want)+1 {
		t.Fatalf("%d tries, want %d", len(got), len(want)+1)
	}
	for i, w := range want {
		if d := got[i+1].at.Sub(got[i].at); d < w[0] || d > w[1] {
			t.Errorf("pause %d is %v, want %v to %v", i, d, w[0], w[1])
		}
	}
}

const ms = time.Millisecond

func TestWhatWasRefusedIsTriedAgain(t *testing.T) {
	for _, c := range []struct {
		name  string
		steps []http.HandlerFunc
		retry client.Retry
		want  [][2]time.Duration
		fails error // nil: it succeeds
	}{
		{name: "503 with Retry-After", steps: []http.HandlerFunc{says(503, "busy", "Retry-After", "3"), yes}, want: [][2]time.Duration{{3 * time.Second, 3050 * ms}}},
		{name: "429 of a proxy", steps: []http.HandlerFunc{says(429, "<html>slow down", "Retry-After", "2"), says(429, `{"error":"rate"}`), yes},
			want: [][2]time.Duration{{2 * time.Second, 2050 * ms}, {0, 100 * ms}}},
		{name: "not ready", steps: []http.HandlerFunc{problem(503, "not-ready", "Retry-After", "1"), yes}, want: [][2]time.Duration{{time.Second, 1050 * ms}}},
		{name: "undecided, an Idempotency-Key", steps: []http.HandlerFunc{problem(503, "undecided", "Retry-After", "1"), yes}, want: [][2]time.Duration{{time.Second, 1050 * ms}}},
		{name: "cut off, an Idempotency-Key", steps: []http.HandlerFunc{cut, yes}, want: [][2]time.Duration{{0, 50 * ms}}},
		{name: "of a gateway", steps: []http.HandlerFunc{says(502, ""), says(504, ""), yes}, want: [][2]time.Duration{{0, 50 * ms}, {0, 100 * ms}}},
		{name: "silent", steps: []http.HandlerFunc{silent, yes}, want: [][2]time.Duration{{5 * time.Second, 5050 * ms}}},
		{name: "a denial is an answer", steps: []http.HandlerFunc{denied("1000"), yes}},
		{name: "a denial by fallback is an answer", steps: []http.HandlerFunc{says(503, strings.Replace(allowed, "true", "false", 1), "Retry-After", "1"), yes}},
		{name: "equal jitter", steps: []http.HandlerFunc{says(503, ""), says(503, ""), says(503, ""), yes},
			retry: client.Retry{Base: time.Second, Max: 3 * time.Second, Jitter: client.EqualJitter},
			want:  [][2]time.Duration{{500 * ms, time.Second}, {time.Second, 2 * time.Second}, {1500 * ms, 3 * time.Second}}},
		{name: "too often", steps: []http.HandlerFunc{problem(503, "undecided")}, retry: client.Retry{Attempts: 3},
			want: [][2]time.Duration{{0, 50 * ms}, {0, 100 * ms}}, fails: client.ErrUndecided},
		{name: "once", steps: []http.HandlerFunc{says(503, "")}, retry: client.Retry{Attempts: 1}, fails: errProblem},
		{name: "for too long", steps: []http.HandlerFunc{says(503, "", "Retry-After", "61")}, fails: client.ErrPaused},
		{name: "for ever", steps: []http.HandlerFunc{says(503, "", "Retry-After", "99999999999999999999")}, fails: client.ErrPaused},
		{name: "a mistake", steps: []http.HandlerFunc{problem(400, "bad-field")}, fails: errProblem},
		{name: "no decision", steps: []http.HandlerFunc{says(200, "hello")}, fails: client.ErrAnswer},
		{name: "another object", steps: []http.HandlerFunc{says(200, "{}")}, fails: client.ErrAnswer},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLab(t)
				s := &script{steps: c.steps}
				l.serve("n1", s)
				_, err := take1(l.client(client.Config{Retry: c.retry}, "n1"), t.Context())
				var p *client.Problem
				if c.fails == errProblem && !errors.As(err, &p) || c.fails != errProblem && !errors.Is(err, c.fails) {
					t.Errorf("%v, want %v", err, c.fails)
				}
				got := s.requests()
				pausesOf(t, got, c.want...)
				for _, r := range got {
					if r.repeat != got[0].repeat || (r.repeat == "") != (c.retry.Attempts == 1) || r.body != `{"limit":"api","key":"u1","cost":1}` {
						t.Errorf("%+v after %+v", r, got[0])
					}
				}
			})
		})
	}
}

var errProblem = errors.New("any problem")

// A node remembers the answer that was lost, so it is charged once.
func TestALostAnswerIsChargedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		h := api(node(t, perMinute("api", 1, 100)))
		lose := 0 // so many answers
		l.serve("n1", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if lose--; lose < 0 {
				h.ServeHTTP(w, r)
				return
			}
			h.ServeHTTP(&deaf{head: http.Header{}}, r)
			cut(w, r)
		}))
		c := l.client(client.Config{}, "n1")
		api := c.Limiter("api")
		for i, call := range []func(context.Context, client.Key, int64) (client.Decision, error){api.Take, api.Charge, api.Refund} {
			lose = 1
			if d, err := call(t.Context(), key("u"), 10); err != nil || !d.Allowed {
				t.Errorf("%d: %+v, %v", i, d, err)
			}
		}
		lose = 2
		if all, err := c.TakeAll(t.Context(), []client.Request{{Limit: "api", Key: key("u"), Cost: 5}}); err != nil || !all.Allowed || all.Decisions[0].Remaining != 85 {
			t.Errorf("%+v, %v", all, err)
		}
		if st, err := api.Peek(t.Context(), key("u")); err != nil || st.Remaining != 85 {
			t.Errorf("%+v, %v; want 100-10-10+10-5 left", st, err)
		}
	})
}

// deaf takes an answer that goes nowhere.
type deaf struct{ head http.Header }

func (d *deaf) Header() http.Header         { return d.head }
func (d *deaf) WriteHeader(int)             {}
func (d *deaf) Write(b []byte) (int, error) { return len(b), nil }

func TestAnotherNodeIsAskedOnlyIfNothingWasSent(t *testing.T) {
	charging := func(c *client.Client, ctx context.Context) error { _, err := take1(c, ctx); return err }
	looking := func(c *client.Client, ctx context.Context) error { _, err := c.Limits(ctx); return err }
	acquiring := func(c *client.Client, ctx context.Context) error {
		_, _, err := c.Acquire(ctx, "api", key("u"), 0)
		return err
	}
	permit := says(200, strings.TrimSuffix(allowed, "}")+`,"permit":"p","expires_in_ms":1}`)
	batching := func(c *client.Client, ctx context.Context) error {
		return c.Batch(ctx, []client.Request{{Limit: "api", Key: key("u")}})[0].Err
	}
	batched := says(200, `{"results":[`+allowed+`]}`)
	list := says(200, `{"limits":[]}`)
	for _, c := range []struct {
		name       string
		call       func(*client.Client, context.Context) error
		n1, n2     []http.HandlerFunc // nil: the host refuses connections
		want1      int
		want2      int
		fails      bool
		uncertain  bool
		goneDuring bool // n1 is gone after its first answer
	}{
		{name: "take, refused", call: charging, n2: []http.HandlerFunc{yes}, want2: 1},
		{name: "take, not ready", call: charging, n1: []http.HandlerFunc{problem(503, "not-ready")}, n2: []http.HandlerFunc{yes}, want1: 1, want2: 1},
		{name: "take, both refused", call: charging, fails: true},
		{name: "take, cut off", call: charging, n1: []http.HandlerFunc{cut, yes}, n2: []http.HandlerFunc{yes}, want1: 2},
		{name: "take, cut off and gone", call: charging, n1: []http.HandlerFunc{cut}, n2: []http.HandlerFunc{yes}, want1: 1, goneDuring: true, fails: true, uncertain: true},
		{name: "take, busy", call: charging, n1: []http.HandlerFunc{says(503, ""), yes}, n2: []http.HandlerFunc{yes}, want1: 2},
		{name: "take, a refusal after a lost answer", call: charging, n1: []http.HandlerFunc{cut, problem(404, "unknown-limit")}, want1: 2, fails: true, uncertain: true},
		{name: "look, cut off", call: looking, n1: []http.HandlerFunc{cut}, n2: []http.HandlerFunc{list}, want1: 1, want2: 1},
		{name: "look, undecided", call: looking, n1: []http.HandlerFunc{problem(503, "undecided")}, n2: []http.HandlerFunc{list}, want1: 1, want2: 1},
		{name: "acquire, refused", call: acquiring, n2: []http.HandlerFunc{permit}, want2: 1},
		{name: "acquire, cut off", call: acquiring, n1: []http.HandlerFunc{cut, permit}, n2: []http.HandlerFunc{permit}, want1: 1, fails: true, uncertain: true},
		{name: "acquire, busy", call: acquiring, n1: []http.HandlerFunc{says(503, ""), permit}, n2: []http.HandlerFunc{permit}, want1: 2},
		{name: "batch, cut off", call: batching, n1: []http.HandlerFunc{cut, batched}, n2: []http.HandlerFunc{batched}, want1: 1, fails: true, uncertain: true},
		{name: "batch, refused", call: batching, n2: []http.HandlerFunc{batched}, want2: 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLab(t)
				one, two := &script{steps: c.n1}, &script{steps: c.n2}
				stop := func() {}
				if c.n1 != nil {
					var h http.Handler = one
					if c.goneDuring {
						h = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
							defer stop()
							one.ServeHTTP(w, r)
						})
					}
					stop = l.serve("n1", h)
				}
				if c.n2 != nil {
					l.serve("n2", two)
				}
				cl := l.client(client.Config{}, "n1", "n2")
				err := c.call(cl, t.Context())
				if (err != nil) != c.fails || errors.Is(err, client.ErrUncertain) != c.uncertain {
					t.Errorf("%v; want fails %v, uncertain %v", err, c.fails, c.uncertain)
				}
				if n1, n2 := len(one.requests()), len(two.requests()); n1 != c.want1 || n2 != c.want2 {
					t.Errorf("n1 was asked %d times and n2 %d, want %d and %d", n1, n2, c.want1, c.want2)
				}
			})
		})
	}
}

// The next call does not wait for a node that hangs, though the call that found it out had no time for another.
func TestANodeThatHangsIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		hangs, works := &script{steps: []http.HandlerFunc{silent}}, &script{steps: []http.HandlerFunc{yes}}
		l.serve("n1", hangs)
		l.serve("n2", works)
		c := l.client(client.Config{}, "n1", "n2")
		ctx, cancel := context.WithTimeout(t.Context(), 100*ms)
		defer cancel()
		begin := time.Now()
		if _, err := take1(c, ctx); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, client.ErrUncertain) {
			t.Error(err)
		}
		if d := time.Since(begin); d != 100*ms {
			t.Errorf("it took %v", d)
		}
		if _, err := take1(c, t.Context()); err != nil || len(works.requests()) != 1 || len(hangs.requests()) != 1 {
			t.Errorf("%v: %d, %d", err, len(hangs.requests()), len(works.requests()))
		}
	})
}

func TestWhatCannotBeInTimeFailsAtOnce(t *testing.T) {
	for _, retryAfter := range []string{"2", "1"} {
		synctest.Test(t, func(t *testing.T) {
			l := newLab(t)
			s := &script{steps: []http.HandlerFunc{says(503, "", "Retry-After", retryAfter), yes}}
			l.serve("n1", s)
			c := l.client(client.Config{Retry: client.Retry{Base: time.Minute, Max: time.Minute}}, "n1")
			ctx, cancel := context.WithTimeout(t.Context(), 1500*ms)
			defer cancel()
			begin := time.Now()
			_, err := take1(c, ctx)
			took := time.Since(begin)
			var p *client.Problem
			if retryAfter == "2" && (!errors.Is(err, client.ErrDeadline) || !errors.As(err, &p) || p.RetryAfter != 2*time.Second || took != 0) {
				t.Errorf("%v after %v", err, took)
			}
			if retryAfter == "1" && (err != nil || took < time.Second || took > 1250*ms) { // the backoff gives way
				t.Errorf("%v after %v", err, took)
			}
		})
	}
}

func TestAContextThatEndsEndsTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		l.serve("n1", &script{steps: []http.HandlerFunc{says(503, "", "Retry-After", "30")}})
		c := l.client(client.Config{}, "n1")
		ctx, cancel := testContext(t)
		time.AfterFunc(time.Second, cancel)
		begin := time.Now()
		_, err := take1(c, ctx)
		var p *client.Problem
		if !errors.Is(err, context.Canceled) || !errors.As(err, &p) || errors.Is(err, client.ErrUncertain) || time.Since(begin) != time.Second {
			t.Errorf("%v after %v", err, time.Since(begin))
		}
	})
}

func TestNothingIsSentWhenTheContextHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		s := &script{steps: []http.HandlerFunc{yes}}
		l.serve("n1", s)
		ended, cancel := testContext(t)
		cancel()
		for _, cfg := range []client.Config{{}, {Batch: client.Batch{Max: 9}}} {
			_, err := take1(l.client(cfg, "n1"), ended)
			if !errors.Is(err, context.Canceled) || errors.Is(err, client.ErrUncertain) || len(s.requests()) != 0 {
				t.Errorf("%v, %d requests", err, len(s.requests()))
			}
		}
	})
}

// What an earlier try did is no mistake of the next.
func TestARepeatThatFindsItDoneIsNoError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, c := range map[string]struct {
			slug string
			call func(*client.Client) error
		}{
			"release": {"unknown-permit", func(c *client.Client) error { return c.Release(t.Context(), "jobs", key("u"), "x") }},
			"delete":  {"unknown-limit", func(c *client.Client) error { return c.DeleteLimit(t.Context(), "x") }},
			"forget":  {"unknown-node", func(c *client.Client) error { return c.Forget(t.Context(), "x") }},
		} {
			l := newLab(t)
			l.serve("n1", &script{steps: []http.HandlerFunc{cut, problem(404, c.slug), problem(404, c.slug)}})
			cl := l.client(client.Config{}, "n1")
			if err := c.call(cl); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if err := c.call(cl); err == nil {
				t.Errorf("%s: what was never there is an error", name)
			}
		}
	})
}

func TestReadyIfAnyNodeIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		l.serve("n2", &script{steps: []http.HandlerFunc{problem(503, "not-ready", "Retry-After", "1"), problem(503, "not-ready"), says(200, "{}")}})
		c := l.client(client.Config{}, "n1", "n2")
		if err := c.Ready(t.Context()); !errors.Is(err, client.ErrNotReady) {
			t.Error(err)
		}
		if err := c.Ready(t.Context()); !errors.Is(err, client.ErrNotReady) {
			t.Error(err)
		}
		if err := c.Ready(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestBackoffStaysInItsBounds(t *testing.T) {
	for _, r := range []client.Retry{
		{}, {Jitter: client.EqualJitter}, {Base: 1, Max: 1}, {Base: time.Hour}, {Base: 3, Max: math.MaxInt64, Jitter: client.EqualJitter}, {Base: 10, Max: 3},
	} {
		base := int64(max(r.Base, 0))
		if base == 0 {
			base = int64(50 * ms)
		}
		for n := range 80 {
			d, most := client.Backoff(r, n)
			whole := most
			if f := float64(base) * math.Pow(2, float64(n)); f < float64(most) {
				whole = int64(f)
			}
			low := int64(0)
			if r.Jitter == client.EqualJitter {
				low = whole / 2
			}
			if d < low || d > whole {
				t.Errorf("%+v: pause %d is %d, want %d to %d", r, n, d, low, whole)
			}
		}
	}
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		value, date string
		want        time.Duration
		ok          bool
	}{
		{"", "", 0, false}, {"soon", "", 0, false}, {"-1", "", 0, false}, {"1.5", "", 0, false}, {"1, 2", "", 0, false},
		{"0", "", 0, true}, {" 7 ", "", 7 * time.Second, true}, {"9223372036854775808", "", math.MaxInt64, true}, {"9223372037", "", math.MaxInt64, true},
		{now.Add(90 * time.Second).Format(http.TimeFormat), "", 90 * time.Second, true},
		{now.Add(-time.Second).Format(http.TimeFormat), "", 0, true},
		{now.Add(time.Hour + 5*time.Second).Format(http.TimeFormat), now.Add(time.Hour).Format(http.TimeFormat), 5 * time.Second, true}, // its clock is fast
		{now.Add(5 * time.Second).Format(http.TimeFormat), "yesterday", 5 * time.Second, true},
	} {
		d, ok := client.RetryAfter(http.Header{"Retry-After": {c.value}, "Date": {c.date}}, now)
		if d != c.want || ok != c.ok {
			t.Errorf("%q at %q: %v, %v; want %v, %v", c.value, c.date, d, ok, c.want, c.ok)
		}
	}
}

func FuzzRetryAfter(f *testing.F) {
	f.Add("1", "")
	f.Add("Sun, 01 Mar 2026 12:00:00 GMT", "Sun, 01 Mar 2026 11:00:00 GMT")
	f.Fuzz(func(t *testing.T, value, date string) {
		if d, ok := client.RetryAfter(http.Header{"Retry-After": {value}, "Date": {date}}, time.Unix(0, 0)); d < 0 || d > 0 && !ok {
			t.Errorf("%v, %v", d, ok)
		}
	})
}

// What a key is must not be in errors: they are logged.
func TestErrorsDoNotNameTheKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newLab(t).client(client.Config{}, "n1")
		for i, err := range []error{
			c.Reset(t.Context(), "api", key("secret")),
			func() error {
				_, err := c.Peek(t.Context(), client.Request{Limit: "api", Key: key("secret")})
				return err
			}(),
		} {
			if text := fmt.Sprint(err); err == nil || strings.Contains(text, "secret") || !strings.Contains(text, "no answer from http://n1") {
				t.Errorf("%d: %s", i, text)
			}
		}
	})
}

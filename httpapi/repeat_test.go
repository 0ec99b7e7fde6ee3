package httpapi

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jatah-io/jatah"
	"github.com/jatah-io/jatah/httpapi/internal/fields"
)

func sameAnswer(t *testing.T, a, b *httptest.ResponseRecorder) {
	t.Helper()
	if a.Code != b.Code || a.Body.String() != b.Body.String() || !reflect.DeepEqual(a.Header(), b.Header()) {
		t.Errorf("answers differ:\n%d %v %s%d %v %s", a.Code, a.Header(), a.Body, b.Code, b.Header(), b.Body)
	}
}

func TestRepeatWithinAMinuteHasTheSameAnswer(t *testing.T) {
	for _, call := range []string{"take", "refund", "charge"} {
		synctest.Test(t, func(t *testing.T) {
			a := newAPI(t, Config{}, perMinute("api", 10, 10))
			a.take(`{"limit":"api","key":"u","cost":5}`)
			send := func() *httptest.ResponseRecorder {
				return a.call("POST", "/v1/"+call, `{"limit":"api","key":"u","cost":2}`, "Idempotency-Key", `"8e03978e"`)
			}
			first := send()
			after := a.remaining("api", "u")
			sameAnswer(t, first, send())
			if got := a.remaining("api", "u"); got != after {
				t.Errorf("%s: the repeat changed remaining from %d to %d", call, after, got)
			}
			time.Sleep(59 * time.Second) // 9.8 tokens come back; the answer stays
			sameAnswer(t, first, send())
			time.Sleep(time.Second)
			if w := send(); w.Body.String() == first.Body.String() {
				t.Errorf("%s: after a minute still the old answer %s", call, w.Body)
			}
		})
	}
}

func TestRepeatOfADenialIsTheDenial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(t, Config{}, perSecond("api", 1, 1))
		a.take(`{"limit":"api","key":"u"}`)
		const target, body = "/v1/take?deny_status=403", `{"limit":"api","key":"u"}`
		first := a.call("POST", target, body, "Idempotency-Key", "k")
		time.Sleep(10 * time.Second)
		again := a.call("POST", target, body, "Idempotency-Key", "k")
		sameAnswer(t, first, again)
		if again.Code != 403 || again.Header().Get("Retry-After") != "1" {
			t.Errorf("%d %v", again.Code, again.Header())
		}
	})
}

func TestIdempotencyKeyOfAnotherRequestIsRefused(t *testing.T) {
	a := newAPI(t, Config{}, perMinute("api", 10, 10))
	a.take(`{"limit":"api","key":"u"}`, "Idempotency-Key", "k")
	for _, row := range [][2]string{
		{"/v1/take", `{"limit":"api","key":"u","cost":2}`},
		{"/v1/take", `{"limit":"api","key":"u"} `},
		{"/v1/take?deny_status=200", `{"limit":"api","key":"u"}`},
	} {
		w := a.call("POST", row[0], row[1], "Idempotency-Key", "k")
		wantProblem(t, w, 422, "idempotency-key-reused", "Idempotency-Key", "use a new key")
	}
	// A charge may carry the id of the request whose take it settles.
	if w := a.call("POST", "/v1/charge", `{"limit":"api","key":"u","cost":3}`, "Idempotency-Key", "k"); w.Code != 200 {
		t.Errorf("charge: %d %s", w.Code, w.Body)
	}
	if got := a.remaining("api", "u"); got != 6 {
		t.Errorf("remaining %d, want 6", got)
	}
}

func TestProblemsAreNotRemembered(t *testing.T) {
	a := newAPI(t, Config{}, perMinute("api", 10, 10))
	const body = `{"limit":"late","key":"u"}`
	wantProblem(t, a.take(body, "Idempotency-Key", "k"), 404, "unknown-limit", "limit", "late")
	if _, err := a.node.Limit(perMinute("late", 1, 1)); err != nil {
		t.Fatal(err)
	}
	if w := a.take(body, "Idempotency-Key", "k"); w.Code != 200 {
		t.Errorf("once defined: %d %s", w.Code, w.Body)
	}
}

func TestRepeatsAtOnceAreChargedOnce(t *testing.T) {
	a := newAPI(t, Config{}, perMinute("api", 1, 100000))
	const ids, each = 50, 20
	answers := make([][each]*httptest.ResponseRecorder, ids)
	var all sync.WaitGroup
	for id := range ids {
		for i := range each {
			all.Go(func() {
				answers[id][i] = a.take(fmt.Sprintf(`{"limit":"api","key":"u%d","cost":1000}`, id), "Idempotency-Key", fmt.Sprint(id))
			})
		}
	}
	all.Wait()
	for id := range answers {
		for _, w := range answers[id][1:] {
			sameAnswer(t, answers[id][0], w)
		}
		if got := a.remaining("api", fmt.Sprintf("u%d", id)); got < 99000 || got > 99010 { // it gains a token a minute
			t.Errorf("key %d: remaining %d", id, got)
		}
	}
}

func TestFollowersWaitForTheFirstAndForNothingElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(t, Config{}, perMinute("api", 10, 10))
		gate, calls := make(chan struct{}), 0
		slow := func(l *jatah.Limiter, ctx context.Context, key string, cost int64) jatah.Decision {
			calls++
			<-gate
			if ctx.Err() != nil {
				t.Error("the decision depends on the client that hung up")
			}
			return l.Take(ctx, key, cost)
		}
		serve := a.h.decision(slow)
		ctx, hangUp := context.WithCancel(t.Context())
		send := func(ctx context.Context, body string) *httptest.ResponseRecorder {
			r := httptest.NewRequestWithContext(ctx, "POST", "/v1/take", strings.NewReader(body))
			r.Header.Set("Idempotency-Key", "k")
			w := httptest.NewRecorder()
			serve(w, r)
			return w
		}
		const body = `{"limit":"api","key":"u"}`
		var got [4]*httptest.ResponseRecorder
		impatient, leave := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() { got[0] = send(ctx, body) })
		synctest.Wait()
		all.Go(func() { got[1] = send(t.Context(), body) })
		all.Go(func() { got[2] = send(t.Context(), body) })
		all.Go(func() { got[3] = send(impatient, body) })
		synctest.Wait()
		wantProblem(t, send(t.Context(), `{"limit":"api","key":"v"}`), 422, "idempotency-key-reused", "Idempotency-Key", "another body")
		leave()
		hangUp()
		synctest.Wait()
		wantProblem(t, got[3], 503, "undecided", "", "ended before it was decided")
		if got[1] != nil || got[2] != nil {
			t.Error("a follower was answered before the first")
		}
		close(gate)
		all.Wait()
		sameAnswer(t, got[0], got[1])
		sameAnswer(t, got[0], got[2])
		if calls != 1 || got[0].Code != 200 {
			t.Errorf("%d calls, status %d", calls, got[0].Code)
		}
	})
}

func TestAfterAPanicOfTheFirstTheNextDecides(t *testing.T) {
	a := newAPI(t, Config{}, perMinute("api", 10, 10))
	serve := a.h.decision(func(*jatah.Limiter, context.Context, string, int64) jatah.Decision { panic("broken") })
	r := httptest.NewRequestWithContext(t.Context(), "POST", "/v1/take", strings.NewReader(`{"limit":"api","key":"u"}`))
	r.Header.Set("Idempotency-Key", "k")
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic was swallowed")
			}
		}()
		serve(httptest.NewRecorder(), r)
	}()
	if w := a.take(`{"limit":"api","key":"u"}`, "Idempotency-Key", "k"); w.Code != 200 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// anAnswer is an answer whose parts add up to n bytes.
func anAnswer(n int) *answer {
	return &answer{status: 200, head: new(fields.Values), body: bytes.Repeat([]byte("x"), n)}
}

func TestRepeatsAreBoundedInNumberAndBytes(t *testing.T) {
	m := newRepeats(100, 50*(repeatOverhead+4+100))
	for i := range 1000 {
		e, role := m.begin(0, fmt.Sprintf("%04d", i), 1)
		if role != lead {
			t.Fatalf("entry %d: role %d", i, role)
		}
		m.finish(0, e, anAnswer(100))
		if len(m.entries) != min(i+1, 50) || m.bytes > m.maxBytes {
			t.Fatalf("after %d: %d entries, %d bytes", i+1, len(m.entries), m.bytes)
		}
	}
	if _, role := m.begin(0, "0950", 1); role != follow {
		t.Error("the newest 50 are not all there")
	}
	if _, role := m.begin(0, "0949", 1); role != lead {
		t.Error("the 51st newest is still there")
	}
	e, _ := m.begin(0, "huge", 1)
	m.finish(0, e, anAnswer(1<<20)) // more than all may have together
	if m.bytes != 0 || m.first != nil || m.last != nil {
		t.Errorf("%d bytes are kept", m.bytes)
	}
	<-e.done
	if e.answer == nil {
		t.Error("those who waited for it do not get it")
	}
}

func TestRepeatsInFlightAreBounded(t *testing.T) {
	m := newRepeats(2, 1<<20)
	a, _ := m.begin(0, "a", 1)
	m.begin(0, "b", 1)
	if _, role := m.begin(0, "c", 1); role != crowded {
		t.Errorf("role %d, want crowded", role)
	}
	m.finish(0, a, nil)
	if _, role := m.begin(0, "c", 1); role != lead {
		t.Errorf("role %d, want lead", role)
	}
}

func TestRepeatsExpireAMinuteAfterTheirAnswer(t *testing.T) {
	m := newRepeats(10, 1<<20)
	a, _ := m.begin(0, "a", 1)
	b, _ := m.begin(0, "b", 1)
	m.finish(time.Second, b, anAnswer(1))
	m.finish(30*time.Second, a, anAnswer(1))
	for _, step := range []struct {
		now  time.Duration
		key  string
		want role
	}{
		{61*time.Second - 1, "b", follow}, {61 * time.Second, "b", lead}, {90*time.Second - 1, "a", follow}, {90 * time.Second, "a", lead},
	} {
		if _, got := m.begin(step.now, step.key, 1); got != step.want {
			t.Errorf("%v %s: role %d, want %d", step.now, step.key, got, step.want)
		}
	}
	if m.bytes != 0 || m.early != 0 {
		t.Errorf("%d bytes, %d early", m.bytes, m.early)
	}
}

func TestForgottenRepeatsAreLoggedOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		a := newAPI(t, Config{RepeatEntries: 5, Logger: slog.New(slog.NewTextHandler(&log, nil))}, perMinute("api", 1000, 1000))
		for i := range 50 {
			a.take(`{"limit":"api","key":"u"}`, "Idempotency-Key", fmt.Sprint(i))
		}
		if n := strings.Count(log.String(), "\n"); n != 1 || !strings.Contains(log.String(), "raise the bounds") {
			t.Errorf("%d lines: %s", n, log.String())
		}
		time.Sleep(time.Minute)
		for i := range 50 {
			a.take(`{"limit":"api","key":"u"}`, "Idempotency-Key", fmt.Sprint(i))
		}
		if n := strings.Count(log.String(), "\n"); n != 2 {
			t.Errorf("%d lines: %s", n, log.String())
		}
	})
}

package httpapi

import (
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jatah-io/jatah"
	"github.com/jatah-io/jatah/httpapi/internal/problems"
)

// api is a handler over a node of its own, called without a network.
type api struct {
	t    testing.TB
	node *jatah.Node
	h    *Handler
}

func newAPI(t testing.TB, cfg Config, limits ...jatah.Limit) *api {
	t.Helper()
	quiet := slog.New(slog.NewTextHandler(io.Discard, nil))
	node, err := jatah.Start(t.Context(), jatah.Config{Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { node.Close() })
	for _, l := range limits {
		if _, err := node.Limit(l); err != nil {
			t.Fatal(err)
		}
	}
	if cfg.Logger == nil {
		cfg.Logger = quiet
	}
	if cfg.Access == (Access{}) { // who may call is not what most tests are about
		cfg.Access.InsecureAdmin = true
	}
	return &api{t: t, node: node, h: New(node, cfg)}
}

// call sends one request; head is names and values in turn.
func (a *api) call(method, target, body string, head ...string) *httptest.ResponseRecorder {
	a.t.Helper()
	r := httptest.NewRequestWithContext(a.t.Context(), method, target, strings.NewReader(body))
	for i := 0; i < len(head); i += 2 {
		r.Header.Add(head[i], head[i+1])
	}
	w := httptest.NewRecorder()
	a.h.ServeHTTP(w, r)
	return w
}

func (a *api) take(body string, head ...string) *httptest.ResponseRecorder {
	a.t.Helper()
	return a.call("POST", "/v1/take", body, head...)
}

// remaining looks at a key without touching it.
func (a *api) remaining(limit, key string) int64 {
	a.t.Helper()
	w := a.call("GET", "/v1/peek?limit="+limit+"&key="+key, "")
	var got struct {
		Remaining int64 `json:"remaining"`
	}
	if w.Code != 200 || json.Unmarshal(w.Body.Bytes(), &got) != nil {
		a.t.Fatalf("peek: %d %s", w.Code, w.Body)
	}
	return got.Remaining
}

// wantProblem checks that an answer is a problem, in full and of a kind.
func wantProblem(t testing.TB, w *httptest.ResponseRecorder, status int, slug, field, sentence string) {
	t.Helper()
	if w.Code != status {
		t.Errorf("status %d, want %d: %s", w.Code, status, w.Body)
	}
	if got := w.Header().Get("Content-Type"); got != "application/problem+json" {
		t.Errorf("Content-Type %q", got)
	}
	if got, want := w.Header().Get("Content-Length"), strconv.Itoa(w.Body.Len()); got != want {
		t.Errorf("Content-Length %q, want %s", got, want)
	}
	checkProblem(t, w.Body.Bytes(), status, slug, field, sentence)
}

func checkProblem(t testing.TB, body []byte, status int, slug, field, sentence string) {
	t.Helper()
	var p struct {
		Type, Title, Detail, Field string
		Status                     int
	}
	dec := json.NewDecoder(strings.NewReader(string(body)))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&p); err != nil {
		t.Fatalf("%v in %s", err, body)
	}
	if p.Type != problems.Type+slug || p.Status != status || p.Title != http.StatusText(status) || p.Field != field {
		t.Errorf("got %+v, want type %s, status %d, field %q", p, slug, status, field)
	}
	if !strings.Contains(p.Detail, sentence) {
		t.Errorf("detail %q, want it to say %q", p.Detail, sentence)
	}
}

func perSecond(name string, n, burst int64) jatah.Limit {
	return jatah.Limit{Name: name, Rate: jatah.Per(n, time.Second), Burst: burst}
}

func perMinute(name string, n, burst int64) jatah.Limit {
	return jatah.Limit{Name: name, Rate: jatah.Per(n, time.Minute), Burst: burst}
}

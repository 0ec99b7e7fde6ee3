package httpapi

import (
	"context"
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jatah-io/jatah"
)

type permitAnswer struct {
	Allowed     *bool  `json:"allowed"`
	Permit      string `json:"permit"`
	ExpiresInMS int64  `json:"expires_in_ms"`
	Remaining   int64  `json:"remaining"`
	RetryMS     *int64 `json:"retry_after_ms"`
}

func (a *api) permit(target, body string, status int) (p permitAnswer) {
	a.t.Helper()
	w := a.call("POST", target, body)
	if w.Code != status || json.Unmarshal(w.Body.Bytes(), &p) != nil {
		a.t.Fatalf("%s %s: %d %s", target, body, w.Code, w.Body)
	}
	return p
}

func TestPermitsOverHTTP(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(t, Config{}, jatah.Limit{Name: "jobs", Algorithm: jatah.Concurrency, Max: 2, TTL: 30 * time.Second}, perSecond("api", 1, 1))
		const ask = `{"limit":"jobs","key":["t","k"]}`
		one := a.permit("/v1/acquire", ask, 200)
		if one.Allowed == nil || !*one.Allowed || one.Permit == "" || one.ExpiresInMS != 30000 || one.Remaining != 1 {
			t.Errorf("%+v", one)
		}
		two := a.permit("/v1/acquire", `{"ttl_ms":5000,"limit":"jobs","key":["t","k"]}`, 200)
		if two.ExpiresInMS != 5000 || two.Remaining != 0 {
			t.Errorf("%+v", two)
		}
		w := a.call("POST", "/v1/acquire", ask)
		if w.Code != 429 || w.Header().Get("Retry-After") != "1" || strings.Contains(w.Body.String(), "permit") || strings.Contains(w.Body.String(), `"retry_after_ms":null`) {
			t.Errorf("a third of two: %d %v %s", w.Code, w.Header(), w.Body)
		}
		if w := a.call("POST", "/v1/acquire?deny_status=200", ask); w.Code != 200 || !strings.Contains(w.Body.String(), `"allowed":false`) {
			t.Errorf("%d %s", w.Code, w.Body)
		}
		time.Sleep(4 * time.Second)
		if p := a.permit("/v1/acquire", `{"limit":"jobs","key":["t","k"],"permit":"`+two.Permit+`","ttl_ms":10000}`, 200); p.ExpiresInMS != 10000 || p.Permit != two.Permit {
			t.Errorf("renewed: %+v", p)
		}
		time.Sleep(9 * time.Second)
		release := func(permit string) *httptest.ResponseRecorder {
			return a.call("POST", "/v1/release", `{"limit":"jobs","key":["t","k"],"permit":"`+permit+`"}`)
		}
		if w := release(two.Permit); w.Code != 200 || w.Body.String() != "{\"released\":true}\n" {
			t.Errorf("%d %s", w.Code, w.Body)
		}
		wantProblem(t, release(two.Permit), 404, "unknown-permit", "permit", "released")
		time.Sleep(20 * time.Second)
		wantProblem(t, release(one.Permit), 404, "unknown-permit", "permit", "expired")
		wantProblem(t, a.call("POST", "/v1/acquire", `{"limit":"jobs","key":["t","k"],"permit":"`+one.Permit+`"}`), 404, "unknown-permit", "permit", "expired")
		a.permit("/v1/acquire", ask, 200)
		if w := a.call("GET", "/v1/peek?limit=jobs&key=t&key=k", ""); !strings.Contains(w.Body.String(), `"held":1`) || !strings.Contains(w.Body.String(), `"remaining":1`) {
			t.Errorf("%s", w.Body)
		}
		if w := a.call("GET", "/v1/limits/jobs", ""); !strings.Contains(w.Body.String(), `"max":2`) || !strings.Contains(w.Body.String(), `"ttl":"30s"`) {
			t.Errorf("%s", w.Body)
		}
	})
}

func TestBadRequestsForPermits(t *testing.T) {
	a := newAPI(t, Config{}, jatah.Limit{Name: "jobs", Algorithm: jatah.Concurrency, Max: 1, TTL: 30 * time.Second}, perSecond("api", 1, 1))
	for _, c := range []struct {
		path, body        string
		status            int
		slug, field, says string
	}{
		{"acquire", ``, 400, "bad-body", "", "empty"},
		{"acquire", `[]`, 400, "bad-body", "", "JSON object"},
		{"acquire", `{"limit":"jobs","key":"k"`, 400, "bad-body", "", ""},
		{"acquire", `{"key":"k"}`, 400, "bad-field", "limit", "missing"},
		{"acquire", `{"limit":"jobs"}`, 400, "bad-field", "key", "missing"},
		{"acquire", `{"limit":"jobs","limit":"jobs","key":"k"}`, 400, "bad-field", "limit", "twice"},
		{"acquire", `{"limit":"jobs","key":"k","cost":1}`, 400, "bad-field", "cost", "ttl_ms and permit"},
		{"acquire", `{"limit":"jobs","key":"k","ttl_ms":"5"}`, 400, "bad-field", "ttl_ms", "whole number"},
		{"acquire", `{"limit":"jobs","key":"k","ttl_ms":0}`, 400, "bad-field", "ttl_ms", "at least 1"},
		{"acquire", `{"limit":"jobs","key":"k","ttl_ms":30001}`, 400, "bad-field", "ttl_ms", "at most the ttl"},
		{"acquire", `{"limit":"jobs","key":"k","ttl_ms":5,"ttl_ms":5}`, 400, "bad-field", "ttl_ms", "twice"},
		{"acquire", `{"limit":"jobs","key":"k","permit":7}`, 400, "bad-field", "permit", "string"},
		{"acquire", `{"limit":"jobs","key":""}`, 400, "bad-field", "key", "empty"},
		{"acquire", `{"limit":"api","key":"k"}`, 400, "bad-field", "limit", "/v1/take"},
		{"acquire", `{"limit":"none","key":"k"}`, 404, "unknown-limit", "limit", "none"},
		{"take", `{"limit":"jobs","key":"k"}`, 400, "bad-field", "limit", "/v1/acquire"},
		{"refund", `{"limit":"jobs","key":"k"}`, 400, "bad-field", "limit", "/v1/acquire"},
		{"release", `{"limit":"jobs","key":"k"}`, 400, "bad-field", "permit", "missing"},
		{"release", `{"limit":"jobs","key":"k","permit":"p","ttl_ms":5}`, 400, "bad-field", "ttl_ms", "limit, key and permit"},
		{"release", `{"limit":"jobs","key":"k","permit":"abc@nobody"}`, 404, "unknown-permit", "permit", ""},
	} {
		w := a.call("POST", "/v1/"+c.path, c.body)
		if wantProblem(t, w, c.status, c.slug, c.field, c.says); t.Failed() {
			t.Fatalf("%s %s", c.path, c.body)
		}
	}
	// Who has hung up gets none: it could not be released.
	r := httptest.NewRequest("POST", "/v1/acquire", strings.NewReader(`{"limit":"jobs","key":"k"}`))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	a.h.ServeHTTP(httptest.NewRecorder(), r.WithContext(ctx))
	a.permit("/v1/acquire", `{"limit":"jobs","key":"k"}`, 200)
}

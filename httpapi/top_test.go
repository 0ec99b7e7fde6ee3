package httpapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/jatah-io/jatah"
)

func (a *api) top(query string) (b topBody) {
	a.t.Helper()
	w := a.call("GET", "/v1/top"+query, "")
	if w.Code != 200 || w.Header().Get("Content-Type") != "application/json" || w.Header().Get("Cache-Control") != "no-store" {
		a.t.Fatalf("%d %v %s", w.Code, w.Header(), w.Body)
	}
	dec := json.NewDecoder(w.Body)
	dec.DisallowUnknownFields()
	if err := dec.Decode(&b); err != nil {
		a.t.Fatal(err)
	}
	return b
}

func TestTop(t *testing.T) {
	a := newAPI(t, Config{}, perMinute("api", 1, 10), perMinute("other", 1, 10))
	for i := range 12 {
		a.take(fmt.Sprintf(`{"limit":"api","key":["org","u%d"],"cost":%d}`, i, 1+i%8))
		a.take(`{"limit":"api","key":"<b>\u001b\"","cost":5}`)
	}
	b := a.top("?limit=api")
	if len(b.Limits) != 1 || len(b.Limits[0].Used) != 10 || len(b.Limits[0].Refused) != 1 || len(b.Answered) != 1 || b.Missing == nil || len(b.Missing) != 0 {
		t.Fatalf("%+v", b)
	}
	l := b.Limits[0]
	if l.Sample != 1 || l.SpanMS < 1000 || l.SpanMS > 60_000 {
		t.Errorf("%+v", l)
	}
	first := l.Used[0]
	if first.Key != "<b>\x1b\"" || first.Used != 10 || first.Refused != 10 || first.UsedRate <= 0 || first != l.Refused[0] {
		t.Errorf("%+v", first)
	}
	if k, ok := l.Used[1].Key.([]any); !ok || len(k) != 2 || k[0] != "org" || k[1] != "u7" || l.Used[1].Used != 8 {
		t.Errorf("%+v", l.Used[1])
	}
	if b := a.top(""); len(b.Limits) != 2 || len(b.Limits[1].Used) != 0 || b.Limits[1].Used == nil {
		t.Errorf("%+v", b)
	}
	if b := a.top("?limit=&n=3"); len(b.Limits) != 2 || len(b.Limits[0].Used) != 3 {
		t.Errorf("%+v", b)
	}
	if b := a.top("?n=100&limit=api"); len(b.Limits[0].Used) != 13 {
		t.Errorf("%d keys", len(b.Limits[0].Used))
	}
}

// TestTopOfOddKeys: those that embedders pass, and that are no text.
func TestTopOfOddKeys(t *testing.T) {
	a := newAPI(t, Config{}, perMinute("api", 1, 10))
	mustLookup(t, a.node, "api").Take(t.Context(), "\xff\x00", 1)
	w := a.call("GET", "/v1/top?limit=api", "")
	if !strings.Contains(w.Body.String(), `"key":"\ufffd\u0000"`) {
		t.Errorf("%s", w.Body)
	}
}

func TestTopIsRefused(t *testing.T) {
	a := newAPI(t, Config{}, perMinute("api", 1, 10))
	for _, c := range []struct {
		query, slug, field, sentence string
		status                       int
	}{
		{"?limit=none", "unknown-limit", "limit", `No limit is named "none"; this node knows api.`, 404},
		{"?n=0", "bad-query", "n", "n must be a whole number from 1 to 100, how many keys to list of each limit.", 400},
		{"?n=101", "bad-query", "n", "n must be a whole number from 1 to 100, how many keys to list of each limit.", 400},
		{"?n=x", "bad-query", "n", "n must be a whole number from 1 to 100, how many keys to list of each limit.", 400},
		{"?n=1&n=2", "bad-query", "n", "n is there 2 times; send it once.", 400},
		{"?limit=a&limit=b", "bad-query", "limit", "limit is there 2 times; send it once.", 400},
		{"?key=a", "bad-query", "key", `There is no parameter "key"; this call knows limit, n.`, 400},
	} {
		t.Run(c.query, func(t *testing.T) {
			wantProblem(t, a.call("GET", "/v1/top"+c.query, ""), c.status, c.slug, c.field, c.sentence)
		})
	}
	a.node.Close()
	if w := a.call("GET", "/v1/top", ""); w.Code != 503 {
		t.Errorf("%d from a node that is closed", w.Code)
	}
}

// TestRefusalsAreLogged: of every call that can refuse, if asked for; one line for each limit.
func TestRefusalsAreLogged(t *testing.T) {
	for _, on := range []bool{true, false} {
		for _, call := range []struct{ path, body, limit, key string }{
			{"/v1/take", `{"limit":"api","key":["a","b"],"cost":11}`, "api", `"[a, b]"`},
			{"/v1/take-all", `{"takes":[{"limit":"api","key":"x","cost":11},{"limit":"other","key":"y"}]}`, "api", "x"},
			{"/v1/batch", `{"takes":[{"limit":"other","key":"y"},{"limit":"api","key":"x","cost":11}]}`, "api", "x"},
			{"/v1/acquire", `{"limit":"jobs","key":"x"}`, "jobs", "x"},
		} {
			t.Run(fmt.Sprint(call.path, on), func(t *testing.T) {
				var out bytes.Buffer
				a := newAPI(t, Config{LogRefusals: on, Logger: slog.New(slog.NewTextHandler(&out, nil))}, perMinute("api", 1, 10), perMinute("other", 1, 10),
					jatah.Limit{Name: "jobs", Algorithm: jatah.Concurrency, Max: 1})
				if _, d := mustLookup(t, a.node, "jobs").Acquire(t.Context(), "x", 0); !d.OK {
					t.Fatal(d)
				}
				for range 3 {
					a.call("POST", call.path, call.body)
				}
				a.take(`{"limit":"other","key":"z"}`)
				want := 0
				if on {
					want = 1
				}
				log := out.String()
				if n := strings.Count(log, "msg=refused"); n != want || on && !strings.Contains(log, "msg=refused limit="+call.limit+" key="+call.key+" retry_after=") {
					t.Errorf("the log has %q", log)
				}
			})
		}
	}
}

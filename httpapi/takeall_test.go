package httpapi

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/jatah-io/jatah"
)

func TestTakeAllByteForByte(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dry := perMinute("dry", 1, 1)
		dry.DryRun = true
		child := perMinute("child", 60, 60)
		child.Parent = "total"
		a := newAPI(t, Config{}, perMinute("five", 5, 5), perMinute("three", 3, 3), dry, perMinute("total", 6, 6), child)
		for i, step := range []struct {
			query, body string
			status      int
			want        string
			retry       string
			limit       string // RateLimit
		}{
			{"", `{"takes":[{"limit":"five","key":"u","cost":4},{"limit":"three","key":["a", "b"],"cost":4}]}`, 429,
				`{"allowed":false,"violated":["three"],"results":[` +
					`{"allowed":true,"limit":"five","key":"u","cost":4,"remaining":5,"retry_after_ms":0,"reset_after_ms":0,"mode":"hybrid","source":"local"},` +
					`{"allowed":false,"limit":"three","key":["a","b"],"cost":4,"remaining":3,"retry_after_ms":null,"reset_after_ms":0,"mode":"hybrid","source":"local","reason":"the cost 4 exceeds the burst 3; it is never possible"}]}`,
				"", `"three";r=3;t=0`},
			{"", `{"takes":[{"limit":"five","key":"u","cost":2},{"limit":"three","key":"u","cost":2}]}`, 200,
				`{"allowed":true,"violated":[],"results":[` +
					`{"allowed":true,"limit":"five","key":"u","cost":2,"remaining":3,"retry_after_ms":0,"reset_after_ms":24000,"mode":"hybrid","source":"local"},` +
					`{"allowed":true,"limit":"three","key":"u","cost":2,"remaining":1,"retry_after_ms":0,"reset_after_ms":40000,"mode":"hybrid","source":"local"}]}`,
				"", `"three";r=1;t=40`},
			{"?deny_status=200", `{"takes":[{"limit":"five","key":"u","cost":4},{"limit":"three","key":"u","cost":2}]}`, 200,
				`{"allowed":false,"violated":["five","three"],"results":[` +
					`{"allowed":false,"limit":"five","key":"u","cost":4,"remaining":3,"retry_after_ms":12000,"reset_after_ms":24000,"mode":"hybrid","source":"local"},` +
					`{"allowed":false,"limit":"three","key":"u","cost":2,"remaining":1,"retry_after_ms":20000,"reset_after_ms":40000,"mode":"hybrid","source":"local"}]}`,
				"20", `"three";r=1;t=40`},
			{"", `{"takes":[{"limit":"dry","key":"u","cost":2},{"limit":"five","key":"u","cost":0}]}`, 200,
				`{"allowed":true,"violated":[],"results":[` +
					`{"allowed":true,"limit":"dry","key":"u","cost":2,"remaining":1,"retry_after_ms":0,"reset_after_ms":0,"mode":"hybrid","source":"local","dry_run":true},` +
					`{"allowed":true,"limit":"five","key":"u","cost":0,"remaining":3,"retry_after_ms":0,"reset_after_ms":24000,"mode":"hybrid","source":"local"}]}`,
				"", `"dry";r=1;t=0`},
			{"", `{"takes":[{"limit":"child","key":"u","cost":7}]}`, 429,
				`{"allowed":false,"violated":["total"],"results":[` +
					`{"allowed":false,"limit":"child","key":"u","cost":7,"remaining":6,"retry_after_ms":null,"reset_after_ms":0,"mode":"hybrid","source":"local","reason":"no wait helps"}]}`,
				"", `"child";r=6;t=0`},
		} {
			w := a.call("POST", "/v1/take-all"+step.query, step.body)
			if got := strings.TrimSuffix(w.Body.String(), "\n"); w.Code != step.status || got != step.want {
				t.Errorf("step %d: %d\n got %s\nwant %s", i, w.Code, got, step.want)
			}
			if h := w.Header(); h.Get("Retry-After") != step.retry || h.Get("RateLimit") != step.limit || h.Get("Content-Type") != "application/json" {
				t.Errorf("step %d: %v", i, h)
			}
		}
		if five, three := a.remaining("five", "u"), a.remaining("three", "u"); five != 3 || three != 1 {
			t.Errorf("left are %d and %d, want 3 and 1", five, three)
		}
	})
}

func TestTakesUnderAParentTakeOfBoth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		child := perMinute("child", 4, 4)
		child.Parent = "total"
		a := newAPI(t, Config{}, perMinute("total", 6, 6), child)
		for i, step := range []struct {
			path, key string
			status    int
			want      string
		}{
			{"take", "u", 200, `{"allowed":true,"limit":"child","key":"u","cost":3,"remaining":1,"retry_after_ms":0,"reset_after_ms":45000,"mode":"hybrid","source":"local"}`},
			{"take", "u", 429, `{"allowed":false,"limit":"child","key":"u","cost":3,"remaining":1,"retry_after_ms":30000,"reset_after_ms":45000,"mode":"hybrid","source":"local"}`},
			{"take", "v", 200, `{"allowed":true,"limit":"child","key":"v","cost":3,"remaining":0,"retry_after_ms":0,"reset_after_ms":60000,"mode":"hybrid","source":"local"}`},
			{"take", "w", 429, `{"allowed":false,"limit":"child","key":"w","cost":3,"remaining":0,"retry_after_ms":30000,"reset_after_ms":60000,"mode":"hybrid","source":"local"}`},
			{"refund", "v", 200, `{"allowed":true,"limit":"child","key":"v","cost":3,"remaining":3,"retry_after_ms":0,"reset_after_ms":30000,"mode":"hybrid","source":"local"}`},
			{"take", "w", 200, `{"allowed":true,"limit":"child","key":"w","cost":3,"remaining":0,"retry_after_ms":0,"reset_after_ms":60000,"mode":"hybrid","source":"local"}`},
			{"charge", "w", 200, `{"allowed":true,"limit":"child","key":"w","cost":3,"remaining":0,"retry_after_ms":0,"reset_after_ms":90000,"mode":"hybrid","source":"local"}`},
		} {
			w := a.call("POST", "/v1/"+step.path, `{"limit":"child","key":"`+step.key+`","cost":3}`)
			if got := strings.TrimSuffix(w.Body.String(), "\n"); w.Code != step.status || got != step.want {
				t.Errorf("step %d: %d\n got %s\nwant %s", i, w.Code, got, step.want)
			}
		}
		w := a.call("POST", "/v1/batch", `{"takes":[{"limit":"child","key":"x"},{"limit":"total","key":"x"}]}`)
		if !strings.HasPrefix(w.Body.String(), `{"results":[{"allowed":false,`) || !strings.Contains(w.Body.String(), `{"allowed":true,"limit":"total"`) {
			t.Error(w.Body)
		}
		if w := a.call("GET", "/v1/limits/child", ""); !strings.Contains(w.Body.String(), `"parent":"total"`) {
			t.Error(w.Body)
		}
		a.h.node.RemoveLimit("total")
		wantProblem(t, a.call("POST", "/v1/take", `{"limit":"child","key":"x"}`), 503, "undecided", "", `"child" under "total"`)
	})
}

func TestBadTakeAllsTakeNothing(t *testing.T) {
	const good = `{"limit":"api","key":"u"}`
	a := newAPI(t, Config{MaxBatch: 3}, perMinute("api", 10, 10))
	for _, row := range []badTake{
		{"no takes", `{"takes":[]}`, 400, "bad-field", "takes", "takes is empty"},
		{"too many", `{"takes":[` + strings.Repeat(good+",", 3) + good + `]}`, 400, "bad-field", "takes", "more than 3 items"},
		{"unknown limit", `{"takes":[` + good + `,{"limit":"none","key":"u"}]}`, 404, "unknown-limit", "takes[1].limit", "this node knows api"},
		{"negative", `{"takes":[` + good + `,{"limit":"api","key":"u","cost":-1}]}`, 400, "bad-field", "takes[1].cost", "must not be negative"},
		{"empty key", `{"takes":[{"limit":"api","key":""},` + good + `]}`, 400, "bad-field", "takes[0].key", "must not be empty"},
		{"no object", `{"takes":[` + good + `,7]}`, 400, "bad-body", "takes[1]", "must be a JSON object"},
		{"no JSON", `{"takes":[` + good, 400, "bad-body", "", "not valid JSON"},
	} {
		t.Run(row.name, func(t *testing.T) {
			wantProblem(t, a.call("POST", "/v1/take-all", row.body), row.status, row.slug, row.field, row.detailContains)
		})
	}
	wantProblem(t, a.call("POST", "/v1/take-all?x=1", `{"takes":[`+good+`]}`), 400, "bad-query", "x", "")
	if got := a.remaining("api", "u"); got != 10 {
		t.Errorf("remaining %d, want 10", got)
	}
}

func TestTakeAllIsRepeated(t *testing.T) {
	a := newAPI(t, Config{}, jatah.Limit{Name: "api", Rate: jatah.PerDay(1), Burst: 10})
	const body = `{"takes":[{"limit":"api","key":"u","cost":2},{"limit":"api","key":"v","cost":3}]}`
	first := a.call("POST", "/v1/take-all", body, "Idempotency-Key", "k").Body.String()
	if again := a.call("POST", "/v1/take-all", body, "Idempotency-Key", "k").Body.String(); again != first || a.remaining("api", "v") != 7 {
		t.Errorf("%s%s%d left", first, again, a.remaining("api", "v"))
	}
	wantProblem(t, a.call("POST", "/v1/take-all", body+" ", "Idempotency-Key", "k"), 422, "idempotency-key-reused", "Idempotency-Key", "")
}

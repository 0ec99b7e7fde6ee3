package httpapi

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jatah-io/jatah"
)

// planned is 4 a minute, 8 in plan big, and 40 an hour with 2 at once in plan slow. The key vip is big, those that begin with in: have 16, x none.
func planned() jatah.Limit {
	l := perMinute("api", 4, 4)
	l.Plans = map[string]jatah.Plan{"big": {Rate: jatah.PerMinute(8)}, "slow": {Rate: jatah.PerHour(40), Burst: 2}}
	l.Overrides = []jatah.Override{{Key: "vip", Plan: "big"}, {Prefix: "in:", Rate: jatah.PerMinute(16)}, {Key: "x", Rate: jatah.Per(0, time.Second)}}
	l.Costs = map[string]int64{"/export": 6}
	return l
}

func TestAnswersSpeakOfThePlanThatHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const local = `"mode":"hybrid","source":"local"`
		a := newAPI(t, Config{}, planned())
		for i, step := range []struct {
			path, body     string
			status         int
			want           string
			policy, limit  string
			rateLimitLimit string
		}{
			{"take", `{"limit":"api","key":"u","cost":3}`, 200,
				`{"allowed":true,"limit":"api","key":"u","cost":3,"remaining":1,"retry_after_ms":0,"reset_after_ms":45000,` + local + `}`, `"api";q=4;w=60`, `"api";r=1;t=45`, "4"},
			{"take", `{"limit":"api","key":"u","cost":5,"plan":"big"}`, 200, // the difference at once
				`{"allowed":true,"limit":"api","key":"u","plan":"big","cost":5,"remaining":0,"retry_after_ms":0,"reset_after_ms":60000,` + local + `}`, `"api";q=8;w=60`, `"api";r=0;t=60`, "8"},
			{"take", `{"plan":"","limit":"api","key":"u"}`, 429, // 8 are used of 4: a debt of 4
				`{"allowed":false,"limit":"api","key":"u","cost":1,"remaining":0,"retry_after_ms":75000,"reset_after_ms":120000,` + local + `}`, `"api";q=4;w=60`, `"api";r=0;t=120`, "4"},
			{"take", `{"limit":"api","key":"v","cost":5}`, 429,
				`{"allowed":false,"limit":"api","key":"v","cost":5,"remaining":4,"retry_after_ms":null,"reset_after_ms":0,` + local + `,"reason":"the cost 5 exceeds the burst 4; it is never possible"}`, `"api";q=4;w=60`, `"api";r=4;t=0`, "4"},
			{"take", `{"limit":"api","key":"v","cost":3,"plan":"slow"}`, 429,
				`{"allowed":false,"limit":"api","key":"v","plan":"slow","cost":3,"remaining":2,"retry_after_ms":null,"reset_after_ms":0,` + local + `,"reason":"the cost 3 exceeds the burst 2; it is never possible"}`, `"api";q=2;w=180`, `"api";r=2;t=0`, "2"},
			{"take", `{"limit":"api","key":"v","route":"/export"}`, 429, // costs are of the limit, also where only a plan lets them pass
				`{"allowed":false,"limit":"api","key":"v","cost":6,"remaining":4,"retry_after_ms":null,"reset_after_ms":0,` + local + `,"reason":"the cost 6 exceeds the burst 4; it is never possible"}`, `"api";q=4;w=60`, `"api";r=4;t=0`, "4"},
			{"take", `{"limit":"api","key":"v","route":"/export","plan":"big"}`, 200,
				`{"allowed":true,"limit":"api","key":"v","plan":"big","cost":6,"remaining":2,"retry_after_ms":0,"reset_after_ms":45000,` + local + `}`, `"api";q=8;w=60`, `"api";r=2;t=45`, "8"},
			{"refund", `{"limit":"api","key":"v","cost":6,"plan":"big"}`, 200,
				`{"allowed":true,"limit":"api","key":"v","plan":"big","cost":6,"remaining":8,"retry_after_ms":0,"reset_after_ms":0,` + local + `}`, `"api";q=8;w=60`, `"api";r=8;t=0`, "8"},
			{"charge", `{"limit":"api","key":"v","cost":4,"plan":"big"}`, 200,
				`{"allowed":true,"limit":"api","key":"v","plan":"big","cost":4,"remaining":4,"retry_after_ms":0,"reset_after_ms":30000,` + local + `}`, `"api";q=8;w=60`, `"api";r=4;t=30`, "8"},
			{"take", `{"limit":"api","key":"vip","cost":7,"plan":"slow"}`, 200, // an override beats what the caller names
				`{"allowed":true,"limit":"api","key":"vip","plan":"big","cost":7,"remaining":1,"retry_after_ms":0,"reset_after_ms":52500,` + local + `}`, `"api";q=8;w=60`, `"api";r=1;t=53`, "8"},
			{"take", `{"limit":"api","key":"in:7","cost":15}`, 200, // amounts of its own have no name
				`{"allowed":true,"limit":"api","key":"in:7","cost":15,"remaining":1,"retry_after_ms":0,"reset_after_ms":56250,` + local + `}`, `"api";q=16;w=60`, `"api";r=1;t=57`, "16"},
			{"take", `{"limit":"api","key":"x","plan":"big"}`, 429,
				`{"allowed":false,"limit":"api","key":"x","cost":1,"remaining":0,"retry_after_ms":null,"reset_after_ms":0,` + local + `,"reason":"the rate of the limit is 0, which denies everything"}`, `"api";q=0`, `"api";r=0;t=0`, "0"},
			{"take-all", `{"takes":[{"limit":"api","key":"w","cost":5,"plan":"big"},{"limit":"api","key":"in:8","cost":15}]}`, 200,
				`{"allowed":true,"violated":[],"results":[{"allowed":true,"limit":"api","key":"w","plan":"big","cost":5,"remaining":3,"retry_after_ms":0,"reset_after_ms":37500,` + local + `},` +
					`{"allowed":true,"limit":"api","key":"in:8","cost":15,"remaining":1,"retry_after_ms":0,"reset_after_ms":56250,` + local + `}]}`, `"api";q=16;w=60`, `"api";r=1;t=57`, "16"},
			{"batch", `{"takes":[{"limit":"api","key":"w","cost":3,"plan":"big"},{"limit":"api","key":"w"},{"limit":"api","key":"w","plan":"gold"}]}`, 200,
				`{"results":[{"allowed":true,"limit":"api","key":"w","plan":"big","cost":3,"remaining":0,"retry_after_ms":0,"reset_after_ms":60000,` + local + `},` +
					`{"allowed":false,"limit":"api","key":"w","cost":1,"remaining":0,"retry_after_ms":75000,"reset_after_ms":120000,` + local + `},` +
					`{"error":{"type":"urn:jatah:problem:unknown-plan","title":"Bad Request","status":400,"detail":"The limit \"api\" has no plan \"gold\"; it has big, slow.","field":"plan"}}]}`, "", "", ""},
		} {
			w := a.call("POST", "/v1/"+step.path, step.body)
			if got := strings.TrimSuffix(w.Body.String(), "\n"); w.Code != step.status || got != step.want {
				t.Errorf("step %d: %d\n got %s\nwant %s", i, w.Code, got, step.want)
			}
			if h := w.Header(); h.Get("RateLimit-Policy") != step.policy || h.Get("RateLimit") != step.limit || h.Get("X-RateLimit-Limit") != step.rateLimitLimit {
				t.Errorf("step %d: %v", i, h)
			}
		}
	})
}

func TestUnknownPlansAreRefusedAndTakeNothing(t *testing.T) {
	plain := perMinute("plain", 4, 4)
	a := newAPI(t, Config{}, planned(), plain)
	const says = `The limit "api" has no plan "gold"; it has big, slow.`
	for _, path := range []string{"take", "refund", "charge"} {
		wantProblem(t, a.call("POST", "/v1/"+path, `{"limit":"api","key":"u","plan":"gold"}`), 400, "unknown-plan", "plan", says)
	}
	wantProblem(t, a.call("POST", "/v1/take-all", `{"takes":[{"limit":"api","key":"u"},{"limit":"api","key":"u","plan":"gold"}]}`), 400, "unknown-plan", "takes[1].plan", says)
	wantProblem(t, a.call("GET", "/v1/peek?limit=api&key=u&plan=gold", ""), 400, "unknown-plan", "plan", says)
	wantProblem(t, a.call("GET", "/v1/peek?limit=api&key=u&plan=", ""), 400, "bad-query", "plan", "plan is missing")
	wantProblem(t, a.take(`{"limit":"plain","key":"u","plan":"big"}`), 400, "unknown-plan", "plan", `The limit "plain" has no plan "big", and no other`)
	for _, own := range []string{"prefix:in:", "key:x"} { // what overrides are called within
		wantProblem(t, a.take(`{"limit":"api","key":"u","plan":"`+own+`"}`), 400, "unknown-plan", "plan", "it has big, slow")
	}
	wantProblem(t, a.take(`{"limit":"api","key":"u","plan":7}`), 400, "bad-field", "plan", "must be a string")
	wantProblem(t, a.take(`{"limit":"api","key":"u","plan":null}`), 400, "bad-field", "plan", "must be a string")
	wantProblem(t, a.take(`{"plan":"big","limit":"api","key":"u","plan":"big"}`), 400, "bad-field", "plan", "is there twice")
	wantProblem(t, a.take(`{"limit":"api","key":"u","plam":"big"}`), 400, "bad-field", "plam", "and plan.")
	if got := a.remaining("api", "u"); got != 4 {
		t.Errorf("remaining %d, want 4", got)
	}
	l := planned()
	l.Plans = map[string]jatah.Plan{"big": l.Plans["big"]}
	if _, err := a.node.Limit(l); err != nil {
		t.Fatal(err)
	}
	wantProblem(t, a.take(`{"limit":"api","key":"u","plan":"slow"}`), 400, "unknown-plan", "plan", `no plan "slow"; it has big.`)
}

func TestPeekAndLimitsShowPlans(t *testing.T) {
	a := newAPI(t, Config{}, planned())
	for query, want := range map[string]string{
		"key=u":            `{"limit":"api","key":"u","owner":"` + a.node.Info().Node + `","mode":"hybrid","burst":4,"remaining":4,`,
		"key=u&plan=big":   `{"limit":"api","key":"u","plan":"big","owner":"` + a.node.Info().Node + `","mode":"hybrid","burst":8,"remaining":8,`,
		"key=vip":          `{"limit":"api","key":"vip","plan":"big","owner":"` + a.node.Info().Node + `","mode":"hybrid","burst":8,`,
		"key=in:&plan=big": `{"limit":"api","key":"in:","owner":"` + a.node.Info().Node + `","mode":"hybrid","burst":16,`,
	} {
		if w := a.call("GET", "/v1/peek?limit=api&"+query, ""); !strings.HasPrefix(w.Body.String(), want) {
			t.Errorf("%s: %s, want %s", query, w.Body, want)
		}
	}
	const want = `"plans":{"big":{"rate":"8/min","burst":8},"slow":{"rate":"40/h","burst":2}},` +
		`"overrides":[{"key":"vip","plan":"big"},{"prefix":"in:","rate":"16/min","burst":16},{"key":"x","rate":"0/s"}]}`
	for _, path := range []string{"/v1/limits", "/v1/limits/api"} {
		if w := a.call("GET", path, ""); !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: %s, want %s", path, w.Body, want)
		}
	}
}

func TestATakeUnderAPlanAllocatesLittle(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector makes pools forget")
	}
	l := bigLimit()
	l.Plans = map[string]jatah.Plan{"big": {Rate: l.Rate, Burst: l.Burst}}
	a := newAPI(t, Config{}, l)
	req := newAgain("/v1/take", `{"limit":"api","key":"user:12345","cost":1,"plan":"big"}`)
	if n := testing.AllocsPerRun(1000, func() {
		if req.serve(a.h) != 200 {
			t.Fatal(req.w.status)
		}
	}); n > 3 { // one more than without: the decision on a shared table
		t.Errorf("%v allocations for one take under a plan, want at most 3", n)
	}
}

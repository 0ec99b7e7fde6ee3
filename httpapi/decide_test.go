package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jatah-io/jatah"
	"github.com/jatah-io/jatah/httpapi/internal/fields"
)

func TestDecisionsByteForByte(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		deny := jatah.Limit{Name: "none", Rate: jatah.Per(0, time.Second)}
		a := newAPI(t, Config{}, perMinute("api", 100, 20), perMinute("slow", 1, 1), deny)
		for _, step := range []struct {
			target, body string
			status       int
			want         string
			head         [6]string // Retry-After, RateLimit, RateLimit-Policy, X-RateLimit-Limit, -Remaining, -Reset
		}{
			{"/v1/take", `{"limit":"api","key":"u1","cost":1}`, 200,
				`{"allowed":true,"limit":"api","key":"u1","cost":1,"remaining":19,"retry_after_ms":0,"reset_after_ms":600,"mode":"hybrid","source":"local"}`,
				[6]string{"", `"api";r=19;t=1`, `"api";q=20;w=12`, "20", "19", "1"}},
			{"/v1/take", `{"key":"u1","limit":"api"}`, 200,
				`{"allowed":true,"limit":"api","key":"u1","cost":1,"remaining":18,"retry_after_ms":0,"reset_after_ms":1200,"mode":"hybrid","source":"local"}`,
				[6]string{"", `"api";r=18;t=2`, `"api";q=20;w=12`, "20", "18", "2"}},
			{"/v1/take", `{"limit":"api","key":"u1","cost":0}`, 200,
				`{"allowed":true,"limit":"api","key":"u1","cost":0,"remaining":18,"retry_after_ms":0,"reset_after_ms":1200,"mode":"hybrid","source":"local"}`,
				[6]string{"", `"api";r=18;t=2`, `"api";q=20;w=12`, "20", "18", "2"}},
			{"/v1/take", `{"limit":"api","key":"u1","cost":20}`, 429,
				`{"allowed":false,"limit":"api","key":"u1","cost":20,"remaining":18,"retry_after_ms":1200,"reset_after_ms":1200,"mode":"hybrid","source":"local"}`,
				[6]string{"2", `"api";r=18;t=2`, `"api";q=20;w=12`, "20", "18", "2"}},
			{"/v1/take?deny_status=200", `{"limit":"api","key":"u1","cost":20}`, 200,
				`{"allowed":false,"limit":"api","key":"u1","cost":20,"remaining":18,"retry_after_ms":1200,"reset_after_ms":1200,"mode":"hybrid","source":"local"}`,
				[6]string{"2", `"api";r=18;t=2`, `"api";q=20;w=12`, "20", "18", "2"}},
			{"/v1/take?deny_status=403", `{"limit":"api","key":"u1","cost":21}`, 403,
				`{"allowed":false,"limit":"api","key":"u1","cost":21,"remaining":18,"retry_after_ms":null,"reset_after_ms":1200,"mode":"hybrid","source":"local","reason":"the cost 21 exceeds the burst 20; it is never possible"}`,
				[6]string{"", `"api";r=18;t=2`, `"api";q=20;w=12`, "20", "18", "2"}},
			{"/v1/refund", `{"limit":"api","key":"u1","cost":1}`, 200,
				`{"allowed":true,"limit":"api","key":"u1","cost":1,"remaining":19,"retry_after_ms":0,"reset_after_ms":600,"mode":"hybrid","source":"local"}`,
				[6]string{"", `"api";r=19;t=1`, `"api";q=20;w=12`, "20", "19", "1"}},
			{"/v1/refund", `{"limit":"api","key":"u1","cost":1000}`, 200,
				`{"allowed":true,"limit":"api","key":"u1","cost":1000,"remaining":20,"retry_after_ms":0,"reset_after_ms":0,"mode":"hybrid","source":"local"}`,
				[6]string{"", `"api";r=20;t=0`, `"api";q=20;w=12`, "20", "20", "0"}},
			{"/v1/take", `{"limit":"slow","key":["a", "b"]}`, 200,
				`{"allowed":true,"limit":"slow","key":["a","b"],"cost":1,"remaining":0,"retry_after_ms":0,"reset_after_ms":60000,"mode":"hybrid","source":"local"}`,
				[6]string{"", `"slow";r=0;t=60`, `"slow";q=1;w=60`, "1", "0", "60"}},
			{"/v1/take", `{"limit":"none","key":"\u00e9\n<&>"}`, 429,
				`{"allowed":false,"limit":"none","key":"\u00e9\n<&>","cost":1,"remaining":0,"retry_after_ms":null,"reset_after_ms":0,"mode":"hybrid","source":"local","reason":"the rate of the limit is 0, which denies everything"}`,
				[6]string{"", `"none";r=0;t=0`, `"none";q=0`, "0", "0", "0"}},
		} {
			w := a.call("POST", step.target, step.body)
			if w.Code != step.status || w.Body.String() != step.want+"\n" {
				t.Errorf("%s %s\n got %d %s\nwant %d %s", step.target, step.body, w.Code, w.Body, step.status, step.want)
			}
			for i, name := range []string{"Retry-After", "RateLimit", "RateLimit-Policy", "X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"} {
				if got := w.Header().Get(name); got != step.head[i] {
					t.Errorf("%s %s: %s is %q, want %q", step.target, step.body, name, got, step.head[i])
				}
			}
			if got, want := w.Header().Get("Content-Length"), strconv.Itoa(len(step.want)+1); got != want {
				t.Errorf("Content-Length %s, want %s", got, want)
			}
			if got := w.Header().Get("Content-Type"); got != "application/json" {
				t.Errorf("Content-Type %q", got)
			}
		}
	})
}

func TestChargeMayGoBelowZeroAndIsRepaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(t, Config{}, perSecond("api", 1, 10))
		w := a.call("POST", "/v1/charge", `{"limit":"api","key":"u","cost":15}`)
		want := `{"allowed":true,"limit":"api","key":"u","cost":15,"remaining":0,"retry_after_ms":0,"reset_after_ms":15000,"mode":"hybrid","source":"local"}` + "\n"
		if w.Code != 200 || w.Body.String() != want {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
		w = a.take(`{"limit":"api","key":"u"}`)
		if w.Code != 429 || w.Header().Get("Retry-After") != "6" {
			t.Errorf("%d, Retry-After %q, want 429 and 6 (debt 5, cost 1)", w.Code, w.Header().Get("Retry-After"))
		}
		time.Sleep(6 * time.Second)
		if w := a.take(`{"limit":"api","key":"u"}`); w.Code != 200 {
			t.Errorf("after the wait: %d %s", w.Code, w.Body)
		}
	})
}

func TestDenyStatusWithoutBody(t *testing.T) {
	a := newAPI(t, Config{}, perMinute("api", 1, 1))
	a.take(`{"limit":"api","key":"u"}`)
	w := a.call("POST", "/v1/take?deny_status=204", `{"limit":"api","key":"u"}`)
	if w.Code != 204 || w.Body.Len() != 0 || w.Header().Get("Content-Length") != "" || w.Header().Get("Retry-After") == "" {
		t.Errorf("%d %q %v", w.Code, w.Body, w.Header())
	}
}

func TestRetryAfterIsWholeSecondsRoundedUpAndTrue(t *testing.T) {
	digits := regexp.MustCompile(`^[1-9][0-9]*$`)
	for _, row := range []struct {
		rate   jatah.Rate
		burst  int64
		passes int
		pause  time.Duration
		header string
		exact  string // in milliseconds, rounded up
	}{
		{jatah.Per(10, time.Second), 10, 10, 30 * time.Millisecond, "1", "70"},
		{jatah.Per(1, time.Second), 1, 1, 0, "1", "1000"},
		{jatah.Per(1, 1000100*time.Microsecond), 1, 1, 0, "2", "1001"},
		{jatah.Per(2, 20*time.Second), 2, 2, 500 * time.Millisecond, "10", "9500"},
	} {
		synctest.Test(t, func(t *testing.T) {
			a := newAPI(t, Config{}, jatah.Limit{Name: "x", Rate: row.rate, Burst: row.burst})
			const body = `{"limit":"x","key":"u"}`
			for range row.passes {
				if w := a.take(body); w.Code != 200 || w.Header()["Retry-After"] != nil {
					t.Fatalf("%d, Retry-After %q", w.Code, w.Header()["Retry-After"])
				}
			}
			time.Sleep(row.pause)
			w := a.take(body)
			got := w.Header().Get("Retry-After")
			if w.Code != 429 || got != row.header || !digits.MatchString(got) {
				t.Fatalf("%v: %d, Retry-After %q, want 429 and %q", row.rate, w.Code, got, row.header)
			}
			if ms := regexp.MustCompile(`"retry_after_ms":(\d+)`).FindStringSubmatch(w.Body.String()); ms == nil || ms[1] != row.exact {
				t.Errorf("%v: retry_after_ms %v, want %s", row.rate, ms, row.exact)
			}
			wait, _ := strconv.Atoi(got)
			time.Sleep(time.Duration(wait) * time.Second)
			if w := a.take(body); w.Code != 200 {
				t.Errorf("%v: still %d after the wait", row.rate, w.Code)
			}
		})
	}
}

func TestRateLimitFieldsCountDownAsStructuredFields(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(t, Config{}, perMinute("burst", 100, 100))
		const body = `{"limit":"burst","key":"u"}`
		time.Sleep(10 * time.Second)
		w := a.take(body)
		policy := map[string]int64{"q": 100, "w": 60}
		wantSF(t, w.Header().Get("RateLimit-Policy"), "burst", policy)
		wantSF(t, w.Header().Get("RateLimit"), "burst", map[string]int64{"r": 99, "t": 1}) // a bucket is full again when the token is back
		for range 99 {
			w = a.take(body)
		}
		wantSF(t, w.Header().Get("RateLimit"), "burst", map[string]int64{"r": 0, "t": 60})
		w = a.take(body)
		wantSF(t, w.Header().Get("RateLimit-Policy"), "burst", policy)
		wantSF(t, w.Header().Get("RateLimit"), "burst", map[string]int64{"r": 0, "t": 60})
		if w.Code != 429 || w.Header().Get("Retry-After") != "1" {
			t.Errorf("%d, Retry-After %q", w.Code, w.Header().Get("Retry-After"))
		}
		for name, vals := range w.Header() {
			if len(vals) != 1 {
				t.Errorf("%s is there %d times", name, len(vals))
			}
		}
	})
}

func TestHeadersCanBeLeftOutOrGiveTheEpoch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, row := range []struct {
			cfg  Config
			want string // RateLimit, RateLimit-Policy, X-RateLimit-Limit, -Remaining, -Reset; RateLimit-Limit, -Remaining, -Reset
		}{
			{Config{}, `"api";r=1;t=1|"api";q=2;w=1|2|1|1|||`},
			{Config{OmitRateLimit: true}, `||2|1|1|||`},
			{Config{OmitXRateLimit: true}, `"api";r=1;t=1|"api";q=2;w=1||||||`},
			{Config{OmitRateLimit: true, OmitXRateLimit: true}, `|||||||`},
			{Config{Legacy: true}, `"api";r=1;t=1|"api";q=2;w=1|2|1|1|2|1|1`},
			{Config{OmitRateLimit: true, OmitXRateLimit: true, Legacy: true}, `|||||2|1|1`},
			// The bubble begins on a whole second: half a second later, rounded up, is the next.
			{Config{ResetEpoch: true}, `"api";r=1;t=1|"api";q=2;w=1|2|1|` + strconv.FormatInt(time.Now().Unix()+1, 10) + `|||`},
		} {
			h := newAPI(t, row.cfg, perSecond("api", 2, 2)).take(`{"limit":"api","key":"u"}`).Header()
			got := h.Get("RateLimit") + "|" + h.Get("RateLimit-Policy")
			for _, family := range []string{"X-RateLimit", "RateLimit"} {
				got += "|" + h.Get(family+"-Limit") + "|" + h.Get(family+"-Remaining") + "|" + h.Get(family+"-Reset")
			}
			if got != row.want {
				t.Errorf("%+v\n got %s\nwant %s", row.cfg, got, row.want)
			}
		}
	})
}

func TestWaitsAreRoundedUp(t *testing.T) {
	for _, row := range []struct {
		d       time.Duration
		seconds int64
		millis  string
	}{
		{-time.Second, 0, "0"}, {0, 0, "0"}, {1, 1, "1"}, {time.Millisecond, 1, "1"}, {time.Millisecond + 1, 1, "2"},
		{time.Second, 1, "1000"}, {time.Second + 1, 2, "1001"}, {math.MaxInt64 - 1, 9223372037, "9223372036855"}, {jatah.Never, 9223372037, "null"},
	} {
		if s, ms := fields.CeilSeconds(row.d), string(appendMillis(nil, row.d)); s != row.seconds || ms != row.millis {
			t.Errorf("%d ns: %d s, %s ms, want %d, %s", row.d, s, ms, row.seconds, row.millis)
		}
	}
}

func TestDifferentKeysAreCountedApart(t *testing.T) {
	a := newAPI(t, Config{}, perMinute("a", 1, 1), perMinute("a_b", 1, 1), perMinute("a:b", 1, 1), perMinute("x", 1, 1))
	for _, body := range []string{
		`"limit":"a","key":"b_c"`, `"limit":"a_b","key":"c"`,
		`"limit":"a","key":"b:c"`, `"limit":"a:b","key":"c"`,
		`"limit":"x","key":["aa","b"]`, `"limit":"x","key":["a","ab"]`,
		`"limit":"x","key":["p|","q"]`, `"limit":"x","key":["p","|q"]`,
		`"limit":"x","key":["r",""]`, `"limit":"x","key":["r"]`,
		`"limit":"x","key":["","r"]`, `"limit":"x","key":["","r",""]`, `"limit":"x","key":["",""]`,
		`"limit":"x","key":"aab"`, `"limit":"x","key":"[\"aa\",\"b\"]"`,
		`"limit":"x","key":"\ud800"`, `"limit":"x","key":"\ud801"`, `"limit":"x","key":"\ufffd"`,
		"\"limit\":\"x\",\"key\":\"\xff\"", "\"limit\":\"x\",\"key\":\"\xfe\"", "\"limit\":\"x\",\"key\":\"\xff\xfe\"",
	} {
		first, again := a.take(`{`+body+`}`), a.take(`{`+body+`}`)
		if first.Code != 200 || first.Header().Get("X-RateLimit-Remaining") != "0" || again.Code != 429 {
			t.Errorf("%s: %d, then %d: %s", body, first.Code, again.Code, first.Body)
		}
	}
	// A string that imitates a joined array is not that array.
	for i, parts := range [][]string{{"aa", "b"}, {"r", ""}, {"", ""}} {
		w := a.take(fmt.Sprintf(`{"limit":"x","key":%s}`, appendJSON(nil, jatah.Key(parts...))))
		if w.Code != 200 {
			t.Errorf("imitation %d of %q was counted with it", i, parts)
		}
	}
	// The same key, written in two ways, is one key.
	for _, body := range []string{`{"limit":"x","key":"r"}`, `{"limit":"x","key":"\u0072"}`} {
		if w := a.take(body); w.Code != 429 {
			t.Errorf("%s is not the key [\"r\"]: %d", body, w.Code)
		}
	}
}

func TestKeysThatAreNoTextAreDecidedAndEchoedAsText(t *testing.T) {
	a := newAPI(t, Config{}, perMinute("x", 5, 5))
	for body, echo := range map[string]string{
		"\"\xff\xfe\"":      "\"\ufffd\"",
		"\"a\xc0b\"":        "\"a\ufffdb\"",
		`"\ud800"`:          `"\ud800"`,
		`"\udc00\ud800"`:    `"\udc00\ud800"`,
		`"\u0000"`:          `"\u0000"`,
		"[\"\xff\" , \"\"]": "[\"\ufffd\",\"\"]",
	} {
		w := a.take(`{"limit":"x","key":` + body + `}`)
		want := `{"allowed":true,"limit":"x","key":` + echo + `,"cost":1,"remaining":4,`
		if w.Code != 200 || w.Body.String()[:len(want)] != want {
			t.Errorf("%q: %d %s", body, w.Code, w.Body)
		}
	}
	if got := a.remaining("x", "%ff%fe"); got != 4 {
		t.Errorf("the key of bytes ff fe has %d left in a query, want 4 as in the body", got)
	}
}

func TestPeekAndResetOfOneKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(t, Config{}, perMinute("api", 60, 10))
		a.take(`{"limit":"api","key":["a","b c"],"cost":4}`)
		const key = "limit=api&key=a&key=b+c"
		w := a.call("GET", "/v1/peek?"+key, "")
		want := `{"limit":"api","key":["a","b c"],"owner":"` + a.node.Name() + `","mode":"hybrid","burst":10,"remaining":6,"balance":6,"outstanding":0,"credit":0,"retry_after_ms":0,"reset_after_ms":4000,"age_ms":0}` + "\n"
		if w.Code != 200 || w.Body.String() != want {
			t.Errorf("got  %d %s\nwant %s", w.Code, w.Body, want)
		}
		if w := a.call("DELETE", "/v1/keys?"+key, ""); w.Code != 204 || w.Body.Len() != 0 {
			t.Errorf("reset: %d %s", w.Code, w.Body)
		}
		if got := a.remaining("api", "a&key=b+c"); got != 10 {
			t.Errorf("remaining %d after reset", got)
		}
	})
}

func TestDefinitionsClusterAndHealth(t *testing.T) {
	a := newAPI(t, Config{}, perMinute("api", 100, 20), jatah.Limit{Name: "team/x:y", Rate: jatah.PerSecond(5)})
	for target, want := range map[string]string{
		"/v1/limits/api":          `{"name":"api","rate":"100/min","burst":20,"algorithm":"token_bucket","mode":"hybrid","overshoot":0,"fallback":"share","dry_run":false,"origin":"local"}`,
		"/v1/limits/team/x:y":     `{"name":"team/x:y","rate":"5/s","burst":5,"algorithm":"token_bucket","mode":"hybrid","overshoot":0,"fallback":"share","dry_run":false,"origin":"local"}`,
		"/v1/limits/team%2Fx%3Ay": `{"name":"team/x:y","rate":"5/s","burst":5,"algorithm":"token_bucket","mode":"hybrid","overshoot":0,"fallback":"share","dry_run":false,"origin":"local"}`,
		"/v1/limits": `{"limits":[{"name":"api","rate":"100/min","burst":20,"algorithm":"token_bucket","mode":"hybrid","overshoot":0,"fallback":"share","dry_run":false,"origin":"local"},` +
			`{"name":"team/x:y","rate":"5/s","burst":5,"algorithm":"token_bucket","mode":"hybrid","overshoot":0,"fallback":"share","dry_run":false,"origin":"local"}]}`,
		"/healthz": `{"status":"ok"}`,
		"/readyz":  `{"status":"ready"}`,
	} {
		w := a.call("GET", target, "")
		if w.Code != 200 || w.Body.String() != want+"\n" {
			t.Errorf("%s\n got %d %s\nwant %s", target, w.Code, w.Body, want)
		}
	}
	if w := newAPI(t, Config{}).call("GET", "/v1/limits", ""); w.Body.String() != "{\"limits\":[]}\n" {
		t.Errorf("no limits: %s", w.Body)
	}
}

func TestClusterShowsTheNodeAndItsShare(t *testing.T) {
	a := newAPI(t, Config{})
	w := a.call("GET", "/v1/cluster", "")
	var got clusterBody
	dec := json.NewDecoder(w.Body)
	dec.DisallowUnknownFields()
	if err := dec.Decode(&got); err != nil || w.Code != 200 {
		t.Fatalf("%v: %d", err, w.Code)
	}
	if got.Node != a.node.Name() || !got.Ready || got.K != 1 || got.Weight != 1 || len(got.Members) != 1 || !got.Members[0].Self || got.Members[0].State != "alive" {
		t.Errorf("got %+v", got)
	}
}

func TestClusterOfLostMembers(t *testing.T) {
	failed := time.Date(2026, 1, 2, 3, 4, 5, 6e8, time.UTC)
	got, err := json.Marshal(clusterOf(jatah.Info{
		Node: "n1", Reason: "settling", K: 2, Partitions: 271, Settle: 2 * time.Second, Settling: 1500 * time.Microsecond, Grace: jatah.Never,
		Members: []jatah.MemberInfo{{Name: "n2", Addr: "10.0.0.2:7946", State: jatah.Failed, Incarnation: "0a", Since: failed, Partitions: 3, LendsTo: 1, LentBy: 2,
			Share: math.NaN(), Silent: true, Heard: time.Second, Reserved: time.Minute}},
	}))
	want := `{"node":"n1","ready":false,"reason":"settling","k":2,"weight":0,"partitions":271,"settle_ms":2000,"settling_ms":2,"grace_ms":null,"handing":0,"members":[` +
		`{"name":"n2","addr":"10.0.0.2:7946","http":"","version":"","state":"failed","incarnation":"0a","self":false,"since":"2026-01-02T03:04:05Z","partitions":3,` +
		`"lends_to":1,"lent_by":2,"share":0,"silent":true,"heard_ms":1000,"reserved_ms":60000}]}`
	if err != nil || string(got) != want {
		t.Errorf("%v\n got %s\nwant %s", err, got, want)
	}
}

func TestErrorsOfTheNodeHaveAProblemEach(t *testing.T) {
	a := newAPI(t, Config{}, perMinute("api", 1, 1))
	for _, row := range []struct {
		p      *problem
		status int
		slug   string
		says   string
	}{
		{a.h.problemOf(jatah.ErrUnknownLimit, "x"), 404, "unknown-limit", "this node knows api"},
		{a.h.problemOf(jatah.ErrClosed, "removed"), 404, "unknown-limit", `"removed"`},
		{a.h.problemOf(fmt.Errorf("now: %w", jatah.ErrOverflow), "api"), 503, "undecided", "raise the bound on keys"},
		{a.h.problemOf(context.DeadlineExceeded, "api"), 503, "undecided", "before it was decided"},
		{a.h.problemOf(errors.New("odd"), "api"), 503, "undecided", "odd"},
		{a.h.problemOf(jatah.ErrNegativeCost, "api"), 400, "bad-field", "negative"},
		{ownerSilent(jatah.State{}), 503, "undecided", "look again."},
		{ownerSilent(jatah.State{Age: 1234567 * time.Microsecond, Remaining: 7}), 503, "undecided", "1.235s ago: 7 tokens left"},
		{forgetProblem(fmt.Errorf("%w: alive", jatah.ErrAlive), "n2"), 409, "cannot-forget", "stop it first"},
		{forgetProblem(context.Canceled, "n2"), 503, "undecided", "was not forgotten"},
	} {
		if row.p.status != row.status || row.p.slug != row.slug || !strings.Contains(row.p.detail, row.says) {
			t.Errorf("got %+v, want %+v", row.p, row)
		}
	}
}

func TestClosedNodeSaysSoEverywhere(t *testing.T) {
	a := newAPI(t, Config{}, perMinute("api", 10, 10))
	a.node.Close()
	for _, w := range []*httptest.ResponseRecorder{
		a.take(`{"limit":"api","key":"u"}`),
		a.call("POST", "/v1/charge", `{"limit":"api","key":"u"}`, "Idempotency-Key", "k"),
	} {
		wantProblem(t, w, 503, "undecided", "", "shutting down")
	}
	wantProblem(t, a.call("GET", "/readyz", ""), 503, "not-ready", "", "This node is not ready: leaving the cluster.")
	if w := a.call("GET", "/healthz", ""); w.Code != 200 {
		t.Errorf("/healthz: %d", w.Code)
	}
}

func TestDryRunIsAllowedAndSaysSo(t *testing.T) {
	l, d := perMinute("api", 10, 10), jatah.Decision{OK: true, DryRun: true, ResetAfter: time.Minute}
	got := string(appendDecision(nil, newFace(&jatah.Terms{Limit: l}), &d, []byte(`"u"`), 1))
	want := `{"allowed":true,"limit":"api","key":"u","cost":1,"remaining":0,"retry_after_ms":0,"reset_after_ms":60000,"mode":"hybrid","source":"local","dry_run":true}`
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

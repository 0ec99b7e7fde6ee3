package httpapi

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/jatah-io/jatah"
)

// badTakes are the bodies that take, refund and charge refuse, each with what
// the detail has to say.
func badTakes() []badTake {
	long := strings.Repeat("k", jatah.MaxKey+1)
	return []badTake{
		{"empty body", ``, 400, "bad-body", "", "The body is empty"},
		{"only white space", " \n\t", 400, "bad-body", "", "The body is empty"},
		{"cut off", `{"limit":"api","key":"u`, 400, "bad-body", "", "it ends after 23 bytes"},
		{"no comma", `{"limit":"api" "key":"u"}`, 400, "bad-body", "", `at byte 16 there is "\""`},
		{"trailing comma", `{"limit":"api","key":"u",}`, 400, "bad-body", "", "where a string should be"},
		{"unquoted name", `{limit:"api","key":"u"}`, 400, "bad-body", "", "not valid JSON"},
		{"single quotes", `{'limit':'api','key':'u'}`, 400, "bad-body", "", "not valid JSON"},
		{"raw newline in a string", "{\"limit\":\"api\",\"key\":\"u\n1\"}", 400, "bad-body", "", "control characters must be escaped"},
		{"bad escape", `{"limit":"api","key":"\x"}`, 400, "bad-body", "", "an escape"},
		{"bad unicode escape", `{"limit":"api","key":"\u12g4"}`, 400, "bad-body", "", "four hexadecimal digits"},
		{"NUL in place of a body", "\x00", 400, "bad-body", "", "not valid JSON"},
		{"trailing data", `{"limit":"api","key":"u"} {}`, 400, "bad-body", "", "after the JSON object, at byte 27"},
		{"two bodies", `{"limit":"api","key":"u"}{"limit":"api","key":"u"}`, 400, "bad-body", "", "send one object only"},
		{"an array", `[{"limit":"api","key":"u"}]`, 400, "bad-body", "", "must be a JSON object"},
		{"a number", `17`, 400, "bad-body", "", "must be a JSON object"},
		{"null", `null`, 400, "bad-body", "", "must be a JSON object"},
		{"no JSON at all", `limit=api&key=u`, 400, "bad-body", "", "not valid JSON"},
		{"unknown field", `{"limit":"api","key":"u","hits":1}`, 400, "bad-field", "hits", "the fields are limit, key and cost"},
		{"other case", `{"Limit":"api","key":"u"}`, 400, "bad-field", "Limit", `no field "Limit"`},
		{"limit twice", `{"limit":"api","key":"u","limit":"api"}`, 400, "bad-field", "limit", "limit is there twice"},
		{"key twice", `{"limit":"api","key":"u","key":"v"}`, 400, "bad-field", "key", "key is there twice"},
		{"cost twice, once escaped", `{"limit":"api","key":"u","cost":1,"\u0063ost":2}`, 400, "bad-field", "cost", "cost is there twice"},
		{"no limit", `{"key":"u"}`, 400, "bad-field", "limit", "limit is missing"},
		{"no key", `{"limit":"api"}`, 400, "bad-field", "key", "key is missing"},
		{"nothing", `{}`, 400, "bad-field", "limit", "limit is missing"},
		{"limit a number", `{"limit":1,"key":"u"}`, 400, "bad-field", "limit", "limit must be a string"},
		{"limit null", `{"limit":null,"key":"u"}`, 400, "bad-field", "limit", "limit must be a string"},
		{"key a number", `{"limit":"api","key":42}`, 400, "bad-field", "key", "a string or an array of strings"},
		{"key an object", `{"limit":"api","key":{"id":"u"}}`, 400, "bad-field", "key", "a string or an array of strings"},
		{"key with a number inside", `{"limit":"api","key":["u",1]}`, 400, "bad-field", "key", "nothing else may be in the array"},
		{"key in arrays", `{"limit":"api","key":[["u"]]}`, 400, "bad-field", "key", "nothing else may be in the array"},
		{"empty key", `{"limit":"api","key":""}`, 400, "bad-field", "key", "key must not be empty"},
		{"empty array", `{"limit":"api","key":[]}`, 400, "bad-field", "key", "must not be an empty array"},
		{"array of one empty string", `{"limit":"api","key":[""]}`, 400, "bad-field", "key", "key must not be empty"},
		{"letter in place of a bracket", `{"limit":"api","key":A"u"]}`, 400, "bad-body", "", `at byte 22 there is "A"`},
		{"letter in place of a number", `{"limit":"api","key":"u","cost":A}`, 400, "bad-body", "", "a digit"},
		{"letter in place of a quote", `{"limit":A,"key":"u"}`, 400, "bad-body", "", "a string"},
		{"unfinished array", `{"limit":"api","key":["u"`, 400, "bad-body", "", "it ends after 25 bytes"},
		{"key above 1 KiB", `{"limit":"api","key":"` + long + `"}`, 400, "bad-field", "key", "longer than 1024 bytes"},
		{"parts above 1 KiB", `{"limit":"api","key":["` + long[:600] + `","` + long[:600] + `"]}`, 400, "bad-field", "key", "longer than 1024 bytes"},
		{"negative cost", `{"limit":"api","key":"u","cost":-1}`, 400, "bad-field", "cost", "must not be negative"},
		{"cost far below zero", `{"limit":"api","key":"u","cost":-9223372036854775809}`, 400, "bad-field", "cost", "must not be negative"},
		{"fraction", `{"limit":"api","key":"u","cost":1.5}`, 400, "bad-field", "cost", "without fraction or exponent"},
		{"point nought", `{"limit":"api","key":"u","cost":1.0}`, 400, "bad-field", "cost", "without fraction or exponent"},
		{"exponent", `{"limit":"api","key":"u","cost":1e3}`, 400, "bad-field", "cost", "without fraction or exponent"},
		{"cost beyond 64 bits", `{"limit":"api","key":"u","cost":9223372036854775808}`, 400, "bad-field", "cost", "too large"},
		{"cost a string", `{"limit":"api","key":"u","cost":"1"}`, 400, "bad-field", "cost", "written without quotes"},
		{"cost null", `{"limit":"api","key":"u","cost":null}`, 400, "bad-field", "cost", "a whole number"},
		{"cost true", `{"limit":"api","key":"u","cost":true}`, 400, "bad-field", "cost", "a whole number"},
		{"leading zero", `{"limit":"api","key":"u","cost":01}`, 400, "bad-body", "", "not valid JSON"},
		{"plus sign", `{"limit":"api","key":"u","cost":+1}`, 400, "bad-body", "", "not valid JSON"},
		{"lone minus", `{"limit":"api","key":"u","cost":-}`, 400, "bad-body", "", "a digit"},
		{"unknown limit", `{"limit":"apu","key":"u"}`, 404, "unknown-limit", "limit", `No limit is named "apu"; this node knows api.`},
		{"body above 1 MiB", `{"limit":"api","key":"u"}` + strings.Repeat(" ", MaxBody), 413, "body-too-large", "", "larger than 1 MiB"},
	}
}

type badTake struct {
	name, body     string
	status         int
	slug, field    string
	detailContains string
}

func TestBadInputIsRefusedWithASentenceAndChargesNothing(t *testing.T) {
	for _, call := range []string{"take", "refund", "charge"} {
		for _, row := range badTakes() {
			t.Run(call+"/"+row.name, func(t *testing.T) {
				a := newAPI(t, Config{}, perMinute("api", 10, 10))
				a.take(`{"limit":"api","key":"u","cost":4}`)
				before := a.remaining("api", "u")
				w := a.call("POST", "/v1/"+call, row.body)
				wantProblem(t, w, row.status, row.slug, row.field, row.detailContains)
				for name := range w.Header() {
					if strings.HasPrefix(name, "X-Rate") || strings.HasPrefix(name, "Rate") || name == "Retry-After" {
						t.Errorf("a problem has the header %s of a decision", name)
					}
				}
				if after := a.remaining("api", "u"); after != before {
					t.Errorf("remaining %d, was %d", after, before)
				}
			})
		}
	}
}

func TestBadBodyOfUnknownLengthIsBounded(t *testing.T) {
	a := newAPI(t, Config{}, perMinute("api", 10, 10))
	endless := strings.NewReader(`{"limit":"api","key":"u"}` + strings.Repeat(" ", 2*MaxBody))
	w, r := newChunked(t, "/v1/take", endless)
	a.h.ServeHTTP(w, r)
	wantProblem(t, w, 413, "body-too-large", "", "larger than 1 MiB")
	if read := int64(endless.Size()) - int64(endless.Len()); read > 2*MaxBody {
		t.Errorf("%d bytes were read", read)
	}
	if w.Header().Get("Connection") != "close" {
		t.Error("the connection goes on with the rest of the body")
	}
}

func TestBadRequestsOutsideTheBody(t *testing.T) {
	const good = `{"limit":"api","key":"u"}`
	for _, row := range []struct {
		method, target, body string
		head                 []string
		status               int
		slug, field, detail  string
	}{
		{"POST", "/v1/take", good, []string{"Content-Type", "text/plain"}, 415, "not-json", "", "send application/json"},
		{"POST", "/v1/take", good, []string{"Content-Type", "application/x-www-form-urlencoded"}, 415, "not-json", "", "--json"},
		{"POST", "/v1/batch", `{"takes":[]}`, []string{"Content-Type", "multipart/form-data"}, 415, "not-json", "", "send application/json"},
		{"POST", "/v1/take?deny_status=500", good, nil, 400, "bad-query", "deny_status", "from 200 to 299"},
		{"POST", "/v1/take?deny_status=302", good, nil, 400, "bad-query", "deny_status", "from 400 to 499"},
		{"POST", "/v1/take?deny_status=", good, nil, 400, "bad-query", "deny_status", "one status"},
		{"POST", "/v1/take?deny_status=0403", good, nil, 400, "bad-query", "deny_status", "one status"},
		{"POST", "/v1/take?deny_status=200&deny_status=403", good, nil, 400, "bad-query", "deny_status", "one status"},
		{"POST", "/v1/take?denystatus=200", good, nil, 400, "bad-query", "denystatus", "knows deny_status"},
		{"POST", "/v1/take?%zz", good, nil, 400, "bad-query", "", "cannot be read"},
		{"POST", "/v1/batch?deny_status=200", `{"takes":[]}`, nil, 400, "bad-query", "deny_status", "takes none"},
		{"POST", "/v1/take", good, []string{"Idempotency-Key", ""}, 400, "bad-idempotency-key", "Idempotency-Key", "1 to 255 bytes"},
		{"POST", "/v1/take", good, []string{"Idempotency-Key", strings.Repeat("x", 256)}, 400, "bad-idempotency-key", "Idempotency-Key", "1 to 255 bytes"},
		{"POST", "/v1/take", good, []string{"Idempotency-Key", "a", "Idempotency-Key", "b"}, 400, "bad-idempotency-key", "Idempotency-Key", "once"},
		{"GET", "/v1/take", "", nil, 405, "method-not-allowed", "", "use POST"},
		{"PUT", "/v1/batch", "", nil, 405, "method-not-allowed", "", "use POST"},
		{"POST", "/v1/peek", "", nil, 405, "method-not-allowed", "", "use GET, HEAD"},
		{"GET", "/v1/keys?limit=api&key=u", "", nil, 405, "method-not-allowed", "", "use DELETE"},
		{"GET", "/v1/forget?node=x", "", nil, 405, "method-not-allowed", "", "use POST"},
		{"POST", "/healthz", "", nil, 405, "method-not-allowed", "", "use GET, HEAD"},
		{"GET", "/", "", nil, 404, "unknown-path", "", `nothing at "/"`},
		{"GET", "/%c0", "", nil, 404, "unknown-path", "", `nothing at "/%c0"`},
		{"GET", "/v1", "", nil, 404, "unknown-path", "", "POST /v1/take"},
		{"POST", "/v1/take/", good, nil, 404, "unknown-path", "", "POST /v1/take"},
		{"GET", "/metrics", "", nil, 404, "unknown-path", "", "/metrics"},
		{"GET", "/v1/limits/nope", "", nil, 404, "unknown-limit", "limit", "this node knows api"},
		{"GET", "/v1/limits?name=api", "", nil, 400, "bad-query", "name", "takes none"},
		{"GET", "/v1/peek", "", nil, 400, "bad-query", "limit", "limit is missing"},
		{"GET", "/v1/peek?limit=api", "", nil, 400, "bad-query", "key", "key is missing"},
		{"GET", "/v1/peek?limit=api&key=", "", nil, 400, "bad-field", "key", "key must not be empty"},
		{"GET", "/v1/peek?limit=api&limit=b&key=u", "", nil, 400, "bad-query", "limit", "2 times"},
		{"GET", "/v1/peek?limit=api&kye=u", "", nil, 400, "bad-query", "kye", "knows limit, key"},
		{"GET", "/v1/peek?limit=no&key=u", "", nil, 404, "unknown-limit", "limit", `"no"`},
		{"GET", "/v1/peek?limit=api&key=" + strings.Repeat("k", 1025), "", nil, 400, "bad-field", "key", "longer than 1024 bytes"},
		{"DELETE", "/v1/keys?limit=api", "", nil, 400, "bad-query", "key", "key is missing"},
		{"DELETE", "/v1/keys?limit=no&key=u", "", nil, 404, "unknown-limit", "limit", `"no"`},
		{"DELETE", "/v1/keys?limit=api&key=", "", nil, 400, "bad-field", "key", "key must not be empty"},
		{"POST", "/v1/forget", "", nil, 400, "bad-query", "node", "node is missing"},
		{"POST", "/v1/forget?node=ghost", "", nil, 404, "unknown-node", "node", `No member is named "ghost"`},
		{"GET", "/v1/cluster?x=1", "", nil, 400, "bad-query", "x", "takes none"},
	} {
		t.Run(row.method+" "+row.target, func(t *testing.T) {
			a := newAPI(t, Config{}, perMinute("api", 10, 10))
			a.take(`{"limit":"api","key":"u","cost":4}`)
			w := a.call(row.method, row.target, row.body, row.head...)
			wantProblem(t, w, row.status, row.slug, row.field, row.detail)
			if row.status == 405 && !strings.HasSuffix(row.detail, w.Header().Get("Allow")) {
				t.Errorf("Allow %q, detail %q", w.Header().Get("Allow"), row.detail)
			}
			if got := a.remaining("api", "u"); got != 6 {
				t.Errorf("remaining %d, want 6", got)
			}
		})
	}
}

func TestUnknownLimitNamesTenOfTheKnown(t *testing.T) {
	var limits []jatah.Limit
	for i := range 12 {
		limits = append(limits, perMinute(fmt.Sprintf("limit%02d", i), 1, 1))
	}
	w := newAPI(t, Config{}, limits...).take(`{"limit":"x","key":"u"}`)
	wantProblem(t, w, 404, "unknown-limit", "limit", "limit08, limit09 and 2 more.")
	wantProblem(t, newAPI(t, Config{}).take(`{"limit":"x","key":"u"}`), 404, "unknown-limit", "limit", "no limits yet")
}

func TestBatchKeepsGoodItemsBesideBadOnes(t *testing.T) {
	synctest.Test(t, batchKeepsGoodItems) // in virtual time, for the waits to be exact
}

func batchKeepsGoodItems(t *testing.T) {
	a := newAPI(t, Config{}, perMinute("api", 10, 10))
	w := a.call("POST", "/v1/batch", `{"takes":[
		{"limit":"api","key":"u"},
		{"limit":"none","key":"u"},
		{"limit":"api","key":"u","cost":-3},
		17,
		{"limit":"api","key":["a" , "b"],"cost":2},
		{"limit":"api","key":"u","limit":"api"},
		{"limit":"api","key":"","cost":1},
		{"limit":"api","key":{"a":["}",1]}},
		{"limit":"api","key":"u","cost":12},
		{"limit":"api","key":"u","cost":0}
	]}`)
	var got struct{ Results []json.RawMessage }
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Code != 200 || len(got.Results) != 10 {
		t.Fatalf("%v: %d %s", err, w.Code, w.Body)
	}
	for i, want := range map[int]string{
		0: `{"allowed":true,"limit":"api","key":"u","cost":1,"remaining":9,"retry_after_ms":0,"reset_after_ms":6000,"mode":"hybrid","source":"local"}`,
		4: `{"allowed":true,"limit":"api","key":["a","b"],"cost":2,"remaining":8,"retry_after_ms":0,"reset_after_ms":12000,"mode":"hybrid","source":"local"}`,
		8: `{"allowed":false,"limit":"api","key":"u","cost":12,"remaining":9,"retry_after_ms":null,"reset_after_ms":6000,"mode":"hybrid","source":"local","reason":"the cost 12 exceeds the burst 10; it is never possible"}`,
		9: `{"allowed":true,"limit":"api","key":"u","cost":0,"remaining":9,"retry_after_ms":0,"reset_after_ms":6000,"mode":"hybrid","source":"local"}`,
	} {
		if string(got.Results[i]) != want {
			t.Errorf("result %d\n got %s\nwant %s", i, got.Results[i], want)
		}
	}
	for _, want := range []struct {
		i, status                int
		slug, field, saysInWords string
	}{
		{1, 404, "unknown-limit", "limit", "this node knows api"},
		{2, 400, "bad-field", "cost", "must not be negative"},
		{3, 400, "bad-body", "", "must be a JSON object"},
		{5, 400, "bad-field", "limit", "there twice"},
		{6, 400, "bad-field", "key", "must not be empty"},
		{7, 400, "bad-field", "key", "a string or an array of strings"},
	} {
		var item struct{ Error json.RawMessage }
		if err := json.Unmarshal(got.Results[want.i], &item); err != nil {
			t.Fatal(err)
		}
		checkProblem(t, item.Error, want.status, want.slug, want.field, want.saysInWords)
	}
}

func TestBadBatchesAreRefusedAsAWhole(t *testing.T) {
	const good = `{"limit":"api","key":"u"}`
	for _, row := range []badTake{
		{"empty", ``, 400, "bad-body", "", "The body is empty"},
		{"malformed inside an item", `{"takes":[` + good + `,{"limit":}]}`, 400, "bad-body", "", "not valid JSON"},
		{"cut off", `{"takes":[` + good, 400, "bad-body", "", "not valid JSON"},
		{"trailing data", `{"takes":[` + good + `]} x`, 400, "bad-body", "", "not valid JSON"},
		{"an array", `[` + good + `]`, 400, "bad-body", "", "must be a JSON object"},
		{"no takes", `{}`, 400, "bad-field", "takes", "takes is missing"},
		{"takes an object", `{"takes":` + good + `}`, 400, "bad-field", "takes", "must be an array"},
		{"takes null", `{"takes":null}`, 400, "bad-field", "takes", "must be an array"},
		{"takes twice", `{"takes":[` + good + `],"takes":[]}`, 400, "bad-field", "takes", "there twice"},
		{"unknown field", `{"takes":[` + good + `],"atomic":true}`, 400, "bad-field", "atomic", "the only field is takes"},
		{"too many", `{"takes":[` + strings.Repeat(good+",", 1000) + good + `]}`, 400, "bad-field", "takes", "more than 1000 items"},
		{"too large", `{"takes":[` + strings.Repeat(" ", MaxBody) + `]}`, 413, "body-too-large", "", "1 MiB"},
		{"too deep", `{"takes":` + strings.Repeat("[", 20000) + strings.Repeat("]", 20000) + `}`, 400, "bad-body", "", "not valid JSON"},
	} {
		t.Run(row.name, func(t *testing.T) {
			a := newAPI(t, Config{}, perMinute("api", 10, 10))
			wantProblem(t, a.call("POST", "/v1/batch", row.body), row.status, row.slug, row.field, row.detailContains)
			if got := a.remaining("api", "u"); got != 10 {
				t.Errorf("remaining %d, want 10", got)
			}
		})
	}
	a := newAPI(t, Config{}, perMinute("api", 1, 1000))
	if w := a.call("POST", "/v1/batch", `{"takes":[]}`); w.Code != 200 || w.Body.String() != "{\"results\":[]}\n" {
		t.Errorf("no takes: %d %s", w.Code, w.Body)
	}
	w := a.call("POST", "/v1/batch", `{"takes":[`+strings.Repeat(good+",", 999)+good+`]}`)
	if w.Code != 200 || a.remaining("api", "u") != 0 {
		t.Errorf("1000 takes: %d, remaining %d", w.Code, a.remaining("api", "u"))
	}
}

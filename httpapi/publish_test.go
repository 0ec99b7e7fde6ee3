package httpapi

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jatah-io/jatah"
)

func TestPutAndDeleteALimit(t *testing.T) {
	a := newAPI(t, Config{}, perMinute("own", 10, 10))
	put := func(want int, name, body string) string {
		t.Helper()
		w := a.call("PUT", "/v1/limits/"+name, body)
		if w.Code != want {
			t.Fatalf("%d %s, want %d", w.Code, w.Body, want)
		}
		if got := a.call("GET", "/v1/limits/"+name, "").Body.String(); got != w.Body.String() {
			t.Errorf("PUT says %s, GET %s", w.Body, got)
		}
		return w.Body.String()
	}
	want := `{"name":"api","rate":"100/min","burst":20,"algorithm":"token_bucket","mode":"hybrid","overshoot":0,"fallback":"share","dry_run":false,"origin":"api"}` + "\n"
	if got := put(201, "api", `{"rate":"100/min","burst":20}`); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	a.take(`{"limit":"api","key":"u","cost":5}`)
	put(200, "api", `{"name":"api","rate":"100/min","burst":18}`)
	if got := a.remaining("api", "u"); got != 15 {
		t.Errorf("%d remain; what was used was not kept", got)
	}
	put(201, "team/x:y", `{"rate":"5/s"}`)
	if w := a.call("DELETE", "/v1/limits/team%2Fx%3Ay", ""); w.Code != 204 || w.Body.Len() != 0 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	wantProblem(t, a.call("GET", "/v1/limits/team/x:y", ""), 404, "unknown-limit", "limit", "team/x:y")
	wantProblem(t, a.call("DELETE", "/v1/limits/none", ""), 404, "unknown-limit", "limit", `"none"`)
	wantProblem(t, a.call("DELETE", "/v1/limits/own", ""), 409, "defined-here", "name", "change it there")
	wantProblem(t, a.call("PUT", "/v1/limits/own", `{"rate":"1/s"}`), 409, "defined-here", "name", "change it there")
	put(201, "child", `{"rate":"1/s","parent":"api"}`)
	wantProblem(t, a.call("DELETE", "/v1/limits/api", ""), 409, "has-children", "name", `"child"`)
	wantProblem(t, a.call("POST", "/v1/limits/api", ""), 405, "method-not-allowed", "", "DELETE, GET, HEAD, PUT")
}

// What is wrong with a body is told with its field, and nothing changes.
func TestPutRefusesBadLimits(t *testing.T) {
	a := newAPI(t, Config{}, perMinute("own", 10, 10))
	if w := a.call("PUT", "/v1/limits/api", `{"rate":"100/min","burst":20}`); w.Code != 201 {
		t.Fatal(w.Body)
	}
	before := a.call("GET", "/v1/limits", "").Body.String()
	for _, c := range []struct{ body, slug, field, sentence string }{
		{``, "bad-body", "", "not JSON"},
		{`{"rate":"1/s"`, "bad-body", "", "not JSON, at line 1, column 13"},
		{`{"rate":"1/s"} x`, "bad-body", "", "not JSON"},
		{`[1]`, "bad-body", "", "The body is a list; send the fields"},
		{`null`, "bad-body", "", "The body is empty"},
		{"{\"rate\":\"\xff\"}", "bad-body", "", "UTF-8"},
		{`{}`, "bad-field", "", "has no rate: add `rate: ` with a rate such as 100/min"},
		{`{"rate":"1/s","brust":3}`, "bad-field", "brust", `"brust" is not a field of a limit: did you mean "burst"?`},
		{`{"rate":100}`, "bad-field", "rate", "rate: needs a rate such as 100/min; this is the number 100."},
		{`{"rate":"1/s","rate":"2/s"}`, "bad-field", "rate", "is given twice, here and at line 1, column 7: keep one"},
		{`{"rate":"1/s","burst":0}`, "bad-field", "burst", "0 is too small"},
		{`{"rate":"1/s","burst":2.5}`, "bad-field", "burst", "needs a whole number of at least 1, such as 20; this is the number 2.5"},
		{`{"rate":"1/s","dry_run":"yes"}`, "bad-field", "dry_run", `this is the text "yes"`},
		{`{"rate":"1/s","algorithm":"fixd_window"}`, "bad-field", "algorithm", `did you mean "fixed_window"?`},
		{`{"rate":"1/s","ttl":"5"}`, "bad-field", "ttl", "is not a duration"},
		{`{"rate":"1/s","max":3}`, "bad-field", "max", ""},
		{`{"rate":"1/s","plans":{"pro":{"burst":3}}}`, "bad-field", "plans.pro", "has no rate"},
		{`{"rate":"1/s","plans":{"pro":{"rate":"2/s","mode":"strict"}}}`, "bad-field", "plans.pro.mode", "it belongs under the limit itself"},
		{`{"rate":"1/s","plans":{"pro":{"rate":"2/s"}},"overrides":[{"key":"vip","plan":"por"}]}`, "bad-field", "overrides[0].plan", `did you mean "pro"?`},
		{`{"rate":"1/s","overrides":[{"key":"a","rate":"1/s"},{"key":"a","rate":"2/s"}]}`, "bad-field", "overrides[1].key", "overridden twice"},
		{`{"rate":"1/s","burst":5,"costs":{"/export":6}}`, "bad-field", "costs./export", "above the burst 5"},
		{`{"rate":"1/s","costs":{"/export":"6"}}`, "bad-field", "costs./export", "needs a whole number"},
		{`{"rate":"1/s","parent":"none"}`, "bad-field", "parent", `the parent "none" of "api" is not defined`},
		{`{"rate":"1/s","parent":"api"}`, "bad-field", "parent", ""},
		{`{"rate":"1/s","name":"other"}`, "bad-field", "name", "make them the same"},
		{`{"rate":"1/s","name":7}`, "bad-field", "name", "the number 7"},
		{`{"rate":"1/s","origin":"mine"}`, "bad-field", "origin", "leave it out"},
		{`{"rate":"x","burst":"y","mode":"z"}`, "bad-field", "rate", `burst: needs a whole number of at least 1, such as 20; this is the text "y". mode:`},
	} {
		wantProblem(t, a.call("PUT", "/v1/limits/api", c.body), 400, c.slug, c.field, c.sentence)
	}
	wantProblem(t, a.call("PUT", "/v1/limits/a%20b", `{"rate":"1/s"}`), 400, "bad-field", "name", "1 to 64 characters")
	wantProblem(t, a.call("PUT", "/v1/limits/api?x=1", `{"rate":"1/s"}`), 400, "bad-query", "x", "takes none")
	wantProblem(t, a.call("DELETE", "/v1/limits/api?x=1", ""), 400, "bad-query", "x", "takes none")
	wantProblem(t, a.call("PUT", "/v1/limits/api", `{"rate":"1/s"}`, "Content-Type", "text/yaml"), 415, "not-json", "", "application/json")
	wantProblem(t, a.call("PUT", "/v1/limits/api", strings.Repeat(" ", MaxBody+1)), 413, "body-too-large", "", "1 MiB")
	many := make([]string, 900)
	for i := range many {
		many[i] = fmt.Sprintf(`"/%d%s":1`, i, strings.Repeat("x", 100))
	}
	wantProblem(t, a.call("PUT", "/v1/limits/api", `{"rate":"1/s","costs":{`+strings.Join(many, ",")+`}}`), 507, "limits-full", "", "at most 65536")
	if after := a.call("GET", "/v1/limits", "").Body.String(); after != before {
		t.Errorf("it changed from %s to %s", before, after)
	}
}

// A problem is short, whatever the names and the number of the mistakes.
func TestProblemsOfLimitsAreShort(t *testing.T) {
	a := newAPI(t, Config{})
	many := make([]string, 20_000)
	for i := range many {
		many[i] = fmt.Sprintf(`"field%d":1`, i)
	}
	long := strings.Repeat("é", 200_000)
	for name, c := range map[string]struct{ body, field, sentence string }{
		"a long name":    {`{"rate":"1/s","x` + long + `":1}`, "x" + strings.Repeat("é", 99) + "...", "is not a field of a limit; there are name,"},
		"a long plan":    {`{"rate":"1/s","plans":{"` + long + `":{"burst":1}}}`, "plans." + strings.Repeat("é", 97) + "...", "has no rate"},
		"many mistakes":  {`{"rate":"1/s",` + strings.Join(many, ",") + `}`, "field0", "And 19995 more."},
		"a long value":   {`{"rate":"` + long + `"}`, "rate", "malformed rate"},
		"a long cost":    {`{"rate":"1/s","costs":{"/` + long + `":"x"}}`, "costs./" + strings.Repeat("é", 96) + "...", "needs a whole number"},
		"a long parent":  {`{"rate":"1/s","parent":"` + long + `"}`, "parent", "parent"},
		"a long mode":    {`{"rate":"1/s","mode":"` + long + `"}`, "mode", "mode"},
		"a long setting": {`{"rate":"1/s","algorithm":"fixed_window","timezone":"` + long + `"}`, "timezone", "timezone"},
	} {
		w := a.call("PUT", "/v1/limits/api", c.body)
		if n := w.Body.Len(); n > 4<<10 {
			t.Errorf("%s: a problem of %d bytes: %.200s", name, n, w.Body)
			continue
		}
		wantProblem(t, w, 400, "bad-field", c.field, c.sentence)
	}
}

// What GET returns can be sent back, for limits of every kind, and changes nothing.
func TestPutOfWhatGetReturned(t *testing.T) {
	for i, l := range []jatah.Limit{
		perMinute("x", 100, 20),
		{Rate: jatah.Per(0, time.Hour)},
		{Rates: []jatah.Rate{jatah.PerSecond(10), jatah.PerHour(500)}, Mode: jatah.Strict, Overshoot: 0.5, Fallback: jatah.FallbackDeny, DryRun: true},
		{Algorithm: jatah.FixedWindow, Rate: jatah.PerDay(9), Calendar: "day", Timezone: "Europe/Berlin"},
		{Algorithm: jatah.SlidingWindow, Rate: jatah.Per(3, 90*time.Second)},
		{Algorithm: jatah.SlidingLog, Rate: jatah.PerHour(9), MaxLog: 50},
		{Algorithm: jatah.LeakyBucket, Rate: jatah.PerHour(9)},
		{Algorithm: jatah.LeakyBucket, Rate: jatah.PerHour(9), Queue: 7, MaxWait: time.Hour},
		{Algorithm: jatah.BurstAverage, Rate: jatah.PerSecond(2), BurstRate: jatah.PerSecond(8), BurstThreshold: jatah.PerSecond(1), BurstTime: 16 * time.Second},
		{Algorithm: jatah.Concurrency, Max: 3, TTL: 90 * time.Second},
		{Rate: jatah.PerHour(5), Costs: map[string]int64{"/a": 2, "/b/*": 0},
			Plans:     map[string]jatah.Plan{"pro": {Rate: jatah.PerHour(50), Burst: 7}, "two": {Rates: []jatah.Rate{jatah.PerSecond(1), jatah.PerHour(9)}}, "none": {Rate: jatah.PerHour(0)}},
			Overrides: []jatah.Override{{Key: "vip", Plan: "pro"}, {Prefix: "in:", Rate: jatah.PerHour(6)}, {Key: "own"}}},
	} {
		l.Name = "x"
		a := newAPI(t, Config{})
		x, err := a.node.Publish(t.Context(), l)
		if err != nil {
			t.Fatal(err)
		}
		before := x.Limit()
		body := a.call("GET", "/v1/limits/x", "").Body.String()
		if w := a.call("PUT", "/v1/limits/x", body); w.Code != 200 || w.Body.String() != body {
			t.Errorf("%d: %d %s, want %s", i, w.Code, w.Body, body)
		}
		if after := x.Limit(); !after.Equal(before) {
			t.Errorf("%d: it changed from %+v to %+v", i, before, after)
		}
		// And on a node that does not have it, it makes the same.
		b := newAPI(t, Config{})
		if w := b.call("PUT", "/v1/limits/x", body); w.Code != 201 || w.Body.String() != body {
			t.Errorf("%d: %d %s, want %s", i, w.Code, w.Body, body)
		}
		var list struct{ Limits []json.RawMessage }
		if err := json.Unmarshal(b.call("GET", "/v1/limits", "").Body.Bytes(), &list); err != nil || len(list.Limits) != 1 || string(list.Limits[0])+"\n" != body {
			t.Errorf("%d: %v: %s", i, err, list.Limits)
		}
	}
}

func FuzzPutLimit(f *testing.F) {
	f.Add(`{"rate":"1/s","plans":{"a":{"rate":"1/s"}},"overrides":[{"key":"k","plan":"a"}],"costs":{"/":1}}`)
	f.Add(`{"rates":["1/s",2],"algorithm":"concurrency","max":1e9,"ttl":"1h"}`)
	f.Add(strings.Repeat("[", 20000))
	one := newAPI(f, Config{})
	f.Fuzz(func(t *testing.T, body string) {
		a := *one
		a.t = t
		w := a.call("PUT", "/v1/limits/x", body)
		if w.Code/100 == 5 && w.Code != 507 || w.Code/100 == 3 {
			t.Errorf("%d %s", w.Code, w.Body)
		}
		if w.Code < 300 {
			if again := a.call("PUT", "/v1/limits/x", w.Body.String()); again.Code != 200 || again.Body.String() != w.Body.String() {
				t.Errorf("%s sent back: %d %s", w.Body, again.Code, again.Body)
			}
			a.call("DELETE", "/v1/limits/x", "")
		}
	})
}

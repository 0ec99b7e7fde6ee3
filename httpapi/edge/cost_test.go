package edge_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/jatah-io/jatah"
	"github.com/jatah-io/jatah/httpapi/edge"
)

// priced is what a request costs; refused stands for a refusal with 400.
func priced(t *testing.T, e *edge.Edge, cost edge.Cost, r *http.Request) int64 {
	t.Helper()
	c, err := cost(e.RequestOf(r))
	if err == nil && c < 0 {
		t.Errorf("%s %s costs %d", r.Method, r.URL, c)
	}
	if err != nil {
		if !errors.Is(err, edge.ErrRequest) {
			t.Errorf("%s %s: the error %v does not say that it is the request's", r.Method, r.URL, err)
		}
		return refused
	}
	return c
}

const refused = -1

// anEdge is one without rules, for what needs no decision.
func anEdge(t *testing.T) *edge.Edge {
	node, err := jatah.Start(t.Context(), jatah.Config{Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { node.Close() })
	return mustNew(t, node, edge.Config{})
}

func TestACostByANumberInTheQuery(t *testing.T) {
	e := anEdge(t)
	plain := edge.Query("rows").Per(500, edge.Bounds{})
	bounded := edge.Query("rows").Per(500, edge.Bounds{Min: 2, Max: 100, Missing: 10})
	for _, c := range []struct {
		query          string
		plain, bounded int64
	}{
		{"", 1, 10},
		{"other=5000", 1, 10},
		{"rows=1", 1, 2},
		{"rows=500", 1, 2},
		{"rows=501", 2, 2},
		{"rows=5000", 10, 10},
		{"rows=0005000", 10, 10},
		{"rows=%2B5000", 10, 10},
		{"rows=%205000%20", 10, 10},
		{"rows=50001", 101, 100},
		{"rows=9223372036854775807", math.MaxInt64/500 + 1, 100},
		{"rows=9223372036854775808", math.MaxInt64/500 + 1, 100},
		{"rows=" + strings.Repeat("9", 400), math.MaxInt64/500 + 1, 100},
		{"rows=18446744073709551617", math.MaxInt64/500 + 1, 100}, // 1, where it wraps
		// What a program takes for its default costs what that does.
		{"rows=", 1, 10},
		{"rows", 1, 10},
		{"rows=0", 1, 10},
		// Said twice, it counts with the larger, whichever the program takes.
		{"rows=1&rows=5000", 10, 10},
		{"rows=5000&rows=1", 10, 10},
		{"rows=&rows=5000", 10, 10},
		{"rows=1&ROWS=5000", 10, 10},
		{"rows=1&r%6Fws=5000", 10, 10},
		{"rows=1;rows=5000", 10, 10},
		{"a=%zz&rows=5000", 10, 10},
		// No program should read these, and some do.
		{"rows=-1", refused, refused},
		{"rows=-0", refused, refused},
		{"rows=5e3", refused, refused},
		{"rows=5000.0", refused, refused},
		{"rows=0x1388", refused, refused},
		{"rows=5_000", refused, refused},
		{"rows=many", refused, refused},
		{"rows=%zz", refused, refused},
		{"rows=1&rows=x", refused, refused},
		{"rows=%D9%A5", refused, refused}, // an Arabic five
	} {
		r := request("GET", "/export", someone)
		r.URL.RawQuery = c.query
		if got := priced(t, e, plain, r); got != c.plain {
			t.Errorf("%q costs %d, want %d", c.query, got, c.plain)
		}
		if got := priced(t, e, bounded, r); got != c.bounded {
			t.Errorf("%q costs %d within bounds, want %d", c.query, got, c.bounded)
		}
	}
}

func TestACostByAValue(t *testing.T) {
	e := anEdge(t)
	deep := edge.Query("deep_scan").Table(map[string]int64{"true": 5, "false": 1})
	format := edge.Query("format").Table(map[string]int64{"": 2, "csv": 0, "pdf": 40, "broken": -3})
	for _, c := range []struct {
		query        string
		deep, format int64
	}{
		{"", 1, 2},
		{"deep_scan=true&format=csv", 5, 0},
		{"deep_scan=TRUE&format=%20csv", 5, 0},
		{"deep_scan=false&format=pdf", 1, 40},
		{"deep_scan=1&format=PDF", 5, 40},
		{"deep_scan=yes&format=other", 5, 40},
		{"deep_scan=false&deep_scan=true&format=csv&format=pdf", 5, 40},
		{"deep_scan=&format=broken", 1, 0},
		{"deep_scan=%zz&format=%zz", refused, refused},
	} {
		r := request("GET", "/scan", someone)
		r.URL.RawQuery = c.query
		if got := priced(t, e, deep, r); got != c.deep {
			t.Errorf("%q costs %d by deep_scan, want %d", c.query, got, c.deep)
		}
		if got := priced(t, e, format, r); got != c.format {
			t.Errorf("%q costs %d by format, want %d", c.query, got, c.format)
		}
	}
}

func TestACostByAFieldOfTheBody(t *testing.T) {
	e := anEdge(t)
	const (
		jsonType = "application/json"
		formType = "application/x-www-form-urlencoded"
		parts    = "multipart/form-data; boundary=zz"
	)
	part := func(name, value string) string {
		return "--zz\r\nContent-Disposition: form-data; name=\"" + name + "\"\r\n\r\n" + value + "\r\n"
	}
	long := strings.Repeat("x", edge.BodyBytes)
	for _, c := range []struct {
		name, kind, body string
		want, unbounded  int64 // with Max 100, and without
	}{
		{"no body", jsonType, "", 7, 7},
		{"a number", jsonType, `{"options":{"rows":5000}}`, 10, 10},
		{"with space", jsonType, " {\n\t\"a\" : [ 1 , {\"options\":1} ] , \"options\" : { \"x\" : \"}\\\"\" , \"rows\" : 5000 } } \n", 10, 10},
		{"digits in quotes", jsonType, `{"options":{"rows":"5000"}}`, 10, 10},
		{"escaped names", jsonType, `{"opt\u0069ons":{"r\u006fws":5000}}`, 10, 10},
		{"other letters", jsonType, `{"Options":{"ROWS":5000}}`, 10, 10},
		{"letters that fold", jsonType, "{\"option\u017f\":{\"row\u017f\":5000}}", 10, 10}, // encoding/json takes the long s for an s
		{"twice", jsonType, `{"options":{"rows":1,"rows":5000}}`, 10, 10},
		{"twice, the larger first", jsonType, `{"options":{"rows":5000,"Rows":1}}`, 10, 10},
		{"twice above", jsonType, `{"options":{"rows":1},"options":{"rows":5000}}`, 10, 10},
		{"elements", jsonType, `{"options":[{"rows":5000},{"rows":500},{}]}`, 11, 11},
		{"a batch", jsonType, `[{"options":{"rows":[5000,500]}},[{"options":{"rows":1}}]]`, 12, 12},
		{"too many to be counted", jsonType, `{"options":{"rows":[` + strings.Repeat("9223372036854775807,", 1000) + `1]}}`, 100, math.MaxInt64},
		{"none", jsonType, `{"options":{"rows":null}}`, 7, 7},
		{"an empty list", jsonType, `{"options":{"rows":[]}}`, 7, 7},
		{"elsewhere", jsonType, `{"rows":5000,"options":{"x":{"rows":5000}},"more":[{"rows":1}],"options.rows":5000}`, 7, 7},
		{"a scalar above", jsonType, `{"options":"rows"}`, 7, 7},
		{"nothing of that kind", jsonType, `17`, 7, 7},
		{"below zero", jsonType, `{"options":{"rows":-5}}`, refused, refused},
		{"an exponent", jsonType, `{"options":{"rows":5e3}}`, refused, refused},
		{"a fraction", jsonType, `{"options":{"rows":0.5}}`, refused, refused},
		{"a truth", jsonType, `{"options":{"rows":true}}`, refused, refused},
		{"an object", jsonType, `{"options":{"rows":{"from":1,"to":5000}}}`, refused, refused},
		{"one of two", jsonType, `{"options":{"rows":1,"rows":"all"}}`, refused, refused},
		{"no JSON", jsonType, `{options:{rows:5000}}`, refused, refused},
		{"JSON and more", jsonType, `{"options":{"rows":1}} {"options":{"rows":5000}}`, refused, refused},
		{"cut off", jsonType, `{"options":{"rows":5000}`, refused, refused},
		{"no type", "", `{"options":{"rows":5000}}`, 10, 10},
		{"a wrong type", "text/plain", `{"options":{"rows":5000}}`, 10, 10},
		{"JSON that says it is a form", formType, `{"options":{"rows":5000}}`, 10, 10},
		{"a form", formType, "a=b&options.rows=5000", 10, 10},
		{"a form that is JSON too", formType, `{"a":"&options.rows=5000&"}`, 10, 10},
		{"a form without it", formType, "a=b", 7, 7},
		{"a form, twice", formType, "options.rows=5000&Options.Rows=1", 10, 10},
		{"parts", parts, part("x", "1") + part("options.rows", "5000") + "--zz--\r\n", 10, 10},
		{"parts, twice", parts, part("options.rows", "1") + part("Options.rows", "5000") + "--zz--\r\n", 10, 10},
		{"parts without it", parts, part("x", "1") + "--zz--\r\n", 7, 7},
		{"parts that are none", parts, "options.rows=5000", refused, refused},
		{"parts without end", parts, part("options.rows", "1"), refused, refused},
		{"longer than is read", jsonType, `{"options":{"rows":1},"x":"` + long + `"}`, 100, refused},
		{"just as long", jsonType, `{"options":{"rows":1},"x":"` + long[:edge.BodyBytes-29] + `"}`, 1, 1},
	} {
		for _, chunked := range []bool{false, true} {
			new := func() *http.Request {
				r := httptest.NewRequest("POST", "/export", strings.NewReader(c.body))
				r.Header.Set("Content-Type", c.kind)
				if chunked {
					r.ContentLength = -1
				}
				return r
			}
			bounded := edge.Body("options.rows").Per(500, edge.Bounds{Missing: 7, Max: 100})
			if got := priced(t, e, bounded, new()); got != c.want {
				t.Errorf("%s (chunked %v): costs %d, want %d", c.name, chunked, got, c.want)
			}
			plain := edge.Body("options.rows").Per(500, edge.Bounds{Missing: 7})
			if got := priced(t, e, plain, new()); got != c.unbounded {
				t.Errorf("%s (chunked %v): costs %d without a most, want %d", c.name, chunked, got, c.unbounded)
			}
		}
	}
}

func TestABodyThatCannotBeSeenCostsTheMost(t *testing.T) {
	e := anEdge(t)
	byNumber, byValue := edge.Body("rows").Per(500, edge.Bounds{Max: 100}), edge.Body("deep").Table(map[string]int64{"true": 5})
	strict := edge.Body("rows").Per(500, edge.Bounds{})

	packed := httptest.NewRequest("POST", "/", strings.NewReader(`{"rows":1}`))
	packed.Header.Set("Content-Encoding", "gzip")
	broken := httptest.NewRequest("POST", "/", failing(`{"rows":1}`))
	long := httptest.NewRequest("POST", "/", strings.NewReader(`{"rows":1}`))
	long.ContentLength = 1 << 40
	for name, r := range map[string]*http.Request{"compressed": packed, "broken off": broken, "announced as long": long} {
		if a, b, c := priced(t, e, byNumber, r), priced(t, e, byValue, r), priced(t, e, strict, r); a != 100 || b != 5 || c != refused {
			t.Errorf("%s: costs %d by number, %d by value, %d without a most", name, a, b, c)
		}
	}
	q, err := e.Describe(t.Context(), "POST", "example.com", "/export?rows=5000", someone, nil)
	if err != nil {
		t.Fatal(err)
	}
	if c, err := byNumber(q); c != 100 || err != nil {
		t.Errorf("a request that is only described costs %d, %v", c, err)
	}
	if c, err := byValue(q); c != 5 || err != nil {
		t.Errorf("a request that is only described costs %d by value, %v", c, err)
	}
	if _, err := strict(q); !errors.Is(err, edge.ErrRequest) {
		t.Errorf("a request that is only described and has no most: %v", err)
	}
	if c, err := edge.Query("rows").Per(500, edge.Bounds{})(q); c != 10 || err != nil {
		t.Errorf("its query costs %d, %v", c, err)
	}
}

// A handler before the edge may have read the form.
func TestAFormThatWasReadBeforeIsNotForgotten(t *testing.T) {
	e := anEdge(t)
	r := httptest.NewRequest("POST", "/?rows=1", strings.NewReader("rows=5000"))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if err := r.ParseForm(); err != nil {
		t.Fatal(err)
	}
	if got := priced(t, e, edge.Body("Rows").Per(500, edge.Bounds{}), r); got != 10 {
		t.Errorf("costs %d, want 10", got)
	}
}

func TestCostsAreJoined(t *testing.T) {
	e := anEdge(t)
	minus := func(*edge.Request) (int64, error) { return -50, nil }
	bad := func(*edge.Request) (int64, error) { return 0, fmt.Errorf("%w: no", edge.ErrRequest) }
	rows := edge.Query("rows").Per(500, edge.Bounds{})
	for _, c := range []struct {
		name string
		cost edge.Cost
		want int64
	}{
		{"fixed", edge.Fixed(3), 3},
		{"fixed below zero", edge.Fixed(-3), 0},
		{"sum", edge.Sum(edge.Fixed(3), rows), 13},
		{"sum of none", edge.Sum(), 0},
		{"sum with one below zero", edge.Sum(edge.Fixed(3), minus), 3},
		{"sum too large", edge.Sum(edge.Fixed(math.MaxInt64), edge.Fixed(math.MaxInt64)), math.MaxInt64},
		{"max", edge.Max(edge.Fixed(3), rows, minus), 10},
		{"max of those below zero", edge.Max(minus), 0},
		{"bad", edge.Sum(edge.Fixed(1), bad), refused},
		{"bad in max", edge.Max(bad, edge.Fixed(1)), refused},
	} {
		if got := priced(t, e, c.cost, request("GET", "/?rows=5000", someone)); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}

func TestACostByPath(t *testing.T) {
	e := anEdge(t)
	cost := edge.ByPath(map[string]int64{"/export": 100, "/export/*": 50, "/export/small/*": 2, "/health": 0, "/users/*/photo": 3, "/odd": -1})
	for p, want := range map[string]int64{
		"/export": 100, "//export": 100, "/x/../export": 100, "/export/": 100, "/export/a": 50, "/export/small/a": 2, "/export/small": 2,
		"/health": 0, "/users/7/photo": 3, "/users/7": 1, "/": 1, "": 1, "/odd": 0,
	} {
		r := request("GET", "/", someone)
		r.URL.Path = p
		if got := priced(t, e, cost, r); got != want {
			t.Errorf("%q costs %d, want %d", p, got, want)
		}
	}
}

// What a limit's own table says of a path holds for its other spellings.
func TestTheCostsOfALimitHoldForCleanedPaths(t *testing.T) {
	inBubble(t, []jatah.Limit{{Name: "api", Rate: jatah.PerHour(100), Costs: map[string]int64{"/export": 60}}}, func(t *testing.T, node *jatah.Node) {
		e := mustNew(t, node, edge.Config{Rules: []edge.Rule{{Uses: []edge.Use{{Limit: "api", Key: []edge.Part{edge.Address()}}}}}})
		r := request("GET", "/", someone)
		r.URL.Path = "//export"
		if v := decide(t, e, r); v.Takes[0].Cost != 60 {
			t.Errorf("//export costs %d", v.Takes[0].Cost)
		}
	})
}

func TestAPartOfAKeyFromTheBodyIsNoWayAroundTheRule(t *testing.T) {
	e := anEdge(t)
	part := edge.Body("user").Part()
	for body, want := range map[string]string{
		"user=bob": "bob", "user=%20Bob": "bob", "USER=bob": "bob",
		"": "?", "user=": "?", "user=bob&user=eve": "?", "user=bob&User=bob": "?", "user=%zz": "?", "x=1": "?",
		`{"user":"bob"}`: "bob", `{"user":["bob","eve"]}`: "?", `{"user":{"name":"bob"}}`: "?",
	} {
		r := httptest.NewRequest("POST", "/login", strings.NewReader(body))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		got, ok := part(e.RequestOf(r))
		if got != want || !ok {
			t.Errorf("%s: %q %v, want %q", body, got, ok, want)
		}
	}
}

func TestABadCostRefusesWith400AndTakesNothing(t *testing.T) {
	inBubble(t, []jatah.Limit{{Name: "api", Rate: jatah.PerHour(10)}}, func(t *testing.T, node *jatah.Node) {
		e := mustNew(t, node, edge.Config{FailOpen: true, Rules: []edge.Rule{{
			Uses: []edge.Use{{Limit: "api", Key: []edge.Part{edge.Address()}, Cost: edge.Query("rows").Per(500, edge.Bounds{})}},
		}}})
		v := decide(t, e, request("GET", "/?rows=-1", someone))
		if v.OK || !errors.Is(v.Err, edge.ErrRequest) || !strings.Contains(v.Err.Error(), `"rows"`) {
			t.Errorf("OK %v, %v", v.OK, v.Err)
		}
		v = decide(t, e, request("GET", "/?rows="+strings.Repeat("9", 30), someone))
		if v.OK || v.Err != nil || v.RetryAfter != jatah.Never {
			t.Errorf("more than can be counted: OK %v, %v, again after %v", v.OK, v.Err, v.RetryAfter)
		}
		if v = decide(t, e, request("GET", "/?rows=5000", someone)); !v.OK {
			t.Errorf("all 10 tokens should be there")
		}
	})
}

// What a program finds must not be more than what was paid for.
func FuzzFieldsOfQueries(f *testing.F) {
	for _, s := range []string{"rows=5", "rows=5&rows=6", "a=%zz;rows=5", "ROWS=5", "rows=+5", "r%6fws=5&&=", "rows=99999999999999999999"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		e := &edge.Edge{}
		r := &http.Request{Method: "GET", URL: &url.URL{Path: "/", RawQuery: raw}, Header: http.Header{}}
		values, _ := url.ParseQuery(raw)
		want := int64(1)
		for _, text := range values["rows"] {
			var n int64
			if _, err := fmt.Sscanf(text, "%d", &n); err == nil && fmt.Sprint(n) == text {
				want = max(want, n)
			}
		}
		c, err := edge.Query("rows").Per(1, edge.Bounds{})(e.RequestOf(r))
		if err == nil && c < want {
			t.Fatalf("%q costs %d, and a program may read %d", raw, c, want)
		}
	})
}

func FuzzFieldsOfBodies(f *testing.F) {
	for _, s := range []string{
		`{"options":{"rows":5}}`, `{"options":{"rows":5,"ROWS":7}}`, `[{"options":{"rows":[1,2]}}]`, `{"a":"\\\"","options":{"x":[{}],"rows":5}}`, ` {} `, `"`, `{"options":{"rows"`,
		"{\"option\u017f\":{\"rows\":5}}", `{"options":{"rows":1e3}}`, `{"options":{"r\u006fws":"5"}}`, `[[],{},[{}],""]`, `-0.5e+1`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, body string) {
		e := &edge.Edge{}
		r := httptest.NewRequest("POST", "/", strings.NewReader(body))
		c, err := edge.Body("options.rows").Per(1, edge.Bounds{})(e.RequestOf(r))
		var v struct {
			Options struct{ Rows int64 }
		}
		if bad := json.Unmarshal([]byte(body), &v); bad == nil && err == nil && c < v.Options.Rows {
			t.Fatalf("%q costs %d, and a program reads %d", body, c, v.Options.Rows)
		}
		if again, _ := io.ReadAll(r.Body); string(again) != body {
			t.Fatalf("%q became %q", body, again)
		}
	})
}

package httpapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/jatah-io/jatah"
)

// newChunked makes a request whose length is not known beforehand.
func newChunked(t *testing.T, target string, body io.Reader) (*httptest.ResponseRecorder, *http.Request) {
	r := httptest.NewRequestWithContext(t.Context(), "POST", target, io.MultiReader(body))
	r.ContentLength = -1
	return httptest.NewRecorder(), r
}

// slowTake is decodeTake on top of encoding/json: slow and obvious. ok false: refused.
func slowTake(body []byte) (limit string, parts []string, cost int64, ok bool) {
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.UseNumber()
	if !json.Valid(body) {
		return
	}
	if tok, err := dec.Token(); err != nil || tok != json.Delim('{') {
		return
	}
	fields := map[string]any{}
	for dec.More() {
		name, _ := dec.Token()
		var v any
		if err := dec.Decode(&v); err != nil {
			return
		}
		if _, twice := fields[name.(string)]; twice {
			return
		}
		fields[name.(string)] = v
	}
	cost = 1
	for name, v := range fields {
		switch name {
		case "limit":
			if limit, ok = v.(string); !ok {
				return limit, nil, 0, false
			}
		case "key":
			switch v := v.(type) {
			case string:
				parts = []string{v}
			case []any:
				for _, e := range v {
					s, ok := e.(string)
					if !ok {
						return limit, nil, 0, false
					}
					parts = append(parts, s)
				}
			}
			if len(parts) == 0 {
				return limit, nil, 0, false
			}
		case "cost":
			n, ok := v.(json.Number)
			if !ok {
				return limit, nil, 0, false
			}
			if err := json.Unmarshal([]byte(n), &cost); err != nil || cost < 0 {
				return limit, nil, 0, false
			}
		default:
			return limit, nil, 0, false
		}
	}
	_, hasLimit := fields["limit"]
	return limit, parts, cost, hasLimit && len(parts) > 0
}

func FuzzTakeBodiesReadAsEncodingJSONReadsThem(f *testing.F) {
	for _, row := range badTakes() {
		if len(row.body) < 2000 {
			f.Add([]byte(row.body))
		}
	}
	for _, s := range []string{
		`{"limit":"api","key":"u1","cost":1}`, " {\n\t\"key\" : [ \"a\" , \"\" ] , \"limit\":\"x\"\r} ",
		`{"limit":"a\u0070i","key":"\ud83d\ude00\"\\\/\b\f\n\r\t","cost":0}`, `{"limit":"","key":"\u0000x","cost":-0}`,
		`{"limit":"api","key":"\ud800","cost":9223372036854775807}`, `{"limit":"api","key":"\ud800\ud800\udc00"}`,
		"{\"limit\":\"api\",\"key\":\"\xff\xfe\"}", "{\"limit\":\"api\",\"key\":\"\u2028\x7f\"}", `{"limit":"a","key":["\udc00\ud800"]}`,
		`{"limit":"api","key":"u","cost":1E+2}`, `{"limit":"api","key":"u","cost":0.0e-1}`, `{"limit":"api","key":"u","cost":-00}`,
	} {
		f.Add([]byte(s))
	}
	lone := regexp.MustCompile(`(?i)\\ud[89a-f]`)
	f.Fuzz(func(t *testing.T, body []byte) {
		got, p := decodeTake(body)
		limit, parts, cost, ok := slowTake(body)
		if ok != (p == nil) {
			t.Fatalf("%q: accepted %v, encoding/json %v (%+v)", body, p == nil, ok, p)
		}
		if p != nil {
			if p.status != 400 || p.detail == "" || !json.Valid(appendProblem(nil, p)) {
				t.Fatalf("%q: problem %+v", body, p)
			}
			return
		}
		echo := appendEcho(nil, got.echo)
		if !json.Valid(echo) || !utf8.Valid(echo) {
			t.Fatalf("%q: echo %q", body, echo)
		}
		if got.cost != cost {
			t.Fatalf("%q: cost %d, encoding/json %d", body, got.cost, cost)
		}
		if !utf8.Valid(body) || lone.Match(body) {
			return // encoding/json maps all of these to U+FFFD, this package keeps them apart
		}
		if string(got.limit) != limit || got.key != jatah.Key(parts...) {
			t.Fatalf("%q: limit %q key %q, encoding/json %q %q", body, got.limit, got.key, limit, parts)
		}
		var echoed, sent any
		json.Unmarshal(echo, &echoed)
		json.Unmarshal(got.echo, &sent)
		if fmt.Sprint(echoed) != fmt.Sprint(sent) {
			t.Fatalf("%q: echo %s", body, echo)
		}
	})
}

// The memory that a body takes grows with its length, not with its square, however many strings with escapes are in it.
func TestManyEscapesTakeLittleMemory(t *testing.T) {
	const parts = 100_000
	body := []byte(`{"limit":"api","key":[` + strings.Repeat(`"\n",`, parts) + `"a"]}`)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, p := decodeTake(body); p != nil {
		t.Fatal(p.detail)
	}
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 64<<20 {
		t.Errorf("%d bytes for a body of %d", n, len(body))
	}
}

func FuzzBatchesNeverPanic(f *testing.F) {
	f.Add([]byte(`{"takes":[{"limit":"api","key":"u"},1,"]",[[],{}],null]}`))
	f.Add([]byte(`{"takes":[]}`))
	f.Add([]byte(`{"takes":["\\\"",{"a":"}"}] , "takes":[]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		items, p := decodeBatch(body, 10)
		if p != nil {
			return
		}
		var want struct{ Takes []json.RawMessage }
		if err := json.Unmarshal(body, &want); err != nil || len(want.Takes) != len(items) {
			t.Fatalf("%q: %d items, encoding/json %d (%v)", body, len(items), len(want.Takes), err)
		}
		for i := range items {
			if got := bytes.TrimRight(items[i], " \t\r\n"); !bytes.Equal(got, want.Takes[i]) {
				t.Fatalf("%q: item %d is %q, encoding/json %q", body, i, got, want.Takes[i])
			}
		}
	})
}

func FuzzJSONStringsAreReadBack(f *testing.F) {
	for _, s := range []string{"", "a", "\"\\\n\x00\x1f\x7f", "\u00e9\u2028\U0001f600", "a\xffb\xfe\xfd", "\xed\xa0\x80"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		b := appendJSON(nil, s)
		var got string
		if err := json.Unmarshal(b, &got); err != nil || !utf8.Valid(b) {
			t.Fatalf("%q: %s: %v", s, b, err)
		}
		if want := strings.Map(func(r rune) rune { return r }, s); got != want {
			t.Fatalf("%q came back as %q", s, got)
		}
	})
}

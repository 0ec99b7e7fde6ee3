package main

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"unicode"
)

const whoIsLimited = `{"limits":[
{"limit":"api","span_ms":60000,"sample":8,"used":[
 {"key":"u1","used":1200,"used_per_second":20,"used_error":0,"refused":3,"refused_per_second":0.05,"refused_error":7},
 {"key":["org","\u001b[31m\u202e"],"used":5,"used_per_second":0.083,"used_error":0,"refused":0,"refused_per_second":0,"refused_error":0}],
 "refused":[{"key":"LONG","used":0,"used_per_second":0,"used_error":0,"refused":9,"refused_per_second":0.15,"refused_error":0}]},
{"limit":"idle","span_ms":60000,"sample":1,"used":[],"refused":[]}],
"answered":["n1","n2"],"missing":["n3"]}`

func TestTop(t *testing.T) {
	long := strings.ReplaceAll(whoIsLimited, "LONG", strings.Repeat("x", 200))
	node := &answering{status: 200, body: long}
	server := httptest.NewServer(node)
	defer server.Close()
	code, out, err := runCommand(nil, "top", "--addr", server.URL, "--limit", "a b", "--n", "5")
	if code != 0 || err != "" || node.request != "GET /v1/top?n=5&limit=a+b " {
		t.Errorf("code %d, %q, request %q", code, err, node.request)
	}
	want := `as 2 of 3 nodes have counted; no answer from n3

api, in the last 1m0s (at times one in 8 counted)
USES MOST                       USED  PER SECOND  REFUSED  PER SECOND
"u1"                            1200  20.0        3+7      0.1
["org" "\x1b[31m\u202e"]        5     0.1         0        0.0
REFUSED MOST                    USED  PER SECOND  REFUSED  PER SECOND
"` + strings.Repeat("x", 60) + `"...  0     0.0         9        0.1
`
	squeeze := func(s string) string { return strings.Join(strings.Fields(s), " ") }
	if squeeze(out) != squeeze(want) {
		t.Errorf("printed\n%s\nwant, but for the width of columns,\n%s", out, want)
	}
	if i := strings.IndexFunc(out, func(r rune) bool { return !unicode.IsPrint(r) && r != '\n' }); i >= 0 {
		t.Errorf("%q is printed", out[i:i+1])
	}
	if code, out, _ = runCommand(nil, "top", "--addr", server.URL, "--json"); code != 0 || out != long+"\n" || node.request != "GET /v1/top?n=10 " {
		t.Errorf("code %d, request %q, %s", code, node.request, out)
	}
	node.body = `{"limits":[],"answered":["n1"],"missing":[]}`
	if code, out, _ = runCommand(nil, "top", "--addr", server.URL); code != 0 || out != "as 1 of 1 nodes have counted\nnothing was used or refused in the last minute\n" {
		t.Errorf("code %d, %q", code, out)
	}
	node.body = `hello`
	if code, _, err = runCommand(nil, "top", "--addr", server.URL); code != exitFailed || !strings.Contains(err, "does not say who uses most") {
		t.Errorf("code %d, %q", code, err)
	}
	node.status, node.body = 404, `{"detail":"No limit is named \"x\"."}`
	if code, _, err = runCommand(nil, "top", "--addr", server.URL, "--limit", "x"); code != exitFailed || !strings.Contains(err, `answered 404 Not Found: No limit is named "x"`) {
		t.Errorf("code %d, %q", code, err)
	}
}

// TestTopWatches: until it is interrupted, which is no failure.
func TestTopWatches(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	var calls atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if calls.Add(1) == 2 {
			interrupt()
		}
		_, _ = w.Write([]byte(`{"answered":["n1"]}`))
	}))
	defer server.Close()
	var out, errs bytes.Buffer
	if code := run(ctx, console{&out, &errs, nil}, []string{"top", "--addr", server.URL, "--watch", "500ms"}); code != 0 || calls.Load() != 2 || errs.Len() > 0 {
		t.Errorf("code %d after %d calls, %q", code, calls.Load(), errs.String())
	}
}

package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jatah-io/jatah"
	"github.com/jatah-io/jatah/cmd/node/internal/config"
	"github.com/jatah-io/jatah/httpapi"
)

func TestCheckTellsTheRulesOfTheEdgeInWords(t *testing.T) {
	path := filepath.Join(t.TempDir(), "jatah.yaml")
	check := func(edge string) (int, string, string) {
		t.Helper()
		text := "node: n1\nlimits:\n  - {name: api, rate: 100/min, plans: {pro: {rate: 1000/min}}}\n  - {name: address, rate: 10/min, costs: {/export: 5}}\n" + edge
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return runCommand(nil, "check", path)
	}
	const whole = `
edge:
  trusted_proxies: [loopback, 10.0.0.0/8]
  account_header: X-User
  fail_open: true
  rules:
    - {name: health, path: /health, exempt: true}
    - name: known
      for: authenticated
      path: [/api/*, /v2/*]
      not: {method: [OPTIONS]}
      use: [{limit: api, key: [account, cookie:sid], plan: header:X-Plan, cost: {query: rows, per: 500, max: 20}}]
      soft: {from: 0.8}
    - name: rest
      use: [{limit: address, key: address}, {limit: api, key: "text:all", cost: {query: deep, values: {"true": 5, "": 2}}}]
      pause: {after: 5}
      dry_run: true
`
	const want = `edge: trusts 127.0.0.0/8, ::1/128, 10.0.0.0/8; clients from X-Forwarded-For, IPv6 by /64; accounts from X-User
  what cannot be decided passes
  rule health: everyone, path /health: nothing is counted
  rule known: authenticated, path /api/* or /v2/*, not method OPTIONS: (1 for each 500 of ?rows=, at most 20) of api by account and cookie:sid, plan header:X-Plan; from 0.8 of a limit on with the header Jatah-Soft
  rule rest: everyone: the cost of the path of address by address; by ?deep= ("" 2, "true" 5) of api by text:all; all or none; who goes on when refused is paused, longer each time; dry run
`
	if code, out, err := check(whole); code != 0 || !strings.HasSuffix(out, want) {
		t.Errorf("code %d, err %q, got\n%s\nwant\n%s", code, err, out, want)
	}
	if code, out, _ := check("edge: {fail_open: false}\n"); code != 0 ||
		!strings.HasSuffix(out, "edge: no proxy is trusted, so that nobody can ask by forward auth: name your proxies in trusted_proxies\n  no rules: every request passes\n") {
		t.Errorf("code %d, %s", code, out)
	}
	// What making the edge warns of is told too, and so is what only that finds.
	if code, out, _ := check("edge: {trusted_proxies: [0.0.0.0/0]}\n"); code != 0 || !strings.Contains(out, "warning: every address is a trusted proxy") {
		t.Errorf("code %d, %s", code, out)
	}
	twice := "edge: {rules: [{name: a, use: [{limit: api, key: address, candidates: [api]}]}]}\n"
	if code, _, err := check(twice); code != exitFailed || !strings.Contains(err, `rule "a"`) {
		t.Errorf("a limit measured beside itself: code %d, %s", code, err)
	}
	if code, _, err := check("edge:\n  rules:\n    - {name: a, use: [{limit: apo, key: address}]}\n"); code != exitFailed || !strings.Contains(err, path+`:7:31: edge.rules[0].use[0].limit: no limit is named "apo": did you mean "api"?`) {
		t.Errorf("code %d, %s", code, err)
	}
}

func TestTheEdgeIsReplacedWhileTheNodeRuns(t *testing.T) {
	node, err := jatah.Start(t.Context(), jatah.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer node.Close()
	api := httpapi.New(node, httpapi.Config{Logger: slog.New(slog.DiscardHandler)})
	part := edgePart{api: api, node: node, log: slog.New(slog.DiscardHandler)}
	ask := func() (int, string) {
		r := httptest.NewRequestWithContext(t.Context(), "GET", "/v1/forward-auth", nil)
		for name, value := range map[string]string{"Method": "GET", "Uri": "/x", "For": "203.0.113.1"} {
			r.Header.Set("X-Forwarded-"+name, value)
		}
		w := httptest.NewRecorder()
		api.ServeHTTP(w, r)
		return w.Code, w.Header().Get("RateLimit")
	}
	// next applies a configuration as a reload does: it is refused as a whole, or its limits come before its rules.
	next := func(text string) error {
		t.Helper()
		cfg, err := config.Merge(&config.Document{Name: "jatah.yaml", Data: []byte(text)}, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		change, err := part.prepare(cfg)
		if err != nil {
			return err
		}
		for _, l := range cfg.Limits {
			if _, err := node.Limit(l); err != nil {
				t.Fatal(err)
			}
		}
		change()
		return nil
	}
	rules := func(limit, more string) string {
		return "limits: [{name: a, rate: 1/h, burst: 2}, {name: " + limit + ", rate: 1/h, burst: 2" + more + "}]\n" +
			"edge: {trusted_proxies: [192.0.2.1], rules: [{name: r, use: [{limit: " + limit + ", key: address}]}, {name: other, use: [{limit: a, key: address, candidates: [" + limit + "]}]}]}\n"
	}
	for _, step := range []struct {
		what, text string
		refused    string
		code       int
		ratelimit  string
	}{
		{"no edge", "limits: [{name: a, rate: 1/h, burst: 2}]\n", "", 404, ""},
		{"an edge with a limit that is new", rules("b", ""), "", 200, `"b";r=1`},
		{"the same once more", rules("b", ""), "", 200, `"b";r=0`},
		{"an edge that cannot be made", rules("c", ", parent: a"), "has a parent", 429, `"b";r=0`},
		{"another limit", rules("c", ""), "", 200, `"c";r=1`},
		{"what was used is still used", rules("b", ""), "", 429, `"b";r=0`},
		{"no edge any more", "", "", 404, ""},
	} {
		err := next(step.text)
		if step.refused == "" && err != nil || step.refused != "" && (err == nil || !strings.Contains(err.Error(), step.refused)) {
			t.Errorf("%s: %v, want %q", step.what, err, step.refused)
		}
		if code, head := ask(); code != step.code || !strings.HasPrefix(head, step.ratelimit) {
			t.Errorf("%s: %d %s, want %d %s", step.what, code, head, step.code, step.ratelimit)
		}
	}
}

func TestTheRulesOfTheEdgeAreReloaded(t *testing.T) {
	besideOthers(t)
	file := filepath.Join(t.TempDir(), "jatah.yaml")
	write := func(edge string) {
		t.Helper()
		next := file + ".next"
		if err := errors.Join(os.WriteFile(next, []byte("limits: [{name: a, rate: 1/d, burst: 1}]\n"+edge), 0o644), os.Rename(next, file)); err != nil {
			t.Fatal(err)
		}
	}
	write("")
	s := startServer(t, "--bind", "127.0.0.1:0", "--config", file)
	s.waitReady()
	ask := func() int {
		r, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+s.http+"/v1/forward-auth", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("X-Forwarded-Method", "GET")
		r.Header.Set("X-Forwarded-Uri", "/x")
		resp, err := s.web.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	answers := func(status int) {
		t.Helper()
		wait(t, fmt.Sprintf("the answer %d", status), func() bool { return ask() == status })
	}
	answers(http.StatusNotFound)
	write("edge: {rules: []}\n")
	answers(http.StatusBadRequest) // nobody is trusted
	write("edge: {trusted_proxies: [127.0.0.1], rules: [{name: r, use: [{limit: a, key: address}]}]}\n")
	answers(http.StatusTooManyRequests) // the second time
	write("edge: {trusted_proxies: [127.0.0.1], rules: [{name: r, use: [{limit: b, key: address}]}]}\n")
	s.waitLog("configuration refused")
	if text := fmt.Sprint(s.findLog("configuration refused")["error"]); !strings.Contains(text, file+":2:70: edge.rules[0].use[0].limit: no limit is named") {
		t.Errorf("the log says %q", text)
	}
	if got := ask(); got != http.StatusTooManyRequests {
		t.Errorf("after a bad file: %d", got)
	}
	write("edge: {trusted_proxies: [127.0.0.1], rules: [{name: r, exempt: true}]}\n")
	answers(http.StatusOK)
	write("")
	answers(http.StatusNotFound)
}

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
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

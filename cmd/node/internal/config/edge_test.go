package config

import (
	"errors"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"
)

const edgeFile = `
limits:
  - {name: api, rate: 100/min, plans: {pro: {rate: 1000/min}}}
  - {name: address, rate: 10/min}
  - {name: other, rate: 10/min}
edge:
  trusted_proxies: [10.0.0.0/8, "::1", loopback]
  client_header: Forwarded
  ipv6_prefix: 56
  account_header: X-User
  fail_open: true
  answer: {legacy: true, jitter: 5s}
  rules:
    - name: health
      path: /health
      exempt: true
    - name: api
      for: authenticated
      path: [/api/*, /v2/*/list]
      method: [GET, POST]
      header: [X-Api-Key, X-Env=test]
      cookie: sid
      not: {path: /api/status, header: X-Internal}
      use:
        - {limit: api, key: [account, header:X-Api-Key, "text:a b"], plan: pro, cost: 7, candidates: [other]}
        - {limit: address, key: address, cost: {query: rows, per: 500, min: 2, max: 10, missing: 3}}
        - {limit: address, key: text:all, cost: {query: deep_scan, values: {"true": 5, "": 2}}}
      dry_run: true
      soft: {from: 0.8, header: X-Soft}
      pause: {limit: address, after: 5, base: 2s, max: 1m, factor: 1.5, forget: 30s}
      answer: {status: 503, ratelimit: false, x_ratelimit: false, reset: epoch, page: "<h1>Slow down</h1>", content_type: text/html}
    - {name: rest, for: everyone, use: [{limit: api, key: [route, method, cookie:sid], plan: header:X-Plan}]}
`

func TestEveryFieldOfTheEdgeIsRead(t *testing.T) {
	got, err := Merge(&Document{"jatah.yaml", []byte(edgeFile)}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	var proxies []netip.Prefix
	for _, s := range []string{"10.0.0.0/8", "::1/128", "127.0.0.0/8", "::1/128"} {
		proxies = append(proxies, netip.MustParsePrefix(s))
	}
	want := &Edge{
		TrustedProxies: proxies, ClientHeader: "Forwarded", IPv6Prefix: 56, AccountHeader: "X-User", FailOpen: true,
		Answer: &EdgeAnswer{Legacy: true, Jitter: 5 * time.Second},
		Rules: []EdgeRule{
			{Name: "health", When: EdgeMatch{Path: []string{"/health"}}},
			{
				Name: "api", For: "authenticated",
				When: EdgeMatch{
					Path: []string{"/api/*", "/v2/*/list"}, Method: []string{"GET", "POST"},
					Header: []string{"X-Api-Key", "X-Env=test"}, Cookie: []string{"sid"},
				},
				Not: EdgeMatch{Path: []string{"/api/status"}, Header: []string{"X-Internal"}},
				Use: []EdgeUse{
					{Limit: "api", Key: []string{"account", "header:X-Api-Key", "text:a b"}, Plan: "pro", Cost: &EdgeCost{Tokens: 7}, Candidates: []string{"other"}},
					{Limit: "address", Key: []string{"address"}, Cost: &EdgeCost{Query: "rows", Per: 500, Min: 2, Max: 10, Missing: 3}},
					{Limit: "address", Key: []string{"text:all"}, Cost: &EdgeCost{Query: "deep_scan", Values: map[string]int64{"true": 5, "": 2}}},
				},
				DryRun: true,
				Soft:   &EdgeSoft{From: 0.8, Header: "X-Soft"},
				Pause:  &EdgePause{Limit: "address", After: 5, Base: 2 * time.Second, Max: time.Minute, Factor: 1.5, Forget: 30 * time.Second},
				Answer: &EdgeAnswer{Status: 503, NoRateLimit: true, NoXRateLimit: true, Epoch: true, Page: "<h1>Slow down</h1>", PageType: "text/html"},
			},
			{Name: "rest", Use: []EdgeUse{{Limit: "api", Key: []string{"route", "method", "cookie:sid"}, Plan: "header:X-Plan"}}},
		},
	}
	if !reflect.DeepEqual(got.Edge, want) {
		t.Errorf("got  %+v\nwant %+v", got.Edge, want)
	}
}

func TestTheEnvironmentBeatsTheEdgeOfTheFile(t *testing.T) {
	got, err := Merge(&Document{"jatah.yaml", []byte(edgeFile)}, []string{"JATAH_EDGE_TRUSTED_PROXIES=192.0.2.1, private", "JATAH_EDGE_FAIL_OPEN=false"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if e := got.Edge; len(e.TrustedProxies) != 5 || e.TrustedProxies[0] != netip.MustParsePrefix("192.0.2.1/32") || e.FailOpen || len(e.Rules) != 3 {
		t.Errorf("got %+v", e)
	}
}

// edgeRefusals are edges with mistakes, below two limits on the first two lines, and the messages.
var edgeRefusals = []struct{ name, edge, want string }{
	{"a field that is none", "edge:\n  trusted_proxy: [10.0.0.1]\n", `f.yaml:4:3: edge.trusted_proxy: "trusted_proxy" is not a field of edge: did you mean "trusted_proxies"?`},
	{"a field of the top level", "edge: {limits: []}\n", `f.yaml:3:8: edge.limits: "limits" is not a field of edge; there are`},
	{"a proxy that is none", "edge: {trusted_proxies: [10.0.0.1/8]}\n", `f.yaml:3:25: edge.trusted_proxies: trusted proxy 10.0.0.1/8: write 10.0.0.0/8 for the network`},
	{"a header without trust", "edge: {client_header: CF-Connecting-IP}\n", `f.yaml:3:23: edge.client_header: nobody is believed as long as no proxy is trusted`},
	{"an account without trust", "edge: {account_header: X-User}\n", `f.yaml:3:24: edge.account_header: nobody is believed as long as no proxy is trusted`},
	{"a header that is none", "edge: {trusted_proxies: [private], account_header: \"X User\"}\n", `f.yaml:3:52: edge.account_header: "X User" is no name of a header`},
	{"a prefix too long", "edge: {ipv6_prefix: 129}\n", `f.yaml:3:21: edge.ipv6_prefix: IPv6Prefix 129: want 1 to 128 bits`},
	{"rules that are no list", "edge: {rules: {name: a}}\n", "f.yaml:3:15: edge.rules: needs a list, each rule beginning with `- name: `; this is a group of fields"},
	{"a rule that is empty", "edge:\n  rules:\n    -\n", `f.yaml:5:7: edge.rules[0]: is empty`},
	{"a rule without a name", "edge:\n  rules:\n    - exempt: true\n", `f.yaml:5:7: edge.rules[0]: has no name`},
	{"a name of two words", "edge:\n  rules:\n    - {name: a b, exempt: true}\n", `f.yaml:5:14: edge.rules[0].name: `},
	{"a name given twice", "edge:\n  rules:\n    - {name: a, exempt: true}\n    - {name: a, exempt: true}\n",
		`f.yaml:6:8: edge.rules[1].name: two rules are named "a", here and at line 5 of f.yaml: rename one`},
	{"a rule that does nothing", "edge:\n  rules:\n    - {name: a, path: /x}\n", "f.yaml:5:7: edge.rules[0]: uses no limit: add"},
	{"exempt and used", "edge:\n  rules:\n    - {name: a, exempt: true, use: [{limit: api, key: address}]}\n", `f.yaml:5:17: edge.rules[0].exempt: the rule uses limits too`},
	{"exempt in dry run", "edge:\n  rules:\n    - {name: a, exempt: true, dry_run: true}\n", `f.yaml:5:7: edge.rules[0]: refuses nobody`},
	{"for whom", "edge:\n  rules:\n    - {name: a, for: anonymus, exempt: true}\n", `f.yaml:5:22: edge.rules[0].for: "anonymus" is none of them: did you mean "anonymous"?`},
	{"a path that is none", "edge:\n  rules:\n    - {name: a, path: [/a, api], exempt: true}\n", `f.yaml:5:28: edge.rules[0].path: "api" is no path`},
	{"a star within", "edge:\n  rules:\n    - {name: a, path: /img*, exempt: true}\n", `f.yaml:5:23: edge.rules[0].path: "/img*" has a * within an element`},
	{"a method in small letters", "edge:\n  rules:\n    - {name: a, method: get, exempt: true}\n", `f.yaml:5:25: edge.rules[0].method: "get" is no method`},
	{"an empty list", "edge:\n  rules:\n    - {name: a, path: [], exempt: true}\n", `f.yaml:5:23: edge.rules[0].path: is empty`},
	{"not of nothing", "edge:\n  rules:\n    - {name: a, not: [/x], exempt: true}\n", `f.yaml:5:22: edge.rules[0].not: needs fields`},
	{"not for whom", "edge:\n  rules:\n    - {name: a, not: {for: anonymous}, exempt: true}\n", `f.yaml:5:23: edge.rules[0].not.for: "for" is not a field of not; there are path`},
	{"a limit that is none", "edge:\n  rules:\n    - {name: a, use: [{limit: apo, key: address}]}\n",
		`f.yaml:5:31: edge.rules[0].use[0].limit: no limit is named "apo": did you mean "api"?`},
	{"no limit", "edge:\n  rules:\n    - {name: a, use: [{key: address}]}\n", `f.yaml:5:23: edge.rules[0].use[0]: has no limit`},
	{"no key", "edge:\n  rules:\n    - {name: a, use: [{limit: api}]}\n", `f.yaml:5:23: edge.rules[0].use[0]: has no key`},
	{"a part that is none", "edge:\n  rules:\n    - {name: a, use: [{limit: api, key: [adress]}]}\n",
		`f.yaml:5:42: edge.rules[0].use[0].key: "adress" is no part of a key: did you mean "address"?`},
	{"a header of no name", "edge:\n  rules:\n    - {name: a, use: [{limit: api, key: \"header:\"}]}\n", `f.yaml:5:41: edge.rules[0].use[0].key: "" is no name of a header`},
	{"a plan that is none", "edge:\n  rules:\n    - {name: a, use: [{limit: api, key: address, plan: por}]}\n",
		`f.yaml:5:56: edge.rules[0].use[0].plan: the limit "api" has no plan "por": did you mean "pro"?`},
	{"a cost that never passes", "edge:\n  rules:\n    - {name: a, use: [{limit: api, key: address, cost: 51}]}\n",
		`f.yaml:5:56: edge.rules[0].use[0].cost: the limit "api" never lets more than 50 pass at once`},
	{"requests in flight", "edge:\n  rules:\n    - {name: a, use: [{limit: jobs, key: address}]}\n", `f.yaml:5:31: edge.rules[0].use[0].limit: "jobs" counts requests in flight`},
	{"a queue", "edge:\n  rules:\n    - {name: a, use: [{limit: mail, key: address}]}\n", `f.yaml:5:31: edge.rules[0].use[0].limit: "mail" has a queue`},
	{"a charge afterwards", "edge:\n  rules:\n    - {name: a, use: [{limit: api, key: address, after: 1}]}\n",
		`f.yaml:5:50: edge.rules[0].use[0].after: what a request costs when it is over cannot be charged here`},
	{"a cost by nothing", "edge:\n  rules:\n    - {name: a, use: [{limit: api, key: address, cost: {per: 5}}]}\n", `f.yaml:5:56: edge.rules[0].use[0].cost: has no query: add`},
	{"a cost by a body", "edge:\n  rules:\n    - {name: a, use: [{limit: api, key: address, cost: {body: rows}}]}\n",
		`f.yaml:5:57: edge.rules[0].use[0].cost.body: a body cannot be read here`},
	{"a cost in two ways", "edge:\n  rules:\n    - {name: a, use: [{limit: api, key: address, cost: {query: q, per: 1, values: {a: 2}}}]}\n",
		`f.yaml:5:56: edge.rules[0].use[0].cost: needs either per`},
	{"a cost that is no number", "edge:\n  rules:\n    - {name: a, use: [{limit: api, key: address, cost: {query: q, values: {a: b}}}]}\n",
		`f.yaml:5:79: edge.rules[0].use[0].cost.values.a: needs a whole number of tokens`},
	{"a table that never passes", "edge:\n  rules:\n    - {name: a, use: [{limit: api, key: address, cost: {query: q, values: {a: 51}}}]}\n",
		`f.yaml:5:56: edge.rules[0].use[0].cost: the limit "api" never lets more than 50 pass at once`},
	{"bounds that cross", "edge:\n  rules:\n    - {name: a, use: [{limit: api, key: address, cost: {query: q, per: 5, min: 3, max: 2}}]}\n",
		`f.yaml:5:56: edge.rules[0].use[0].cost: has a max below its min or missing`},
	{"a candidate that is none", "edge:\n  rules:\n    - {name: a, use: [{limit: api, key: address, candidates: [apo]}]}\n",
		`f.yaml:5:62: edge.rules[0].use[0].candidates: no limit is named "apo": did you mean "api"?`},
	{"a pause of another limit", "edge:\n  rules:\n    - {name: a, use: [{limit: api, key: address}], pause: {limit: mail}}\n",
		`f.yaml:5:52: edge.rules[0].pause: counts refusals by "mail", which the rule does not use`},
	{"a pause that shrinks", "edge:\n  rules:\n    - {name: a, use: [{limit: api, key: address}], pause: {factor: 0.5}}\n", `f.yaml:5:68: edge.rules[0].pause.factor: 0.5 is too small`},
	{"a pause longer than the longest", "edge:\n  rules:\n    - {name: a, use: [{limit: api, key: address}], pause: {base: 1h, max: 1m}}\n", `f.yaml:5:59: edge.rules[0].pause: begins with 1h0m0s`},
	{"a softer step from nowhere", "edge:\n  rules:\n    - {name: a, use: [{limit: api, key: address}], soft: {header: X-Soft}}\n", `f.yaml:5:58: edge.rules[0].soft: has no from: add`},
	{"a softer step at the end", "edge:\n  rules:\n    - {name: a, use: [{limit: api, key: address}], soft: {from: 1}}\n", `f.yaml:5:65: edge.rules[0].soft.from: 1 is no part of a limit`},
	{"a status that is no refusal", "edge: {answer: {status: 200}}\n", `f.yaml:3:25: edge.answer.status: 200 is too small`},
	{"a type that is none", "edge: {answer: {page: x, content_type: html/}}\n", `f.yaml:3:40: edge.answer.content_type: "html/" is no type: write one such as text/plain; charset=utf-8`},
	{"a type of no page", "edge: {answer: {content_type: text/plain}}\n", `f.yaml:3:16: edge.answer: content_type is that of page, which is missing`},
	{"an empty page", "edge: {answer: {page: ''}}\n", `f.yaml:3:23: edge.answer.page: is empty`},
	{"a reset that is none", "edge: {answer: {reset: unix}}\n", `f.yaml:3:24: edge.answer.reset: "unix" is none of them: there are seconds, epoch`},
	{"an answer that is none", "edge: {answer: 403}\n", `f.yaml:3:16: edge.answer: needs fields`},
}

func TestMistakesOfTheEdgeAreToldAtTheirPlace(t *testing.T) {
	const limits = "limits: [{name: api, rate: 10/min, plans: {pro: {rate: 50/min}}}, {name: jobs, algorithm: concurrency, max: 3},\n" +
		" {name: mail, rate: 1/s, algorithm: leaky_bucket, queue: 5}]\n"
	for _, one := range edgeRefusals {
		_, err := Merge(&Document{"f.yaml", []byte(limits + one.edge)}, nil, nil)
		var all Problems
		if !errors.As(err, &all) || len(all) != 1 || !strings.HasPrefix(all[0].Error(), one.want) {
			t.Errorf("%s:\ngot  %v\nwant %s", one.name, err, one.want)
		}
	}
}

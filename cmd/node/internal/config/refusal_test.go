package config

import (
	"errors"
	"strings"
	"testing"

	"github.com/jatah-io/jatah"
)

// refusals are sources with mistakes and the start of each message, in order.
var refusals = []struct {
	name  string
	file  string
	env   []string
	flags []Setting
	want  []string // beginnings of the messages
}{
	{name: "a misspelt field", file: "htp: 127.0.0.1:8080\n",
		want: []string{`f.yaml:1:1: htp: "htp" is not a top-level field: did you mean "http"?`}},
	{name: "a field of nothing", file: "http: 127.0.0.1:8080\ncolour: red\n",
		want: []string{`f.yaml:2:1: colour: "colour" is not a top-level field; there are http, node, state_dir, limits_dir, log_refusals, max_keys, max_memory, overflow, tokens_file, insecure_admin, max_connections, max_connections_per_address, cluster, tls, limits`}},
	{name: "a field in the wrong section", file: "bind: 127.0.0.1:7946\ncluster:\n  http: 127.0.0.1:8080\n",
		want: []string{`f.yaml:1:1: bind: "bind" is not a top-level field: it belongs under cluster`,
			`f.yaml:3:3: cluster.http: "http" is not a field of cluster: it belongs at the top level`}},
	{name: "a dotted name", file: "cluster.bind: 127.0.0.1:7946\n",
		want: []string{`f.yaml:1:1: cluster.bind: "cluster.bind" is not a top-level field`}},
	{name: "an unknown field of a limit", file: "limits:\n  - name: api\n    rate: 5/s\n    brust: 3\n",
		want: []string{`f.yaml:4:5: limits[0].brust: "brust" is not a field of a limit: did you mean "burst"?`}},
	{name: "a key given twice", file: "node: a\nhttp: 127.0.0.1:1\nnode: b\n",
		want: []string{`f.yaml:3:1: node: is given twice, here and at line 1 of f.yaml: keep one`}},
	{name: "a rate given twice in one limit", file: "limits:\n  - name: api\n    rate: 5/s\n    rate: 10/s\n",
		want: []string{`f.yaml:4:5: limits[0].rate: is given twice, here and at line 3 of f.yaml: keep one`}},
	{name: "two limits of one name", file: "limits:\n  - name: api\n    rate: 5/s\n  - name: login\n    rate: 5/s\n  - name: api\n    rate: 10/s\n",
		want: []string{`f.yaml:6:5: limits.api: the limit "api" is defined twice, here and at line 2 of f.yaml: rename one or remove it`}},
	{name: "a value that is no rate", file: "limits:\n  - {name: api, rate: 50/s}\n  - {name: other, rate: abc}\n",
		want: []string{`f.yaml:3:25: limits[1].rate: `}},
	{name: "a number for a rate", file: "limits: [{name: api, rate: 100}]\n",
		want: []string{`f.yaml:1:28: limits[0].rate: needs a rate such as 100/min; this is the number 100`}},
	{name: "a number for a name", file: "node: 1\n",
		want: []string{`f.yaml:1:7: node: needs a name that no other node of the cluster has, such as n1; this is the number 1 (in quotes it is text: "1")`}},
	{name: "a text for a number", file: "limits:\n- name: api\n  rate: 1/s\n  burst: many\n",
		want: []string{`f.yaml:4:10: limits[0].burst: needs a whole number of at least 1, such as 20; this is the text "many"`}},
	{name: "a fraction for a whole number", file: "cluster: {expect: 2.5}\n",
		want: []string{`f.yaml:1:19: cluster.expect: needs the number of nodes the cluster is meant to have, such as 3; this is the number 2.5`}},
	{name: "memory without a unit that there is", file: "max_memory: 512Mb\n",
		want: []string{`f.yaml:1:13: max_memory: "512Mb" is no amount of memory: write one such as 512MiB or 2GiB`}},
	{name: "too little memory", file: "max_memory: 1MiB\n",
		want: []string{`f.yaml:1:13: max_memory: 1MiB is too little: write at least 8MiB`}},
	{name: "no keys", file: "max_keys: 0\n",
		want: []string{`f.yaml:1:11: max_keys: `}},
	{name: "an overflow that there is not", file: "overflow: drop\n",
		want: []string{`f.yaml:1:11: overflow: "drop" is none of deny, allow and shared`}},
	{name: "a number too large", file: "cluster: {expect: 99999999999999999999}\n",
		want: []string{`f.yaml:1:19: cluster.expect: `}},
	{name: "a burst of zero", file: "limits: [{name: api, rate: 1/s, burst: 0}]\n",
		want: []string{`f.yaml:1:40: limits[0].burst: 0 is too small: write 1 or more, or leave it out for the default`}},
	{name: "a text for true or false", file: "cluster: {insecure: yes}\n",
		want: []string{`f.yaml:1:21: cluster.insecure: needs true or false; this is the text "yes"`}},
	{name: "a duration without a unit", file: "cluster:\n  grace: 60\n  ask_timeout: fast\n  sync_interval: -1s\n",
		want: []string{`f.yaml:2:10: cluster.grace: needs a duration such as 60s, or never; this is the number 60`,
			`f.yaml:3:16: cluster.ask_timeout: "fast" is not a duration: write a number with its unit`,
			`f.yaml:4:18: cluster.sync_interval: -1s is too short`}},
	{name: "durations below what works", file: "cluster: {sync_interval: 1ms, ask_timeout: 1us, grace: 1ms}\n",
		want: []string{`f.yaml:1:26: cluster.sync_interval: 1ms is too short: write 10ms or more`,
			`f.yaml:1:44: cluster.ask_timeout: 1us is too short: write 1ms or more`, `f.yaml:1:56: cluster.grace: 1ms is too short: write 1s or more, or never`}},
	{name: "a name with a space", file: "node: a b\ncluster: {name: \"\"}\n",
		want: []string{`f.yaml:1:7: node: "a b" is no name: write 1 to 128 bytes without spaces`, `f.yaml:2:17: cluster.name: "" is no name`}},
	{name: "an empty value", file: "http:\n",
		want: []string{`f.yaml:1:7: http: needs an address such as 127.0.0.1:8080; this is empty`}},
	{name: "a text for a list", file: "cluster:\n  join: 10.0.0.1:7946\n",
		want: []string{`f.yaml:2:9: cluster.join: needs a list of addresses of other nodes, such as 10.0.0.6:7946, as in [a, b]; this is the text`}},
	{name: "a number in a list", file: "cluster:\n  join:\n    - a:1\n    - 7946\n",
		want: []string{`f.yaml:4:7: cluster.join: needs addresses of other nodes, such as 10.0.0.6:7946; this is the number 7946`}},
	{name: "fields for a list", file: "limits:\n  api:\n    rate: 5/s\n",
		want: []string{"f.yaml:2:3: limits: needs a list, each limit beginning with `- name: `; this is a group of fields"}},
	{name: "a text for a group", file: "cluster: on\n",
		want: []string{"f.yaml:1:10: cluster: needs fields, one `name: value` a line; this is"}},
	{name: "a list for the whole", file: "- http: x\n",
		want: []string{"f.yaml:1:1: needs fields"}},
	{name: "an address without port", file: "http: localhost\ncluster: {bind: \"127.0.0.1:x\"}\n",
		want: []string{`f.yaml:1:7: http: "localhost" is not host:port`, `f.yaml:2:17: cluster.bind: "127.0.0.1:x" has no port from 0 to 65535`}},
	{name: "a misspelt algorithm", file: "limits:\n  - name: api\n    rate: 5/s\n    algorithm: fixd-window\n",
		want: []string{`f.yaml:4:16: limits[0].algorithm: "fixd-window" is no algorithm: did you mean "fixed_window"?`}},
	{name: "another mode and fallback", file: "limits:\n  - name: api\n    rate: 5/s\n    mode: loose\n    fallback: open\n",
		want: []string{`f.yaml:4:11: limits[0].mode: `, `f.yaml:5:15: limits[0].fallback: `}},
	{name: "an overshoot below zero", file: "limits: [{name: api, rate: 5/s, overshoot: -0.5}]\n",
		want: []string{`f.yaml:1:44: limits[0].overshoot: `}},
	{name: "a limit without name or rate", file: "limits:\n  - rate: 5/s\n  - name: api\n  -\n",
		want: []string{"f.yaml:2:5: limits[0]: has no name: add `name: `", "f.yaml:3:5: limits[1]: has no rate: add `rate: ` with a rate such as 100/min",
			"f.yaml:4:", "limits[2]: is empty"}},
	{name: "a name that cannot be a label", file: "limits:\n  - name: \"a b\"\n    rate: 5/s\n",
		want: []string{`f.yaml:2:11: limits[0].name: `}},
	{name: "an alias", file: "limits: [{name: &x api, rate: 5/s}]\n",
		want: []string{`f.yaml:1:17: limits[0].name: needs a name such as api; this is an anchor or alias, which are not read: write the value out`}},
	{name: "a tag", file: "node: !!str 5\n", want: []string{`f.yaml:1:7: node: needs a name that no other node of the cluster has, such as n1; this is a tag`}},
	{name: "two documents", file: "node: a\n---\nnode: b\n",
		want: []string{`f.yaml:3:1: a second document begins here`}},
	{name: "no YAML", file: "node: [a\n", want: []string{`f.yaml:1:7: this is not YAML: `}},
	{name: "a tab", file: "cluster:\n\tname: a\n", want: []string{`f.yaml:2:1: this is not YAML: `}},
	{name: "no UTF-8", file: "node: a\ncluster: {name: \xff}\n", want: []string{`f.yaml:2:17: the file is not UTF-8 text`}},
	{name: "several mistakes at once", file: "htp: a\ncluster:\n  grace: soon\nlimits:\n  - name: api\n    rate: 100/fortnight\n",
		want: []string{`f.yaml:1:1: htp: `, `f.yaml:3:10: cluster.grace: "soon" is not a duration: write a number with its unit, such as 100ms, 2s or 1m, or never`,
			`f.yaml:6:11: limits[0].rate: `}},

	{name: "a port that is open to the network", file: "cluster:\n  bind: 0.0.0.0:7946\n",
		want: []string{`f.yaml:2:9: cluster.bind: 0.0.0.0:7946 can be reached from the network, where anyone could join: set cluster.secret`}},
	{name: "a port on every address", flags: []Setting{{"--bind", "cluster.bind", ":7946"}},
		want: []string{`--bind: cluster.bind: :7946 can be reached from the network`}},
	{name: "an advertised address that is open", file: "cluster:\n  bind: 127.0.0.1:7946\n  advertise: 192.0.2.1\n",
		want: []string{`f.yaml:3:14: cluster.advertise: 192.0.2.1 can be reached from the network`}},
	{name: "a secret that is no base64", file: "cluster:\n  secret: topsecret!\n",
		want: []string{`f.yaml:2:11: cluster.secret: is not base64`}},
	{name: "a secret of a wrong length", env: []string{"JATAH_CLUSTER_SECRET=dG9wc2VjcmV0"},
		want: []string{`JATAH_CLUSTER_SECRET: cluster.secret: has 9 bytes: it must be 16, 24 or 32 bytes in base64`}},
	{name: "a secret of digits", file: "cluster: {secret: 7777777777}\n",
		want: []string{`f.yaml:1:19: cluster.secret: needs 16, 24 or 32 bytes in base64; this is not a text: put it in quotes`}},
	{name: "two secrets", file: "cluster:\n  secret: MDEyMzQ1Njc4OWFiY2RlZg==\n  secret_file: x\n",
		want: []string{`f.yaml:3:16: cluster.secret_file: cluster.secret is given too, at line 2 of f.yaml: keep one of the two`}},

	{name: "a misspelt variable", env: []string{"JATAH_CLUSTER_JION=a"},
		want: []string{`JATAH_CLUSTER_JION: is no setting: did you mean JATAH_CLUSTER_JOIN?`}},
	{name: "a variable without its section", env: []string{"JATAH_BIND=127.0.0.1:1"},
		want: []string{`JATAH_BIND: is no setting: did you mean JATAH_CLUSTER_BIND?`}},
	{name: "a variable of nothing", env: []string{"JATAH_COLOUR_SCHEME=red"},
		want: []string{`JATAH_COLOUR_SCHEME: is no setting; there are JATAH_LIMITS, JATAH_HTTP,`}},
	{name: "a bad value in a variable", env: []string{"JATAH_CLUSTER_INSECURE=1"},
		want: []string{`JATAH_CLUSTER_INSECURE: cluster.insecure: "1" is neither true nor false`}},
	{name: "bad limits in a variable", env: []string{"JATAH_LIMITS=api;b=5/s,burst;c=5/s,brust=3;d=5/s,burst=1,burst=2;e=;f=5/s;f=6/s;g=5/s,name=h"},
		want: []string{`JATAH_LIMITS: limits: "api" is no limit: write NAME=RATE, such as api=100/min`,
			`JATAH_LIMITS: limits.b: "burst" is no option: write option=value`,
			`JATAH_LIMITS: limits.c: "brust" is not an option of a limit: did you mean "burst"?`,
			`JATAH_LIMITS: limits.d.burst: is given twice`,
			`JATAH_LIMITS: limits: "e=" is no limit`,
			`JATAH_LIMITS: limits.f: the limit "f" is defined twice, here and at JATAH_LIMITS`,
			`JATAH_LIMITS: limits.g.name: is given twice`}},
	{name: "a bad limit in a flag", flags: []Setting{{"--limit", "limits", "api=5/s,burst=x"}},
		want: []string{`--limit: limits.api.burst: "x" is not a whole number`}},
}

func TestMistakesAreRefusedWithPlaceAndAdvice(t *testing.T) {
	for _, c := range refusals {
		t.Run(c.name, func(t *testing.T) {
			cfg, err := Merge(&Document{"f.yaml", []byte(c.file)}, c.env, c.flags)
			if !errors.Is(err, ErrInvalid) {
				t.Fatalf("accepted as %+v, error %v", cfg, err)
			}
			rest := err.Error()
			for _, want := range c.want {
				i := strings.Index(rest, want)
				if i < 0 {
					t.Fatalf("message\n%v\nlacks, in this order,\n%s", err, want)
				}
				rest = rest[i+len(want):]
			}
			if lines := strings.Count(err.Error(), "\n") + 1; lines > len(c.want) {
				t.Errorf("%d mistakes reported, %d made:\n%v", lines, len(c.want), err)
			}
			for _, secret := range []string{"topsecret", "dG9wc2Vj", "7777777", "MDEyMzQ1"} {
				if strings.Contains(err.Error(), secret) {
					t.Errorf("the secret is in the message: %v", err)
				}
			}
		})
	}
}

func TestMessagesSayWhatExists(t *testing.T) {
	for field, want := range map[string][]string{
		"algorithm: magic": jatah.Algorithms(),
		"calendar: magic":  {"hour", "day", "week", "month", "year"},
		"timezone: magic":  {"Europe/Berlin"},
		"mode: magic":      {"hybrid", "strict", "split"},
		"fallback: magic":  {"share", "wait", "deny", "allow"},
		"rate: magic":      {"100/min"},
	} {
		rate := "\n  rate: 5/s"
		if strings.HasPrefix(field, "rate") {
			rate = ""
		}
		_, err := Merge(&Document{"f.yaml", []byte("limits:\n- name: api\n  " + field + rate + "\n")}, nil, nil)
		for _, w := range want {
			if err == nil || !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %v: does not say %q", field, err, w)
			}
		}
	}
}

func TestAnOpenPortIsAcceptedOnceItIsGuardedOrMeant(t *testing.T) {
	for _, guard := range []string{"secret: MDEyMzQ1Njc4OWFiY2RlZg==", "secret_file: x", "insecure: true"} {
		_, err := Merge(&Document{"f.yaml", []byte("cluster:\n  bind: 0.0.0.0:7946\n  " + guard + "\n")}, nil, nil)
		if err != nil {
			t.Errorf("%s: %v", guard, err)
		}
	}
	for _, bind := range []string{"127.0.0.1:0", "127.9.9.9:7946", "[::1]:7946", "localhost:7946"} {
		if _, err := Merge(nil, []string{"JATAH_CLUSTER_BIND=" + bind}, nil); err != nil {
			t.Errorf("%s: %v", bind, err)
		}
	}
}

func FuzzMerge(f *testing.F) {
	for _, c := range refusals {
		f.Add([]byte(c.file), strings.Join(c.env, "\n"))
	}
	f.Add([]byte("limits: [{name: api, rate: 9/min, plans: {pro: {rates: [9/s, 99/d]}}, overrides: [{key: vip, plan: pro}, {prefix: i, rate: 1/s, burst: 5}]}]"), "")
	f.Add([]byte(wholeFile), "JATAH_LIMITS=login=3/s,burst=7; extra = 4/s , mode=split ;")
	f.Fuzz(func(t *testing.T, file []byte, environ string) {
		cfg, err := Merge(&Document{"f.yaml", file}, strings.Split(environ, "\n"), nil)
		var problems Problems
		switch {
		case err == nil:
			seen := map[string]bool{}
			for _, l := range cfg.Limits {
				if err := l.Validate(); err != nil {
					t.Errorf("accepted limit %+v: %v", l, err)
				}
				if seen[l.Name] {
					t.Errorf("two limits %q accepted", l.Name)
				}
				seen[l.Name] = true
			}
		case errors.As(err, &problems):
			lines := strings.Count(string(file), "\n") + 1
			for _, p := range problems {
				// YAML also counts a lone carriage return as the end of a line.
				if p.Line > lines+strings.Count(string(file), "\r") || p.Line > 0 && p.Column < 1 {
					t.Errorf("place %d:%d in a file of %d lines", p.Line, p.Column, lines)
				}
			}
		default:
			t.Errorf("error is not Problems: %v", err)
		}
	})
}

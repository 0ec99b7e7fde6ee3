package config

import (
	"errors"
	"maps"
	"strings"
	"testing"
)

func TestCostsOfRoutes(t *testing.T) {
	want := map[string]int64{"/export": 100, "/search/*": 5, "/free": 0}
	const inline = "limits: [{name: api, rate: 200/min, costs: {\"/export\": 100, \"/search/*\": 5, /free: 0}}]\n"
	const block = "limits:\n  - name: api\n    costs:\n      /export: 100\n      /search/*: 5\n      \"/free\": 0\n    rate: 200/min\n"
	for name, doc := range map[string]string{"inline": inline, "block": block} {
		cfg, err := Merge(&Document{"f.yaml", []byte(doc)}, nil, nil)
		if err != nil || !maps.Equal(cfg.Limits[0].Costs, want) {
			t.Errorf("%s: %+v, %v; want %v", name, cfg.Limits, err, want)
		}
	}
	compact := "api=200/min,costs=/export:100 | /search/*:5|/free:0,burst=150"
	cfg, err := Merge(nil, []string{"JATAH_LIMITS=" + compact}, nil)
	if err != nil || !maps.Equal(cfg.Limits[0].Costs, want) || cfg.Limits[0].Burst != 150 {
		t.Errorf("a variable: %+v, %v; want %v", cfg.Limits, err, want)
	}
	one := "limits: [{name: api, rate: 200/min, costs: {\"/a:b\": 3}}]\n"
	if cfg, err := Merge(&Document{"f.yaml", []byte(one)}, nil, nil); err != nil || cfg.Limits[0].Costs["/a:b"] != 3 {
		t.Errorf("a colon in a route: %+v, %v", cfg.Limits, err)
	}
	for _, none := range []string{"", "    costs:\n", "    costs: {}\n"} {
		cfg, err := Merge(&Document{"f.yaml", []byte("limits:\n  - name: api\n    rate: 200/min\n" + none)}, nil, nil)
		if err != nil || len(cfg.Limits[0].Costs) != 0 {
			t.Errorf("%q: %+v, %v", none, cfg.Limits, err)
		}
	}
}

func TestMistakesInCostsAreRefusedAtTheirPlace(t *testing.T) {
	for _, c := range []struct {
		name, costs string // what follows costs: in the fourth line of a limit with burst 20
		want        []string
	}{
		{"a list", " [5]", []string{`f.yaml:5:12: limits[0].costs: needs routes with their costs, such as {"/export": 100, "/search/*": 5}; this is a list`}},
		{"a number", " 5", []string{`f.yaml:5:12: limits[0].costs: needs routes with their costs`}},
		{"several at once", "\n      /a: -1\n      /b: many\n      /c: 1.5\n      /d: 2\n      /e:\n", []string{
			`f.yaml:6:7: limits[0].costs./a: the cost of route "/a": -1 is too small: write 0 or more`,
			`f.yaml:7:11: limits[0].costs./b: needs a whole number of tokens, such as 5; this is the text "many"`,
			`f.yaml:8:11: limits[0].costs./c: needs a whole number of tokens, such as 5; this is the number 1.5`,
			`f.yaml:10:`,
		}},
		{"a star inside", "\n      /a/*/b: 1\n", []string{`f.yaml:6:7: limits[0].costs./a/*/b: the cost of route "/a/*/b" has a star before its end`}},
		{"no route", "\n      \"\": 1\n", []string{`f.yaml:6:7: limits[0].costs.: the cost of route "" has no route; use "*"`}},
		{"twice", "\n      /a: 1\n      /a: 2\n", []string{`f.yaml:7:7: limits[0].costs./a: is given twice, here and at line 6 of f.yaml: keep one`}},
		{"above the burst", "\n      /a: 20\n      /b: 21\n      /c: 22\n", []string{
			`f.yaml:7:11: limits[0].costs./b: the cost of route "/b" is 21, above the burst 20: it could never pass`,
			`f.yaml:8:11: limits[0].costs./c: the cost of route "/c" is 22, above the burst 20`,
		}},
		{"a number too large", "\n      /a: 99999999999999999999\n", []string{`f.yaml:6:11: limits[0].costs./a: needs a whole number of tokens, such as 5; this is the text "99999999999999999999"`}},
		{"larger than any burst", "\n      /a: 9000000000000000000\n", []string{`f.yaml:6:7: limits[0].costs./a: the cost of route "/a" is 9000000000000000000, above the burst`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			doc := "limits:\n  - name: api\n    rate: 5/s\n    burst: 20\n    costs:" + c.costs
			_, err := Merge(&Document{"f.yaml", []byte(doc)}, nil, nil)
			if !errors.Is(err, ErrInvalid) {
				t.Fatalf("%v; want ErrInvalid", err)
			}
			lines := strings.Split(err.Error(), "\n")
			if len(lines) != len(c.want) {
				t.Fatalf("%d mistakes reported, %d made:\n%v", len(lines), len(c.want), err)
			}
			for i, want := range c.want {
				if !strings.HasPrefix(lines[i], want) {
					t.Errorf("got  %s\nwant %s", lines[i], want)
				}
			}
		})
	}
	for compact, want := range map[string]string{
		"api=5/s,costs=/a":             `--limit: limits.api.costs: "/a" is no cost: write ROUTE:COST, such as /export:100, separated by |`,
		"api=5/s,costs=/a:x":           `--limit: limits.api.costs: the cost of route "/a": "x" is not a whole number`,
		"api=5/s,costs=/a:1|/a:2":      `--limit: limits.api.costs: the route "/a" is given twice: keep one`,
		"api=5/s,costs=/a:6":           `--limit: limits.api: the cost of route "/a" is 6, above the burst 5`,
		"api=5/s,burst=9,costs=/a*b:6": `--limit: limits.api.costs: the cost of route "/a*b" has a star before its end`,
	} {
		_, err := Merge(nil, nil, []Setting{{"--limit", "limits", compact}})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %s", compact, err, want)
		}
	}
}

// YAML takes a bare star for an alias; in quotes it is a route.
func TestAStarAloneNeedsQuotes(t *testing.T) {
	for costs, want := range map[string]string{`{"*": 2}`: "", "{*: 2}": "f.yaml:4:13: this is not YAML", "\n      *: 2\n": "f.yaml:5:10: this is not YAML"} {
		cfg, err := Merge(&Document{"f.yaml", []byte("limits:\n  - name: api\n    rate: 5/s\n    costs: " + costs)}, nil, nil)
		switch {
		case want == "" && (err != nil || cfg.Limits[0].Costs["*"] != 2):
			t.Errorf("%q: %+v, %v; want cost 2 for every route", costs, cfg.Limits, err)
		case want != "" && (err == nil || !strings.HasPrefix(err.Error(), want)):
			t.Errorf("%q: %v; want %s", costs, err, want)
		}
	}
}

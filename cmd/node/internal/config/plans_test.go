package config

import (
	"errors"
	"strings"
	"testing"

	"github.com/jatah-io/jatah"
)

func TestPlansAndOverrides(t *testing.T) {
	want := jatah.Limit{Name: "api", Rate: jatah.PerMinute(10), Burst: 10, Costs: map[string]int64{"/export": 60},
		Plans: map[string]jatah.Plan{
			"free": {Rate: jatah.PerDay(100), Burst: 20},
			"pro":  {Rates: []jatah.Rate{jatah.PerSecond(100), jatah.PerDay(1000)}},
		},
		Overrides: []jatah.Override{{Key: "vip", Plan: "pro"}, {Prefix: "in:", Rate: jatah.PerSecond(100), Burst: 50}, {Key: "in:x"}, {Key: "y", Rates: []jatah.Rate{jatah.PerSecond(5), jatah.PerHour(90)}}}}
	const inline = "limits: [{name: api, rate: 10/min, burst: 10, costs: {/export: 60}, plans: {free: {rate: 100/d, burst: 20}, pro: {rates: [100/s, 1000/d]}}, " +
		"overrides: [{key: vip, plan: pro}, {prefix: \"in:\", rate: 100/s, burst: 50}, {key: \"in:x\"}, {key: y, rates: [5/s, 90/h]}]}]\n"
	const block = `
limits:
  - overrides:
      - key: vip
        plan: pro
      - prefix: "in:"
        rate: 100/s
        burst: 50
      - key: in:x
      - {key: y, rates: [5/s, 90/h]}
    plans:
      free:
        burst: 20
        rate: 100/d
      pro:
        rates:
          - 100/s
          - 1000/d
    burst: 10
    rate: 10/min
    costs: {/export: 60}
    name: api
`
	for name, doc := range map[string]string{"inline": inline, "block": block} {
		cfg, err := Merge(&Document{"f.yaml", []byte(doc)}, nil, nil)
		if err != nil || !cfg.Limits[0].Equal(want) {
			t.Errorf("%s: %+v, %v; want\n%+v", name, cfg.Limits, err, want)
		}
	}
	for _, none := range []string{"", "    plans:\n    overrides:\n", "    plans: {}\n    overrides: []\n"} {
		cfg, err := Merge(&Document{"f.yaml", []byte("limits:\n  - name: api\n    rate: 200/min\n" + none)}, nil, nil)
		if err != nil || cfg.Limits[0].Plans != nil || cfg.Limits[0].Overrides != nil {
			t.Errorf("%q: %+v, %v", none, cfg.Limits, err)
		}
	}
}

func TestMistakesInPlansAreRefusedAtTheirPlace(t *testing.T) {
	for _, c := range []struct {
		name, more string // what follows the second field of a limit of 5/s with burst 20, from the fifth line on
		want       []string
	}{
		{"plans that are a list", "    plans: [pro]\n", []string{`f.yaml:5:12: limits[0].plans: needs plans by name, such as {pro: {rate: 10/s, burst: 50}}; this is a list`}},
		{"overrides that are a group", "    overrides:\n      vip: {plan: pro}\n", []string{`f.yaml:6:7: limits[0].overrides: needs a list of overrides, such as [{key: vip, plan: pro}]; this is a group of fields`}},
		{"several at once", "    plans:\n      free:\n      pro: {burst: 5}\n      max: 10/s\n      low: {rate: 1/s, brust: 3}\n      high: {rate: fast}\n      odd: {rate: 1/s, mode: strict}\n", []string{
			`f.yaml:6:12: limits[0].plans.free: is empty: give it a rate, or remove the line`,
			"f.yaml:7:7: limits[0].plans.pro: has no rate: add `rate: ` with a rate such as 100/min",
			"f.yaml:8:12: limits[0].plans.max: needs fields, one `name: value` a line; this is the text \"10/s\"",
			`f.yaml:9:24: limits[0].plans.low.brust: "brust" is not a field of a plan: did you mean "burst"?`,
			`f.yaml:10:20: limits[0].plans.high.rate: `,
			`f.yaml:11:24: limits[0].plans.odd.mode: "mode" is not a field of a plan: it belongs under the limit itself, limits[0]`,
		}},
		{"twice", "    plans:\n      a: {rate: 1/s}\n      a: {rate: 2/s}\n", []string{`f.yaml:7:7: limits[0].plans.a: is given twice, here and at line 6 of f.yaml: keep one`}},
		{"a name with a space", "    plans:\n      a: {rate: 1/s}\n      b c: {rate: 2/s}\n", []string{`f.yaml:7:7: limits[0].plans.b c: the plan name "b c" must be 1 to 64 characters`}},
		{"amounts that cannot be", "    plans:\n      a: {rate: 1/s, rates: [1/s, 9/h]}\n      b: {rate: 1/year, burst: 1000000000000}\n    overrides:\n      - {key: x, rate: 1/year, burst: 1000000000000}\n", []string{
			`f.yaml:6:7: limits[0].plans.a: rate and rates are both given`,
			`f.yaml:7:7: limits[0].plans.b: `,
			`f.yaml:9:9: limits[0].overrides[0]: `,
		}},
		{"unknown plans", "    plans: {free: {rate: 1/s}, pro: {rate: x}}\n    overrides:\n      - {key: a, plan: fre}\n      - {key: b, plan: pro}\n      - {key: c, plan: enterprise}\n", []string{
			`f.yaml:5:44: limits[0].plans.pro.rate: `,
			`f.yaml:7:24: limits[0].overrides[0].plan: there is no plan "fre": did you mean "free"?`,
			`f.yaml:9:24: limits[0].overrides[2].plan: there is no plan "enterprise"; there are free, pro`,
		}},
		{"a plan where there are none", "    overrides: [{key: a, plan: pro}]\n", []string{`f.yaml:5:32: limits[0].overrides[0].plan: there is no plan "pro": define it under plans, or write the amounts here`}},
		{"overrides that do not say what", "    plans: {pro: {rate: 1/s}}\n    overrides:\n      - {plan: pro}\n      - {key: a, prefix: b}\n      - {key: a, plan: pro, rate: 1/s}\n      - {key: a, burst: 5}\n      - {key: \"\"}\n      - {kee: a}\n      -\n      - {key: 7}\n", []string{
			`f.yaml:7:9: limits[0].overrides[0]: has neither key nor prefix: say for whom it is, as in {key: vip, plan: pro}`,
			`f.yaml:8:18: limits[0].overrides[1].prefix: there is a key too: keep one of the two, or write two overrides`,
			`f.yaml:9:18: limits[0].overrides[2].plan: there are amounts too: keep the plan, or the amounts`,
			"f.yaml:10:18: limits[0].overrides[3].burst: needs a rate beside it: add `rate: `",
			`f.yaml:11:15: limits[0].overrides[4].key: is empty: write a key such as vip`,
			`f.yaml:12:10: limits[0].overrides[5].kee: "kee" is not a field of an override: did you mean "key"?`,
			`f.yaml:12:9: limits[0].overrides[5]: has neither key nor prefix`,
			`f.yaml:13:8: limits[0].overrides[6]: is empty: give it a key or a prefix, or remove the dash`,
			`f.yaml:14:15: limits[0].overrides[7].key: needs a key such as vip; this is the number 7 (in quotes it is text: "7")`,
		}},
		{"two for one key", "    overrides: [{key: a}, {prefix: a}, {key: a, rate: 1/s}]\n", []string{`f.yaml:5:41: limits[0].overrides[2].key: "a" is overridden twice, here and at line 5 of f.yaml: keep one`}},
		{"a cost above every burst", "    plans: {pro: {rate: 1/s, burst: 50}}\n    costs:\n      /a: 50\n      /b: 51\n", []string{`f.yaml:8:11: limits[0].costs./b: the cost of route "/b" is 51, above the burst 50: it could never pass`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			doc := "limits:\n  - name: api\n    rate: 5/s\n    burst: 20\n" + c.more
			_, err := Merge(&Document{"f.yaml", []byte(doc)}, nil, nil)
			if !errors.Is(err, ErrInvalid) {
				t.Fatalf("%v; want ErrInvalid", err)
			}
			lines := strings.Split(err.Error(), "\n")
			if len(lines) != len(c.want) {
				t.Errorf("%d mistakes reported, %d made:\n%v", len(lines), len(c.want), err)
			}
			for i := range min(len(lines), len(c.want)) {
				if !strings.HasPrefix(lines[i], c.want[i]) {
					t.Errorf("got  %s\nwant %s", lines[i], c.want[i])
				}
			}
		})
	}
	for compact, want := range map[string]string{
		"api=5/s,plans=pro":     `--limit: limits.api.plans: cannot be written here: define the limit in a file, with plans: {pro: {rate: 10/s, burst: 50}}, and give it with --config`,
		"api=5/s,overrides=vip": `--limit: limits.api.overrides: cannot be written here: define the limit in a file, with overrides: [{key: vip, plan: pro}]`,
		"api=5/s,plan=pro":      `--limit: limits.api: "plan" is not an option of a limit: did you mean "plans"?`,
	} {
		_, err := Merge(nil, nil, []Setting{{"--limit", "limits", compact}})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %s", compact, err, want)
		}
	}
	const windows = "limits: [{name: api, rate: 5/s, algorithm: fixed_window, plans: {a: {rate: 1/s}, b: {rate: 2/s, burst: 3}}}]"
	_, err := Merge(&Document{"f.yaml", []byte(windows)}, nil, nil)
	if err == nil || !strings.HasPrefix(err.Error(), `f.yaml:1:82: limits[0].plans.b: burst has no meaning for fixed_window`) {
		t.Errorf("a burst that the algorithm has not: %v", err)
	}
}

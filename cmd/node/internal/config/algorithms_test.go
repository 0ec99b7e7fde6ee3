package config

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // the program has it too

	"github.com/jatah-io/jatah"
)

// defined are limits in both forms, and what they are to be.
var defined = []struct {
	yaml, flag string
	want       jatah.Limit
}{
	{"rate: 100/min, burst: 20", "100/min,burst=20", jatah.Limit{Rate: jatah.PerMinute(100), Burst: 20}},
	{"rates: [10/s, 500/h, 5000/d], burst: 30", "10/s+500/h + 5000/d,burst=30",
		jatah.Limit{Rates: []jatah.Rate{jatah.PerSecond(10), jatah.PerHour(500), jatah.PerDay(5000)}, Burst: 30}},
	{"rate: 100/min, algorithm: fixed_window", "100/min,algorithm=fixed_window", jatah.Limit{Rate: jatah.PerMinute(100), Algorithm: jatah.FixedWindow}},
	{"rate: 9/d, algorithm: fixed_window, calendar: day, timezone: Europe/Berlin", "9/d,algorithm=fixed_window,calendar=day,timezone=Europe/Berlin",
		jatah.Limit{Rate: jatah.PerDay(9), Algorithm: jatah.FixedWindow, Calendar: "day", Timezone: "Europe/Berlin"}},
	{"calendar: hour, rate: 9/h, algorithm: fixed_window", "9/h,calendar=hour,algorithm=fixed_window", jatah.Limit{Rate: jatah.PerHour(9), Algorithm: jatah.FixedWindow, Calendar: "hour"}},
	{"rate: 100/min, algorithm: sliding_window", "100/min,algorithm=sliding_window", jatah.Limit{Rate: jatah.PerMinute(100), Algorithm: jatah.SlidingWindow}},
	{"rate: 100/min, algorithm: sliding_log, max_log: 50", "100/min,algorithm=sliding_log,max_log=50", jatah.Limit{Rate: jatah.PerMinute(100), Algorithm: jatah.SlidingLog, MaxLog: 50}},
	{"rate: 5/min, algorithm: leaky_bucket, burst: 7", "5/min,algorithm=leaky_bucket,burst=7", jatah.Limit{Rate: jatah.PerMinute(5), Algorithm: jatah.LeakyBucket, Burst: 7}},
	{"rate: 1/s, algorithm: leaky_bucket, queue: 10, max_wait: 4s", "1/s,algorithm=leaky_bucket,queue=10,max_wait=4s",
		jatah.Limit{Rate: jatah.PerSecond(1), Algorithm: jatah.LeakyBucket, Queue: 10, MaxWait: 4 * time.Second}},
	{"rate: 2/s, algorithm: burst_average, burst: 3, burst_rate: 8/s, burst_threshold: 1/s, burst_time: 16s", "2/s,algorithm=burst_average,burst=3,burst_rate=8/s,burst_threshold=1/s,burst_time=16s",
		jatah.Limit{Rate: jatah.PerSecond(2), Algorithm: jatah.BurstAverage, Burst: 3, BurstRate: jatah.PerSecond(8), BurstThreshold: jatah.PerSecond(1), BurstTime: 16 * time.Second}},
	{"algorithm: concurrency, max: 10, ttl: 30s", "algorithm=concurrency,max=10,ttl=30s", jatah.Limit{Algorithm: jatah.Concurrency, Max: 10, TTL: 30 * time.Second}},
}

func TestEveryAlgorithmCanBeDefinedInEveryPlace(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range defined {
		c.want.Name = "api"
		seen[c.want.Algorithm] = true
		for source, merge := range map[string]func() (Config, error){
			"file": func() (Config, error) {
				return Merge(&Document{"f.yaml", []byte("limits: [{name: api, " + c.yaml + "}]")}, nil, nil)
			},
			"environment": func() (Config, error) { return Merge(nil, []string{"JATAH_LIMITS=api=" + c.flag}, nil) },
			"flag":        func() (Config, error) { return Merge(nil, nil, []Setting{{"--limit", "limits", "api=" + c.flag}}) },
		} {
			got, err := merge()
			if err != nil || len(got.Limits) != 1 || !got.Limits[0].Equal(c.want) {
				t.Errorf("%s: %s\n got %+v, %v\nwant %+v", source, c.yaml, got.Limits, err, c.want)
			}
		}
	}
	for _, name := range jatah.Algorithms() {
		if !seen[name] && name != jatah.TokenBucket {
			t.Errorf("no limit of this test has the algorithm %s", name)
		}
	}
}

// Each line of a file and what is said about it, with the column of the field that is to blame.
func TestMistakesInAlgorithmsAreShownWhereTheyAre(t *testing.T) {
	for _, c := range []struct{ line, want string }{
		{"{name: a, rate: 5/s, algorithm: fixed_window, burst: 3}", ":51: limits[0].burst: burst has no meaning for fixed_window; leave it out"},
		{"{name: a, rates: [5/s, abc]}", ":28: limits[0].rates: malformed rate"},
		{"{name: a, rates: [5, 6/s]}", ":23: limits[0].rates: needs rates such as 10/s; this is the number 5"},
		{"{name: a, rates: []}", ":22: limits[0].rates: is empty: write a list of rates such as 10/s"},
		{"{name: a, rates: }", ":21: limits[0].rates: is empty: write a list of rates such as 10/s"},
		{"{name: a, rates: 5/s}", ":22: limits[0].rates: needs a list of rates such as 10/s, as in [a, b]"},
		{"{name: a, rate: 5/s, rates: [6/s, 7/h]}", ":15: limits[0].rate: rate and rates are both given; write all of them in rates"},
		{"{name: a, rate: 5/d, algorithm: fixed_window, calendar: dag}", ":61: limits[0].calendar: calendar \"dag\" is unknown; use hour, day"},
		{"{name: a, rate: 5/h, algorithm: fixed_window, calendar: day}", ":51: limits[0].calendar: calendar day needs a rate per day, not 5/h"},
		{"{name: a, rate: 5/d, algorithm: fixed_window, calendar: day, timezone: Europe/Bern}", ":76: limits[0].timezone: timezone \"Europe/Bern\": unknown"},
		{"{name: a, rate: 5/d, algorithm: fixed_window, timezone: UTC}", ":51: limits[0].timezone: timezone \"UTC\" without a calendar"},
		{"{name: a, rate: 5/s, algorithm: leaky_bucket, queue: 0}", ":58: limits[0].queue: 0 is too small"},
		{"{name: a, rate: 5/s, algorithm: leaky_bucket, queue: many}", ":58: limits[0].queue: needs how many may wait, a whole number"},
		{"{name: a, rate: 5/s, algorithm: leaky_bucket, max_wait: 0s}", ":61: limits[0].max_wait: 0s is too short"},
		{"{name: a, rate: 5/s, algorithm: leaky_bucket, max_wait: 4}", ":61: limits[0].max_wait: needs a duration such as 2s; this is the number 4"},
		{"{name: a, rate: 5/s, algorithm: leaky_bucket, queue: 3, burst: 3}", ":61: limits[0].burst: burst and queue exclude each other"},
		{"{name: a, rates: [5/s, 6/h], algorithm: leaky_bucket, queue: 4}", ":5: limits.a: a queue has one rate"},
		{"{name: a, rate: 5/s, algorithm: burst_average, burst_rate: 8/s, burst_time: 4s}", ":5: limits.a: burst_average needs a burst_threshold above 0"},
		{"{name: a, rate: 5/s, algorithm: burst_average, burst_rate: 8}", ":64: limits[0].burst_rate: needs a rate such as 8/s; this is the number 8"},
		{"{name: a, rate: 5/s, algorithm: burst_average, burst_time: 1ms}", ":64: limits[0].burst_time: 1ms is too short: write 16ms or more"},
		{"{name: a, rate: 5/s, algorithm: sliding_log, max_log: 1}", ":59: limits[0].max_log: 1 is too small: write 2 or more"},
		{"{name: a, rate: 5/s, max_log: 5}", ":26: limits[0].max_log: max_log has no meaning for token_bucket"},
		{"{name: a, rate: 5/s, max_wiat: 5s}", ":26: limits[0].max_wiat: \"max_wiat\" is not a field of a limit: did you mean \"max_wait\"?"},
		{"{name: a, rate: 5/s, time_zone: UTC}", ":26: limits[0].time_zone: \"time_zone\" is not a field of a limit: did you mean \"timezone\"?"},
	} {
		_, err := Merge(&Document{"f.yaml", []byte("limits:\n  - " + c.line + "\n")}, nil, nil)
		if err == nil || !strings.HasPrefix(err.Error(), "f.yaml:2"+c.want) || strings.Count(err.Error(), "\n") > 0 {
			t.Errorf("%s\n got %v\nwant f.yaml:2%s", c.line, err, c.want)
		}
	}
	for value, want := range map[string]string{
		"a=5/s+6/h,rates=3/s":        "limits.a.rates: stand first, with + between them: write a=10/s+500/h",
		"a=5/s,rates=3/s+4/h":        "limits.a.rates: stand first, with + between them: write a=10/s+500/h",
		"a=5/s+x+7/h":                "limits.a.rates: malformed rate \"x\"",
		"a=5/s+":                     "limits.a.rate: malformed rate \"5/s+\"",
		"a=5/s,algorithm=fxd_window": `limits.a.algorithm: "fxd_window" is no algorithm: did you mean "fixed_window"?`,
		"a=5/s+6/h,queue=3,algorithm=leaky_bucket": "limits.a: a queue has one rate",
		"a=5/s,max_wait=2":                         `limits.a.max_wait: "2" is not a duration`,
	} {
		if _, err := Merge(nil, nil, []Setting{{"--limit", "limits", value}}); err == nil || !strings.HasPrefix(err.Error(), "--limit: "+want) {
			t.Errorf("--limit %s\n got %v\nwant %s", value, err, want)
		}
	}
}

// What the documentation shows can be used.
func TestTheExamplesOfTheDocumentationAreRead(t *testing.T) {
	block := regexp.MustCompile("(?s)```yaml\n(.*?)```")
	for file, least := range map[string]int{"docs/configuration.md": len(jatah.Algorithms()), "docs/http.md": 1, "README.md": 1, "deploy/jatah.yaml": 1} {
		text, err := os.ReadFile("../../../../" + file)
		if err != nil {
			t.Fatal(err)
		}
		blocks := block.FindAllStringSubmatch(string(text), -1)
		if strings.HasSuffix(file, ".yaml") {
			blocks = [][]string{{"", string(text)}}
		}
		for i, b := range blocks {
			if strings.HasPrefix(b[1], "tokens:") {
				l := &loader{}
				if tokens, _ := l.readTokens(file, []byte(b[1])); tokens == nil {
					t.Errorf("%v\n%s", l.problems, b[1])
				}
				continue
			}
			if _, err := Merge(&Document{fmt.Sprintf("%s, example %d", file, i+1), []byte(b[1])}, nil, nil); err != nil {
				t.Errorf("%v\n%s", err, b[1])
			}
		}
		if len(blocks) < least {
			t.Errorf("%s has %d examples, want %d", file, len(blocks), least)
		}
	}
}

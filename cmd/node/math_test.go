package main

import (
	"encoding/json"
	"maps"
	"os"
	"strings"
	"testing"
)

// lines are the columns of what math printed, without the padding.
func lines(out string) []string {
	var all []string
	for line := range strings.Lines(out) {
		all = append(all, strings.Join(strings.Fields(line), " "))
	}
	return all
}

func TestMathPrintsNumbersWithTheirFormulas(t *testing.T) {
	for _, c := range []struct {
		args string
		want []string
		json map[string]any
	}{
		{"--burst 100 --rate 10/s --arrivals 50/s", []string{
			"burst lasts 2.5s T = b / (R - r) = 100 / (50/s - 10/s)",
			"requests in it 125 n = b * R / (R - r) = 100 * 50/s / (50/s - 10/s)",
			"from empty to full 10s b / r = 100 / 10/s",
		}, map[string]any{"burst_duration_s": 2.5, "burst_requests": 125.0, "recovery_s": 10.0}},
		{"--burst 100 --rate 600/min --arrivals 10/s", []string{
			"burst lasts for ever R <= r: 10/s is no faster than 600/min",
			"requests in it unlimited all pass",
			"from empty to full 10s b / r = 100 / 600/min",
		}, map[string]any{"burst_duration_s": nil, "burst_requests": nil, "recovery_s": 10.0}},
		{"--burst 1000000 --rate 1/day --arrivals 2/day", []string{
			"burst lasts more than 292 years T = b / (R - r) = 1000000 / (2/d - 1/d)",
			"requests in it 2000000 n = b * R / (R - r) = 1000000 * 2/d / (2/d - 1/d)",
			"from empty to full more than 292 years b / r = 1000000 / 1/d",
		}, map[string]any{"burst_duration_s": nil, "burst_requests": 2e6, "recovery_s": nil}},
		{"--burst 9 --rate 0/s --arrivals 5/s --cost 3 --requests 4", []string{
			"burst lasts 0s " + denies, "requests in it 0 " + denies,
			"from empty to full never " + denies, "wait never " + denies, "burst needed none helps " + denies,
		}, map[string]any{"burst_duration_s": 0.0, "burst_requests": 0.0, "recovery_s": nil, "retry_after_s": nil, "burst_needed": nil}},
		{"--cost 5 --held 2 --rate 10/s", []string{"wait 300ms (cost - held) / r = (5 - 2) / 10/s"},
			map[string]any{"retry_after_s": 0.3}},
		{"--cost 5 --held -5 --rate 1/day", []string{"wait 240h0m0s (10.0 days) (cost - held) / r = (5 - (-5)) / 1/d"},
			map[string]any{"retry_after_s": 864000.0}},
		{"--cost 5 --held 5 --rate 10/s --burst 5", []string{"from empty to full 500ms b / r = 5 / 10/s", "wait 0s the cost of 5 is held"},
			map[string]any{"retry_after_s": 0.0, "recovery_s": 0.5}},
		{"--cost 6 --rate 10/s --burst 5", []string{"from empty to full 500ms b / r = 5 / 10/s", "wait never a cost of 6 is above the burst of 5"},
			map[string]any{"retry_after_s": nil, "recovery_s": 0.5}},
		{"--requests 50 --within 1s --rate 10/s", []string{"burst needed 40 n - r * within = 50 - 10/s * 1s, rounded up, at least 1"},
			map[string]any{"burst_needed": 40.0}},
		{"--requests 50 --rate 10/s", []string{"burst needed 50 n - r * within = 50 - 10/s * 0s, rounded up, at least 1"},
			map[string]any{"burst_needed": 50.0}},
		{"--threshold 1/s --burst-rate 8/s --burst-time 16s --rate 2/s --cost 1",
			[]string{"wait 500ms (cost - held) / r = (1 - 0) / 2/s",
				"burst by average lasts 2s T = threshold * burst_time / burst_rate = 1/s * 16s / 8/s"},
			map[string]any{"average_burst_s": 2.0, "retry_after_s": 0.5}},
		{"--threshold 1/s --burst-rate 8/s --burst-time 16s",
			[]string{"burst by average lasts 2s T = threshold * burst_time / burst_rate = 1/s * 16s / 8/s"},
			map[string]any{"average_burst_s": 2.0}},
	} {
		args := append([]string{"math"}, strings.Fields(c.args)...)
		code, out, err := runCommand(nil, args...)
		if got := lines(out); code != 0 || err != "" || strings.Join(got, "\n") != strings.Join(c.want, "\n") {
			t.Errorf("%s: code %d, %q\nprinted %q\nwant    %q", c.args, code, err, got, c.want)
		}
		code, out, err = runCommand(nil, append(args, "--json")...)
		var got map[string]any
		if e := json.Unmarshal([]byte(out), &got); e != nil || code != 0 || err != "" || !maps.Equal(got, c.json) {
			t.Errorf("%s --json: code %d, %q, %v\nprinted %q\nwant    %v", c.args, code, err, e, out, c.json)
		}
	}
}

func TestMathSaysWhatIsMissingOrCannotBe(t *testing.T) {
	for args, want := range map[string]string{
		"":                                       "try --burst 100 --rate 10/s --arrivals 50/s",
		"--json":                                 "nothing is asked",
		"--rate 1/s":                             "add --burst, --cost or --requests",
		"--burst 5":                              "--burst needs --rate too",
		"--arrivals 5/s --rate 1/s":              "--arrivals needs --burst and --rate too",
		"--held 3 --rate 1/s":                    "--held needs --cost and --rate too",
		"--within 3s --rate 1/s":                 "--within needs --requests and --rate too",
		"--threshold 1/s":                        "--threshold needs --burst-rate and --burst-time too",
		"--burst 0 --rate 1/s":                   "--burst 0: a bucket holds 1 token or more",
		"--cost -1 --rate 1/s":                   "--cost -1 is negative",
		"--requests 0 --rate 1/s":                "--requests 0: ask for 1 or more",
		"--requests 1 --rate 1":                  "--rate: \"1\" will not do: malformed rate \"1\": want tokens per duration, such as 100/min or 5/10s",
		"--burst 1 --rate 9999999999/s":          "--rate: \"9999999999/s\" will not do: rate out of range",
		"--burst many --rate 1/s":                `--burst: "many" will not do: write a whole number`,
		"--requests 1 --rate 1/s --within -1s":   "--within -1s is negative",
		"--cost 1 --held 9 --burst 5 --rate 1/s": "--held 9 is more than --burst 5",
		"--threshold 8/s --burst-rate 8/s --burst-time 16s":                "--threshold 8/s is not slower than --burst-rate 8/s: the burst would never end",
		"--threshold 1/s --burst-rate 8/s --burst-time 0s":                 "--burst-time 0s",
		"--threshold 1/s --burst-rate 8/s --burst-time 16s --rate 480/min": "--burst-rate 8/s is not faster than --rate 480/min",
		"100": "takes no arguments",
	} {
		code, out, err := runCommand(nil, append([]string{"math"}, strings.Fields(args)...)...)
		if code != exitUsage || out != "" || !strings.Contains(err, want) || !strings.Contains(err, "see: jatah math -h") {
			t.Errorf("%s: code %d, out %q, err %q; want code 2 and %q", args, code, out, err, want)
		}
	}
}

// The documentation shows what the command prints.
func TestMathInThePagesIsWhatItPrints(t *testing.T) {
	page, err := os.ReadFile("../../docs/choosing.md")
	if err != nil {
		t.Fatal(err)
	}
	shown := 0
	for part := range strings.SplitSeq(strings.ReplaceAll(string(page), "\r\n", "\n"), "```console\n") {
		command, ok := strings.CutPrefix(part, "$ jatah ")
		if !ok {
			continue
		}
		shown++
		command, rest, _ := strings.Cut(command, "\n")
		want, _, _ := strings.Cut(rest, "```")
		code, out, errText := runCommand(nil, strings.Fields(command)...)
		if code != 0 || errText != "" || out != want {
			t.Errorf("%s: code %d, %s\nprinted\n%sthe page says\n%s", command, code, errText, out, want)
		}
	}
	if shown < 2 {
		t.Errorf("the page shows only %d commands with what they print", shown)
	}
}

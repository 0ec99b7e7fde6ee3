package report

import (
	"context"
	"errors"
	"flag"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write testdata/page.md anew")

// sampleSuite has what a page can have: rounds, a peer that lacks a case, parameters, a curve, notes.
func sampleSuite() Suite {
	return Suite{Name: "demo", Doc: "What it is.", Baseline: "ours", Run: func(_ context.Context, o Options, emit func(Sample)) error {
		for round := range o.Rounds {
			r := float64(round)
			emit(Sample{Case: "hot", Peer: "ours", Unit: "ns/op", Values: []float64{20 + r}, Note: "alone"})
			emit(Sample{Case: "hot", Peer: "theirs", Unit: "ns/op", Values: []float64{84 - 4*r}, Note: "as in its README"})
			emit(Sample{Case: "hot", Peer: "ours", Unit: "allocs/op", Plain: true, Values: []float64{r}})
			emit(Sample{Case: "hot", Peer: "theirs", Unit: "allocs/op", Plain: true, Values: []float64{9}})
			emit(Sample{Case: "cold", Peer: "theirs", Unit: "ns/op", Values: []float64{12345678}})
			for _, callers := range []float64{1, 4} {
				emit(Sample{Case: "take", Peer: "ours", Unit: "/s", Params: map[string]float64{"callers": callers}, Values: []float64{callers * 1000}})
			}
			for _, peer := range []string{"ours", "theirs"} {
				emit(Sample{Case: "throughput", Peer: peer, Unit: "/s", X: "callers", LogX: true, Points: []Point{{4, 400 + r}, {1, 100 - r}}})
			}
		}
		return nil
	}}
}

func collected(t *testing.T, suites ...Suite) []Sample {
	t.Helper()
	samples, err := RunSuites(t.Context(), suites, Options{Rounds: 3, Log: t.Logf})
	if err != nil {
		t.Fatal(err)
	}
	return samples
}

func TestPage(t *testing.T) {
	dir := t.TempDir()
	m := Meta{Start: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Took: 61 * time.Second, Commit: "abc123", Command: "go run ./cmd/all -short", Rounds: 3, Short: true,
		Processor: "A Processor", Processors: 2, Memory: "3 kB", Kernel: "Linux 1", Go: "go1", LoadBefore: "0 0 0", LoadAfter: "1 1 1", Versions: []string{"example.org/peer v1.2.3"}}
	name, err := Write(dir, m, []Suite{sampleSuite(), {Name: "idle"}}, collected(t, sampleSuite()))
	if err != nil {
		t.Fatal(err)
	}
	if want := filepath.Join(dir, "2026-01-02-abc123.md"); name != want {
		t.Errorf("the page is %s, want %s", name, want)
	}
	got, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	golden := filepath.Join("testdata", "page.md")
	if *update {
		if err := os.WriteFile(golden, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Errorf("the page differs from %s; look at it and run the test with -update\n%s", golden, got)
	}
	for _, link := range strings.Split(string(got), "](")[1:] {
		file := link[:strings.IndexByte(link, ')')]
		text, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil || !strings.Contains(string(text), "<svg") {
			t.Errorf("the page links to %s, which is no plot: %v", file, err)
		}
	}
}

func TestWriteReplacesAnEarlierRun(t *testing.T) {
	dir := t.TempDir()
	m := Meta{Commit: "abc"}
	old := filepath.Join(dir, m.Stem(), "old.svg")
	if err := os.MkdirAll(filepath.Dir(old), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(old, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Write(dir, m, nil, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(old); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a plot of an earlier run is still there: %v", err)
	}
	for _, bad := range []string{"", "../x"} {
		if _, err := Write(dir, Meta{Commit: bad}, nil, nil); !errors.Is(err, ErrWrite) {
			t.Errorf("commit %q: %v, want ErrWrite", bad, err)
		}
	}
}

func TestCollect(t *testing.T) {
	set := Collect(collected(t, sampleSuite()))
	if got, ok := set.Median("demo", "hot", "ns/op", "theirs"); !ok || got != 80 {
		t.Errorf("median of 84, 80, 76: %v, %v", got, ok)
	}
	if got, ok := set.Median("demo", "take callers=4", "/s", "ours"); !ok || got != 4000 {
		t.Errorf("the case with parameters: %v, %v; want 4000", got, ok)
	}
	if _, ok := set.Median("demo", "cold", "ns/op", "ours"); ok {
		t.Error("a median of what nobody measured")
	}
	if _, ok := set.Median("demo", "throughput", "/s", "ours"); ok {
		t.Error("a median of a curve, which has points and no values")
	}
	one, _ := set.Find("demo", "throughput", "/s", "ours")
	if want := []Point{{1, 99}, {4, 401}}; len(one.Points) != 2 || one.Points[0] != want[0] || one.Points[1] != want[1] {
		t.Errorf("points %v, want %v", one.Points, want)
	}
}

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   float64
	}{{[]float64{3, 1, 2}, 2}, {[]float64{4, 1, 2, 3}, 2.5}, {[]float64{7}, 7}} {
		if got := Median(c.values); got != c.want {
			t.Errorf("Median(%v) = %v, want %v", c.values, got, c.want)
		}
	}
	if got := Median(nil); !math.IsNaN(got) {
		t.Errorf("Median of nothing = %v", got)
	}
}

func TestNumber(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 0.0004: "0.000", -0.0001: "0.000", 0.001: "0.001", 0.01234: "0.012", 1: "1", 14.16: "14.2", 123.4: "123", 9999: "9999", 12345678: "12\u00a0345\u00a0678", 123456: "123\u00a0456", -12345: "-12\u00a0345", -123456: "-123\u00a0456",
		math.Inf(1): "–"} {
		if got := number(v); got != want {
			t.Errorf("number(%v) = %q, want %q", v, got, want)
		}
	}
}

// A plot must come out of whatever was measured, also nothing, one value, or zeros on a logarithmic axis.
func TestPlotsOfOddValues(t *testing.T) {
	for name, one := range map[string]Sample{
		"one point":         {Points: []Point{{1, 1}}, LogX: true, LogY: true},
		"zeros":             {Points: []Point{{0, 0}, {0, 1}}, LogX: true, LogY: true},
		"small":             {Points: []Point{{1, 0.0002}, {2, 0.0003}}, LogX: true, LogY: true},
		"flat":              {Points: []Point{{1, 5}, {2, 5}}},
		"value 0":           {Values: []float64{0}},
		"values far apart":  {Values: []float64{1, 1e6}},
		"one negative":      {Values: []float64{-5, 10}},
		"the same 3 values": {Values: []float64{7, 7, 7}},
	} {
		one.Suite, one.Unit, one.Case = "s", "u", "c"
		one.Peer = "a"
		two := one
		two.Peer = "b"
		if _, err := Write(t.TempDir(), Meta{Commit: "x"}, []Suite{{Name: "s"}}, []Sample{one, two}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAFailingSuiteEndsNoOther(t *testing.T) {
	boom := errors.New("boom")
	bad := Suite{Name: "bad", Run: func(_ context.Context, _ Options, emit func(Sample)) error {
		emit(Sample{Case: "before", Values: []float64{1}})
		return boom
	}}
	samples, err := RunSuites(t.Context(), []Suite{bad, sampleSuite()}, Options{Rounds: 1, Log: t.Logf})
	if !errors.Is(err, boom) || !strings.Contains(err.Error(), "suite bad") {
		t.Errorf("error %v, want that of the suite, with its name", err)
	}
	if samples[0].Case != "before" || samples[len(samples)-1].Suite != "demo" {
		t.Errorf("samples are missing: %v", samples)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := RunSuites(ctx, []Suite{sampleSuite()}, Options{Rounds: 1, Log: t.Logf}); !errors.Is(err, context.Canceled) {
		t.Errorf("a suite ran though the context had ended: %v", err)
	}
}

func TestLookKnowsThisMachine(t *testing.T) {
	m := Look(t.Context(), nil, Options{Rounds: 2})
	if m.Kernel == unknown || m.LoadBefore == unknown || m.Processors < 1 || m.Rounds != 2 || m.Start.IsZero() {
		t.Errorf("unknown things in %+v", m)
	}
}

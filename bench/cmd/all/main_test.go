package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jatah-io/jatah/bench/report"
)

func TestEverySuiteCanBeNamed(t *testing.T) {
	seen := make(map[string]bool)
	for _, s := range suites() {
		if s.Name == "" || strings.ContainsAny(s.Name, ", /") || seen[s.Name] || s.Doc == "" || s.Run == nil {
			t.Errorf("suite %q has no name of its own that -only and a file can have, or no Doc or Run", s.Name)
		}
		seen[s.Name] = true
	}
}

var errFarOff = errors.New("far off")

// two suites of which the second thinks that its results are bad.
func two() []report.Suite {
	measure := func(_ context.Context, o report.Options, emit func(report.Sample)) error {
		if _, err := os.Stat(o.Dir); err != nil {
			return err
		}
		for range o.Rounds {
			emit(report.Sample{Case: "c", Peer: "p", Unit: "ns/op", Values: []float64{1}})
		}
		return nil
	}
	return []report.Suite{
		{Name: "good", Run: measure, Check: func(report.Set) []error { return nil }},
		{Name: "bad", Run: measure, Check: func(s report.Set) []error {
			if one, ok := s.Find("bad", "c", "ns/op", "p"); !ok || len(one.Values) < 3 {
				return []error{errors.New("the check did not get all rounds")}
			}
			return []error{errFarOff}
		}},
	}
}

func TestRun(t *testing.T) {
	for _, c := range []struct {
		args []string
		want error
		said string
	}{
		{[]string{"-short", "-only", "good"}, nil, ""},
		{[]string{"-short"}, errFarOff, ""},
		{nil, nil, "far off"},
		{[]string{"-only", "none"}, errUsage, ""},
		{[]string{"-rounds", "-1"}, errUsage, ""},
		{[]string{"good"}, errUsage, ""},
	} {
		var stdout, stderr bytes.Buffer
		dir := t.TempDir()
		err := run(t.Context(), append([]string{"-o", dir}, c.args...), two(), &stdout, &stderr)
		if !errors.Is(err, c.want) || c.want == nil && err != nil {
			t.Errorf("%q: error %v, want %v", c.args, err, c.want)
		}
		if !strings.Contains(stderr.String(), c.said) {
			t.Errorf("%q: does not say %q: %s", c.args, c.said, stderr.String())
		}
		if errors.Is(c.want, errUsage) {
			continue
		}
		page := strings.TrimSpace(stdout.String())
		if filepath.Dir(page) != dir {
			t.Errorf("%q: the page is %q, want one in %s", c.args, page, dir)
		}
		if _, err := os.Stat(page); err != nil {
			t.Error(err)
		}
	}
}

func TestNothingMeasuredIsAnError(t *testing.T) {
	boom := errors.New("boom")
	err := run(t.Context(), []string{"-o", t.TempDir()}, []report.Suite{{Name: "s", Run: func(context.Context, report.Options, func(report.Sample)) error { return boom }}}, new(bytes.Buffer), new(bytes.Buffer))
	if !errors.Is(err, boom) {
		t.Errorf("%v, want the suite's error", err)
	}
}

package distributed

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jatah-io/jatah/bench/report"
)

// children are the processes that this one started and that still run.
func children(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil || len(files) == 0 {
		t.Skip("this kernel does not list the children of a process")
	}
	var ids []string
	for _, f := range files {
		text, err := os.ReadFile(f) // a thread may be gone by now
		if err == nil {
			ids = append(ids, strings.Fields(string(text))...)
		}
	}
	return ids
}

func TestAnInterruptLeavesNothingRunning(t *testing.T) {
	needs(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ran := 0
	o := report.Options{Short: true, Rounds: 1, Dir: t.TempDir(), Log: func(format string, _ ...any) {
		if strings.HasPrefix(format, "round") { // all servers are up
			ran = len(children(t))
			cancel()
		}
	}}
	err := Flood().Run(ctx, o, func(report.Sample) {})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want %v", err, context.Canceled)
	}
	want := 4 // Redis, three nodes
	if withGubernator {
		want += 3
	}
	if ran != want {
		t.Errorf("%d processes ran, want %d", ran, want)
	}
	if left := children(t); len(left) != 0 {
		t.Errorf("processes %v still run", left)
	}
}

package main

import (
	"errors"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/jatah-io/jatah/bench/chaos"
)

func TestFlags(t *testing.T) {
	o, err := parse([]string{"-quick", "-seed", "7", "-faults", "kill,halves"}, io.Discard)
	if err != nil || o.Seed != 7 || o.Quiet != 2*time.Second || o.Longest != 2*time.Second || !slices.Equal(o.Faults, []chaos.Kind{chaos.Kill, chaos.Halves}) {
		t.Errorf("%+v, %v", o, err)
	}
	if o, err = parse([]string{"-quick", "-quiet-period", "5s"}, io.Discard); err != nil || o.Quiet != 5*time.Second {
		t.Errorf("quiet period %v, %v: what is said counts", o.Quiet, err)
	}
	if o, err = parse([]string{"-soak", "1h"}, io.Discard); err != nil || o.Nodes != 3 {
		t.Errorf("%d nodes, %v", o.Nodes, err)
	}
	if _, err = parse([]string{"-faults", "meteor"}, io.Discard); !errors.Is(err, chaos.ErrKind) {
		t.Error(err)
	}
	if _, err = parse([]string{"30m"}, io.Discard); !errors.Is(err, chaos.ErrOptions) {
		t.Error(err)
	}
	if err = run(t.Context(), []string{"-nodes", "2"}, io.Discard, io.Discard); !errors.Is(err, chaos.ErrOptions) {
		t.Error(err)
	}
}

package jatah

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

var perDay = Limit{Name: "day", Rate: Per(100, 24*time.Hour), Burst: 100}

// begin starts a node alone with its state in dir.
func begin(t *testing.T, dir, name string) (*Node, *Limiter, *bytes.Buffer) {
	t.Helper()
	log := &bytes.Buffer{}
	n, err := Open(t.Context(), Config{Node: name, StateDir: dir, Logger: slog.New(slog.NewTextHandler(log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Close() })
	l, err := n.Limit(perDay)
	if err != nil {
		t.Fatal(err)
	}
	return n, l, log
}

func remaining(t *testing.T, l *Limiter, key string) int64 {
	t.Helper()
	st, err := l.Peek(context.Background(), key)
	if err != nil {
		t.Fatal(err)
	}
	return st.Remaining
}

// written is a file that a node alone left behind, with 60 of 100 tokens for key k.
func written(t *testing.T, name string) []byte {
	t.Helper()
	dir := t.TempDir()
	n, l, _ := begin(t, dir, name)
	l.Take(t.Context(), "k", 40)
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(dir, stateName(name)+".state"))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestStateOfOneNode(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "deep", "er")
	for i, name := range []string{"n1", "n1", "n/2", "n1"} {
		n, l, log := begin(t, dir, name)
		want := int64(100 - 10*i)
		if name == "n/2" {
			want = 100
		}
		if i == 3 {
			want = 80
		}
		if got := remaining(t, l, "k"); got != want {
			t.Errorf("start %d: %d left, want %d; log:\n%s", i, got, want, log)
		}
		l.Take(t.Context(), "k", 10)
		if err := n.Close(); err != nil {
			t.Error(err)
		}
		if s := n.Stats(); s.StateWrites != 2 || s.StateFailures != 0 {
			t.Errorf("%d writes, %d failures", s.StateWrites, s.StateFailures)
		}
	}
	for path, mode := range map[string]os.FileMode{dir: 0o700 | os.ModeDir, dir + "/n1.state": 0o600, dir + "/n1.lock": 0o600, dir + "/n%2F2.state": 0o600} {
		if st, err := os.Stat(path); err != nil || st.Mode() != mode {
			t.Errorf("%s: %v, %v", path, st, err)
		}
	}
	if left, _ := filepath.Glob(dir + "/*.tmp"); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestStateIsWrittenWhileTheNodeRuns(t *testing.T) {
	dir := t.TempDir()
	var saved []byte
	synctest.Test(t, func(t *testing.T) {
		n, l, _ := begin(t, dir, "n1")
		l.Take(t.Context(), "k", 40)
		time.Sleep(stateInterval + time.Second)
		if s := n.Stats(); s.StateWrites != 2 {
			t.Errorf("%d writes", s.StateWrites)
		}
		var err error
		if saved, err = os.ReadFile(dir + "/n1.state"); err != nil {
			t.Fatal(err)
		}
		l.Take(t.Context(), "k", 7) // not on disk when the power goes
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := os.WriteFile(dir+"/n1.state", saved, 0o600); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) { // begins when the other bubble did: the clock went back
		n, l, _ := begin(t, dir, "n1")
		if got := remaining(t, l, "k"); got != 60 {
			t.Errorf("%d left", got)
		}
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestStateInUseIsRefused(t *testing.T) {
	dir := t.TempDir()
	n, _, _ := begin(t, dir, "n1")
	_, err := Open(t.Context(), Config{Node: "n1", StateDir: dir, Logger: slog.New(slog.DiscardHandler)})
	if !errors.Is(err, ErrStateLocked) || !strings.Contains(err.Error(), "n1.lock") {
		t.Errorf("a second node on the same file: %v", err)
	}
	if err := n.Close(); err != nil {
		t.Error(err)
	}
	begin(t, dir, "n1") // free again
}

func TestStateDirThatCannotBe(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), Config{Node: "n1", StateDir: file}); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), "StateDir") {
		t.Errorf("%v", err)
	}
	if _, err := Open(t.Context(), Config{Node: "n1", StateDir: t.TempDir(), StateInterval: time.Millisecond}); !errors.Is(err, ErrConfig) {
		t.Errorf("%v", err)
	}
}

// A file that is not whole, not this node's or not of this program is never half-read: it is set aside, and the log says why.
func TestBadStateIsSetAside(t *testing.T) {
	good := written(t, "n1")
	later := bytes.Replace(good, []byte(`"version":2`), []byte(`"version":3`), 1)
	earlier := bytes.Replace(good, []byte(`"version":2`), []byte(`"version":1`), 1)
	flipped := bytes.Clone(good)
	flipped[len(flipped)-40] ^= 4
	for _, c := range []struct {
		name string
		data []byte
		want string
	}{
		{"torn", good[:len(good)-5], "checksum"},
		{"empty", nil, "does not begin as one"},
		{"one bit", flipped, "checksum"},
		{"another format", []byte("{}\n" + strings.Repeat("x", 100)), "does not begin as one"},
		{"long and not ours", bytes.Repeat([]byte("x"), 1<<16), "does not begin as one"},
		{"a header only", good[:bytes.IndexByte(good, '\n')+1], "too early"},
		{"later version", later, "its format is version 3, this program reads version 2"},
		{"earlier version", earlier, "its format is version 1, this program reads version 2"},
		{"another node", written(t, "n2"), `belongs to node \"n2\"`},
	} {
		dir := t.TempDir()
		if err := os.WriteFile(dir+"/n1.state", c.data, 0o600); err != nil {
			t.Fatal(err)
		}
		n, l, log := begin(t, dir, "n1")
		if got := remaining(t, l, "k"); got != 100 {
			t.Errorf("%s: %d left", c.name, got)
		}
		if text := log.String(); !strings.Contains(text, c.want) || !strings.Contains(text, "set aside") {
			t.Errorf("%s: the log says %s", c.name, text)
		}
		bad, _ := filepath.Glob(dir + "/n1.state.bad-*")
		if len(bad) != 1 {
			t.Errorf("%s: set aside as %v", c.name, bad)
		} else if kept, err := os.ReadFile(bad[0]); err != nil || !bytes.Equal(kept, c.data) {
			t.Errorf("%s: the file was changed: %v", c.name, err)
		}
		if err := n.Close(); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// Every cut and every flipped bit of a file is noticed.
func TestDamagedStateIsNoticed(t *testing.T) {
	good, seed := written(t, "n1"), uint64(time.Now().UnixNano())
	want := stateHeader{Format: stateFormat, Version: stateVersion, Node: "n1", Cluster: "jatah"}
	if _, err := readState(good, want); err != nil {
		t.Fatal(err)
	}
	for n := range good {
		if _, err := readState(good[:n], want); !errors.Is(err, errForeign) {
			t.Fatalf("%d of %d bytes: %v", n, len(good), err)
		}
		bad := bytes.Clone(good)
		bad[n] ^= 1 << rand.New(rand.NewPCG(seed, uint64(n))).IntN(8)
		if _, err := readState(bad, want); !errors.Is(err, errForeign) {
			t.Fatalf("seed %d: byte %d changed: %v", seed, n, err)
		}
	}
}

func FuzzReadState(f *testing.F) {
	want := stateHeader{Format: stateFormat, Version: stateVersion, Node: "n1", Cluster: "jatah"}
	f.Add([]byte(`{"format":"jatah state","version":2,"node":"n1","cluster":"jatah"}` + "\nx"))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		if b, err := readState(data, want); err == nil && len(b) > len(data) {
			t.Error("more than there was")
		}
	})
}

// A disk that takes nothing more is counted and logged once a minute, and decisions go on.
func TestStateThatCannotBeWritten(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		n, l, log := begin(t, dir, "n1")
		if err := os.Mkdir(dir+"/n1.state.tmp", 0o700); err != nil { // in the way, for root as well
			t.Fatal(err)
		}
		time.Sleep(2*stateWarnEvery + time.Second)
		if d := l.Take(t.Context(), "k", 1); !d.OK {
			t.Errorf("%+v", d)
		}
		if got := n.Stats().StateFailures; got != 24 {
			t.Errorf("%d failures", got)
		}
		if got := strings.Count(log.String(), "state not written"); got != 2 {
			t.Errorf("%d lines in the log:\n%s", got, log)
		}
		if err := n.Close(); err == nil || !strings.Contains(err.Error(), "state not written") {
			t.Errorf("Close: %v", err)
		}
	})
}

func TestStateName(t *testing.T) {
	seen := map[string]string{}
	for name, want := range map[string]string{"n1": "n1", "host.example": "host.example", "..": "%2E.", "a/b": "a%2Fb", "a%2Fb": "a%252Fb", "é": "%C3%A9",
		strings.Repeat("/", 128): "", strings.Repeat("/", 127) + "a": ""} {
		got := stateName(name)
		if want != "" && got != want || len(got) > 160 || strings.ContainsAny(got, `/\:`) || seen[got] != "" {
			t.Errorf("%q became %q, want %q (also %q)", name, got, want, seen[got])
		}
		seen[got] = name
	}
}

package main

import (
	"errors"
	"io"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
)

func (s *server) get(path string) string {
	resp, err := s.web.Get("http://" + s.http + path)
	if err != nil {
		return ""
	}
	defer resp.Body.Close()
	page, _ := io.ReadAll(resp.Body)
	return string(page)
}

const (
	appliedSeries = `jatah_config_reloads_total{result="applied"}`
	refusedSeries = `jatah_config_reloads_total{result="refused"}`
	successSeries = `jatah_config_last_reload_successful`
	whenSeries    = `jatah_config_last_reload_success_timestamp_seconds`
)

// Windows of a year, so that none ends while the test runs.
const (
	firstVersion  = "limits: [{name: api, algorithm: fixed_window, rate: 5/year}]\n"
	badVersion    = "limits:\n  - {name: api, algorithm: fixed_window, rate: 50/year}\n  - {name: other, algorithm: fixed_window, rate: abc}\n"
	secondVersion = "limits:\n  - {name: api, algorithm: fixed_window, rate: 50/year}\n  - {name: other, algorithm: fixed_window, rate: 7/year}\n"
)

// A bad file changes nothing and is told with its place; a good one counts without a restart, whether it is written over, renamed over or switched as
// a mounted config map is; and what was used stays used.
func TestNewConfigurationsCountWithoutARestart(t *testing.T) {
	besideOthers(t)
	for _, way := range []struct {
		name  string
		file  string // the one that --config names
		place func(t *testing.T, dir, content string)
	}{
		{"written over", "jatah.yaml", func(t *testing.T, dir, content string) {
			// Not cut to nothing first: however slow this machine is, the node is to find no such file. Each is longer than the one before.
			f, err := os.OpenFile(filepath.Join(dir, "jatah.yaml"), os.O_WRONLY|os.O_CREATE, 0o644)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := f.WriteString(content); err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(f.Truncate(int64(len(content))), f.Close()); err != nil {
				t.Fatal(err)
			}
		}},
		{"renamed over", "jatah.yaml", func(t *testing.T, dir, content string) {
			next := filepath.Join(dir, "next")
			if err := os.WriteFile(next, []byte(content), 0o644); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(next, filepath.Join(dir, "jatah.yaml")); err != nil {
				t.Fatal(err)
			}
		}},
		{"a config map", "jatah.yaml", placeConfigMap},
		{"a directory of limits in a config map", "main/jatah.yaml", func(t *testing.T, dir, content string) {
			if err := os.MkdirAll(filepath.Join(dir, "main"), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, "main", "jatah.yaml"), []byte("limits_dir: ..\n"), 0o644); err != nil {
				t.Fatal(err)
			}
			placeConfigMap(t, dir, content)
		}},
	} {
		t.Run(way.name, func(t *testing.T) {
			if runtime.GOOS == "windows" && strings.Contains(way.name, "config map") {
				t.Skip("links need a privilege there")
			}
			dir := t.TempDir()
			file := filepath.Join(dir, way.file)
			way.place(t, dir, firstVersion)
			s := startServer(t, "--node", "n1", "--config", file)
			s.waitReady()
			take := func(remaining int64) {
				t.Helper()
				if d, err := s.ask(http.DefaultClient, "api", "u"); err != nil || !d.Allowed || d.Remaining != remaining {
					t.Errorf("%+v, %v, want %d left", d, err, remaining)
				}
			}
			for left := range int64(3) {
				take(4 - left)
			}
			if a, r, ok := s.metric(t, appliedSeries), s.metric(t, refusedSeries), s.metric(t, successSeries); a != 0 || r != 0 || ok != 1 {
				t.Errorf("at the start %v are applied, %v refused, success is %v", a, r, ok)
			}
			when := s.metric(t, whenSeries)

			way.place(t, dir, badVersion)
			wait(t, "the refusal", func() bool { return s.metric(t, refusedSeries) == 1 })
			refusal, _ := s.waitLog("configuration refused")["error"].(string)
			if !strings.Contains(refusal, "jatah.yaml:3:50: limits[1].rate: ") {
				t.Errorf("the log says %q", refusal)
			}
			if a, ok, at := s.metric(t, appliedSeries), s.metric(t, successSeries), s.metric(t, whenSeries); a != 0 || ok != 0 || at != when {
				t.Errorf("after the refusal %v are applied, success is %v at %v, want none since %v", a, ok, at, when)
			}
			take(1)
			if list := s.get("/v1/limits"); strings.Contains(list, "other") || !strings.Contains(list, `"rate":"5/`) {
				t.Errorf("half of the bad file counts: %s", list)
			}

			way.place(t, dir, secondVersion)
			wait(t, "the reload", func() bool { return s.metric(t, appliedSeries) == 1 })
			take(45)
			if list := s.get("/v1/limits"); !strings.Contains(list, "other") || !strings.Contains(list, `"rate":"50/`) {
				t.Errorf("the list has %s", list)
			}
			if state := s.get("/v1/peek?limit=api&key=u"); !strings.Contains(state, `"remaining":45`) {
				t.Errorf("a look says %s", state)
			}
			if r, ok := s.metric(t, refusedSeries), s.metric(t, successSeries); r != 1 || ok != 1 || s.metric(t, whenSeries) <= when {
				t.Errorf("after the reload %v are refused, success is %v, at %v", r, ok, s.metric(t, whenSeries))
			}
			terminate(t, s)

			way.place(t, dir, badVersion)
			for _, args := range [][]string{{"serve", "--node", "n2", "--http", "127.0.0.1:0", "--config", file}, {"check", file}} {
				if code, _, text := program(t, args...); code != exitFailed || !strings.Contains(text, "jatah.yaml:3:50: limits[1].rate: ") {
					t.Errorf("%s of a bad file: code %d, %q", args[0], code, text)
				}
			}
		})
	}
}

// placeConfigMap makes what is mounted for a config map with jatah.yaml, or replaces it as that is done: by one rename of a link.
func placeConfigMap(t *testing.T, dir, content string) {
	t.Helper()
	folder, err := os.MkdirTemp(dir, "..2026_01_01_")
	if err != nil {
		t.Fatal(err)
	}
	old, _ := os.Readlink(filepath.Join(dir, "..data"))
	for _, err := range []error{
		os.WriteFile(filepath.Join(folder, "jatah.yaml"), []byte(content), 0o644),
		os.Symlink(filepath.Base(folder), filepath.Join(dir, "..data_tmp")),
		os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if old != "" {
		err = os.RemoveAll(filepath.Join(dir, old))
	} else {
		err = os.Symlink("..data/jatah.yaml", filepath.Join(dir, "jatah.yaml"))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// SIGHUP reloads also where nothing has changed, and requests meanwhile all find their limit.
func TestSIGHUPWhileRequestsRun(t *testing.T) {
	besideOthers(t)
	if runtime.GOOS == "windows" {
		t.Skip("there is no SIGHUP there")
	}
	dir := t.TempDir()
	write := func(name, content string) {
		t.Helper()
		next := filepath.Join(dir, ".next")
		if err := os.WriteFile(next, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(next, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	write("a.yaml", "limits: [{name: api, rate: 1000000/h}]\n")
	s := startServer(t, "--node", "n1", "--limits-dir", dir)
	s.waitReady()
	var done atomic.Bool
	var all sync.WaitGroup
	all.Go(func() {
		for !done.Load() {
			if _, err := s.ask(http.DefaultClient, "api", "u"); err != nil {
				t.Error(err)
				return
			}
		}
	})
	applied := 0.0
	for i := range 20 {
		write("a.yaml", []string{"limits: [{name: api, rate: 1000000/h}]\n", "limits: [{name: api, rate: 1000000/h, burst: 900000}, {name: b, rate: 1/s}]\n"}[i%2])
		s.signal(syscall.SIGHUP)
		wait(t, "the reload", func() bool { n := s.metric(t, appliedSeries); ok := n > applied; applied = n; return ok })
	}
	done.Store(true)
	all.Wait()
	if refused := s.metric(t, refusedSeries); refused != 0 {
		t.Errorf("%v refused", refused)
	}
	write("b.yaml", "limits: [{name: api, rate: 1/h}]\n")
	s.signal(syscall.SIGHUP)
	text, _ := s.waitLog("configuration refused")["error"].(string)
	if !strings.Contains(text, "b.yaml:1:10: limits.api: ") || !strings.Contains(text, "a.yaml") {
		t.Errorf("a limit in two files: the log says %q", text)
	}
	terminate(t, s)
}

// Who has no file to read again ends with SIGHUP, as a terminal that closes wants it.
func TestSIGHUPEndsANodeWithoutFiles(t *testing.T) {
	besideOthers(t)
	if runtime.GOOS == "windows" {
		t.Skip("there is no SIGHUP there")
	}
	if signal.Ignored(syscall.SIGHUP) {
		t.Skip("this test runs under nohup, and so does the node: it goes on, as nohup wants it")
	}
	s := startServer(t, "--node", "n1", "--limit", "api=1/h")
	s.signal(syscall.SIGHUP)
	if code := s.exitCode(); code == 0 {
		t.Errorf("it ends with %d", code)
	}
}

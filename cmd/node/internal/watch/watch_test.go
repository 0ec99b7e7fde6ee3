package watch

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// patience is how long a notification may take before a test gives up.
const patience = 30 * time.Second

func must(t *testing.T, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

func realDir(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	return dir
}

func write(t *testing.T, path, content string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o644))
}

func TestDirectoriesThatAPathLeadsThrough(t *testing.T) {
	root := realDir(t)
	in := func(path string) string { return filepath.Join(root, path) }
	write(t, in("etc/plain.yaml"), "")
	write(t, in("map/..1/limits.yaml"), "")
	write(t, in("far/away/target.yaml"), "")
	must(t, os.Symlink("..1", in("map/..data")), os.Symlink("..data/limits.yaml", in("map/limits.yaml")),
		os.Symlink("../far/away/target.yaml", in("etc/relative.yaml")), os.Symlink(in("far/away/target.yaml"), in("etc/absolute.yaml")),
		os.Symlink("circle.yaml", in("etc/circle.yaml")), os.Symlink("gone.yaml", in("etc/dangling.yaml")), os.Symlink("map", in("linked")))
	for path, want := range map[string][]string{
		"etc/plain.yaml":         {"etc"},
		"etc/../etc/plain.yaml":  {"etc"},
		"map/limits.yaml":        {"map", "map/..1"},
		"linked/limits.yaml":     {"", "map", "map/..1"},
		"etc/relative.yaml":      {"etc", "far/away"},
		"etc/absolute.yaml":      {"etc", "far/away"},
		"etc/circle.yaml":        {"etc"},
		"etc/dangling.yaml":      {"etc"},
		"etc/gone.yaml":          {"etc"},
		"etc/gone/too/gone.yaml": {"etc"},
		"map":                    {"", "map"},
		"linked":                 {"", "map"},
	} {
		var got []string
		for _, dir := range directories(in(path)) {
			if name, err := filepath.Rel(root, dir); err != nil {
				t.Error(err)
			} else if name == "." {
				got = append(got, "")
			} else {
				got = append(got, filepath.ToSlash(name))
			}
		}
		slices.Sort(got)
		if got = slices.Compact(got); !slices.Equal(got, want) {
			t.Errorf("%s leads through %q, want %q", path, got, want)
		}
	}
}

// Each change is told, also after the directories that were watched have gone.
func TestEveryWayToReplaceAFileIsNoticed(t *testing.T) {
	root := realDir(t)
	in := func(path string) string { return filepath.Join(root, path) }
	write(t, in("etc/jatah.yaml"), "1")
	write(t, in("map/..1/limits.yaml"), "1")
	must(t, os.Symlink("..1", in("map/..data")), os.Symlink("..data/limits.yaml", in("map/limits.yaml")))
	w, err := New()
	must(t, err)
	defer w.Close()
	paths := []string{in("etc/jatah.yaml"), in("map"), in("map/limits.yaml")}
	must(t, w.Watch(paths))
	for _, step := range []struct {
		name string
		do   func()
	}{
		{"written over", func() { write(t, in("etc/jatah.yaml"), "2") }},
		{"renamed over", func() {
			write(t, in("new"), "3")
			must(t, os.Rename(in("new"), in("etc/jatah.yaml")))
		}},
		{"deleted", func() { must(t, os.Remove(in("etc/jatah.yaml"))) }},
		{"made anew", func() { write(t, in("etc/jatah.yaml"), "4") }},
		{"a link is switched", func() {
			write(t, in("map/..2/limits.yaml"), "2")
			must(t, os.Symlink("..2", in("map/..data_tmp")), os.Rename(in("map/..data_tmp"), in("map/..data")), os.RemoveAll(in("map/..1")))
		}},
		{"the target of the link is written", func() { write(t, in("map/..2/limits.yaml"), "3") }},
		{"one more file", func() { write(t, in("map/more.yaml"), "1") }},
		{"the directory is deleted", func() { must(t, os.RemoveAll(in("map"))) }},
		{"the directory is made anew", func() { write(t, in("map/limits.yaml"), "1") }},
		{"a file in the new directory", func() { write(t, in("map/limits.yaml"), "2") }},
		{"the directory is renamed away", func() { must(t, os.Rename(in("etc"), in("old"))) }},
		{"another takes its place", func() {
			write(t, in("next/jatah.yaml"), "5")
			must(t, os.Rename(in("next"), in("etc")))
		}},
		{"a file in the other", func() { write(t, in("etc/jatah.yaml"), "6") }},
	} {
		must(t, w.Watch(paths)) // as after every change; what the change before tells late is taken away here
		select {
		case <-w.Changed():
		case <-time.After(50 * time.Millisecond):
		}
		step.do()
		select {
		case <-w.Changed():
		case <-time.After(patience):
			t.Errorf("%s: nothing is told", step.name)
		}
	}
	must(t, w.Watch(paths[:1]))
	for _, dir := range w.fs.WatchList() {
		if dir != in("etc") {
			t.Errorf("%s is still watched", dir)
		}
	}
}

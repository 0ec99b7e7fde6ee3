package config

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/jatah-io/jatah"
)

// tree writes files below a directory; a content that begins with "-> " is a link. Names are written in their order.
func tree(t *testing.T, dir string, files ...string) string {
	t.Helper()
	for i := 0; i < len(files); i += 2 {
		path := filepath.Join(dir, files[i])
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		if target, link := strings.CutPrefix(files[i+1], "-> "); link {
			err = os.Symlink(target, path)
		} else {
			err = os.WriteFile(path, []byte(files[i+1]), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func limitNames(cfg Config) (names []string) {
	for _, l := range cfg.Limits {
		names = append(names, l.Name)
	}
	return names
}

const (
	apiFile   = "limits:\n  - name: api\n    rate: 5/min\n"
	loginFile = "limits:\n  - name: login\n    rate: 5/min\n"
)

func TestDirectoryOfLimits(t *testing.T) {
	for _, c := range []struct {
		name  string
		files []string
		want  []string
	}{
		{"an empty directory", []string{"d/.keep", ""}, nil},
		{"both endings, in the order of their names", []string{"d/b.yml", apiFile, "d/a.yaml", loginFile}, []string{"login", "api"}},
		{"as a config map is mounted", []string{"d/..2026_01_01_00_00_00.1/limits.yaml", apiFile, "d/..2026_01_01_00_00_00.1/login.yaml", loginFile,
			"d/..data", "-> ..2026_01_01_00_00_00.1", "d/limits.yaml", "-> ..data/limits.yaml", "d/login.yaml", "-> ..data/login.yaml"}, []string{"api", "login"}},
		{"what editors leave", []string{"d/limits.yaml", apiFile, "d/.limits.yaml.swp", "swap", "d/limits.yaml~", apiFile, "d/README", "read me", "d/limits.yaml.tmp", apiFile,
			"d/.#limits.yaml", "-> me@host.1:2", "d/#limits.yaml#", apiFile, "d/limits.yaml.bak", apiFile, "d/.hidden.yaml", apiFile, "d/limits.json", "{"}, []string{"api"}},
		{"folders, also those with the ending of a file", []string{"d/limits.yaml", apiFile, "d/old.yaml/limits.yaml", apiFile, "d/more/limits.yaml", apiFile}, []string{"api"}},
		{"two names of one file", []string{"d/a.yaml", apiFile, "d/b.yaml", "-> a.yaml", "d/c.yaml", "-> ../d/b.yaml"}, []string{"api"}},
		{"a link to a file elsewhere", []string{"elsewhere/a", apiFile, "d/a.yaml", "-> ../elsewhere/a"}, []string{"api"}},
		{"no limits yet", []string{"d/a.yaml", "limits: []\n", "d/b.yaml", apiFile}, []string{"api"}},
		{"a parent in another file", []string{"d/a.yaml", "limits: [{name: child, rate: 1/s, parent: api}]\n", "d/b.yaml", apiFile}, []string{"api", "child"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := tree(t, t.TempDir(), append([]string{"jatah.yaml", "limits_dir: d\n"}, c.files...)...)
			cfg, err := Load(filepath.Join(dir, "jatah.yaml"), nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			if got := limitNames(cfg); !slices.Equal(got, c.want) {
				t.Errorf("the limits are %q, want %q", got, c.want)
			}
			if want := filepath.Join(dir, "d"); cfg.LimitsDir != want {
				t.Errorf("the directory is %q, want %q", cfg.LimitsDir, want)
			}
		})
	}
}

func TestMistakesInADirectoryOfLimitsAreToldWithTheirPlace(t *testing.T) {
	for _, c := range []struct {
		name  string
		main  string
		files []string
		want  []string // "D" stands for the directory of all
	}{
		{"a limit in two files", "limits_dir: d\n", []string{"d/a.yaml", apiFile, "d/b.yaml", loginFile + "  - name: api\n    rate: 6/min\n"},
			[]string{`D/d/b.yaml:4:5: limits.api: the limit "api" is defined twice, here and at line 2 of D/d/a.yaml: rename one or remove it`}},
		{"a limit in the configuration file too", "limits_dir: d\nlimits:\n  - {name: api, rate: 1/s}\n", []string{"d/a.yaml", apiFile},
			[]string{`D/d/a.yaml:2:5: limits.api: the limit "api" is defined twice, here and at line 3 of D/jatah.yaml`}},
		{"copies are no links", "limits_dir: d\n", []string{"d/a.yaml", apiFile, "d/b.yaml", apiFile},
			[]string{`D/d/b.yaml:2:5: limits.api: the limit "api" is defined twice, here and at line 2 of D/d/a.yaml`}},
		{"one file with a limit twice and a field twice", "limits_dir: d\n", []string{"d/a.yaml", apiFile + "  - name: api\n    rate: 5/min\n  - name: x\n    rate: 5/s\n    rate: 10/s\n"},
			[]string{`D/d/a.yaml:4:5: limits.api: the limit "api" is defined twice, here and at line 2 of D/d/a.yaml`,
				`D/d/a.yaml:8:5: limits[2].rate: is given twice, here and at line 7 of D/d/a.yaml: keep one`}},
		{"a bad value, and the rest is read on", "limits_dir: d\n", []string{"d/a.yaml", "limits: [{name: x, rate: abc}]\n", "d/b.yaml", "limits: [{name: y, rate: 5}]\n"},
			[]string{`D/d/a.yaml:1:26: limits[0].rate: `, `D/d/b.yaml:1:26: limits[0].rate: needs a rate such as 100/min`}},
		{"what belongs elsewhere", "limits_dir: d\n", []string{"d/a.yaml", "http: 127.0.0.1:1\n" + apiFile}, []string{`D/d/a.yaml:1:1: http: does not belong here: a file of limits_dir has limits only`}},
		{"an empty file", "limits_dir: d\n", []string{"d/a.yaml", ""}, []string{`D/d/a.yaml:1:1: limits: is missing: write a list of limits under`}},
		{"a file that is being written", "limits_dir: d\n", []string{"d/a.yaml", "limits:\n"}, []string{`D/d/a.yaml:1:1: limits: is empty: write a list`}},
		{"a list alone", "limits_dir: d\n", []string{"d/a.yaml", "- name: api\n  rate: 5/s\n"}, []string{`D/d/a.yaml:1:1: needs fields`}},
		{"no YAML", "limits_dir: d\n", []string{"d/a.yaml", "limits: [\n"}, []string{`D/d/a.yaml:1:9: this is not YAML: `}},
		{"a link to nothing", "limits_dir: d\n", []string{"d/a.yaml", "-> gone.yaml"}, []string{`D/d/a.yaml: cannot be read: no such file or directory; mend or remove it`}},
		{"no directory", "node: n\nlimits_dir: d\n", nil, []string{`D/jatah.yaml:2:13: limits_dir: D/d cannot be read: no such file or directory; make the directory, or remove the setting`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := tree(t, t.TempDir(), append([]string{"jatah.yaml", c.main}, c.files...)...)
			_, err := Load(filepath.Join(dir, "jatah.yaml"), nil, nil)
			if err == nil {
				t.Fatal("it is taken")
			}
			got := strings.Split(strings.ReplaceAll(err.Error(), dir, "D"), "\n")
			if len(got) != len(c.want) {
				t.Fatalf("%d mistakes are told:\n%s\nwant %d:\n%s", len(got), strings.Join(got, "\n"), len(c.want), strings.Join(c.want, "\n"))
			}
			for i := range got {
				if !strings.HasPrefix(got[i], c.want[i]) {
					t.Errorf("mistake %d is %q, want %q", i, got[i], c.want[i])
				}
			}
		})
	}
}

// The files of the directory are of the layer of the file, wherever the directory is named: variables and flags beat both.
func TestVariablesAndFlagsBeatTheDirectory(t *testing.T) {
	dir := tree(t, t.TempDir(), "d/a.yaml", apiFile, "d/b.yaml", loginFile, "e/c.yaml", loginFile, "jatah.yaml", "limits_dir: e\n")
	cfg, err := Load(filepath.Join(dir, "jatah.yaml"), []string{"JATAH_LIMITS_DIR=" + filepath.Join(dir, "d"), "JATAH_LIMITS=api=7/s"},
		[]Setting{{"--limit", "limits", "login=8/s"}})
	if err != nil {
		t.Fatal(err)
	}
	want := []jatah.Limit{{Name: "api", Rate: jatah.PerSecond(7)}, {Name: "login", Rate: jatah.PerSecond(8)}}
	if !slices.EqualFunc(cfg.Limits, want, jatah.Limit.Equal) {
		t.Errorf("the limits are %+v, want %+v", cfg.Limits, want)
	}
	if cfg, err := Load("", nil, []Setting{{"--limits-dir", "limits_dir", filepath.Join(dir, "e")}}); err != nil || !slices.Equal(limitNames(cfg), []string{"login"}) {
		t.Errorf("without a file: %+v, %v", cfg.Limits, err)
	}
}

// The configuration file may live in the directory itself.
func TestTheConfigurationFileIsNotReadAgainAsLimits(t *testing.T) {
	dir := tree(t, t.TempDir(), "jatah.yaml", "limits_dir: .\nnode: n\n"+apiFile, "login.yaml", loginFile)
	cfg, err := Load(filepath.Join(dir, "jatah.yaml"), nil, nil)
	if err != nil || !slices.Equal(limitNames(cfg), []string{"api", "login"}) {
		t.Errorf("%+v, %v", cfg.Limits, err)
	}
}

func TestFingerprintChangesWithTheContentOnly(t *testing.T) {
	dir := tree(t, t.TempDir(), "jatah.yaml", "limits_dir: d\n", "d/a.yaml", apiFile, "e/a.yaml", apiFile)
	s := Read(filepath.Join(dir, "jatah.yaml"), nil, nil)
	for _, step := range []struct {
		what    string
		do      func()
		changes bool
	}{
		{"nothing", func() {}, false},
		{"the same again", func() { tree(t, dir, "d/a.yaml", apiFile) }, false},
		{"a file that does not count", func() { tree(t, dir, "d/.a.yaml.swp", apiFile) }, false},
		{"another content", func() { tree(t, dir, "d/a.yaml", loginFile) }, true},
		{"one more file", func() { tree(t, dir, "d/b.yaml", "limits: []\n") }, true},
		{"one file less", func() { os.Remove(filepath.Join(dir, "d/b.yaml")) }, true},
		{"another name", func() { os.Rename(filepath.Join(dir, "d/a.yaml"), filepath.Join(dir, "d/c.yaml")) }, true},
		{"another directory", func() { tree(t, dir, "jatah.yaml", "limits_dir: e\n") }, true},
		{"no file", func() { os.Remove(filepath.Join(dir, "jatah.yaml")) }, true},
		{"no directory", func() { tree(t, dir, "jatah.yaml", "limits_dir: f\n") }, true},
	} {
		step.do()
		again := s.Again()
		if got := again.Fingerprint() != s.Fingerprint(); got != step.changes {
			t.Errorf("%s: changed is %v", step.what, got)
		}
		fresh := Read(filepath.Join(dir, "jatah.yaml"), nil, nil)
		if fresh.Fingerprint() != again.Fingerprint() || !slices.Equal(fresh.Paths(), again.Paths()) {
			t.Errorf("%s: reading again is not the same as reading anew: %q, %q", step.what, again.Paths(), fresh.Paths())
		}
		s = again
	}
}

func TestEmptiedFile(t *testing.T) {
	dir := tree(t, t.TempDir(), "a.yaml", " \n", "b.yaml", "# none\nlimits: []\n", "c.yaml", "# The limits\n\n  # of the shop")
	for _, name := range []string{"a.yaml", "c.yaml"} {
		if err := Read(filepath.Join(dir, name), nil, nil).Emptied(); err == nil || !strings.Contains(err.Error(), name+":1:1: the file is empty") {
			t.Errorf("a file of white space or of comments: %v", err)
		}
	}
	for _, path := range []string{"", filepath.Join(dir, "b.yaml"), filepath.Join(dir, "gone.yaml")} {
		if err := Read(path, nil, nil).Emptied(); err != nil {
			t.Errorf("%q: %v", path, err)
		}
	}
}

func TestWhatANodeRefusesIsToldWithItsPlace(t *testing.T) {
	dir := tree(t, t.TempDir(), "d/a.yaml", loginFile, "d/b.yaml", "limits:\n  - name: api\n    algorithm: concurrency\n    max: 2\n")
	node, err := jatah.Start(t.Context(), jatah.Config{Node: "n"})
	if err != nil {
		t.Fatal(err)
	}
	defer node.Close()
	if err := node.SetLimits(jatah.Limit{Name: "api", Rate: jatah.PerSecond(1)}); err != nil {
		t.Fatal(err)
	}
	s := Read("", []string{"JATAH_LIMITS_DIR=" + filepath.Join(dir, "d")}, nil)
	cfg, err := s.Config()
	if err != nil {
		t.Fatal(err)
	}
	err = s.Blame(node.SetLimits(cfg.Limits...))
	if want := filepath.Join(dir, "d", "b.yaml") + ":2:5: limits.api: it cannot become concurrency"; err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
	if err := s.Blame(jatah.ErrClosed); err != jatah.ErrClosed {
		t.Errorf("another error became %v", err)
	}
}

func TestFieldsThatNeedARestartAreNamed(t *testing.T) {
	base, err := Merge(nil, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]string{"cluster.join": "a", "cluster.secret": "MDEyMzQ1Njc4OWFiY2RlZg==", "cluster.insecure": "true", "cluster.expect": "7", "log_refusals": "true",
		"max_keys": "7", "max_memory": "1.5GiB", "overflow": "shared"}
	for _, f := range nodeFields {
		if strings.HasPrefix(f.path, edgePath+".") || strings.HasPrefix(f.path, tlsPath+".") || f.path == tokensFilePath || f.path == "insecure_admin" { // changes while the node runs
			continue
		}
		if f.path == limitsDirPath || f.path == secretFilePath || f.path == secretsPath { // may change; shows in the secret
			continue
		}
		value := values[f.path]
		switch {
		case f.kind == duration:
			value = "7s"
		case f.kind == integer && value == "":
			value = "7"
		case value == "" && strings.Contains(f.want, "address"):
			value = "127.0.0.1:7"
		case value == "":
			value = "x"
		}
		l := merge(nil, []string{Variable(f.path) + "=" + value}, nil)
		if len(l.problems) > 0 {
			t.Fatal(l.problems)
		}
		if got := NeedRestart(base, l.cfg); !slices.Equal(got, []string{f.path}) {
			t.Errorf("%s: %q is named", f.path, got)
		}
	}
	changed := base
	changed.TLS = &TLS{}
	if got := NeedRestart(base, changed); !slices.Equal(got, []string{tlsPath}) {
		t.Errorf("TLS needs a restart by %q", got)
	}
	started := changed
	started.TLS = &TLS{CertFile: "other"}
	if got := NeedRestart(started, changed); got != nil {
		t.Errorf("another certificate needs a restart by %q", got)
	}
	changed = base
	changed.Limits, changed.LimitsDir = []jatah.Limit{{Name: "x"}}, "d"
	if got := NeedRestart(base, changed); got != nil {
		t.Errorf("limits need a restart by %q", got)
	}
}

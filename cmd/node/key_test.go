package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jatah-io/jatah"
	"github.com/jatah-io/jatah/cmd/node/internal/config"
)

func secretsIn(t *testing.T, path string) (fps []string) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	secrets, err := config.ParseSecrets(data)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range secrets {
		fps = append(fps, jatah.Fingerprint(s))
	}
	return fps
}

func TestKeysAreMadeAndChangedInThreeSteps(t *testing.T) {
	code, one, _ := runCommand(nil, "key", "new")
	_, two, _ := runCommand(nil, "key", "new")
	if secrets, err := config.ParseSecrets([]byte(one + two)); code != 0 || err != nil || len(secrets) != 2 || len(secrets[0]) != 32 {
		t.Fatalf("%d %q %q %v", code, one, two, err)
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "secret")
	if err := os.WriteFile(path, []byte("# ours\n\n"+one), 0o644); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink("secret", link); err != nil {
		t.Fatal(err)
	}
	old := secretsIn(t, path)[0]
	step := func(want ...string) string {
		t.Helper()
		code, out, text := runCommand(nil, "key", "rotate", "--file", link)
		if code != 0 || !strings.Contains(out, "copy "+link+" to every other node") {
			t.Fatalf("%d %q %q", code, out, text)
		}
		for _, w := range want {
			if !strings.Contains(out, w) {
				t.Errorf("%q is not in %q", w, out)
			}
		}
		return strings.Join(secretsIn(t, path), " ")
	}
	got := step("step 1 of 3", old)
	next, ok := strings.CutPrefix(got, old+" ")
	if !ok || len(next) != 8 {
		t.Fatalf("%q", got)
	}
	if got := step("step 2 of 3", next); got != next+" "+old {
		t.Errorf("%q", got)
	}
	if code, out, _ := runCommand(nil, "key", "list", "--file", path); code != 0 || out != fmt.Sprintf("%s: %s used\n%s: %s accepted\n", path, next, path, old) {
		t.Errorf("%d %q", code, out)
	}
	if got := step("step 3 of 3", "complete"); got != next {
		t.Errorf("%q", got)
	}
	data, _ := os.ReadFile(path)
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 || !strings.HasPrefix(string(data), "# ours\n\n") {
		t.Errorf("%v %v %q", info, err, data)
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 2 {
		t.Errorf("left behind: %v", entries)
	}
	if got := step("step 1 of 3"); !strings.HasPrefix(got, next+" ") {
		t.Errorf("a change after it: %q", got)
	}
}

func TestKeyRefusesWhatItCannotDo(t *testing.T) {
	dir := t.TempDir()
	file := func(content string) string {
		path := filepath.Join(dir, "f")
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	a, b, c := newSecret(), newSecret(), newSecret()
	for _, x := range []struct {
		code int
		want string
		args []string
	}{
		{exitUsage, "needs one of: new | list | rotate", nil},
		{exitUsage, `"turn" is none of`, []string{"turn"}},
		{exitUsage, "needs --file", []string{"list"}},
		{exitUsage, "needs --file", []string{"rotate"}},
		{exitFailed, "no such file", []string{"rotate", "--file", filepath.Join(dir, "absent")}},
		{exitFailed, "has no secret in it", []string{"--file", file("# nothing\n"), "rotate"}},
	} {
		if code, _, err := runCommand(nil, append([]string{"key"}, x.args...)...); code != x.code || !strings.Contains(err, x.want) {
			t.Errorf("%q: %d %q, want %q", x.args, code, err, x.want)
		}
	}
	// A node in the environment is asked as one that --addr names.
	nobody := []string{"JATAH_ADDR=http://127.0.0.1:1"}
	kept := file(a + "\n")
	for _, args := range [][]string{{"key", "list"}, {"key", "rotate", "--file", kept}} {
		if code, _, err := runCommand(nobody, args...); code != exitFailed || !strings.Contains(err, "no answer from http://127.0.0.1:1") {
			t.Errorf("%q: %d %q", args, code, err)
		}
	}
	if after, _ := os.ReadFile(kept); string(after) != a+"\n" {
		t.Errorf("a step was made without asking: %q", after)
	}
	for content, want := range map[string]string{
		a + "\n" + b + "\n":            "no mark which of them is new",
		a + "\n" + b + "\n" + c + "\n": "has 3 secrets",
		a + "\n" + a + "\n":            "line 2 is the same secret",
		"x" + a:                        "line 1 is not base64",
	} {
		path := file(content)
		code, _, err := runCommand(nil, "key", "rotate", "--file", path)
		after, _ := os.ReadFile(path)
		if code != exitFailed || !strings.Contains(err, want) || strings.Contains(err, a) || string(after) != content {
			t.Errorf("%d %q, want %q", code, err, want)
		}
	}
}

// A step is told when it is made, and not when it could not be written.
func TestKeyTellsStepsThatWereMade(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "d")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "f")
	a := newSecret()
	if err := os.WriteFile(path, []byte("# ours\r\n"+a+"\r\n"), 0o600); err != nil { // as from Windows
		t.Fatal(err)
	}
	for i := range 3 {
		if code, out, err := runCommand(nil, "key", "rotate", "--file", path); code != 0 || !strings.HasPrefix(out, fmt.Sprintf("step %d of 3", i+1)) {
			t.Fatalf("step %d: code %d, %s%s", i+1, code, out, err)
		}
		if data, err := os.ReadFile(path); err != nil || i > 0 && strings.Count(string(data), "\r") > 1 || !strings.HasPrefix(string(data), "# ours") {
			t.Errorf("after step %d: %q, %v", i+1, data, err)
		}
	}
	if err := os.Chmod(dir, 0o500); err != nil {
		t.Fatal(err)
	}
	defer os.Chmod(dir, 0o700)
	if f, err := os.Create(filepath.Join(dir, "x")); err == nil {
		f.Close()
		t.Skip("this user may write everywhere")
	}
	before, _ := os.ReadFile(path)
	code, out, err := runCommand(nil, "key", "rotate", "--file", path)
	if after, _ := os.ReadFile(path); code != exitFailed || out != "" || !strings.Contains(err, "permission denied") || string(after) != string(before) {
		t.Errorf("code %d, %q %q", code, out, err)
	}
}

// Three processes change their secret while they decide. No step is made before all members have the last one.
func TestRunningNodesChangeTheirSecret(t *testing.T) {
	needProcesses(t)
	dir := t.TempDir()
	first := newSecret()
	var files []string
	write := func(path, content string) {
		t.Helper()
		if err := os.WriteFile(path+".tmp", []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".tmp", path); err != nil {
			t.Fatal(err)
		}
	}
	var servers []*server
	for i := range 3 {
		path := filepath.Join(dir, fmt.Sprint("secret", i+1))
		write(path, first+"\n")
		files = append(files, path)
		args := []string{"--node", fmt.Sprint("n", i+1), "--bind", "127.0.0.1:0", "--expect", "3", "--secret-file", path, "--limit", "api=100000/s"}
		if i > 0 {
			args = append(args, "--join", servers[0].bind)
		}
		servers = append(servers, startServer(t, args...))
	}
	for _, s := range servers {
		s.waitReady()
		wait(t, "all members being seen", func() bool { return len(s.members("alive")) == 3 })
	}
	var ended atomic.Bool
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		for i := 0; !ended.Load(); i++ {
			if d, err := servers[i%3].ask(servers[i%3].web, "api", fmt.Sprint(i%50)); err != nil || !d.Allowed {
				t.Errorf("n%d: %+v %v", i%3+1, d, err)
			}
			time.Sleep(5 * time.Millisecond)
		}
	}()
	addr := "http://" + servers[2].http
	rotate := func() (int, string, string) {
		return runCommand(nil, "key", "rotate", "--file", files[0], "--addr", addr)
	}
	for step := range 3 {
		wait(t, "all having the last step", func() bool { code, _, _ := rotateWouldDo(files[0], addr); return code == 0 })
		if code, _, err := rotate(); code != 0 {
			t.Fatalf("step %d: %s", step+1, err)
		}
		before := secretsIn(t, files[0])
		if code, _, err := rotate(); code != exitFailed || !strings.Contains(err, "nothing was changed") || fmt.Sprint(secretsIn(t, files[0])) != fmt.Sprint(before) {
			t.Errorf("step %d again, before the others have it: %d %q", step+1, code, err)
		}
		data, err := os.ReadFile(files[0])
		if err != nil {
			t.Fatal(err)
		}
		if step == 1 {
			write(files[2], "nonsense") // stays as it was
			wait(t, "a bad file being refused", func() bool { return servers[2].findLog("configuration refused") != nil })
		}
		write(files[1], string(data))
		write(files[2], string(data))
	}
	last := secretsIn(t, files[0])
	wait(t, "all having the new one only", func() bool {
		_, out, _ := runCommand(nil, "key", "list", "--addr", addr)
		return strings.Count(out, last[0]+"  -") == 3
	})
	ended.Store(true)
	<-finished
	old := filepath.Join(dir, "old")
	write(old, first)
	stranger := launch(t, "--http", "127.0.0.1:0", "--node", "n4", "--bind", "127.0.0.1:0", "--join", servers[0].bind, "--secret-file", old)
	if code := stranger.exitCode(); code != exitFailed || !strings.Contains(stranger.text(), "secret") {
		t.Errorf("with the old secret: %d %s", code, stranger.text())
	}
	for _, s := range servers {
		if s.findLog("secrets changed") == nil || strings.Contains(s.text(), first) || len(s.members("alive")) != 3 {
			t.Errorf("%s", s.text())
		}
	}
	for _, s := range servers {
		terminate(t, s)
	}
}

// rotateWouldDo says whether a step is possible, without making it.
func rotateWouldDo(file, addr string) (int, string, string) {
	tmp := file + ".try"
	data, err := os.ReadFile(file)
	if err != nil {
		return exitFailed, "", err.Error()
	}
	if err := os.WriteFile(tmp, data, 0o600); err != nil {
		return exitFailed, "", err.Error()
	}
	defer os.Remove(tmp)
	return runCommand(nil, "key", "rotate", "--file", tmp, "--addr", addr)
}

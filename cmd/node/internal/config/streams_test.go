//go:build unix

package config

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// pipe makes a named pipe, into which content is written once if there is any. Without a writer it blocks who opens it.
func pipe(t *testing.T, path, content string) string {
	t.Helper()
	_ = os.Remove(path)
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if content != "" {
		go func() { _ = os.WriteFile(path, []byte(content), 0o600) }()
	}
	return path
}

// A secret from a pipe is read at the start, and what came out of it then counts as long as the node runs.
func TestASecretFromAPipeIsReadOnce(t *testing.T) {
	dir := t.TempDir()
	secret := []byte("0123456789abcdef")
	pipe(t, filepath.Join(dir, "secret"), base64.StdEncoding.EncodeToString(secret))
	s := Read(write(t, filepath.Join(dir, "jatah.yaml"), "cluster: {bind: 0.0.0.0:7946, secret_file: secret}\n"), nil, nil)
	for range 3 {
		cfg, err := s.Config()
		if err != nil || len(cfg.Node.Secrets) != 1 || !slices.Equal(cfg.Node.Secrets[0], secret) {
			t.Fatalf("%q, %v", cfg.Node.Secrets, err)
		}
		s = s.Again()
	}
	pipe(t, filepath.Join(dir, "other"), "")
	write(t, filepath.Join(dir, "jatah.yaml"), "cluster: {bind: 0.0.0.0:7946, secret_file: other}\n")
	if _, err := s.Again().Config(); err == nil || !strings.Contains(err.Error(), "no regular file") {
		t.Errorf("another pipe: %v", err)
	}
}

// A pipe or a device that takes the place of a file is refused, and never waited for.
func TestPipesAndDevicesAreNotWaitedFor(t *testing.T) {
	dir := t.TempDir()
	main := write(t, filepath.Join(dir, "jatah.yaml"), "limits_dir: d\n")
	limits := filepath.Join(dir, "d")
	for _, name := range []string{limits, filepath.Join(limits, "folder.yaml")} {
		if err := os.Mkdir(name, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	pipe(t, filepath.Join(limits, "pipe.yaml"), "")
	if err := os.Symlink("/dev/zero", filepath.Join(limits, "zero.yaml")); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(limits, "good.yaml"), "limits: [{name: a, rate: 1/s}]\n")
	s := Read(main, nil, nil)
	if cfg, err := s.Config(); err != nil || !slices.Equal(limitNames(cfg), []string{"a"}) {
		t.Fatalf("%v, %v", limitNames(cfg), err)
	}
	if _, err := readFile(filepath.Join(limits, "pipe.yaml")); err == nil { // as if it had just taken the place of a file
		t.Error("a pipe is read")
	}
	pipe(t, main, "")
	if _, err := s.Again().Config(); err == nil || !strings.Contains(err.Error(), "jatah.yaml") || !strings.Contains(err.Error(), "no regular file") {
		t.Errorf("instead of the configuration file: %v", err)
	}
}

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A node that has no seeds starts while the others are there, with another secret first, so that it begins a cluster of its own. When they
// find it, it starts again within its process and joins them.
func TestANodeThatBeganApartJoinsTheOthers(t *testing.T) {
	needProcesses(t)
	dir := t.TempDir()
	a, b := newSecret(), newSecret()
	for name, content := range map[string]string{"ab": a + "\n" + b + "\n", "ba": b + "\n" + a + "\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	place := lastingPorts(t, 1)[0]
	old := startServer(t, "--node", "n1", "--bind", "127.0.0.1:0", "--join", place, "--secret-file", filepath.Join(dir, "ab"), "--limit", "api=10/s")
	old.waitReady()
	apart := startServer(t, "--node", "n2", "--bind", place, "--secret-file", filepath.Join(dir, "ba"), "--limit", "api=10/s")
	entry := apart.waitLog("starting again, to join the cluster that was there before")
	if entry["member"] != "n1" || entry["address"] != old.bind {
		t.Errorf("%v", entry)
	}
	wait(t, "two members being seen", func() bool { return len(old.members("alive")) == 2 })
	terminate(t, apart)
	terminate(t, old)
}

// A node that starts again within its process has the secrets that it was given since, and not those of its start, with which nobody would let it in.
func TestANodeThatStartsAgainHasWhatItWasGivenSince(t *testing.T) {
	needProcesses(t)
	dir := t.TempDir()
	a, b, c := newSecret(), newSecret(), newSecret()
	write := func(name string, secrets ...string) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file+".new", []byte(strings.Join(secrets, "\n")+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file+".new", file); err != nil {
			t.Fatal(err)
		}
		return file
	}
	old := startServer(t, "--node", "n1", "--bind", "127.0.0.1:0", "--secret-file", write("old", a), "--limit", "api=10/s")
	old.waitReady()
	apart := startServer(t, "--node", "n2", "--bind", "127.0.0.1:0", "--secret-file", write("apart", b), "--limit", "api=10/s")
	apart.waitReady()
	write("old", c)
	write("apart", c)
	old.waitLog("secrets changed")
	apart.waitLog("secrets changed")
	between := startServer(t, "--node", "n3", "--bind", "127.0.0.1:0", "--join", old.bind+","+apart.bind, "--secret-file", write("between", c), "--limit", "api=10/s")
	apart.waitLog("starting again, to join the cluster that was there before")
	wait(t, "three members being seen", func() bool { return len(old.members("alive")) == 3 })
	terminate(t, between)
	terminate(t, apart)
	terminate(t, old)
}

package main

import (
	"net"
	"os"
	"path/filepath"
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
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	place := ln.Addr().String()
	ln.Close()
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

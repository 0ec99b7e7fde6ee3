package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// previousProtocol is a commit whose nodes speak the protocol before this one's only.
const previousProtocol = "c1516269cfc06458376df317bf57b8f26e4295d8"

// buildPrevious builds the program of that commit, where the history is there.
func buildPrevious(t *testing.T) string {
	t.Helper()
	root, err := exec.Command("git", "rev-parse", "--show-toplevel").Output()
	if err != nil {
		t.Skipf("no git or no repository here: %v", err)
	}
	git := func(args ...string) *exec.Cmd {
		return exec.Command("git", append([]string{"-C", strings.TrimSpace(string(root))}, args...)...)
	}
	if err := git("cat-file", "-e", previousProtocol+"^{commit}").Run(); err != nil {
		t.Skipf("the history does not have %s, whose nodes speak the previous protocol: clone all of it", previousProtocol)
	}
	dir := t.TempDir()
	archive, err := git("archive", "-o", filepath.Join(dir, "tree.tar"), previousProtocol).CombinedOutput()
	if err != nil {
		t.Fatalf("git archive: %v %s", err, archive)
	}
	if out, err := exec.Command("tar", "-xf", filepath.Join(dir, "tree.tar"), "-C", dir).CombinedOutput(); err != nil {
		t.Fatalf("tar: %v %s", err, out)
	}
	old := filepath.Join(dir, "jatah-previous")
	build := exec.Command("go", "build", "-o", old, "./cmd/node")
	build.Dir = dir
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building %s: %v %s", previousProtocol, err, out)
	}
	return old
}

// Three processes of the previous protocol become three of this one, one after the other, and one goes back. They decide all the while: never is more
// admitted than the limit, and every request is answered by a node that is ready.
func TestRollingUpgradeFromThePreviousProtocol(t *testing.T) {
	needProcesses(t)
	old := buildPrevious(t)
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte(newSecret()+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const rate, burst = 200, 100
	binds := lastingPorts(t, 3)
	start := func(program string, i int) *server {
		t.Helper()
		now := binary
		binary = program
		defer func() { binary = now }()
		s := startServer(t, "--node", fmt.Sprint("n", i+1), "--bind", binds[i], "--expect", "3", "--secret-file", secret,
			"--join", strings.Join(binds, ","), "--limit", fmt.Sprintf("api=%d/s,burst=%d,fallback=wait", rate, burst))
		return s
	}
	together := func(all []*server) {
		t.Helper()
		for _, s := range all {
			s.waitReady()
			wait(t, "three members being seen", func() bool { return len(s.members("alive")) == 3 })
		}
	}
	var servers []*server
	for i := range 3 {
		servers = append(servers, start(old, i))
	}
	together(servers)

	var mu sync.Mutex
	down, admitted, asked := -1, 0, 0
	begin := time.Now()
	stop := make(chan struct{})
	var load sync.WaitGroup
	for i := range 3 {
		load.Go(func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(2 * time.Millisecond):
				}
				mu.Lock()
				s, off := servers[i], down == i
				mu.Unlock()
				if off {
					continue
				}
				d, err := s.ask(s.web, "api", "k")
				mu.Lock()
				if err != nil && down != i {
					t.Errorf("n%d: %v", i+1, err)
				}
				if asked++; d.Allowed {
					admitted++
				}
				mu.Unlock()
			}
		})
	}
	replace := func(i int, program string) {
		t.Helper()
		mu.Lock()
		down = i
		mu.Unlock()
		time.Sleep(50 * time.Millisecond) // who asked before is answered
		terminate(t, servers[i])
		s := start(program, i)
		s.waitReady()
		mu.Lock()
		servers[i], down = s, -1
		all := append([]*server(nil), servers...)
		mu.Unlock()
		together(all)
	}
	for i := range 3 {
		replace(i, binary)
	}
	replace(1, old) // and back
	close(stop)
	load.Wait()
	took := time.Since(begin)
	if most := burst + int(rate*took.Seconds()) + 1; admitted > most || admitted < burst {
		t.Errorf("%d of %d admitted in %v, at most %d", admitted, asked, took, most)
	}
	t.Logf("%d of %d admitted in %v, the limit is %d", admitted, asked, took, burst+int(rate*took.Seconds()))
	_, out, _ := runCommand(nil, "key", "list", "--addr", "http://"+servers[0].http)
	if strings.Count(out, "\n") != 4 || strings.Count(out, " -  ") == 0 {
		t.Errorf("%s", out)
	}
	for _, s := range servers {
		terminate(t, s)
	}
}

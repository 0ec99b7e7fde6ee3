package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/jatah-io/jatah/httpapi/client"
)

type decision = client.Decision

// The tests below run the real binary as real processes on loopback. They wait
// for conditions, generously, and never assert how fast this machine is.

// patience is how long a condition may take before a test gives up.
const patience = 30 * time.Second

// binary is the program under test, built once; empty with -short.
var binary string

// sideBySide is how many of the tests with processes run at once, unless -parallel says it. They wait most of the time, each for a
// cluster of its own; more than these, and two cores would be late so often that nothing could be judged.
const sideBySide = "3"

func TestMain(m *testing.M) {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		flag.Set("test.parallel", sideBySide)
	}
	code := buildAndRun(m)
	if code == 0 {
		if err := goleak.Find(); err != nil { // what a test started was closed, and Close ended all of it
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

func buildAndRun(m *testing.M) int {
	if testing.Short() {
		return m.Run()
	}
	dir, err := os.MkdirTemp("", "jatah-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "jatah")
	if runtime.GOOS == "windows" {
		binary += ".exe"
	}
	build := exec.Command("go", "build", "-o", binary, ".")
	build.Stdout, build.Stderr = os.Stderr, os.Stderr
	if err := build.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "building the program:", err)
		return 1
	}
	return m.Run()
}

// besideOthers lets a test with processes run while others do. Each has ports, networks and files of its own.
func besideOthers(t *testing.T) {
	t.Helper()
	needProcesses(t)
	t.Parallel()
}

func needProcesses(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("runs processes; left out with -short")
	}
}

// lastingPorts are addresses on loopback whose ports stay free while nobody listens there, for servers that are stopped and come back:
// they are not among those that systems give to whoever asks for any port, or dials.
func lastingPorts(t *testing.T, n int) (all []string) {
	t.Helper()
	for range 1000 {
		address := fmt.Sprintf("127.0.0.1:%d", 10000+mathrand.IntN(20000))
		l, err := net.Listen("tcp", address)
		if err != nil {
			continue
		}
		defer l.Close() // only at the end, so that no two are the same
		p, err := net.ListenPacket("udp", address)
		if err != nil {
			continue
		}
		p.Close()
		if all = append(all, address); len(all) == n {
			return all
		}
	}
	t.Fatalf("not %d free ports in 1000 tries", n)
	return nil
}

// server is a process of `serve`.
type server struct {
	t      *testing.T
	cmd    *exec.Cmd
	exited chan struct{}
	http   string
	bind   string
	web    *http.Client // reaches it; another one when it lives in a network of its own

	mu  sync.Mutex
	log []map[string]any
	raw bytes.Buffer
}

// startServer runs serve on free ports and waits until it has joined.
func startServer(t *testing.T, args ...string) *server {
	t.Helper()
	s := launch(t, append([]string{"--http", "127.0.0.1:0"}, args...)...)
	s.http, _ = s.waitLog("answering HTTP")["http"].(string)
	s.bind, _ = s.waitLog("joined")["cluster"].(string)
	if s.http == "" || strings.HasSuffix(s.http, ":0") || s.bind == "" || strings.HasSuffix(s.bind, ":0") {
		t.Fatalf("the log does not tell the real addresses: http %q, cluster %q", s.http, s.bind)
	}
	return s
}

// launch runs serve with JSON logs and does not wait.
func launch(t *testing.T, args ...string) *server {
	t.Helper()
	s := &server{t: t, exited: make(chan struct{}), web: http.DefaultClient}
	s.cmd = exec.Command(binary, append([]string{"serve", "--log-format", "json"}, args...)...)
	s.cmd.Env = withoutSettings(os.Environ())
	pipe, err := s.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		for lines := bufio.NewScanner(pipe); lines.Scan(); {
			s.addLine(lines.Bytes())
		}
		s.cmd.Wait()
		close(s.exited)
	}()
	t.Cleanup(func() {
		s.kill()
		if t.Failed() {
			t.Logf("log of serve %q:\n%s", args, s.text())
		}
	})
	return s
}

func (s *server) addLine(line []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.raw.Write(line)
	s.raw.WriteByte('\n')
	var entry map[string]any
	if json.Unmarshal(line, &entry) == nil {
		s.log = append(s.log, entry)
	}
}

func (s *server) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.raw.String()
}

func (s *server) findLog(message string) map[string]any {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, entry := range s.log {
		if text, _ := entry["msg"].(string); strings.HasPrefix(text, message) {
			return entry
		}
	}
	return nil
}

// waitLog is the first log entry whose message begins so.
func (s *server) waitLog(message string) map[string]any {
	s.t.Helper()
	wait(s.t, fmt.Sprintf("the log says %q (so far:\n%s)", message, s.text()), func() bool {
		select {
		case <-s.exited:
			if s.findLog(message) == nil {
				s.t.Fatalf("the process ended before it said %q:\n%s", message, s.text())
			}
		default:
		}
		return s.findLog(message) != nil
	})
	return s.findLog(message)
}

func (s *server) kill() {
	s.cmd.Process.Kill()
	<-s.exited
}

func (s *server) signal(sig os.Signal) {
	s.t.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		s.t.Fatal(err)
	}
}

// exitCode waits for the end of the process.
func (s *server) exitCode() int {
	s.t.Helper()
	select {
	case <-s.exited:
	case <-time.After(patience):
		s.t.Fatalf("the process does not end:\n%s", s.text())
	}
	return s.cmd.ProcessState.ExitCode()
}

func (s *server) waitReady() {
	s.t.Helper()
	wait(s.t, "readiness", func() bool { return s.status("/readyz") == http.StatusOK })
}

// status is the status of a GET, 0 without an answer.
func (s *server) status(path string) int {
	resp, err := s.web.Get("http://" + s.http + path)
	if err != nil {
		return 0
	}
	io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	return resp.StatusCode
}

// wait polls a condition until it holds.
func wait(t *testing.T, what string, condition func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for end := time.After(patience); !condition(); {
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("waited %v for %s", patience, what)
		}
	}
}

// startCluster runs n nodes that have found each other and are ready.
func startCluster(t *testing.T, n int, args ...string) []*server {
	t.Helper()
	var all []*server
	for i, bind := range lastingPorts(t, n) {
		own := append([]string{"--node", fmt.Sprintf("n%d", i+1), "--bind", bind, "--expect", fmt.Sprint(n)}, args...)
		if i > 0 {
			own = append(own, "--join", all[0].bind)
		}
		all = append(all, startServer(t, own...))
	}
	for _, s := range all {
		s.waitReady()
		wait(t, "all members being seen", func() bool { return len(s.members("alive")) == n })
	}
	return all
}

// members are the names of the members in a state.
func (s *server) members(state string) []string {
	var view client.Cluster
	resp, err := s.web.Get("http://" + s.http + "/v1/cluster")
	if err != nil {
		return nil
	}
	defer resp.Body.Close()
	if json.NewDecoder(resp.Body).Decode(&view) != nil {
		return nil
	}
	var names []string
	for _, m := range view.Members {
		if m.State == state {
			names = append(names, m.Name)
		}
	}
	return names
}

// ask takes one token over HTTP.
func (s *server) ask(client *http.Client, limit, key string) (decision, error) {
	body := fmt.Sprintf(`{"limit":%q,"key":%q}`, limit, key)
	resp, err := client.Post("http://"+s.http+"/v1/take", "application/json", strings.NewReader(body))
	if err != nil {
		return decision{}, err
	}
	defer resp.Body.Close()
	var d decision
	answer, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusTooManyRequests {
		err = fmt.Errorf("status %s: %s", resp.Status, answer)
	}
	return d, errors.Join(err, json.Unmarshal(answer, &d))
}

// program runs the binary to its end.
func program(t *testing.T, args ...string) (code int, out, err string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := exec.Command(binary, args...)
	cmd.Env, cmd.Stdout, cmd.Stderr = withoutSettings(os.Environ()), &stdout, &stderr
	if e := cmd.Run(); e != nil && cmd.ProcessState == nil {
		t.Fatal(e)
	}
	return cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()
}

func terminate(t *testing.T, s *server) {
	t.Helper()
	s.signal(syscall.SIGTERM)
	if code := s.exitCode(); code != 0 {
		t.Errorf("SIGTERM: exit code %d", code)
	}
}

// owner is who owns a key, once the node can say.
func (s *server) owner(t *testing.T, limit, key string) (owner string) {
	t.Helper()
	wait(t, "the owner being known", func() (ok bool) {
		var err error
		owner, err = s.peekOwner(limit, key)
		return err == nil && owner != ""
	})
	return owner
}

func (s *server) peekOwner(limit, key string) (string, error) {
	resp, err := s.web.Get("http://" + s.http + "/v1/peek?limit=" + limit + "&key=" + key)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	var state struct{ Owner string }
	err = json.NewDecoder(resp.Body).Decode(&state)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = errors.New(resp.Status)
	}
	return state.Owner, err
}

// processesWith are the processes that have the mark in their environment.
func processesWith(mark string) []string {
	files, _ := filepath.Glob("/proc/[0-9]*/environ")
	var found []string
	for _, file := range files {
		if content, err := os.ReadFile(file); err == nil && strings.Contains(string(content), mark) {
			found = append(found, filepath.Base(filepath.Dir(file)))
		}
	}
	return found
}

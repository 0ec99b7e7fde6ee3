package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// server is a process that answers HTTP.
type server struct {
	addr string
	cmd  *exec.Cmd
	said *bytes.Buffer
	done chan error
}

// freeAddress finds a port that nobody uses now. Somebody could take it before the server does; that is an error then.
func freeAddress() (string, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return ln.Addr().String(), ln.Close()
}

// launch starts a server and waits until ready answers with 200.
func launch(ctx context.Context, addr, ready, program string, args ...string) (*server, error) {
	s := &server{addr: addr, cmd: exec.Command(program, args...), said: new(bytes.Buffer), done: make(chan error, 1)}
	s.cmd.Stdout, s.cmd.Stderr = s.said, s.said
	if err := s.cmd.Start(); err != nil {
		return nil, fmt.Errorf("httpbench: %w", err)
	}
	go func() { s.done <- s.cmd.Wait() }()
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for tick := time.NewTicker(50 * time.Millisecond); ; {
		select {
		case err := <-s.done:
			return nil, fmt.Errorf("httpbench: %s ended before it was ready: %v\n%s", program, err, s.said)
		case <-ctx.Done():
			_ = s.stop()
			return nil, fmt.Errorf("httpbench: %s is not ready: %w\n%s", program, ctx.Err(), s.said)
		case <-tick.C:
		}
		if resp, err := http.Get("http://" + addr + ready); err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				tick.Stop()
				return s, nil
			}
		}
	}
}

// processorTime is what the process has used so far.
func (s *server) processorTime() (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.cmd.Process.Pid))
	if err != nil {
		return 0, fmt.Errorf("httpbench: %w", err)
	}
	// The name is in parentheses and may have spaces; times in user mode and in the kernel are the
	// 12th and 13th field after it, in hundredths of a second on every Linux.
	_, rest, _ := strings.Cut(string(text), ") ")
	var ticks int64
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0, fmt.Errorf("httpbench: cannot read the processor time in %q", text)
	}
	for _, f := range fields[11:13] {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("httpbench: cannot read the processor time in %q: %w", text, err)
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond, nil
}

// stop asks the process to end, and kills it if it does not.
func (s *server) stop() error {
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-s.done:
		return nil
	case <-time.After(15 * time.Second):
		return fmt.Errorf("httpbench: %s did not end on SIGTERM; killed: %v", s.cmd.Path, s.cmd.Process.Kill())
	}
}

// startNode builds the program of the module around this one and runs one node with a limit that never denies.
func startNode(ctx context.Context, dir string) (*server, error) {
	program := filepath.Join(dir, "jatah")
	where, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/jatah-io/jatah").Output()
	if err != nil {
		return nil, fmt.Errorf("httpbench: run it inside the module bench: %w", err)
	}
	build := exec.CommandContext(ctx, "go", "build", "-C", strings.TrimSpace(string(where)), "-o", program, "./cmd/node")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("httpbench: building the node: %w\n%s", err, out)
	}
	addr, err := freeAddress()
	if err != nil {
		return nil, err
	}
	return launch(ctx, addr, "/readyz", program, "serve", "--http", addr, "--limit", "api=1000000000/s,burst=1000000000")
}

// startBare asks the node once and runs this program as a server that answers the same.
func startBare(ctx context.Context, dir string, node *server) (*server, error) {
	reply, err := sampleReply(ctx, node.addr)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "reply")
	if err := os.WriteFile(file, reply, 0o600); err != nil {
		return nil, err
	}
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	addr, err := freeAddress()
	if err != nil {
		return nil, err
	}
	return launch(ctx, addr, "/", program, "-bare", addr, "-reply", file)
}

// sampleReply is one answer of the node as it was on the wire.
func sampleReply(ctx context.Context, addr string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+addr+"/v1/take", strings.NewReader(`{"limit":"api","key":"user:10001","cost":1}`))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("httpbench: asking the node: %w", err)
	}
	defer resp.Body.Close()
	var wire bytes.Buffer
	if err := resp.Write(&wire); err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("httpbench: the node answers\n%s", &wire)
	}
	return wire.Bytes(), nil
}

// serveBare answers every request with the reply in the file, until the process is told to end.
func serveBare(addr, file string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	resp, err := http.ReadResponse(bufio.NewReader(f), nil)
	if err != nil {
		return fmt.Errorf("httpbench: reading %s: %w", file, err)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return fmt.Errorf("httpbench: reading %s: %w", file, err)
	}
	resp.Header.Del("Date") // net/http sets it anew, and the length too
	return http.ListenAndServe(addr, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		h := w.Header()
		for name, values := range resp.Header {
			h[name] = values
		}
		_, _ = w.Write(body)
	}))
}

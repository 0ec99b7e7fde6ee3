package demo

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// process is one node of the demo: this executable, run again with `serve`.
type process struct {
	name       string
	http, bind string
	executable string
	args       []string
	environ    []string

	mu     sync.Mutex
	cmd    *exec.Cmd
	exited chan struct{}
	log    *tail
}

// start runs the process; it does not wait until the node is ready.
func (p *process) start() error {
	log := &tail{}
	cmd := exec.Command(p.executable, p.args...)
	cmd.Env, cmd.Stdout, cmd.Stderr = p.environ, log, log
	dieWithParent(cmd)
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting node %s: %w", p.name, err)
	}
	exited := make(chan struct{})
	go func() {
		cmd.Wait() // the code does not matter: ready and the demo's end tell what happened
		close(exited)
	}()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cmd, p.exited, p.log = cmd, exited, log
	return nil
}

func (p *process) running() (*exec.Cmd, chan struct{}, *tail) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cmd, p.exited, p.log
}

// ready waits until the node says that it may get requests.
func (p *process) ready(ctx context.Context) error {
	_, exited, log := p.running()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		resp, err := http.Get("http://" + p.http + "/readyz")
		if err == nil {
			io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-tick.C:
		case <-exited:
			return fmt.Errorf("node %s ended instead of becoming ready; it said:\n%s", p.name, log)
		case <-ctx.Done():
			return fmt.Errorf("node %s did not become ready: %w; it said:\n%s", p.name, context.Cause(ctx), log)
		}
	}
}

// pauses is how often the running process found that it had not run for so
// long that it was sure of nothing, as its metrics tell; 0 if it does not answer.
func (p *process) pauses() int {
	client := &http.Client{Timeout: 2 * time.Second}
	resp, err := client.Get("http://" + p.http + "/metrics")
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if value, ok := strings.CutPrefix(lines.Text(), "jatah_pauses_total "); ok {
			n, _ := strconv.ParseFloat(value, 64)
			return int(n)
		}
	}
	return 0
}

// kill ends the process at once, as kill -9 does, and waits until it is gone.
func (p *process) kill() {
	cmd, exited, _ := p.running()
	if cmd == nil {
		return
	}
	cmd.Process.Kill() // fails only if it has ended
	<-exited
}

// stop lets the process leave in good order, but not for long.
func (p *process) stop(patience time.Duration) {
	cmd, exited, _ := p.running()
	if cmd == nil {
		return
	}
	if cmd.Process.Signal(syscall.SIGTERM) == nil {
		select {
		case <-exited:
		case <-time.After(patience):
		}
	}
	p.kill()
}

// tail keeps the end of what a process says, for the case that it fails.
type tail struct {
	mu   sync.Mutex
	text []byte
}

const tailSize = 4 << 10

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, b...)
	if extra := len(t.text) - tailSize; extra > 0 {
		t.text = append(t.text[:0], t.text[extra:]...)
	}
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(string(t.text))
}

// freeAddresses finds n loopback addresses whose ports are free for TCP and
// UDP. Ports must be known before the first node starts, so that each node can
// be told to join all others and a killed one comes back where it was; so they are
// not among those that systems give meanwhile to whoever asks for any port, or dials.
func freeAddresses(n int) ([]string, error) {
	var out []string
	var failed error
	for tries := 0; len(out) < n && tries < 1000; tries++ {
		ln, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 10000+rand.IntN(20000)))
		if err != nil {
			failed = err
			continue
		}
		// Kept open until all are found, or the same port might come twice.
		defer ln.Close()
		packets, err := net.ListenPacket("udp", ln.Addr().String())
		if err != nil {
			failed = err
			continue
		}
		packets.Close()
		out = append(out, ln.Addr().String())
	}
	if len(out) < n {
		return nil, fmt.Errorf("no free ports on 127.0.0.1: %w", failed)
	}
	return out, nil
}

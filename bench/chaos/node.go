package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jatah-io/jatah/bench/internal/proc"
	"github.com/jatah-io/jatah/httpapi/client"
)

// stopPromise is how long a node may take to end after SIGTERM.
const stopPromise = 10 * time.Second

// node is a node by its name, whichever process it is.
type node struct {
	index      int
	name       string
	http, bind string
	dir        string // of its files
	program    string
	place      func(func()) error // runs a function in the node's network
	ask        *client.Client     // of this node only, without a second try

	// troubled is above 0 while it need not answer: it is down or paused, or was just now.
	troubled atomic.Int32

	mu      sync.Mutex
	process *proc.Process // nil: it does not run
	starts  int
	ends    map[int]time.Time // when each process was told to end, by the number of its start
}

func nodeName(index int) string { return fmt.Sprintf("n%d", index+1) }

func (n *node) config() string { return filepath.Join(n.dir, "jatah.yaml") }
func (n *node) log() string    { return filepath.Join(n.dir, "log") }
func (n *node) state() string  { return filepath.Join(n.dir, "state") }

func (n *node) running() *proc.Process {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.process
}

// start starts the process and does not wait until it is ready.
func (n *node) start(ctx context.Context) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	var err error
	failed := n.place(func() {
		n.process, err = proc.Start(ctx, proc.Spec{
			Name: "node " + n.name, Program: n.program, Log: n.log(),
			Args: []string{"serve", "--config", n.config()},
			// A race is told in the log and does not end the node, so that one run finds all.
			Env: []string{"GORACE=halt_on_error=0", "GOTRACEBACK=all"},
		})
	})
	n.starts++
	return errors.Join(failed, err)
}

// take removes the process from the node: it is meant to end.
func (n *node) take() *proc.Process {
	n.mu.Lock()
	defer n.mu.Unlock()
	p := n.process
	n.process = nil
	if p != nil {
		if n.ends == nil {
			n.ends = make(map[int]time.Time)
		}
		n.ends[n.starts] = time.Now()
	}
	return p
}

// end is when a process of the node was told to end; not ok if it was not.
func (n *node) end(start int) (at time.Time, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	at, ok = n.ends[start]
	return at, ok
}

// kill ends the process at once.
func (n *node) kill() error {
	p := n.take()
	if p == nil {
		return nil
	}
	if err := p.Signal(syscall.SIGKILL); err != nil {
		return fmt.Errorf("chaos: %s ended by itself before it was killed: %w", n.name, err)
	}
	<-p.Ended()
	return nil
}

// stop ends the process with SIGTERM and says how long that took; the error is a broken promise.
func (n *node) stop() (time.Duration, error) {
	p := n.take()
	if p == nil {
		return 0, nil
	}
	begin := time.Now()
	if err := p.Signal(syscall.SIGTERM); err != nil {
		return 0, fmt.Errorf("chaos: %s ended by itself before it was stopped: %w", n.name, err)
	}
	// More than is promised, so that a machine that is busy breaks nothing.
	select {
	case <-p.Ended():
	case <-time.After(2 * stopPromise):
		_ = p.Signal(syscall.SIGQUIT) // so that the log says where it hangs
		<-p.Ended()
		return time.Since(begin), fmt.Errorf("chaos: %s did not end within %v of SIGTERM", n.name, 2*stopPromise)
	}
	if err := p.Err(); err != nil {
		return time.Since(begin), fmt.Errorf("chaos: %s did not end with code 0 after SIGTERM: %w", n.name, err)
	}
	return time.Since(begin), nil
}

// died is not nil if the process ended though nobody had told it to.
func (n *node) died() error {
	p := n.running()
	if p == nil {
		return nil
	}
	select {
	case <-p.Ended():
		return fmt.Errorf("chaos: %s ended by itself: %v", n.name, p.Err())
	default:
		return nil
	}
}

// writeConfig writes the file of a node. churn is the rate of the limit that reloads change.
func (n *node) writeConfig(join []string, secret string, limits []string, churn int, expect int) error {
	var b strings.Builder
	// The judge asks from another namespace, and has no token: limits are defined and nodes are forgotten.
	fmt.Fprintf(&b, "http: %s\nnode: %s\nstate_dir: %s\ninsecure_admin: true\n", n.http, n.name, n.state())
	fmt.Fprintf(&b, "cluster:\n  bind: %s\n  join: [%s]\n  secret_file: %s\n  expect: %d\n", n.bind, strings.Join(join, ", "), secret, expect)
	b.WriteString("limits:\n")
	for _, l := range limits {
		fmt.Fprintf(&b, "  - %s\n", l)
	}
	fmt.Fprintf(&b, "  - {name: %s, rate: %d/s, burst: 10}\n", churnLimit, churn)
	// Renamed over, so that a node which starts just now reads one or the other.
	next := n.config() + ".next"
	if err := os.WriteFile(next, []byte(b.String()), 0o644); err != nil {
		return fmt.Errorf("chaos: %w", err)
	}
	return os.Rename(next, n.config())
}

// started is how many processes there have been.
func (n *node) started() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.starts
}

package netlab

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Lab is a network of its own. Use [New]. Safe for concurrent use but for Close.
type Lab struct {
	prefix string // of the names of all its namespaces
	nodes  int
	lock   *os.File
}

const netnsPath = "/run/netns"

// New makes a lab with so many nodes, at most 200. mark begins the names of its namespaces, MARK-RUN-LABEL, and keeps apart what is swept by
// whom.
func New(mark string, nodes int) (*Lab, error) {
	if os.Geteuid() != 0 {
		return nil, fmt.Errorf("%w: only root can make them; run this with sudo -E env PATH=$PATH", ErrUnavailable)
	}
	for _, tool := range []string{"ip", "iptables", "iptables-restore"} {
		if _, err := exec.LookPath(tool); err != nil {
			return nil, fmt.Errorf("%w: the program %s is missing; install the packages iproute2 and iptables: %w", ErrUnavailable, tool, err)
		}
	}
	if err := sweep(mark); err != nil {
		return nil, err
	}
	id := make([]byte, 4)
	rand.Read(id)
	run := hex.EncodeToString(id)
	l := &Lab{prefix: mark + "-" + run + "-", nodes: nodes}
	// The lock ends with this process, however it ends, and so tells a later run that the namespaces are nobody's any more.
	var err error
	if l.lock, err = os.OpenFile(lockFile(mark, run), os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600); err != nil {
		return nil, fmt.Errorf("netlab: %w", err)
	}
	if err := syscall.Flock(int(l.lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("netlab: locking %s: %w", l.lock.Name(), err), l.Close())
	}
	if out, err := exec.Command("ip", "netns", "add", l.namespace(Hub)).CombinedOutput(); err != nil {
		return nil, errors.Join(fmt.Errorf("%w: this machine lets us make none: %w: %s", ErrUnavailable, err, out), l.Close())
	}
	if err := l.build(); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

func lockFile(mark, run string) string {
	return filepath.Join(os.TempDir(), mark+"-"+run+".lock")
}

func (l *Lab) namespace(node int) string {
	if node == Hub {
		return l.prefix + "hub"
	}
	return fmt.Sprintf("%sn%d", l.prefix, node)
}

// Address is the first or second address of a node.
func (l *Lab) Address(node, which int) string { return fmt.Sprintf("10.77.%d.%d", node, which) }

func (l *Lab) build() error {
	hub := l.namespace(Hub)
	steps := [][]string{
		{"-n", hub, "link", "set", "lo", "up"},
		{"-n", hub, "link", "add", "br0", "type", "bridge"},
		{"-n", hub, "addr", "add", "10.77.255.254/16", "dev", "br0"},
		{"-n", hub, "link", "set", "br0", "up"},
	}
	for i := 1; i <= l.nodes; i++ {
		ns, port := l.namespace(i), fmt.Sprintf("n%d", i)
		steps = append(steps, [][]string{
			{"netns", "add", ns},
			{"-n", hub, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", ns},
			{"-n", hub, "link", "set", port, "master", "br0", "up"},
			{"-n", ns, "link", "set", "lo", "up"},
			{"-n", ns, "addr", "add", l.Address(i, 1) + "/16", "dev", "eth0"},
			{"-n", ns, "addr", "add", l.Address(i, 2) + "/16", "dev", "eth0"},
			{"-n", ns, "link", "set", "eth0", "up"},
		}...)
	}
	for _, args := range steps {
		if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
			return fmt.Errorf("netlab: ip %s: %w: %s", strings.Join(args, " "), err, out)
		}
	}
	return nil
}

// Close ends what still runs in the lab and removes it.
func (l *Lab) Close() error {
	var failed []error
	for i := Hub; i <= l.nodes; i++ {
		failed = append(failed, removeNamespace(l.namespace(i)))
	}
	failed = append(failed, os.Remove(l.lock.Name()), l.lock.Close())
	return errors.Join(failed...)
}

// removeNamespace ends what still runs in a namespace of ours, and removes it; the links in it go with it.
func removeNamespace(ns string) error {
	if _, err := os.Stat(filepath.Join(netnsPath, ns)); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	out, _ := exec.Command("ip", "netns", "pids", ns).Output()
	for _, field := range strings.Fields(string(out)) {
		if pid, err := strconv.Atoi(field); err == nil && pid != os.Getpid() {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	if out, err := exec.Command("ip", "netns", "del", ns).CombinedOutput(); err != nil {
		return fmt.Errorf("netlab: removing namespace %s: %w: %s", ns, err, out)
	}
	return nil
}

// sweep removes what a run left that was killed or crashed.
func sweep(mark string) error {
	var failed []error
	spaces, _ := filepath.Glob(filepath.Join(netnsPath, mark+"-*"))
	for _, path := range spaces {
		ns := filepath.Base(path)
		run, _, _ := strings.Cut(strings.TrimPrefix(ns, mark+"-"), "-")
		if !inUse(lockFile(mark, run)) {
			failed = append(failed, removeNamespace(ns))
		}
	}
	locks, _ := filepath.Glob(lockFile(mark, "*"))
	for _, lock := range locks {
		run := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(lock), mark+"-"), ".lock")
		if left, _ := filepath.Glob(filepath.Join(netnsPath, mark+"-"+run+"-*")); len(left) == 0 && !inUse(lock) {
			_ = os.Remove(lock) // two that sweep at once may find the same one
		}
	}
	return errors.Join(failed...)
}

func inUse(lock string) bool {
	f, err := os.OpenFile(lock, os.O_RDWR, 0)
	if err != nil {
		return !errors.Is(err, fs.ErrNotExist)
	}
	defer f.Close()
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil
}

// In runs f on a thread that is in the namespace of a node, or of the hub: the sockets that f opens and the processes that it starts belong
// there. f must do so in its own goroutine.
func (l *Lab) In(node int, f func()) error {
	target, err := os.Open(filepath.Join(netnsPath, l.namespace(node)))
	if err != nil {
		return fmt.Errorf("netlab: %w", err)
	}
	defer target.Close()
	runtime.LockOSThread()
	home, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("netlab: %w", err)
	}
	defer home.Close()
	if err := unix.Setns(int(target.Fd()), unix.CLONE_NEWNET); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("netlab: entering namespace %s: %w", l.namespace(node), err)
	}
	defer func() {
		// A thread that stays in the lab would give other goroutines its network.
		if err := unix.Setns(int(home.Fd()), unix.CLONE_NEWNET); err != nil {
			panic(fmt.Sprintf("netlab: leaving namespace %s: %v", l.namespace(node), err))
		}
		runtime.UnlockOSThread()
	}()
	f()
	return nil
}

// Dial connects from the hub. The address must be a literal one: with nothing to look up and one address to try, the net package opens the
// socket in the caller's goroutine.
func (l *Lab) Dial(ctx context.Context, network, address string) (conn net.Conn, err error) {
	dialer := net.Dialer{}
	if e := l.In(Hub, func() { conn, err = dialer.DialContext(ctx, network, address) }); e != nil {
		return nil, e
	}
	return conn, err
}

package main

import (
	"bytes"
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
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// lab is a network of its own: a namespace for each node and one, the hub, with
// the bridge that joins them. Nothing in it can reach, or be reached from, the
// network of the machine. What the test says to a node it says from the hub,
// which no fault touches.
//
//	node i: 10.77.i.1 and 10.77.i.2 on eth0   hub: 10.77.255.254 on br0
type lab struct {
	t      *testing.T
	prefix string // of the names of all its namespaces
	nodes  int
	lock   *os.File
}

const (
	labMark   = "jatah-test-" // every namespace made here is called jatah-test-RUN-LABEL
	netnsPath = "/run/netns"
	hubLabel  = "hub"
)

// newLab makes the network, or skips the test where that is not possible.
func newLab(t *testing.T, nodes int) *lab {
	t.Helper()
	needProcesses(t)
	if os.Geteuid() != 0 {
		t.Skip("needs root, to make network namespaces; run it with: sudo -E env PATH=$PATH go test ./cmd/node")
	}
	for _, tool := range []string{"ip", "iptables", "iptables-restore"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("needs the program %s (packages iproute2 and iptables): %v", tool, err)
		}
	}
	l := claimLab(t, nodes)
	t.Cleanup(l.remove)
	if out, err := exec.Command("ip", "netns", "add", l.namespace(hubLabel)).CombinedOutput(); err != nil {
		t.Skipf("this machine lets us make no network namespaces: %v: %s", err, out)
	}
	l.build()
	return l
}

// claiming is held while a lab is claimed: who looks for labs that are left over tries their locks.
var claiming sync.Mutex

// claimLab finds a name for a new lab, after it has removed those of tests that did not end.
func claimLab(t *testing.T, nodes int) *lab {
	t.Helper()
	claiming.Lock()
	defer claiming.Unlock()
	sweepLabs(t)
	id := make([]byte, 4)
	rand.Read(id)
	run := hex.EncodeToString(id)
	l := &lab{t: t, prefix: labMark + run + "-", nodes: nodes}
	// The lock ends with this process, however it ends, and so tells a later
	// run that the namespaces are nobody's any more.
	var err error
	if l.lock, err = os.OpenFile(lockFile(run), os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Flock(int(l.lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		t.Fatal(err)
	}
	return l
}

func lockFile(run string) string { return filepath.Join(os.TempDir(), labMark+run+".lock") }

func (l *lab) namespace(label string) string { return l.prefix + label }

func nodeLabel(i int) string { return fmt.Sprintf("n%d", i) }

// address is the first or second address of node i, counted from 1.
func (l *lab) address(i, which int) string { return fmt.Sprintf("10.77.%d.%d", i, which) }

func (l *lab) build() {
	hub := l.namespace(hubLabel)
	l.ip("-n", hub, "link", "set", "lo", "up")
	l.ip("-n", hub, "link", "add", "br0", "type", "bridge")
	l.ip("-n", hub, "addr", "add", "10.77.255.254/16", "dev", "br0")
	l.ip("-n", hub, "link", "set", "br0", "up")
	for i := 1; i <= l.nodes; i++ {
		ns, port := l.namespace(nodeLabel(i)), nodeLabel(i)
		l.ip("netns", "add", ns)
		l.ip("-n", hub, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", ns)
		l.ip("-n", hub, "link", "set", port, "master", "br0", "up")
		l.ip("-n", ns, "link", "set", "lo", "up")
		for which := 1; which <= 2; which++ {
			l.ip("-n", ns, "addr", "add", l.address(i, which)+"/16", "dev", "eth0")
		}
		l.ip("-n", ns, "link", "set", "eth0", "up")
	}
}

// ip runs the program ip.
func (l *lab) ip(args ...string) {
	l.t.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		l.t.Fatalf("ip %s: %v: %s", strings.Join(args, " "), err, out)
	}
}

func (l *lab) remove() {
	for _, label := range l.labels() {
		removeNamespace(l.t, l.namespace(label))
	}
	os.Remove(l.lock.Name())
	l.lock.Close()
}

func (l *lab) labels() []string {
	all := []string{hubLabel}
	for i := 1; i <= l.nodes; i++ {
		all = append(all, nodeLabel(i))
	}
	return all
}

// removeNamespace ends what still runs in a namespace of ours, and removes it;
// the links in it go with it.
func removeNamespace(t *testing.T, ns string) {
	if _, err := os.Stat(filepath.Join(netnsPath, ns)); errors.Is(err, fs.ErrNotExist) {
		return
	}
	out, _ := exec.Command("ip", "netns", "pids", ns).Output()
	for _, field := range strings.Fields(string(out)) {
		if pid, err := strconv.Atoi(field); err == nil && pid != os.Getpid() {
			syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	if out, err := exec.Command("ip", "netns", "del", ns).CombinedOutput(); err != nil {
		t.Errorf("removing namespace %s: %v: %s", ns, err, out)
	}
}

// sweepLabs removes what a test left that was killed or crashed.
func sweepLabs(t *testing.T) {
	spaces, _ := filepath.Glob(filepath.Join(netnsPath, labMark+"*"))
	for _, path := range spaces {
		ns := filepath.Base(path)
		run, _, _ := strings.Cut(strings.TrimPrefix(ns, labMark), "-")
		if inUse(lockFile(run)) {
			continue
		}
		t.Logf("removing %s, left by a test that did not end", ns)
		removeNamespace(t, ns)
	}
	locks, _ := filepath.Glob(lockFile("*"))
	for _, lock := range locks {
		run := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(lock), labMark), ".lock")
		if left, _ := filepath.Glob(filepath.Join(netnsPath, labMark+run+"-*")); len(left) == 0 && !inUse(lock) {
			os.Remove(lock)
		}
	}
}

func inUse(lock string) bool {
	f, err := os.OpenFile(lock, os.O_RDWR, 0)
	if err != nil {
		return !errors.Is(err, fs.ErrNotExist)
	}
	defer f.Close()
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil
}

// in runs f on a thread that is in a namespace: the sockets that f opens and the
// processes that it starts belong there. f must do so in its own goroutine.
func (l *lab) in(label string, f func()) error {
	target, err := os.Open(filepath.Join(netnsPath, l.namespace(label)))
	if err != nil {
		return err
	}
	defer target.Close()
	runtime.LockOSThread()
	home, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		runtime.UnlockOSThread()
		return err
	}
	defer home.Close()
	if err := unix.Setns(int(target.Fd()), unix.CLONE_NEWNET); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("entering namespace %s: %w", label, err)
	}
	defer func() {
		if err := unix.Setns(int(home.Fd()), unix.CLONE_NEWNET); err != nil {
			panic(fmt.Sprintf("leaving namespace %s: %v", label, err))
		}
		runtime.UnlockOSThread()
	}()
	f()
	return nil
}

// dial connects from the hub. The address must be a literal one: with nothing to
// look up and one address to try, the net package opens the socket in the
// caller's goroutine.
func (l *lab) dial(ctx context.Context, network, address string) (conn net.Conn, err error) {
	if e := l.in(hubLabel, func() { conn, err = new(net.Dialer).DialContext(ctx, network, address) }); e != nil {
		return nil, e
	}
	return conn, err
}

// fault is that a part of the packets from one node to another is dropped, all
// of them with loss 1. It goes one way.
type fault struct {
	from, to int
	loss     float64
}

// apply makes these the only faults; none: the network is whole. It returns how
// many packets the faults before have dropped.
func (l *lab) apply(faults ...fault) (dropped uint64) {
	l.t.Helper()
	var (
		mu      sync.Mutex
		failed  []error
		workers sync.WaitGroup
	)
	for i := 1; i <= l.nodes; i++ {
		workers.Go(func() {
			n, err := l.applyTo(i, faults)
			mu.Lock()
			defer mu.Unlock()
			dropped += n
			if err != nil {
				failed = append(failed, err)
			}
		})
	}
	workers.Wait()
	if err := errors.Join(failed...); err != nil {
		l.t.Fatal(err)
	}
	return dropped
}

func (l *lab) applyTo(node int, faults []fault) (dropped uint64, err error) {
	ns := l.namespace(nodeLabel(node))
	rules := "*filter\n"
	for _, f := range faults {
		if f.to != node {
			continue
		}
		rules += fmt.Sprintf("-A INPUT -s 10.77.%d.0/24 ", f.from)
		if f.loss < 1 {
			rules += fmt.Sprintf("-m statistic --mode random --probability %g ", f.loss)
		}
		rules += "-j DROP\n"
	}
	counters, err := exec.Command("ip", "netns", "exec", ns, "iptables", "-nvxL", "INPUT").CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("iptables in %s: %w: %s", ns, err, counters)
	}
	for line := range strings.Lines(string(counters)) {
		if fields := strings.Fields(line); len(fields) > 2 && fields[2] == "DROP" {
			n, err := strconv.ParseUint(fields[0], 10, 64)
			if err != nil {
				return 0, fmt.Errorf("iptables counts %q: %w", line, err)
			}
			dropped += n
		}
	}
	cmd := exec.Command("ip", "netns", "exec", ns, "iptables-restore")
	cmd.Stdin = bytes.NewBufferString(rules + "COMMIT\n")
	if out, err := cmd.CombinedOutput(); err != nil {
		return 0, fmt.Errorf("iptables-restore in %s: %w: %s\n%s", ns, err, out, rules)
	}
	return dropped, nil
}

// between are the faults of all links between two groups that have no node in
// common, in both directions.
func between(a, b []int, loss float64) (all []fault) {
	for _, i := range a {
		for _, j := range b {
			all = append(all, fault{i, j, loss}, fault{j, i, loss})
		}
	}
	return all
}

// everywhere are the faults of all links, in both directions.
func (l *lab) everywhere(loss float64) (all []fault) {
	for i := 1; i <= l.nodes; i++ {
		for j := 1; j < i; j++ {
			all = append(all, fault{i, j, loss}, fault{j, i, loss})
		}
	}
	return all
}

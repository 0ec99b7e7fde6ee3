package proc

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

func sleeper(t *testing.T) Spec {
	t.Helper()
	program, err := exec.LookPath("sleep")
	if err != nil {
		t.Skipf("needs sleep in PATH: %v", err)
	}
	return Spec{Program: program, Args: []string{"600"}, Dir: t.TempDir()}
}

func gone(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, 0); err != syscall.ESRCH {
		t.Errorf("process %d: %v, want %v", pid, err, syscall.ESRCH)
	}
}

func TestStopEndsTheProcess(t *testing.T) {
	p, err := Start(t.Context(), sleeper(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(p.PID(), 0); err != nil {
		t.Fatalf("process %d does not run: %v", p.PID(), err)
	}
	if cpu, err := p.CPU(); err != nil || cpu > time.Second {
		t.Errorf("processor time %v, %v", cpu, err)
	}
	if err := p.Stop(); err != nil {
		t.Error(err)
	}
	gone(t, p.PID())
}

func TestAProcessThatNeverBecomesReadyIsEnded(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	never := errors.New("not yet")
	program, err := exec.LookPath("sh")
	if err != nil {
		t.Skipf("needs sh in PATH: %v", err)
	}
	file := filepath.Join(t.TempDir(), "pid")
	spec := Spec{Program: program, Args: []string{"-c", "echo $$ >" + file + "; exec sleep 600"}, Dir: t.TempDir()}
	var pid int
	spec.Ready = func(context.Context) error {
		text, _ := os.ReadFile(file)
		if n, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil {
			pid = n
			cancel() // as an interrupt does
		}
		return never
	}
	if _, err := Start(ctx, spec); !errors.Is(err, context.Canceled) || !errors.Is(err, never) {
		t.Errorf("error %v, want that of the context and %v", err, never)
	}
	if pid == 0 {
		t.Fatal("the process did not start")
	}
	gone(t, pid)
}

func TestAProcessThatEndsByItself(t *testing.T) {
	program, err := exec.LookPath("sh")
	if err != nil {
		t.Skipf("needs sh in PATH: %v", err)
	}
	spec := Spec{Program: program, Args: []string{"-c", "echo no port; exit 3"}, Dir: t.TempDir()}
	spec.Ready = func(context.Context) error { return errors.New("not yet") }
	if _, err := Start(t.Context(), spec); err == nil || !strings.Contains(err.Error(), "no port") || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("error %v, want the exit status and what it said", err)
	}
	spec.Ready = nil
	p, err := Start(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	<-p.ended
	if err := p.Stop(); err == nil || !strings.Contains(err.Error(), "by itself") {
		t.Errorf("error %v, want that it ended by itself", err)
	}
}

func TestAddressesDiffer(t *testing.T) {
	addrs, err := Addresses(50)
	if err != nil {
		t.Fatal(err)
	}
	seen := make(map[string]bool)
	for _, a := range addrs {
		seen[a] = true
	}
	if len(seen) != 50 {
		t.Errorf("%d different addresses of 50: %v", len(seen), addrs)
	}
}

func TestParseCPU(t *testing.T) {
	const stat = "4242 (a (strange) name) S 1 4242 4242 0 -1 4194560 100 0 0 0 250 31 0 0 20 0 5 0 100 1 1"
	if got, err := parseCPU(stat); err != nil || got != 2810*time.Millisecond {
		t.Errorf("%v, %v; want 2.81 s", got, err)
	}
	for _, bad := range []string{"", "1 (x) S 1", strings.Replace(stat, "250", "x", 1)} {
		if got, err := parseCPU(bad); err == nil {
			t.Errorf("%q: %v, want an error", bad, got)
		}
	}
}

package servers

import (
	"os/exec"
	"syscall"
	"testing"

	"github.com/jatah-io/jatah/bench/internal/proc"
)

// needs skips a test that starts servers where it cannot.
func needs(t *testing.T, programs ...string) {
	t.Helper()
	if testing.Short() {
		t.Skip("starts servers; leave out -short to run it")
	}
	for _, program := range programs {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("needs %s in PATH: %v", program, err)
		}
	}
}

// stopped stops a group and checks that no process of it is left.
func stopped(t *testing.T, g *Group) {
	t.Helper()
	if err := g.Stop(); err != nil {
		t.Error(err)
	}
	for _, p := range g.Procs {
		if err := syscall.Kill(p.PID(), 0); err != syscall.ESRCH {
			t.Errorf("process %d after Stop: %v, want %v", p.PID(), err, syscall.ESRCH)
		}
	}
}

func TestGubernator(t *testing.T) {
	needs(t, "go")
	dir := t.TempDir()
	program, err := proc.BuildHere(t.Context(), dir, GubernatorPackage)
	if err != nil {
		t.Fatal(err)
	}
	g, err := Gubernator(t.Context(), dir, program, 3)
	if err != nil {
		t.Fatal(err)
	}
	stopped(t, g)
}

func TestNodes(t *testing.T) {
	needs(t, "go")
	dir := t.TempDir()
	program, err := proc.BuildNode(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	g, err := Nodes(t.Context(), dir, program, 2, "api=100/s,burst=10")
	if err != nil {
		t.Fatal(err)
	}
	stopped(t, g)
}

func TestRedis(t *testing.T) {
	needs(t, RedisProgram)
	g, err := Redis(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	stopped(t, g)
}

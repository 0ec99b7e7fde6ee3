package proc

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// BuildNode builds the program of the module that is measured and returns its path in dir; one that is there and up to date is kept. Flags
// are those of go build, such as -race. It runs the go command, inside the module bench.
func BuildNode(ctx context.Context, dir string, flags ...string) (string, error) {
	where, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/jatah-io/jatah").Output()
	if err != nil {
		return "", fmt.Errorf("proc: where the module of the node is: %w; run this inside the module bench, with the go command in PATH", err)
	}
	return build(ctx, strings.TrimSpace(string(where)), dir, "jatah", "./cmd/node", flags...)
}

// BuildHere builds a program of the module bench, or of one that its go.mod requires, and returns its path in dir.
func BuildHere(ctx context.Context, dir, pkg string) (string, error) {
	return build(ctx, "", dir, filepath.Base(pkg), pkg)
}

// build runs go build in a directory, "" being the current one.
func build(ctx context.Context, in, dir, name, pkg string, flags ...string) (string, error) {
	program, err := filepath.Abs(filepath.Join(dir, name))
	if err != nil {
		return "", fmt.Errorf("proc: %w", err)
	}
	cmd := exec.CommandContext(ctx, "go", slices.Concat([]string{"build", "-o", program}, flags, []string{pkg})...)
	cmd.Dir = in
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("proc: building %s: %w\n%s", name, err, out)
	}
	return program, nil
}

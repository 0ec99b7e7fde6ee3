package report

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Meta says where and on what a run was made. Make it with Look, before the run.
type Meta struct {
	Start      time.Time
	Took       time.Duration
	Commit     string // short; with "-dirty" behind it where files are changed
	Command    string
	Rounds     int
	Short      bool
	Processor  string
	Processors int // that Go uses at once
	Memory     string
	Kernel     string
	Go         string
	LoadBefore string // averages over 1, 5 and 15 minutes
	LoadAfter  string
	Versions   []string // "path version" of every module measured
}

// Look finds out what it can of this machine and program; what it cannot is "unknown". The commit is that of the working directory.
func Look(ctx context.Context, suites []Suite, o Options) Meta {
	m := Meta{Start: time.Now(), Commit: commit(ctx), Command: "go run ./cmd/all " + strings.Join(os.Args[1:], " "), Rounds: o.Rounds, Short: o.Short,
		Processor: field("/proc/cpuinfo", "model name"), Processors: runtime.GOMAXPROCS(0), Memory: field("/proc/meminfo", "MemTotal"),
		Kernel: kernel(), Go: runtime.Version() + " " + runtime.GOOS + "/" + runtime.GOARCH, LoadBefore: Load()}
	m.Command = strings.TrimSpace(m.Command)
	m.Versions = versions(suites)
	return m
}

const unknown = "unknown"

// Load is the load average of the machine over 1, 5 and 15 minutes.
func Load() string {
	text, err := os.ReadFile("/proc/loadavg")
	if f := strings.Fields(string(text)); err == nil && len(f) >= 3 {
		return strings.Join(f[:3], " ")
	}
	return unknown
}

func commit(ctx context.Context) string {
	id, err := exec.CommandContext(ctx, "git", "rev-parse", "--short=10", "HEAD").Output()
	if err != nil {
		return unknown
	}
	short := strings.TrimSpace(string(id))
	// Results that lie about, from this run or another, change nothing that is measured.
	changed, err := exec.CommandContext(ctx, "git", "status", "--porcelain", "--untracked-files=no").Output()
	if err != nil || len(changed) > 0 {
		short += "-dirty"
	}
	return short
}

// field is the value of the first "name: value" in the file.
func field(file, name string) string {
	f, err := os.Open(file)
	if err != nil {
		return unknown
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if k, v, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(k) == name {
			return strings.TrimSpace(v)
		}
	}
	return unknown
}

func kernel() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return unknown
	}
	return unix.ByteSliceToString(u.Sysname[:]) + " " + unix.ByteSliceToString(u.Release[:])
}

func versions(suites []Suite) []string {
	var names []string
	for _, s := range suites {
		names = append(names, s.Modules...)
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return nil
	}
	var out []string
	for _, d := range info.Deps {
		if slices.Contains(names, d.Path) {
			out = append(out, fmt.Sprintf("%s %s", d.Path, d.Version))
		}
	}
	slices.Sort(out)
	return out
}

// Stem names the files of a run: "<date>-<commit>".
func (m Meta) Stem() string { return m.Start.UTC().Format("2006-01-02") + "-" + m.Commit }

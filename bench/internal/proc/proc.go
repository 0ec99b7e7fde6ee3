package proc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	readyTime = 30 * time.Second // how long a server may take to answer
	stopTime  = 15 * time.Second // how long it may take to end; a node hands off first, which takes up to 10 s
)

// Spec says what to start. Program and Dir are needed.
type Spec struct {
	Name    string // for messages; "": the base of Program
	Program string
	Args    []string
	Env     []string // "NAME=value", besides the environment of this process
	Dir     string   // where a file is made that gets what the process prints
	Log     string   // a file that gets it instead, behind what is there; "": a new one in Dir
	// Ready returns nil when the process answers, and is asked again while it does not. Nil: it is ready at once.
	Ready func(context.Context) error
}

// Process is a running server. Use Start. CPU and PID may be called from any goroutine, Stop from one.
type Process struct {
	name, log string
	cmd       *exec.Cmd
	ended     chan struct{} // closed when the process is gone; err is set then
	err       error
}

// Start starts a process and waits until it is ready, up to 30 s. When it fails, nothing runs.
func Start(ctx context.Context, s Spec) (*Process, error) {
	p := &Process{name: cmp.Or(s.Name, filepath.Base(s.Program)), ended: make(chan struct{})}
	f, err := s.open()
	if err != nil {
		return nil, fmt.Errorf("proc: log of %s: %w", p.name, err)
	}
	defer f.Close()
	p.log = f.Name()
	p.cmd = exec.Command(s.Program, s.Args...) // not CommandContext: that kills, and a node should hand off
	p.cmd.Stdout, p.cmd.Stderr = f, f
	p.cmd.Env = append(os.Environ(), s.Env...)
	p.cmd.SysProcAttr = attributes()
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("proc: %s: %w", p.name, err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.ended)
	}()
	if s.Ready == nil {
		return p, nil
	}
	if err := p.WaitReady(ctx, s.Ready); err != nil {
		return nil, errors.Join(err, p.end())
	}
	return p, nil
}

func (s Spec) open() (*os.File, error) {
	if s.Log == "" {
		return os.CreateTemp(s.Dir, "*.log")
	}
	return os.OpenFile(s.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
}

// WaitReady waits until ready returns nil, up to 30 s. It is for processes that become ready only when others run too; those are started with
// a nil Spec.Ready.
func (p *Process) WaitReady(ctx context.Context, ready func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, readyTime)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	var last error // not the one that only says that the wait is over, if there was another
	for {
		try, stop := context.WithTimeout(ctx, time.Second)
		err := ready(try)
		stop()
		if err == nil {
			return nil
		}
		if last == nil || ctx.Err() == nil {
			last = err
		}
		select {
		case <-p.ended:
			return fmt.Errorf("proc: %s ended before it was ready: %v\n%s", p.name, p.err, p.said())
		case <-ctx.Done():
			return fmt.Errorf("proc: %s is not ready: %w: %w\n%s", p.name, ctx.Err(), last, p.said())
		case <-tick.C:
		}
	}
}

// PID returns the process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Signal sends a signal. It fails if the process is gone.
func (p *Process) Signal(s os.Signal) error { return p.cmd.Process.Signal(s) }

// Ended is closed when the process is gone; then Err tells how it ended.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Err is nil if the process ended with code 0. Call it when Ended is closed.
func (p *Process) Err() error { return p.err }

// Stop ends the process. It fails if that had ended by itself, which spoils what was measured.
func (p *Process) Stop() error {
	select {
	case <-p.ended:
		return fmt.Errorf("proc: %s ended by itself: %v\n%s", p.name, p.err, p.said())
	default:
		return p.end()
	}
}

func (p *Process) end() error {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.ended:
		return nil
	case <-time.After(stopTime):
	}
	err := p.cmd.Process.Kill()
	<-p.ended
	return errors.Join(fmt.Errorf("proc: %s did not end within %v of SIGTERM and was killed", p.name, stopTime), err)
}

// said is the end of what the process printed.
func (p *Process) said() string {
	f, err := os.Open(p.log)
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	const most = 4096
	if info, err := f.Stat(); err == nil && info.Size() > most {
		_, _ = f.Seek(-most, io.SeekEnd)
	}
	text, err := io.ReadAll(f)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// CPU is the processor time that the process has used so far, in steps of 10 ms. It needs Linux.
func (p *Process) CPU() (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.PID()))
	if err != nil {
		return 0, fmt.Errorf("proc: processor time of %s: %w", p.name, err)
	}
	return parseCPU(string(text))
}

// parseCPU reads /proc/PID/stat. The name is in parentheses and may have spaces and parentheses; times in user mode and in the kernel are the
// 12th and 13th field after it, in hundredths of a second on every Linux.
func parseCPU(stat string) (time.Duration, error) {
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(fields) < 13 {
		return 0, fmt.Errorf("proc: cannot read the processor time in %q", stat)
	}
	var ticks int64
	for _, f := range fields[11:13] {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("proc: cannot read the processor time in %q: %w", stat, err)
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond, nil
}

// StopAll stops processes one after the other, the last first.
func StopAll(ps []*Process) error {
	var errs []error
	for i := len(ps) - 1; i >= 0; i-- {
		errs = append(errs, ps[i].Stop())
	}
	return errors.Join(errs...)
}

// HTTPReady is a Spec.Ready for a server that answers a GET of the URL with 200.
func HTTPReady(url string) func(context.Context) error {
	return func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("%s answers %s", url, resp.Status)
		}
		return nil
	}
}

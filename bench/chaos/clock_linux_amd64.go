package chaos

import (
	"bytes"
	"context"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const canStep = true

// clock lets the clock of one node step and, at the end, step back. No tool can: a Go program asks the kernel's vDSO for the time, which no
// library stands before, and a time namespace has no other time of day. So the copy of the vDSO in this one process is changed.
func (b *breaker) clock(ctx context.Context, n *node, s Step) error {
	v, err := openVDSO(n.running().PID())
	if err != nil {
		return err
	}
	if err := v.step(int64(s.Offset / time.Second)); err != nil {
		return err
	}
	if err := b.clockIs(ctx, n, s.Offset); err != nil {
		return err
	}
	pause(ctx, s.For)
	return errors.Join(v.back(), b.clockIs(ctx, n, 0))
}

// clockIs is nil if the header Date of a node tells of an offset.
func (b *breaker) clockIs(ctx context.Context, n *node, offset time.Duration) error {
	return b.c.await(ctx, changeTime, func() error { // the header is made once a second
		a, err := n.ask.Do(ctx, "GET", "/v1/limits", nil)
		if err != nil {
			return err
		}
		date, err := time.Parse("Mon, 02 Jan 2006 15:04:05 GMT", a.Header.Get("Date"))
		if err != nil {
			return fmt.Errorf("chaos: the header Date of %s: %w", n.name, err)
		}
		if off := time.Until(date) - offset; off.Abs() > 10*time.Second {
			return fmt.Errorf("chaos: the clock of %s is off by %v beyond the %v that were meant", n.name, off, offset)
		}
		return nil
	})
}

// vdso is the code in a process that reads clocks.
type vdso struct {
	pid        int
	mem        *os.File
	begin, end uint64
	entry      uint64 // of clock_gettime
	room       uint64 // where there is nothing
	before     []byte // what was at the entry
}

const jumpSize = 5

func openVDSO(pid int) (*vdso, error) {
	v := &vdso{pid: pid}
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return nil, fmt.Errorf("chaos: %w", err)
	}
	for line := range strings.Lines(string(maps)) {
		if strings.HasSuffix(strings.TrimSpace(line), "[vdso]") {
			if _, err := fmt.Sscanf(line, "%x-%x", &v.begin, &v.end); err != nil {
				return nil, fmt.Errorf("chaos: %s: %w", strings.TrimSpace(line), err)
			}
		}
	}
	if v.mem, err = os.OpenFile(fmt.Sprintf("/proc/%d/mem", pid), os.O_RDWR, 0); err != nil {
		return nil, fmt.Errorf("chaos: %w", err)
	}
	image := make([]byte, v.end-v.begin)
	if _, err := v.mem.ReadAt(image, int64(v.begin)); err != nil {
		return nil, errors.Join(fmt.Errorf("chaos: reading the vDSO: %w", err), v.mem.Close())
	}
	if err := v.find(image); err != nil {
		return nil, errors.Join(err, v.mem.Close())
	}
	return v, nil
}

// find finds the entry, and room for a stub behind the last byte that is used.
func (v *vdso) find(image []byte) error {
	f, err := elf.NewFile(bytes.NewReader(image))
	if err != nil {
		return fmt.Errorf("chaos: the vDSO: %w", err)
	}
	symbols, err := f.DynamicSymbols()
	if err != nil {
		return fmt.Errorf("chaos: the vDSO: %w", err)
	}
	for _, s := range symbols {
		if s.Name == "__vdso_clock_gettime" {
			v.entry = v.begin + s.Value
			v.before = bytes.Clone(image[s.Value : s.Value+jumpSize])
		}
	}
	used := len(bytes.TrimRight(image, "\x00"))
	room := (used + 63) / 64 * 64
	if v.entry == 0 || room+len(stub(0)) > len(image) {
		return errors.New("chaos: the vDSO has no clock_gettime, or no room for another")
	}
	v.room = v.begin + uint64(room)
	return nil
}

// stub is clock_gettime as a system call, with seconds added to the time of day.
func stub(seconds int64) []byte {
	code := []byte{
		0xb8, 228, 0, 0, 0, // mov eax, SYS_clock_gettime
		0x0f, 0x05, // syscall
		0x85, 0xff, // test edi, edi: CLOCK_REALTIME is 0
		0x75, 13, // jnz to ret
		0x48, 0xb9, // mov rcx, seconds
	}
	code = binary.LittleEndian.AppendUint64(code, uint64(seconds))
	return append(code,
		0x48, 0x01, 0x0e, // add [rsi], rcx
		0xc3) // ret
}

// step makes the clock differ.
func (v *vdso) step(seconds int64) error {
	jump := binary.LittleEndian.AppendUint32([]byte{0xe9}, uint32(int32(int64(v.room)-int64(v.entry)-jumpSize)))
	return v.halted(func() error {
		if _, err := v.mem.WriteAt(stub(seconds), int64(v.room)); err != nil {
			return fmt.Errorf("chaos: writing the vDSO: %w", err)
		}
		if _, err := v.mem.WriteAt(jump, int64(v.entry)); err != nil {
			return fmt.Errorf("chaos: writing the vDSO: %w", err)
		}
		return nil
	})
}

// back makes it as it was, and ends the use of v.
func (v *vdso) back() error {
	defer v.mem.Close()
	return v.halted(func() error {
		if _, err := v.mem.WriteAt(v.before, int64(v.entry)); err != nil {
			return fmt.Errorf("chaos: writing the vDSO: %w", err)
		}
		return nil
	})
}

// halted runs f while the process stands still, none of its threads in the code that f changes: a few milliseconds, which no node takes for a pause.
func (v *vdso) halted(f func() error) error {
	for range 1000 {
		if err := syscall.Kill(v.pid, syscall.SIGSTOP); err != nil {
			return fmt.Errorf("chaos: %w", err)
		}
		clear, err := v.clear()
		if clear {
			err = f()
		}
		if e := syscall.Kill(v.pid, syscall.SIGCONT); clear || err != nil || e != nil {
			return errors.Join(err, e)
		}
		time.Sleep(time.Millisecond)
	}
	return errors.New("chaos: a thread was in the vDSO whenever it was looked at")
}

// clear is whether all threads have halted elsewhere.
func (v *vdso) clear() (bool, error) {
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/syscall", v.pid))
	if err != nil {
		return false, fmt.Errorf("chaos: %w", err)
	}
	if len(tasks) == 0 {
		return false, fmt.Errorf("chaos: process %d is gone", v.pid)
	}
	for _, t := range tasks {
		text, err := os.ReadFile(t)
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			continue // the thread ended
		}
		if err != nil {
			return false, fmt.Errorf("chaos: %w", err)
		}
		fields := strings.Fields(string(text))
		pc, err := strconv.ParseUint(strings.TrimPrefix(fields[len(fields)-1], "0x"), 16, 64)
		if err != nil || v.begin <= pc && pc < v.end { // "running": not halted yet
			return false, nil
		}
	}
	return true, nil
}

package chaos

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// mountSmall gives a directory a disk of its own that is soon full.
func mountSmall(dir string) error {
	return unix.Mount("jatah-chaos", dir, "tmpfs", 0, "size=16m")
}

func unmount(dir string) { _ = unix.Unmount(dir, unix.MNT_DETACH) } // fails where nothing is mounted

// fillDisk writes until the disk is full and returns how to free it.
func fillDisk(dir string) (free func() error, err error) {
	name := filepath.Join(dir, "filler")
	f, err := os.Create(name)
	if err != nil {
		return nil, fmt.Errorf("chaos: %w", err)
	}
	defer f.Close()
	block := make([]byte, 64<<10)
	for size := len(block); size > 0; {
		if _, err = f.Write(block[:size]); err != nil {
			if !errors.Is(err, syscall.ENOSPC) {
				return nil, fmt.Errorf("chaos: filling the disk: %w", err)
			}
			size /= 2 // the last bytes too
		}
	}
	return func() error { return os.Remove(name) }, nil
}

// bound lets a process open only a few files more than it has open, and returns how to undo that.
func bound(pid, more int) (undo func() error, err error) {
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		return nil, fmt.Errorf("chaos: %w", err)
	}
	var before unix.Rlimit
	now := unix.Rlimit{Cur: uint64(len(open) + more)}
	if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &before); err != nil {
		return nil, fmt.Errorf("chaos: prlimit: %w", err)
	}
	now.Max = before.Max
	if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, &now, nil); err != nil {
		return nil, fmt.Errorf("chaos: prlimit: %w", err)
	}
	return func() error { return unix.Prlimit(pid, unix.RLIMIT_NOFILE, &before, nil) }, nil
}

//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package jatah

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// errLocked says that another process holds a lock.
var errLocked = errors.New("jatah: locked")

// lockFile takes a lock where there is no flock. On Windows a file that a process has open cannot be removed, so who can remove it
// finds nobody there; elsewhere this only notices a file that cannot be removed.
func lockFile(path string) (*os.File, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, errLocked
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil, errLocked
	}
	if err == nil {
		fmt.Fprintf(f, "process %d\n", os.Getpid())
	}
	return f, err
}

// syncDir does nothing: directories cannot be synced here.
func syncDir(string) error { return nil }

//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package jatah

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// errLocked says that another process holds a lock.
var errLocked = errors.New("jatah: locked")

// lockFile takes a lock that ends with the process, however that ends. The file tells who has it.
func lockFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, errLocked
		}
		return nil, fmt.Errorf("cannot lock %s: %w", path, err)
	}
	if err := f.Truncate(0); err == nil {
		fmt.Fprintf(f, "process %d\n", os.Getpid())
	}
	return f, nil
}

// syncDir makes a rename in the directory outlast a power cut.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

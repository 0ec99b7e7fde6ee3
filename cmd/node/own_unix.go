//go:build unix

package main

import (
	"os"
	"syscall"
)

// ownAs gives a file the owner of the one it is to replace, so that a node that does not run as root can still read it.
func ownAs(f *os.File, path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	was, ok := info.Sys().(*syscall.Stat_t)
	if !ok || int(was.Uid) == os.Geteuid() && int(was.Gid) == os.Getegid() {
		return nil
	}
	return f.Chown(int(was.Uid), int(was.Gid))
}

//go:build !linux

package chaos

import "errors"

var errLinux = errors.New("chaos: only Linux can do this")

func mountSmall(string) error { return errLinux }

func unmount(string) {}

func fillDisk(string) (func() error, error) { return nil, errLinux }

func bound(int, int) (func() error, error) { return nil, errLinux }

//go:build !linux

package demo

import "os/exec"

// dieWithParent does nothing where the kernel has no such thing.
func dieWithParent(*exec.Cmd) {}

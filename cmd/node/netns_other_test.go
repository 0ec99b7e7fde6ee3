//go:build !linux

package main

import "testing"

func TestFaultsBetweenProcesses(t *testing.T) {
	t.Skip("needs network namespaces, which only Linux has")
}

//go:build !linux

package jatah

// What the system says of a process is known on Linux only; 0 is not known.

func openFiles() (open, most uint64)        { return 0, 0 }
func memoryBound() uint64                   { return 0 }
func droppedByKernel(uint16) (drops uint64) { return 0 }

//go:build !linux

package main

// What the system says of itself is known on Linux only.

func receiveBufferMax() (int64, bool)  { return 0, false }
func freeSpace(string) (uint64, bool)  { return 0, false }
func whoListens(string, string) string { return "" }

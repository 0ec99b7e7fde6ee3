//go:build !linux

package keytable

func largePages([]uint64) {}

func toSystem([]uint64) bool { return false }

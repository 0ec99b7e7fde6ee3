//go:build !linux

package keytable

func largePages([]uint64) {}

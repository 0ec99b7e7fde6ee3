package keytable

import (
	"os"
	"syscall"
	"unsafe"
)

// largePages asks for pages of 2 MiB, before the memory is touched. If the system does not want to, all works as well.
func largePages(words []uint64) {
	page := uintptr(os.Getpagesize())
	b := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), len(words)*8)
	if skip := -uintptr(unsafe.Pointer(unsafe.SliceData(b))) % page; skip < uintptr(len(b)) {
		_ = syscall.Madvise(b[skip:], syscall.MADV_HUGEPAGE)
	}
}

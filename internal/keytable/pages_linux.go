package keytable

import (
	"os"
	"syscall"
	"unsafe"
)

// largePages asks for pages of 2 MiB, before the memory is touched. If the system does not want to, all works as well.
func largePages(words []uint64) {
	if b := pagesOf(words); b != nil {
		_ = syscall.Madvise(b, syscall.MADV_HUGEPAGE)
	}
}

// toSystem gives pages back to the system: the words are still there, and zero. false: it does not take them.
func toSystem(words []uint64) bool {
	b := pagesOf(words)
	return b != nil && syscall.Madvise(b, syscall.MADV_DONTNEED) == nil
}

// pagesOf is the whole pages in some memory.
func pagesOf(words []uint64) []byte {
	page := uintptr(os.Getpagesize())
	b := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), len(words)*8)
	skip := -uintptr(unsafe.Pointer(unsafe.SliceData(b))) % page
	if skip+page > uintptr(len(b)) {
		return nil
	}
	return b[skip : skip+(uintptr(len(b))-skip)/page*page]
}

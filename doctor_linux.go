package jatah

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// openFiles are the open file descriptors of this process and their bound; 0: not known.
func openFiles() (open, most uint64) {
	if names, err := os.ReadDir("/proc/self/fd"); err == nil {
		open = uint64(len(names))
	}
	var r syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &r); err == nil {
		most = uint64(r.Cur)
	}
	return open, most
}

// memoryBound is how much memory the control group of this process may use, which is the container or the service; 0: as much as there is.
func memoryBound() uint64 {
	const root = "/sys/fs/cgroup"
	groups := []string{root, root + "/memory"} // as a container sees it, of both versions
	if b, err := os.ReadFile("/proc/self/cgroup"); err == nil {
		for line := range strings.Lines(string(b)) {
			if path, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
				groups = append([]string{filepath.Join(root, path)}, groups...)
			}
		}
	}
	for _, g := range groups {
		for _, f := range []string{"memory.max", "memory.limit_in_bytes"} {
			// Version 1 says a number near the largest where there is no bound.
			if most := readNumber(filepath.Join(g, f)); most > 0 && most < 1<<60 {
				return most
			}
		}
	}
	return 0
}

// readNumber is 0 for a file that is not there or says no number, such as "max".
func readNumber(path string) uint64 {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	n, err := strconv.ParseUint(string(bytes.TrimSpace(b)), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// droppedByKernel is how many packets the kernel dropped for the UDP sockets of a port, since they were opened.
func droppedByKernel(port uint16) (drops uint64) {
	for _, table := range []string{"/proc/self/net/udp", "/proc/self/net/udp6"} {
		if b, err := os.ReadFile(table); err == nil {
			drops += dropsIn(string(b), port)
		}
	}
	return drops
}

// dropsIn adds the last column of the lines whose second one, an address, has the port.
func dropsIn(table string, port uint16) (drops uint64) {
	for line := range strings.Lines(table) {
		f := strings.Fields(line)
		if len(f) < 3 {
			continue
		}
		_, hex, ok := strings.Cut(f[1], ":")
		if p, err := strconv.ParseUint(hex, 16, 16); !ok || err != nil || uint16(p) != port {
			continue
		}
		if n, err := strconv.ParseUint(f[len(f)-1], 10, 64); err == nil {
			drops += n
		}
	}
	return drops
}

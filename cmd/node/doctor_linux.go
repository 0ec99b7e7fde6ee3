package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// receiveBufferMax is the sysctl net.core.rmem_max.
func receiveBufferMax() (int64, bool) {
	b, err := os.ReadFile("/proc/sys/net/core/rmem_max")
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	return n, err == nil
}

// freeSpace is what this user may still write, in bytes.
func freeSpace(dir string) (uint64, bool) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		return 0, false
	}
	return s.Bavail * uint64(s.Bsize), true
}

// whoListens is the process that has the port, such as "nginx (process 12)"; "" if that cannot be seen, as of other users' processes.
func whoListens(network, address string) string {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return ""
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return ""
	}
	sockets := map[string]bool{}
	for _, table := range []string{network, network + "6"} {
		b, _ := os.ReadFile("/proc/self/net/" + table)
		for line := range strings.Lines(string(b)) {
			f := strings.Fields(line)
			if len(f) < 10 || network == "tcp" && f[3] != "0A" { // 0A: listening
				continue
			}
			if _, hex, ok := strings.Cut(f[1], ":"); ok && strings.EqualFold(hex, fmt.Sprintf("%04X", n)) {
				sockets["socket:["+f[9]+"]"] = true
			}
		}
	}
	if len(sockets) == 0 {
		return ""
	}
	files, _ := filepath.Glob("/proc/[0-9]*/fd/*")
	for _, f := range files {
		if to, err := os.Readlink(f); err == nil && sockets[to] {
			pid := strings.Split(f, "/")[2]
			name, _ := os.ReadFile("/proc/" + pid + "/comm")
			return fmt.Sprintf("%s (process %s)", strings.TrimSpace(string(name)), pid)
		}
	}
	return ""
}

package proc

import (
	"fmt"
	"net"
)

// Addresses finds n addresses on the loopback interface whose ports nobody uses now, for TCP or UDP.
func Addresses(n int) ([]string, error) {
	var found []string
	for range 20 * n {
		if len(found) == n {
			break
		}
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("proc: no free port: %w", err)
		}
		defer ln.Close() // all stay taken until all are found, so that no port is found twice
		addr := ln.Addr().String()
		packets, err := net.ListenPacket("udp", addr)
		if err != nil {
			continue
		}
		defer packets.Close()
		found = append(found, addr)
	}
	if len(found) < n {
		return nil, fmt.Errorf("proc: found only %d of %d ports that are free for TCP and UDP", len(found), n)
	}
	return found, nil
}

package cluster

import (
	"net"
	"syscall"
)

// receiveBufferOf is the size of the socket's receive buffer in the bytes that one asks for; 0: unknown.
func receiveBufferOf(conn *net.UDPConn) (size int) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0
	}
	_ = raw.Control(func(fd uintptr) {
		if n, err := syscall.GetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF); err == nil {
			size = n / 2 // Linux doubles what is asked for, for its own records, and tells the double
		}
	})
	return size
}

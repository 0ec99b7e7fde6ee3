package proc

import "syscall"

// attributes: the death signal is sent when the thread that started the process ends. Go ends a thread only when a goroutine
// that is locked to it returns, and none here is.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

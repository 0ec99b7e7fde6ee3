package distributed

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// ownCPU is the processor time that this process has used so far.
func ownCPU() (time.Duration, error) {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0, fmt.Errorf("distributed: processor time: %w", err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), nil
}

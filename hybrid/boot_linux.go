package hybrid

import (
	"time"

	"golang.org/x/sys/unix"
)

// bootClock shows how long the machine was suspended, which Go's monotonic clock does not count on Linux.
type bootClock struct {
	boot, mono time.Duration
}

func clock(id int32) time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(id, &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}

func newBootClock() *bootClock {
	return &bootClock{clock(unix.CLOCK_BOOTTIME), clock(unix.CLOCK_MONOTONIC)}
}

// suspended is how long the machine slept since the last call.
func (c *bootClock) suspended() time.Duration {
	boot, mono := clock(unix.CLOCK_BOOTTIME), clock(unix.CLOCK_MONOTONIC)
	slept := (boot - c.boot) - (mono - c.mono)
	c.boot, c.mono = boot, mono
	return max(0, slept)
}

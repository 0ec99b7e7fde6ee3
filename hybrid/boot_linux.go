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

// both reads both clocks at one moment, as nearly as it can: what passes between the two readings, when the machine runs something else
// then, would look like sleep at the next one.
func both() *bootClock {
	const near, tries = 100 * time.Microsecond, 10
	c, apart := &bootClock{}, time.Duration(0)
	for i := range tries {
		before := clock(unix.CLOCK_MONOTONIC)
		boot := clock(unix.CLOCK_BOOTTIME)
		mono := clock(unix.CLOCK_MONOTONIC)
		if d := mono - before; i == 0 || d < apart {
			*c, apart = bootClock{boot, mono}, d
		}
		if apart < near {
			break
		}
	}
	return c
}

func newBootClock() *bootClock { return both() }

// suspended is how long the machine slept since the last call.
func (c *bootClock) suspended() time.Duration {
	now := both()
	slept := (now.boot - c.boot) - (now.mono - c.mono)
	*c = *now
	return max(0, slept)
}

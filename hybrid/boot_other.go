//go:build !linux

package hybrid

import "time"

// bootClock has nothing to add where the monotonic clock goes on while the machine is suspended.
type bootClock struct{}

func newBootClock() *bootClock                { return &bootClock{} }
func (c *bootClock) suspended() time.Duration { return 0 }

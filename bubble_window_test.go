package jatah_test

import (
	"testing"
	"time"

	"github.com/jatah-io/jatah"
)

// A partition that outlasts grace and reaches into a window of ten minutes: no side lets more than the limit through, and when they are together again
// all of them count what both have used, until the window ends.
func TestBothSidesOfAPartitionCountInTheWindow(t *testing.T) {
	limit := jatah.Limit{Name: "api", Algorithm: jatah.FixedWindow, Rate: jatah.Per(10, 10*time.Minute)}
	inBubble(t, 1, limit, 1, func(b *bubble) {
		b.start(3)
		key := b.keys[0]
		// The window after next: shares that moved while the cluster came up count from the next one on.
		begin := time.Now().Truncate(10 * time.Minute).Add(20 * time.Minute)
		at := func(s int) { time.Sleep(time.Until(begin.Add(time.Duration(s) * time.Second))) }
		at(-300) // grace is over when the window begins
		left, right := b.hosts[:2], b.hosts[2]
		b.net.Partition([]string{left[0].addr, left[1].addr}, []string{right.addr})
		at(10)
		a, c := left[0].takes(key, 12), right.takes(key, 12)
		at(100)
		a, c = a+left[1].takes(key, 12), c+right.takes(key, 12)
		if a > 10 || c > 10 || a == 0 || c == 0 || a+c < 10 { // the right knows by its seeds that there are three
			t.Errorf("%d and %d pass, want some on each side and at most 10, and 10 in all or more", a, c)
		}
		at(120)
		b.net.Heal()
		b.together(time.Minute, 3)
		at(180)
		for _, h := range b.hosts {
			d := h.take(key, 1)
			if off := (d.RetryAfter - 420*time.Second).Abs(); d.OK || d.Remaining != 0 || off > 200*time.Millisecond {
				t.Errorf("%s: %+v, want nothing left for 420 s more", h.name, d)
			}
		}
		at(601)
		n := int64(0)
		for range 20 { // what one of them holds and does not use is called back within some ticks
			n += left[0].takes(key, 1) + right.takes(key, 1)
			time.Sleep(100 * time.Millisecond)
		}
		if n != 10 {
			t.Errorf("%d pass in the next window, want 10", n)
		}
	})
}

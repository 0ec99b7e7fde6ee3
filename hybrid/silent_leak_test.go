package hybrid

import (
	"fmt"
	"testing"
)

// TestKeysOfAnOwnerThatCrashedAreForgotten: what was decided by fallback until another member took its keys over is not kept for good.
func TestKeysOfAnOwnerThatCrashedAreForgotten(t *testing.T) {
	for _, fallback := range []Fallback{FallbackShare, FallbackWait} {
		s := testSpec(1, 6)
		s.Fallback = fallback
		w := quiet(t, 3, 0, s)
		w.nodes[0].kill()
		w.detect()
		w.sleep(sec)
		for i := range 300 {
			w.nodes[1+i%2].ask(fmt.Sprint("k", i), 1)
		}
		w.sleep(60 * sec)
		for _, n := range w.nodes[1:] {
			if n.e.accounts.n > 0 {
				t.Errorf("%v: %d accounts are left at %s", fallback, n.e.accounts.n, n.name)
			}
		}
	}
}

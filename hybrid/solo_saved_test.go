package hybrid

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/jatah-io/jatah/bucket"
)

// TestSoloUnfoldedWhileSaved: a snapshot of many keys lets go of the lock now and then. A key that somebody needs more of in such a
// moment is in the snapshot, whether it was at its turn before or not.
func TestSoloUnfoldedWhileSaved(t *testing.T) {
	const keys = 20_000
	b := newBare(t, 1, Spec{Name: "api", Rate: bucket.Per(1, 1000*time.Hour), Burst: 100}, 0)
	e := b.engines[b.names[0]]
	l, _ := e.Lookup("api")
	ctx := context.Background()
	key := func(i int) string { return fmt.Sprint("key-", i) }
	for i := range keys {
		l.Take(ctx, key(i), 10)
	}
	// Whoever else wants the lock gets it when it is let go of: that moment is where a snapshot looks at its next 500 keys.
	next, locked := keys-1, make(chan struct{})
	done := make(chan []byte)
	e.mu.Lock()
	go func() { done <- e.Snapshot(b.now, time.Unix(1e9, 0)) }()
	e.mu.Unlock()
	go func() {
		defer close(locked)
		for ; next >= 0; next-- {
			l.Charge(ctx, key(next), 1)
			runtime.Gosched()
		}
	}()
	s, err := decodeSaved(kindSnapshot, <-done)
	<-locked
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	for _, r := range s.records {
		if r.base {
			continue
		}
		seen[r.key]++
		if r.level.Whole < 89 || r.level.Whole > 90 {
			t.Errorf("%s: %d are left in the snapshot", r.key, r.level.Whole)
		}
	}
	missing := 0
	for i := range keys {
		if seen[key(i)] == 0 {
			missing++
		}
	}
	if missing > 0 {
		t.Errorf("%d of %d keys are missing in the snapshot", missing, keys)
	}
}

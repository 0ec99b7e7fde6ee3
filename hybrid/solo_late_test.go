package hybrid

import (
	"context"
	"testing"
	"time"

	"github.com/jatah-io/jatah/bucket"
)

// TestSoloSpentWhileTheLockWasWaitedFor: a tick, a look, a snapshot or a change of members read the clock, and come by the lock later. What was spent of a
// full key meanwhile was spent then, and does not refill from before.
func TestSoloSpentWhileTheLockWasWaitedFor(t *testing.T) {
	for name, late := range map[string]func(e *Engine, l *Limit, now int64){
		"tick":      func(e *Engine, _ *Limit, now int64) { e.Tick(now, 0) },
		"snapshot":  func(e *Engine, _ *Limit, now int64) { e.Snapshot(now, time.Unix(1e9, 0)) },
		"members":   func(e *Engine, _ *Limit, now int64) { e.SetView(now, e.view) },
		"take":      func(e *Engine, l *Limit, now int64) { e.begin(now, l, "k", 40) },
		"look":      func(e *Engine, l *Limit, now int64) { e.begin(now, l, "k", 0) },
		"forgotten": func(e *Engine, l *Limit, now int64) { e.makeRoom(l, now, 64) },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBare(t, 1, Spec{Name: "api", Rate: bucket.Per(100, time.Second), Burst: 100}, 0)
			e := b.engines[b.names[0]]
			l, _ := e.Lookup("api")
			ctx := context.Background()
			if d := l.Take(ctx, "k", 1); !d.OK {
				t.Fatalf("%+v", d)
			}
			b.tick() // it is full again, and there is credit of it
			read := b.now
			b.now += int64(300 * time.Millisecond)
			admitted := int64(0)
			for d := (Decision{}); l.OnCredit(&d, "k", 1); d = (Decision{}) {
				admitted++
			}
			if admitted == 0 {
				t.Fatal("there was no credit")
			}
			late(e, l, read)
			if name == "take" {
				admitted += 40
			}
			for l.Take(ctx, "k", 1).OK {
				admitted++
			}
			if admitted > 100 {
				t.Errorf("%d were admitted at one moment, of a burst of 100", admitted)
			}
		})
	}
}

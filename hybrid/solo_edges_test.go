package hybrid

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jatah-io/jatah/bucket"
)

// allCounted is how many decisions an engine says there were.
func allCounted(e *Engine) (n uint64) {
	for _, s := range e.Stats().Limits {
		for i := range s.Allowed {
			n += s.Allowed[i] + s.Denied[i]
		}
	}
	return n
}

// TestSnapshotWhileKeysUnfold: keys that stop being solo while a snapshot is made are in it, wherever it had come to by then, and no token is counted that was not
// spent.
func TestSnapshotWhileKeysUnfold(t *testing.T) {
	const keys, used = 20_000, 10
	b := newBare(t, 1, Spec{Name: "api", Rate: bucket.Per(1, time.Hour), Burst: 100}, 0)
	e := b.engines[b.names[0]]
	l, _ := e.Lookup("api")
	ctx := context.Background()
	for i := range keys {
		for range 2 {
			if !l.Take(ctx, fmt.Sprint(i), used/2).OK {
				t.Fatal(i)
			}
		}
	}
	var stop atomic.Bool
	done := make(chan struct{})
	e.mu.Lock()
	go func() {
		defer close(done)
		for i := keys - 1; i >= 0 && !stop.Load(); i-- {
			l.Charge(ctx, fmt.Sprint(i), 0)
			runtime.Gosched()
		}
	}()
	e.mu.Unlock()
	image := e.Snapshot(b.now, time.Unix(1e9, 0))
	stop.Store(true)
	<-done
	unfolded := keys - e.nsolo
	s, err := decodeSaved(kindSnapshot, image)
	if err != nil {
		t.Fatal(err)
	}
	saved := map[string]bool{}
	for _, r := range s.records {
		if got := r.level.Tokens(); got > 100-used+0.01 || got < 100-used-0.01 {
			t.Fatalf("%s: %v are left of 100, %d were used", r.key, got, used)
		}
		saved[r.key] = true
	}
	if len(saved) != keys {
		t.Errorf("%d of %d keys are in the snapshot; %d were unfolded meanwhile", len(saved), keys, unfolded)
	}
	if n := allCounted(e); n != 2*keys {
		t.Errorf("%d decisions were counted, there were %d", n, 2*keys)
	}
}

// TestSnapshotOfTheEnd: what a snapshot that is exact says is left nobody can spend any more, not even a take that began before.
func TestSnapshotOfTheEnd(t *testing.T) {
	b := newBare(t, 1, Spec{Name: "api", Rate: bucket.Per(1, time.Hour), Burst: 100}, 0)
	e := b.engines[b.names[0]]
	l, _ := e.Lookup("api")
	l.Take(context.Background(), "k", 1)
	p, w := l.keys.Find("k")
	if p.credit.load() == 0 {
		t.Fatal("there is no credit")
	}
	e.Close()
	first := e.Snapshot(b.now, time.Unix(1e9, 0))
	if left, _, ok := p.credit.spend(w, 1); ok {
		t.Errorf("spent after the end; %d are left", left)
	}
	if second := e.Snapshot(b.now, time.Unix(1e9, 0)); string(first) != string(second) {
		t.Error("two snapshots of the end differ")
	}
}

// TestSoloTop: what is taken of a solo key counts among what uses most, whether credit covered it or not.
func TestSoloTop(t *testing.T) {
	for _, burst := range []int64{1, 3, 100} {
		b := newBare(t, 1, Spec{Name: "api", Rate: bucket.Per(1, time.Second), Burst: burst}, 0)
		e := b.engines[b.names[0]]
		l, _ := e.Lookup("api")
		took := int64(0)
		for range 20 {
			if d := l.Take(context.Background(), "k", 1); d.OK {
				took++
			}
			for range 3 {
				b.tick()
			}
		}
		if e.nsolo != 1 || took < 5 {
			t.Fatalf("burst %d: %d solo keys, %d takes", burst, e.nsolo, took)
		}
		if used, _ := usedOf(l, "k"); used != took {
			t.Errorf("burst %d: %d were used, it counts %d", burst, took, used)
		}
	}
}

// TestHotWordOfAnother: a take that found a hot key, and then went on when that key had cooled and another was hot under its number, takes nothing of the other one.
func TestHotWordOfAnother(t *testing.T) {
	b := newBare(t, 1, Spec{Name: "api", Rate: bucket.Per(1, time.Hour), Burst: 100}, 0)
	e := b.engines[b.names[0]]
	e.parallel = 2
	l, _ := e.Lookup("api")
	ctx := context.Background()
	for _, key := range []string{"a", "b"} {
		l.Take(ctx, key, 1)
	}
	l.heat("a")
	l.Take(ctx, "a", 1)
	p, w := l.keys.Find("a")
	if w&creditHot == 0 {
		t.Fatal("it is not hot")
	}
	e.mu.Lock()
	e.cool(e.accountOf(l, "a"))
	e.mu.Unlock()
	l.heat("b")
	l.Take(ctx, "b", 1)
	other, has := l.keys.Find("b")
	other.credit.flags(0, creditDirty)
	if has&creditHot == 0 || (has^w)&^(versions|creditDirty) != 0 {
		t.Fatalf("b has not the number that a had: %x, %x", has, w)
	}
	before := e.accountOf(l, "b").left()
	h := e.accountOf(l, "b").hot.Load()
	if before == 0 || h == nil {
		t.Fatal("b has no credit")
	}
	h.word = h.word&^versions | w&versions // as 31 times of 32 in a table that is young
	if _, ok := l.spendAgain(p, w&^creditDirty, "a", 1); ok || e.accountOf(l, "b").left() != before {
		t.Error("a take of a was charged to b")
	}
}

// TestStaleAccount: who found an account whose key was forgotten since, and whose purse is another key's by now, spends nothing of that.
func TestStaleAccount(t *testing.T) {
	b := newBare(t, 1, Spec{Name: "api", Rate: bucket.Per(1000, time.Second), Burst: 100}, 0)
	e := b.engines[b.names[0]]
	l, _ := e.Lookup("api")
	ctx := context.Background()
	l.Refund(ctx, "a", 1) // it gets an account
	p, word := l.keys.Find("a")
	a := e.accountIn(p, "a")
	if a == nil {
		t.Fatal("there is no account")
	}
	for range 200 {
		b.tick()
	}
	if l.keys.Len() != 0 {
		t.Fatal("it is not forgotten")
	}
	l.Take(ctx, "b", 1)
	if q, _ := l.keys.Find("b"); q != p || q.credit.load() == 0 {
		t.Fatal("the purse was not used again")
	}
	if _, ok := a.spendFree(l, word, 1); ok {
		t.Error("a take of a was charged to b")
	}
}

// TestBulkIsNotCountedTooHigh: however Stats and takes of many tokens meet, no decision is counted before there was one.
func TestBulkIsNotCountedTooHigh(t *testing.T) {
	const cost = 1 << 20
	b := newBare(t, 1, Spec{Name: "api", Rate: bucket.Per(1<<30, time.Hour), Burst: 1 << 45}, 0)
	e := b.engines[b.names[0]]
	l, _ := e.Lookup("api")
	var began atomic.Uint64
	var stop atomic.Bool
	done := make(chan struct{})
	go func() {
		defer close(done)
		for !stop.Load() {
			began.Add(1)
			if d := l.Take(context.Background(), "k", cost); !d.OK {
				t.Errorf("%+v", d)
				return
			}
		}
	}()
	for range 20_000 {
		counted := allCounted(e)
		n := began.Load()
		if counted > n {
			t.Errorf("%d decisions are counted, %d began", counted, n)
			break
		}
		if n > 1<<20 { // on one processor thousands of takes go by between two looks; there are tokens for 1<<25
			break
		}
	}
	stop.Store(true)
	<-done
	if n, counted := began.Load(), allCounted(e); counted != n {
		t.Errorf("%d decisions are counted, there were %d", counted, n)
	}
}

// TestEveryLimitIsSettled: a limit whose keys are spent from faster than a tick can take in does not keep those of others waiting.
func TestEveryLimitIsSettled(t *testing.T) {
	const step = 10
	b := newBare(t, 1, Spec{Name: "api", Rate: bucket.Per(1, time.Hour), Burst: 10_000}, 0)
	e := b.engines[b.names[0]]
	names := []string{"api", "a", "b", "c"}
	for _, name := range names[1:] {
		if _, err := e.Define(Spec{Name: name, Rate: bucket.Per(1, time.Hour), Burst: 10_000}); err != nil {
			t.Fatal(err)
		}
	}
	take := func() {
		for _, name := range names {
			l, _ := e.Lookup(name)
			for i := range step {
				if d := l.Take(context.Background(), fmt.Sprint(i), 1); !d.OK {
					t.Fatalf("%+v", d)
				}
			}
		}
	}
	take()
	for range 10 {
		take()
		e.mu.Lock()
		e.settleSpent(b.now, step)
		e.unlock()
	}
	for _, name := range names {
		if l, _ := e.Lookup(name); l.spent == 0 {
			t.Errorf("nothing of %s was taken in", name)
		}
	}
}

// TestViewOfOne: a view that changes nothing for a node that is alone keeps what was used.
func TestViewOfOne(t *testing.T) {
	b := newBare(t, 1, Spec{Name: "api", Rate: bucket.Per(1, time.Hour), Burst: 10}, 0)
	e := b.engines[b.names[0]]
	l, _ := e.Lookup("api")
	ctx := context.Background()
	for i := range 2000 {
		l.Take(ctx, fmt.Sprint(i), 1+int64(i%9))
	}
	e.SetView(b.now, e.view)
	b.tick()
	for i := range 2000 {
		want := 10 - 1 - int64(i%9)
		if d := l.Take(ctx, fmt.Sprint(i), want+1); d.OK {
			t.Fatalf("%d: %d were left, and %d were taken", i, want, want+1)
		}
		if d := l.Take(ctx, fmt.Sprint(i), want); want > 0 && !d.OK {
			t.Fatalf("%d: %d were left, and not given: %+v", i, want, d)
		}
	}
}

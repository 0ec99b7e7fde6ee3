package budget

import (
	"math"
	"sync"
	"sync/atomic"
	"testing"
)

func TestBytesEndAtTheBoundAndWhatIsKeptBackIsForReserved(t *testing.T) {
	b := New(0, 100, 20)
	for _, step := range []struct {
		part     Part
		n        int64
		reserved bool
		ok       bool
		used     int64
	}{
		{Accounts, 80, false, true, 80},
		{Accounts, 1, false, false, 80}, // the rest is kept back
		{Ledgers, 15, true, true, 95},
		{Ledgers, 6, true, false, 95}, // in part is not at all
		{Ledgers, 5, true, true, 100},
	} {
		if ok := b.Take(step.part, step.n, step.reserved); ok != step.ok || b.Bytes() != step.used {
			t.Errorf("%d for %v: %v and %d are used, want %v and %d", step.n, step.part, ok, b.Bytes(), step.ok, step.used)
		}
	}
	b.Add(Standby, 50) // in any case
	b.Add(Accounts, -60)
	if b.Bytes() != 90 || b.Part(Accounts) != 20 || b.Part(Ledgers) != 20 || b.Part(Standby) != 50 {
		t.Errorf("%d are used: %d, %d, %d", b.Bytes(), b.Part(Accounts), b.Part(Ledgers), b.Part(Standby))
	}
	if b.Take(Accounts, 1, false) {
		t.Error("what was added beyond the bound leaves as much to others")
	}
}

func TestKeysEndAtTheBoundThatCounts(t *testing.T) {
	b := New(2, 0, 7)
	for i, want := range []bool{true, true, false} {
		if b.Key(false) != want {
			t.Fatalf("key %d of 2: %v, want %v", i+1, !want, want)
		}
	}
	if !b.KeysFull() || !b.Key(true) || b.Keys() != 3 {
		t.Fatalf("%d keys, want 2 and one that is reserved", b.Keys())
	}
	b.DropKeys(2)
	if b.SetMaxKeys(1); b.Key(false) || b.MaxKeys() != 1 {
		t.Error("a second key of 1")
	}
	b.DropKey()
	if !b.Key(false) {
		t.Error("no first key of 1")
	}
	if b.SetMaxKeys(0); b.KeysFull() || !b.Key(false) || b.MaxKeys() != math.MaxInt64 {
		t.Error("0 is no bound")
	}
	if !b.Take(Records, math.MaxInt64/2, false) || b.MaxBytes() != math.MaxInt64 || b.Tight() {
		t.Error("0 bytes are no bound, and nothing is kept back of that")
	}
}

func TestTightComesBeforeFull(t *testing.T) {
	b := New(0, 3200, 0)
	if b.Add(Meters, 3100); b.Tight() {
		t.Error("a 32nd is left")
	}
	if b.Add(Meters, 1); !b.Tight() {
		t.Error("less than a 32nd is left")
	}
}

// Nobody who asks finds room that another has taken, and what is given back is there again.
func TestBoundsHoldBesideOthers(t *testing.T) {
	b := New(50, 1000, 0)
	var most atomic.Int64
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 2000 {
				if b.Key(false) {
					if n := b.Keys(); n > 50 {
						most.Store(n)
					}
					b.DropKey()
				}
				if b.Take(Permits, 300, false) {
					if n := b.Bytes(); n > 1000 {
						most.Store(n)
					}
					b.Add(Permits, -300)
				}
			}
		})
	}
	all.Wait()
	if most.Load() != 0 || b.Keys() != 0 || b.Bytes() != 0 || b.Part(Permits) != 0 {
		t.Errorf("at most %d; %d keys and %d bytes are left", most.Load(), b.Keys(), b.Bytes())
	}
}

func TestNoBudgetHasNoBounds(t *testing.T) {
	var b *Budget
	if !b.Key(false) || !b.Take(Records, math.MaxInt64, false) {
		t.Error("it refuses")
	}
	b.DropKey()
	b.DropKeys(3)
	b.Add(Records, -5)
}

func TestPartsHaveNames(t *testing.T) {
	seen := map[string]bool{}
	for p := range Part(Parts) {
		seen[p.String()] = true
	}
	if len(seen) != Parts || seen[""] {
		t.Errorf("%d parts are named %v", Parts, seen)
	}
}

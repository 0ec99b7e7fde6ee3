package keytable

import (
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jatah-io/jatah/internal/budget"
)

// TestMemoryComesBack floods a table with keys of all lengths while others look for those that stay and for those that come and go, and forgets the flood: memory and
// index are what they were, what stayed is found, and another flood of other lengths gets what the first one had.
func TestMemoryComesBack(t *testing.T) {
	rng := newRand(t)
	b := budget.New(0, 0, 0)
	table := NewIn[counter](b)
	add := func(key string, id uint64) *counter {
		r, _ := table.Add(key, func(r *counter) { r.id.Store(id); r.word.Add(1 << 8) })
		if r == nil {
			t.Fatalf("no room for %q", key)
		}
		return r
	}
	stay := make([]string, some(20_000))
	for i := range stay {
		stay[i] = fmt.Sprint("stays ", i)
		add(stay[i], uint64(i))
	}
	before, most := b.Bytes(), int64(0)
	flood := func(i int) string { return fmt.Sprint(strings.Repeat("f", i%97*(i%11)), i) }
	n := some(100_000)
	var readers sync.WaitGroup
	var done atomic.Bool
	for g := range 2 {
		readers.Go(func() {
			for i := g; !done.Load(); i++ {
				if r, _ := table.Find(stay[i%len(stay)]); r != nil && r.id.Load() != uint64(i%len(stay)) {
					t.Errorf("%q is that of another key", stay[i%len(stay)])
					return
				}
				if r, w := table.Find(flood(i % n)); r != nil && r.word.CompareAndSwap(w, w+1<<8) {
					table.Mark(r)
				}
			}
		})
	}
	for round := range 3 {
		var all []*counter
		for i := range n {
			all = append(all, add(flood(i), math.MaxUint64))
		}
		most = max(most, b.Bytes())
		rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		for i, r := range all {
			table.Delete(r)
			table.Free(r)
			if i%1000 == 0 {
				table.Marked(50, func(r *counter) { _ = table.Key(r) })
				table.Walk(50, func(r *counter) { _ = table.Key(r) })
			}
		}
		all = nil
		if now := b.Bytes(); now > 2*before+8*blockWords+1<<20 {
			t.Errorf("round %d: %d bytes before the flood, up to %d in it, %d after it", round, before, most, now)
		}
		if s := len(table.usages); s > 512 {
			t.Errorf("round %d: the directory has %d segments", round, s)
		}
	}
	done.Store(true)
	readers.Wait()
	for i, key := range stay {
		if r, _ := table.Find(key); r == nil || r.id.Load() != uint64(i) {
			t.Fatalf("%q is lost", key)
		}
	}
	seen := 0
	table.All(func(*counter) { seen++ })
	if seen != len(stay) || table.Len() != len(stay) {
		t.Fatalf("%d keys are seen and %d counted, want %d", seen, table.Len(), len(stay))
	}
}

// TestBudget fills a table to its bound from many goroutines: never more is taken, some keys find no room, and when others are forgotten they do, of
// shorter keys also in what longer ones had.
func TestBudget(t *testing.T) {
	const bound = 6 << 20
	b := budget.New(0, bound, 64<<10)
	table := NewIn[counter](b)
	var mu sync.Mutex
	var all []*counter
	var refused atomic.Int64
	var writers sync.WaitGroup
	for g := range 8 {
		writers.Go(func() {
			for i := range some(40_000) * 5 {
				r, _ := table.Add(fmt.Sprint(strings.Repeat("k", 400+(i+g)%100), g, "/", i), func(*counter) {})
				if used := b.Bytes(); used > bound-64<<10 {
					t.Errorf("%d bytes of %d", used, bound)
					return
				}
				if r == nil {
					if refused.Add(1) > 1000 {
						return
					}
					continue
				}
				mu.Lock()
				all = append(all, r)
				mu.Unlock()
			}
		})
	}
	writers.Wait()
	if used := b.Bytes(); used > bound-64<<10 || used < bound*3/4 || refused.Load() == 0 {
		t.Fatalf("%d bytes of %d are used, and %d were refused", used, bound, refused.Load())
	}
	if r, _ := table.AddReserved(strings.Repeat("k", 1000), func(*counter) {}); r == nil && b.Bytes() < bound-300<<10 {
		t.Error("nothing was kept back")
	}
	for _, r := range all[:100] {
		table.Delete(r)
		table.Free(r)
	}
	for i := range 100 {
		if r, _ := table.Add(fmt.Sprint("short", i), func(*counter) {}); r == nil {
			t.Fatalf("no room for short key %d", i)
		}
	}
}

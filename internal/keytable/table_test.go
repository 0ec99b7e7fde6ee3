package keytable

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// counter is a record as the callers have them: the word that is swapped, and something else.
type counter struct {
	id   atomic.Uint64
	word atomic.Uint64
}

// some is n, or a part of it in a short run, as under the race detector: most tests here have one goroutine.
func some(n int) int {
	if testing.Short() {
		return n / 10
	}
	return n
}

func newRand(t *testing.T) *rand.Rand {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 1))
}

// randomKey makes keys of all lengths that differ in the first, the last or any byte.
func randomKey(rng *rand.Rand) string {
	n := []int{0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 24, 31, 100, 1024}[rng.IntN(16)]
	b := []byte(strings.Repeat("k", n))
	for range min(n, 3) {
		b[rng.IntN(n)] = byte(rng.IntN(8)) + 'a'
	}
	return string(b)
}

// TestTwin compares a table with a map, over any order of adding, deleting and freeing.
func TestTwin(t *testing.T) {
	rng := newRand(t)
	table, twin := New[counter](), map[string]uint64{}
	var deleted []*counter
	next := uint64(1)
	for range some(300_000) {
		key := randomKey(rng)
		switch rng.IntN(8) {
		case 0, 1, 2, 3:
			r, added := table.Add(key, func(r *counter) { r.id.Store(next) })
			if _, known := twin[key]; known == added || r == nil {
				t.Fatalf("adding %q: added is %v, known is %v", key, added, known)
			}
			if added {
				twin[key] = next
				next++
			}
		case 4, 5:
			r, _ := table.Find(key)
			if id, known := twin[key]; known != (r != nil) || known && (r.id.Load() != id || table.Key(r) != key) {
				t.Fatalf("%q: found is %v, known is %v", key, r != nil, known)
			}
			if r != nil {
				table.Delete(r)
				delete(twin, key)
				deleted = append(deleted, r)
			}
		case 6:
			if len(deleted) > 0 {
				table.Free(deleted[0])
				deleted = deleted[1:]
			}
		}
		if table.Len() != len(twin) {
			t.Fatalf("%d keys, want %d", table.Len(), len(twin))
		}
	}
	seen := map[string]bool{}
	table.All(func(r *counter) {
		key := table.Key(r)
		if seen[key] || twin[key] != r.id.Load() {
			t.Errorf("%q is there twice, or is another's", key)
		}
		seen[key] = true
	})
	if len(seen) != len(twin) {
		t.Errorf("All shows %d of %d", len(seen), len(twin))
	}
}

// TestGrows adds so many that the directory doubles often, and takes all away again.
func TestGrows(t *testing.T) {
	table := New[counter]()
	n := some(200_000)
	for i := range n {
		table.Add(fmt.Sprint("key:", i), func(r *counter) { r.id.Store(uint64(i)) })
	}
	for i := range n {
		if r, _ := table.Find(fmt.Sprint("key:", i)); r == nil || r.id.Load() != uint64(i) {
			t.Fatalf("key %d of %d is lost", i, n)
		}
	}
	most := table.held()
	for i := range n {
		r, _ := table.Find(fmt.Sprint("key:", i))
		table.Delete(r)
		table.Free(r)
		if i%1000 == 0 {
			for j := i + 1; j < n; j += 997 {
				if r, _ := table.Find(fmt.Sprint("key:", j)); r == nil || r.id.Load() != uint64(j) {
					t.Fatalf("key %d is lost when %d is deleted", j, i)
				}
			}
		}
	}
	if table.Len() != 0 {
		t.Errorf("%d keys are left", table.Len())
	}
	if c := table.held(); c > 5 { // the small ones and the newest
		t.Errorf("%d chunks of %d are left of an empty table", c, len(table.chunks()))
	}
	for i := range n {
		table.Add(fmt.Sprint("yek:", i), func(*counter) {})
	}
	if after := table.held(); after > most+1 {
		t.Errorf("%d chunks for the same number of keys of the same length, %d before", after, most)
	}
}

// held is how many chunks have memory.
func (t *Table[T]) held() (n int) {
	for _, c := range t.chunks() {
		if c != nil {
			n++
		}
	}
	return n
}

// TestWalk goes through a table in steps, while the function that is called deletes.
func TestWalk(t *testing.T) {
	rng := newRand(t)
	table := New[counter]()
	for i := range 10_000 {
		table.Add(fmt.Sprint(i), func(r *counter) { r.id.Store(uint64(i)) })
	}
	seen := map[uint64]int{}
	for total := 0; ; {
		n := 1 + rng.IntN(500)
		got := table.Walk(n, func(r *counter) {
			seen[r.id.Load()]++
			if r.id.Load()%3 == 0 {
				table.Delete(r)
				table.Free(r)
			}
		})
		if total += got; got < n {
			break
		}
	}
	if len(seen) != 10_000 {
		t.Errorf("%d of 10000 were seen", len(seen))
	}
	for id, n := range seen {
		if n != 1 {
			t.Errorf("%d was seen %d times", id, n)
		}
	}
	if got := table.Walk(100_000, func(r *counter) {
		if r.id.Load()%3 == 0 {
			t.Errorf("%d was deleted", r.id.Load())
		}
	}); got != table.Places() || got != 10_000 {
		t.Errorf("there were %d places in the second round, want %d", got, table.Places())
	}
	if table.Walk(10, func(*counter) {}); table.Len() != 6666 {
		t.Errorf("%d are left", table.Len())
	}
	table.All(func(r *counter) { table.Delete(r) })
	if got := table.Walk(10, func(*counter) { t.Error("nobody is left") }); got != 10 {
		t.Errorf("it went by %d places that are empty, and was to look at 10", got)
	}
}

// TestMarked finds each record that was marked, once for any number of marks, in steps of any length.
func TestMarked(t *testing.T) {
	rng := newRand(t)
	table := New[counter]()
	var all []*counter
	for i := range 50_000 {
		r, _ := table.Add(fmt.Sprint(i), func(r *counter) { r.id.Store(uint64(i)) })
		all = append(all, r)
	}
	for range 20 {
		want := map[*counter]bool{}
		for range rng.IntN(3000) {
			r := all[rng.IntN(len(all))]
			want[r] = true
			table.Mark(r)
		}
		for more := true; more; {
			more = table.Marked(1+rng.IntN(300), func(r *counter) {
				if !want[r] {
					t.Fatalf("%d was not marked, or came twice", r.id.Load())
				}
				delete(want, r)
			})
		}
		if len(want) != 0 {
			t.Errorf("%d marked records did not come", len(want))
		}
	}
}

// TestConcurrent lets goroutines count on records while others add and delete them. Every count must arrive at a record of its key: the version in
// the word keeps those out who found the record when it was another's.
func TestConcurrent(t *testing.T) {
	table := New[counter]()
	const keys = 300
	name := func(i int) string { return fmt.Sprintf("key:%d", i) }
	var counted, lost [keys]atomic.Uint64
	var stop atomic.Bool
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(g), 3))
			for range 100_000 {
				i := rng.IntN(keys)
				r, first := table.Find(name(i))
				if r == nil {
					continue
				}
				if r.word.CompareAndSwap(first, first+1<<16) {
					counted[i].Add(1)
				}
			}
		})
	}
	var limbo []*counter
	done := make(chan struct{})
	go func() {
		defer close(done)
		rng := rand.New(rand.NewPCG(9, 9))
		for !stop.Load() {
			i := rng.IntN(keys)
			r, _ := table.Add(name(i), func(r *counter) {
				r.id.Store(uint64(i))
				r.word.Store(uint64(uint16(r.word.Load() + 1))) // no counts, the next version
			})
			if rng.IntN(3) == 0 {
				table.Delete(r)
				lost[i].Add(r.word.Swap(uint64(uint16(r.word.Load()+1))) >> 16)
				if limbo = append(limbo, r); len(limbo) > 16 {
					table.Free(limbo[0])
					limbo = limbo[1:]
				}
			}
		}
	}()
	wg.Wait()
	stop.Store(true)
	<-done
	table.All(func(r *counter) { lost[r.id.Load()].Add(r.word.Load() >> 16) })
	for i := range keys {
		if counted[i].Load() != lost[i].Load() {
			t.Errorf("key %d: %d were counted, %d arrived", i, counted[i].Load(), lost[i].Load())
		}
	}
}

func TestRecordsOfOddSizes(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("a record of 5 bytes was accepted")
		}
	}()
	New[[5]byte]()
}

// TestLongKey refuses what no chunk has room for, and takes the longest that fits.
func TestLongKey(t *testing.T) {
	table := New[counter]()
	if r, _ := table.Add(strings.Repeat("x", 8*chunkWords), func(*counter) {}); r != nil {
		t.Error("a key that is longer than a chunk was taken")
	}
	long := strings.Repeat("y", 8*(chunkWords-table.header-1))
	r, added := table.Add(long, func(*counter) {})
	if !added || table.Key(r) != long || table.Len() != 1 {
		t.Errorf("the longest key that fits: added is %v", added)
	}
}

func benchKeys(n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprintf("user:%08d", i)
	}
	return keys
}

// BenchmarkFind is a look-up and one compare-and-swap.
func BenchmarkFind(b *testing.B) {
	all := benchKeys(1_000_000)
	for _, n := range []int{1, 10_000, 1_000_000} {
		table := New[[4]atomic.Uint64]()
		for _, k := range all[:n] {
			table.Add(k, func(*[4]atomic.Uint64) {})
		}
		order := make([]uint32, 1<<20)
		for i := range order {
			order[i] = rand.Uint32N(uint32(n))
		}
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			i := 0
			for b.Loop() {
				r, w := table.Find(all[order[i&(1<<20-1)]])
				r[3].CompareAndSwap(w, w+256)
				i++
			}
		})
	}
}

// BenchmarkAdd is the first time of a key, up to a million; with the longest of them, the bytes that each takes beside its own, and
// a full collection when all are there.
func BenchmarkAdd(b *testing.B) {
	keys := benchKeys(1_000_000)
	for b.Loop() {
		runtime.GC()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		table := New[[4]atomic.Uint64]()
		var worst time.Duration
		start := time.Now()
		for _, k := range keys {
			at := time.Now()
			table.Add(k, func(*[4]atomic.Uint64) {})
			worst = max(worst, time.Since(at))
		}
		per := time.Since(start) / time.Duration(len(keys))
		at := time.Now()
		runtime.GC()
		b.ReportMetric(time.Since(at).Seconds()*1e3, "gc-ms")
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/float64(len(keys))-float64(len(keys[0])), "B/key")
		b.ReportMetric(float64(per.Nanoseconds()), "ns/key")
		b.ReportMetric(float64(worst.Microseconds()), "worst-us")
		runtime.KeepAlive(table)
	}
}

// TestScan goes through chunk after chunk in pieces of any length, while records come and go.
func TestScan(t *testing.T) {
	rng := newRand(t)
	table := New[counter]()
	stay := map[*counter]bool{}
	for i := range 30_000 {
		r, _ := table.Add(fmt.Sprint(strings.Repeat("x", i%40), i), func(r *counter) { r.id.Store(uint64(i)) })
		stay[r] = i%3 != 0
	}
	seen := map[*counter]int{}
	for chunk := range table.Chunks() {
		for place, end := 0, false; !end; end = place == 0 {
			left := 1 + rng.IntN(100)
			place = table.Scan(chunk, place, func(r *counter) bool {
				if table.ChunkOf(r) != chunk {
					t.Fatalf("a record of chunk %d is in chunk %d", table.ChunkOf(r), chunk)
				}
				if seen[r]++; !stay[r] {
					table.Delete(r)
					table.Free(r)
				}
				left--
				return left > 0
			})
		}
	}
	for r, kept := range stay {
		if seen[r] != 1 {
			t.Fatalf("%d was seen %d times (kept %v)", r.id.Load(), seen[r], kept)
		}
	}
}

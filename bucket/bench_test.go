package bucket

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"strconv"
	"sync/atomic"
	"testing"
	"time"
)

// TestTakeAllocatesNothing is the allocation budget of a decision: an allocation would cost more
// than the decision. Only the bucket that a key without one is decided on is allocated where int has 32 bits: atomic numbers are
// aligned to eight bytes, and stacks there are not.
func TestTakeAllocatesNothing(t *testing.T) {
	tab := NewTable(params(t, "1000/s", 10), 1)
	tab.Take("known", 0, 10)
	now := int64(0)
	unseen := map[string]float64{}
	if strconv.IntSize == 32 {
		unseen = map[string]float64{"look": 1, "overflow": 1}
	}
	for name, f := range map[string]func(){
		"take":     func() { tab.Take("known", now, 1) },
		"peek":     func() { tab.Peek("known", now) },
		"charge":   func() { tab.Charge("known", now, 1) },
		"refund":   func() { tab.Refund("known", now, 1) },
		"look":     func() { tab.Peek("unseen", now) },
		"overflow": func() { tab.Take("unseen", 0, 1) },
	} {
		if n := testing.AllocsPerRun(1000, func() { now += 1000; f() }); n > unseen[name] {
			t.Errorf("%s: %v allocations, want at most %v", name, n, unseen[name])
		}
	}
}

// drawKeys draws the keys of a benchmark beforehand.
func drawKeys(n int, zipf bool) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = "user:" + strconv.Itoa(i)
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	z := rand.NewZipf(rnd, 1.1, 1, uint64(n-1))
	drawn := make([]string, 1<<20)
	for i := range drawn {
		if zipf {
			drawn[i] = all[z.Uint64()]
		} else {
			drawn[i] = all[rnd.IntN(n)]
		}
	}
	return drawn
}

// BenchmarkTake takes one token of 1, 10 000 or a million keys of a table, with a clock that
// advances 100 ns per take. Most are allowed.
func BenchmarkTake(b *testing.B) {
	for _, c := range []struct {
		keys int
		zipf bool
		name string
	}{
		{1, false, "keys=1"}, {10_000, false, "keys=10k/uniform"}, {10_000, true, "keys=10k/zipf"},
		{1_000_000, false, "keys=1M/uniform"}, {1_000_000, true, "keys=1M/zipf"},
	} {
		var drawn []string
		if c.keys > 1 {
			drawn = drawKeys(c.keys, c.zipf)
		} else {
			drawn = []string{"user:0"}
		}
		mask := len(drawn) - 1
		tab := NewTable(params(b, "100000000/s", 1e6), 2_000_000)
		for _, k := range drawn {
			tab.Take(k, 0, 1)
		}
		b.Run(c.name+"/seq", func(b *testing.B) {
			b.ReportAllocs()
			for i := range b.N {
				tab.Take(drawn[i&mask], int64(i)*100, 1)
			}
		})
		b.Run(c.name+"/par", func(b *testing.B) {
			b.ReportAllocs()
			var ids atomic.Int64
			b.RunParallel(func(pb *testing.PB) {
				i := int(ids.Add(1)) * 7919
				for ; pb.Next(); i++ {
					tab.Take(drawn[i&mask], int64(i)*100, 1)
				}
			})
		})
	}
}

// BenchmarkBucket is a decision without the table.
func BenchmarkBucket(b *testing.B) {
	for _, rate := range []string{"100000000/s", "65535/s", "1/min"} {
		p := params(b, rate, 10)
		b.Run(rate+"/take", func(b *testing.B) {
			k, step := New(p), int64(p.FillTime())/10+1
			step = min(step, int64(75*year)/int64(max(b.N, 1)))
			b.ReportAllocs()
			for i := range b.N {
				k.Take(int64(i)*step, 1)
			}
		})
		b.Run(rate+"/denied", func(b *testing.B) {
			k := New(p)
			k.Charge(0, 1_000_000_000)
			b.ReportAllocs()
			for i := range b.N {
				k.Take(int64(i&1023), 1)
			}
		})
	}
}

// BenchmarkNewKeys is a flood of keys never seen before: on a table with room, on one full of keys
// that cannot be forgotten, and on one whose keys are full again after a while and give way.
func BenchmarkNewKeys(b *testing.B) {
	for _, c := range []struct {
		name, rate string
		max, known int
	}{{"room", "1/min", 1 << 30, 0}, {"refused", "1/min", 1_000_000, 1_000_000}, {"evict", "1000000/s", 100_000, 100_000}} {
		b.Run(c.name, func(b *testing.B) {
			tab := NewTable(params(b, c.rate, 5), c.max)
			for i := range c.known {
				tab.Take("known"+strconv.Itoa(i), 0, 5)
			}
			b.ReportAllocs()
			b.ResetTimer()
			var ids atomic.Int64
			b.RunParallel(func(pb *testing.PB) {
				key := fmt.Appendf(nil, "%d/", ids.Add(1))
				n := len(key)
				for i := 0; pb.Next(); i++ {
					key = strconv.AppendInt(key[:n], int64(i), 10)
					tab.Take(string(key), 10_000+int64(i), 1)
				}
			})
			b.ReportMetric(float64(tab.Stats().Overflows)/float64(b.N), "overflows/op")
		})
	}
}

// BenchmarkMemory measures the heap per key without the bytes of the key itself, which are 13; a full collection when all keys are there; and the longest
// that a first take waited, for this or for the processor.
func BenchmarkMemory(b *testing.B) {
	for _, c := range []struct {
		name string
		keys int
	}{{"1M", 1_000_000}, {"10M", 10_000_000}} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				var before, after runtime.MemStats
				runtime.GC()
				runtime.ReadMemStats(&before)
				tab := NewTable(params(b, "1/min", 5), c.keys)
				var key []byte
				var worst time.Duration
				for i := range c.keys {
					key = fmt.Appendf(key[:0], "user:%08d", i)
					at := time.Now()
					tab.Take(string(key), int64(i), 1)
					worst = max(worst, time.Since(at))
				}
				runtime.GC()
				at := time.Now()
				runtime.GC()
				b.ReportMetric(time.Since(at).Seconds()*1e3, "gc-ms")
				runtime.ReadMemStats(&after)
				b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/float64(c.keys)-float64(len(key)), "B/key")
				b.ReportMetric(float64(worst.Microseconds()), "worst-us")
				runtime.KeepAlive(tab)
			}
		})
	}
}

// BenchmarkSweep forgets a million keys that are full, and looks at a million that were used since.
func BenchmarkSweep(b *testing.B) {
	const keys = 1_000_000
	for b.Loop() {
		b.StopTimer()
		tab := NewTable(params(b, "1/s", 5), keys)
		for i := range keys {
			tab.Take(strconv.Itoa(i), 0, 1)
		}
		b.StartTimer()
		if n := tab.Sweep(int64(time.Minute), 0); n != keys {
			b.Fatal(n)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/keys, "ns/key")
}

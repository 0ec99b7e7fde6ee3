package bench

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// draws is how many keys are drawn beforehand; a power of two, so that going round is cheap.
const draws = 1 << 20

func keyNames(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = "user:" + strconv.Itoa(i)
	}
	return names
}

// draw returns draws of the names, the same ones each time.
func draw(names []string, zipf bool) []string {
	r := rand.New(rand.NewPCG(1, 2))
	pick := func() int { return r.IntN(len(names)) }
	if zipf && len(names) > 1 {
		// Exponent 1.1: the first of a million keys gets about a tenth of the requests.
		z := rand.NewZipf(r, 1.1, 1, uint64(len(names)-1))
		pick = func() int { return int(z.Uint64()) }
	}
	drawn := make([]string, draws)
	for i := range drawn {
		drawn[i] = names[pick()]
	}
	return drawn
}

// spread runs b.N takes on so many goroutines and counts those allowed. Beside the time on the clock it reports that
// spent on processors, which says more when other programs want them too.
func spread(b *testing.B, goroutines int, drawn []string, take func(string) bool) int {
	var sum atomic.Int64
	run := func(first, n int) {
		ok := 0
		for i := first; i < first+n; i++ {
			if take(drawn[i&(draws-1)]) {
				ok++
			}
		}
		sum.Add(int64(ok))
	}
	b.ReportAllocs()
	used := processorTime(b)
	b.ResetTimer()
	var wg sync.WaitGroup
	for g := 1; g < goroutines; g++ {
		// Each starts elsewhere, or all would touch the same keys at the same time.
		wg.Go(func() { run(g*draws/goroutines, b.N/goroutines) })
	}
	run(0, b.N-(goroutines-1)*(b.N/goroutines))
	wg.Wait()
	b.StopTimer()
	b.ReportMetric(float64(processorTime(b)-used)/float64(b.N), "cpu-ns/op")
	return int(sum.Load())
}

// BenchmarkTake takes one token of known keys that all have enough.
func BenchmarkTake(b *testing.B) {
	for _, keys := range []int{1, 10_000, 1_000_000} {
		names := keyNames(keys)
		for _, zipf := range []bool{false, true} {
			name := "uniform"
			if zipf {
				name = "zipf"
			}
			if keys == 1 && zipf {
				continue
			}
			drawn := draw(names, zipf)
			for _, p := range peers() {
				b.Run(fmt.Sprintf("keys=%d/%s/%s", keys, name, p.name), func(b *testing.B) {
					take := p.open(b, ample)
					for _, key := range names {
						take(key)
					}
					runtime.GC()
					for _, g := range []int{1, 2} {
						b.Run(fmt.Sprintf("goroutines=%d", g), func(b *testing.B) {
							if got := spread(b, g, drawn, take); got != b.N {
								b.Fatalf("%d of %d allowed, want all", got, b.N)
							}
						})
					}
				})
			}
		}
	}
}

// BenchmarkDenied asks for a token of a key that has none, as a flood does.
func BenchmarkDenied(b *testing.B) {
	drawn := draw(keyNames(1), false)
	for _, p := range peers() {
		b.Run(p.name, func(b *testing.B) {
			take := p.open(b, spent)
			take(drawn[0])
			for _, g := range []int{1, 2} {
				b.Run(fmt.Sprintf("goroutines=%d", g), func(b *testing.B) {
					if got := spread(b, g, drawn, take); got != 0 {
						b.Fatalf("%d of %d allowed, want none", got, b.N)
					}
				})
			}
		})
	}
}

// BenchmarkNewKeys takes the first token of a million keys, and measures what the heap keeps for each: all but the bytes of
// the key itself, which the caller holds here. ns/op is for all keys together.
func BenchmarkNewKeys(b *testing.B) {
	names := keyNames(1_000_000)
	for _, p := range peers() {
		b.Run(p.name, func(b *testing.B) {
			var cpu time.Duration
			for b.Loop() {
				b.StopTimer()
				take := p.open(b, spent)
				before, used := heap(), processorTime(b)
				b.StartTimer()
				for _, key := range names {
					if !take(key) {
						b.Fatalf("the first request of %s is denied", key)
					}
				}
				b.StopTimer()
				cpu += processorTime(b) - used
				b.ReportMetric(float64(heap()-before)/float64(len(names)), "B/key")
				runtime.KeepAlive(take)
				b.StartTimer()
			}
			b.ReportMetric(float64(cpu)/float64(b.N*len(names)), "cpu-ns/key")
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(names)), "ns/key")
		})
	}
}

// processorTime is what this process has used so far, on all processors.
func processorTime(b *testing.B) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// heap is the number of bytes in use after a collection.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

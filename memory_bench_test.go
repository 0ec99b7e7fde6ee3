package jatah_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"testing"
	"time"

	"github.com/jatah-io/jatah"
	"github.com/jatah-io/jatah/cluster/simnet"
)

// BenchmarkMemoryPerKey is what a key takes beside its 13 bytes, in three ways: as the node counts it, as the heap grew, and as the process did. In the
// cluster it is that of a key's user, owner and heir together, which are three nodes in one process.
//
//	go test -run '^$' -bench BenchmarkMemoryPerKey -benchtime 1x .
func BenchmarkMemoryPerKey(b *testing.B) {
	window := jatah.Limit{Name: "api", Algorithm: jatah.SlidingWindow, Rate: jatah.PerDay(100)}
	bucket := jatah.Limit{Name: "api", Rate: jatah.PerDay(100), Burst: 100}
	for _, c := range []struct {
		name  string
		nodes int
		limit jatah.Limit
		keys  []int
	}{
		{"alone", 0, bucket, []int{1_000_000, 10_000_000}},
		{"only-member", 1, bucket, []int{1_000_000, 10_000_000}},
		{"alone-sliding_window", 0, window, []int{1_000_000}},
		{"cluster", 3, bucket, []int{100_000, 1_000_000}},
	} {
		for _, n := range c.keys {
			b.Run(fmt.Sprint(c.name, "/", n), func(b *testing.B) {
				if testing.Short() && n > 100_000 {
					b.Skip("too many keys for a short run")
				}
				for b.Loop() {
					keyMemory(b, c.nodes, c.limit, n)
				}
			})
		}
	}
}

func keyMemory(b *testing.B, nodes int, limit jatah.Limit, n int) {
	b.Helper()
	heap, resident := memoryNow()
	var members []*jatah.Node
	var limiters []*jatah.Limiter
	net := simnet.New(1)
	for i := range max(nodes, 1) {
		cfg := jatah.Config{Node: fmt.Sprint("n", i), MaxKeys: 2 * n, AskTimeout: time.Second, Insecure: true, Logger: slog.New(slog.DiscardHandler)}
		if nodes > 0 {
			cfg.SyncInterval, cfg.Settle = memoryTick, 2*memoryTick
			tr, err := net.Transport(fmt.Sprintf("10.0.0.%d:7946", i+1))
			if err != nil {
				b.Fatal(err)
			}
			cfg.Transport, cfg.Join, cfg.Expect = tr, []string{"10.0.0.1:7946"}, nodes
		}
		node, err := jatah.Start(context.Background(), cfg)
		if err != nil {
			b.Fatal(err)
		}
		l, err := node.Limit(limit)
		if err != nil {
			b.Fatal(err)
		}
		members, limiters = append(members, node), append(limiters, l)
	}
	for i := range n {
		limiters[i%len(limiters)].Take(context.Background(), fmt.Sprintf("user:%08d", i), 50)
	}
	if nodes > 1 {
		time.Sleep(4 * memoryTick) // copies for the heirs
	}
	counted := int64(0)
	for _, m := range members {
		counted += m.Stats().Memory.Used
	}
	heapAfter, residentAfter := memoryNow()
	per := func(v int64) float64 { return float64(v)/float64(n) - 13 }
	b.ReportMetric(per(counted), "counted-B/key")
	b.ReportMetric(per(heapAfter-heap), "heap-B/key")
	b.ReportMetric(per(residentAfter-resident), "resident-B/key")
	for _, m := range members {
		_ = m.Close()
	}
}

// memoryTick is so long that a busy machine is not taken for a paused one.
const memoryTick = 2 * time.Second

// BenchmarkFlood is what a request of a new key costs while there is no room for it, which is all that a flood of them is.
func BenchmarkFlood(b *testing.B) {
	keys := benchKeys(1 << 20)
	for _, clustered := range []bool{false, true} {
		for _, policy := range []jatah.Overflow{jatah.OverflowDeny, jatah.OverflowAllow, jatah.OverflowShared} {
			name := "alone"
			cfg := jatah.Config{Node: "n1", MaxKeys: 1000, Overflow: policy, Settle: 100 * time.Millisecond, Logger: slog.New(slog.DiscardHandler)}
			if clustered {
				tr, err := simnet.New(1).Transport("10.0.0.1:7946")
				if err != nil {
					b.Fatal(err)
				}
				name, cfg.Transport = "only-member", tr
			}
			b.Run(name+"/"+policy.String(), func(b *testing.B) {
				node, err := jatah.Start(context.Background(), cfg)
				if err != nil {
					b.Fatal(err)
				}
				defer node.Close()
				l, err := node.Limit(jatah.Limit{Name: "api", Rate: jatah.PerDay(10), Burst: 10})
				if err != nil {
					b.Fatal(err)
				}
				for _, k := range keys[:1000] {
					l.Take(context.Background(), k, 5)
				}
				i := 0
				for b.Loop() {
					l.Take(context.Background(), keys[1000+i%1_000_000], 1)
					i++
				}
			})
		}
	}
}

// memoryNow is what the heap holds after a collection, and what the process has of the system's memory; 0 where that is not Linux.
func memoryNow() (heap, resident int64) {
	runtime.GC()
	debug.FreeOSMemory()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	if statm, err := os.ReadFile("/proc/self/statm"); err == nil {
		if f := bytes.Fields(statm); len(f) > 1 {
			pages, _ := strconv.ParseInt(string(f[1]), 10, 64)
			resident = pages * int64(os.Getpagesize())
		}
	}
	return int64(m.HeapAlloc), resident
}

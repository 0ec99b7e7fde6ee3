package local

import (
	"context"
	"fmt"
	"runtime"
	"runtime/metrics"
	"time"

	"github.com/jatah-io/jatah/bench/report"
)

func memorySuite() report.Suite {
	return report.Suite{
		Name: "memory", Baseline: baseline, Modules: modules(), Run: runMemory,
		Doc: "What a peer keeps for each key: growth of the objects in the heap after a collection (`/memory/classes/heap/objects:bytes`), less the bytes of the keys themselves, which are strings that nobody else " +
			"holds. GC: the median of five full collections (`runtime.GC`) with all those keys, and nothing else in the heap; the row nothing is a process without any limiter. new: the time on the clock that the first request of " +
			"each key takes, for hybrid with the wait for its first credit.",
	}
}

func runMemory(ctx context.Context, o report.Options, emit func(report.Sample)) error {
	sizes := []int{1_000_000, 10_000_000}
	if o.Short {
		sizes = []int{100_000}
	}
	for _, keys := range sizes {
		rounds := o.Rounds
		if keys > 1_000_000 || o.Short {
			rounds = 1 // memory hardly varies, and filling takes long
		}
		for round := range rounds {
			emitGC(keys, "nothing", emit)
			for _, p := range peers() {
				if keys > 1_000_000 && !p.big {
					continue
				}
				if err := weigh(ctx, p, keys, emit); err != nil {
					return fmt.Errorf("%s, %d keys: %w", p.name, keys, err)
				}
			}
			o.Log("memory: %d keys: round %d of %d", keys, round+1, rounds)
		}
	}
	return nil
}

// weigh fills a peer with keys that nobody else holds.
func weigh(ctx context.Context, p peer, keys int, emit func(report.Sample)) error {
	quietHeap()
	before := heapObjects()
	start := time.Now()
	s, err := p.known(ctx, ample, keys)
	if err != nil {
		return err
	}
	defer func() { s.close(); runtime.KeepAlive(s) }() // most have nothing to close, and would be collected
	took := time.Since(start)
	quietHeap()
	beside := float64(heapObjects()-before) - float64(keyBytes(keys))
	params := map[string]float64{"keys": float64(keys)}
	emit(report.Sample{Case: "state", Peer: p.name, Unit: "B/key", Params: params, Values: []float64{beside / float64(keys)}, Note: p.note})
	emitGC(keys, p.name, emit)
	emit(report.Sample{Case: "new", Peer: p.name, Unit: "ns/key", Params: params, Values: []float64{float64(took) / float64(keys)}})
	return nil
}

// emitGC measures full collections of what is in the heap now.
func emitGC(keys int, peer string, emit func(report.Sample)) {
	var took []float64
	for range 5 {
		start := time.Now()
		runtime.GC()
		took = append(took, float64(time.Since(start))/float64(time.Millisecond))
	}
	emit(report.Sample{Case: "GC", Peer: peer, Unit: "ms", Params: map[string]float64{"keys": float64(keys)}, Values: []float64{report.Median(took)}})
}

// quietHeap collects until nothing is left to collect: what has finalizers or lies in pools needs a second round.
func quietHeap() {
	runtime.GC()
	runtime.GC()
}

// heapObjects is the size of the objects in the heap, in bytes.
func heapObjects() uint64 {
	s := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}

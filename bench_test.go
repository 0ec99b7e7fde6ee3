package jatah_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/jatah-io/jatah"
	"github.com/jatah-io/jatah/bucket"
	"github.com/jatah-io/jatah/cluster/simnet"
)

// onCredit is a limit of a clustered node that holds so much credit for each key that a benchmark does not use it up.
func onCredit(b *testing.B, keys []string) *jatah.Limiter {
	b.Helper()
	tr, err := simnet.New(1).Transport("10.0.0.1:7946")
	if err != nil {
		b.Fatal(err)
	}
	node, err := jatah.Start(context.Background(), jatah.Config{Node: "n1", Transport: tr, Settle: 100 * time.Millisecond, MaxKeys: 4 << 20})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = node.Close() })
	const plenty = 1 << 40
	l, err := node.Limit(jatah.Limit{Name: "api", Rate: jatah.PerSecond(3e9), Burst: plenty})
	if err != nil {
		b.Fatal(err)
	}
	for _, k := range keys {
		if d := l.Take(context.Background(), k, 1); !d.OK {
			b.Fatalf("%s: %+v", k, d)
		}
	}
	return l
}

func benchKeys(n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprintf("user:%08d", i)
	}
	return keys
}

// order is the sequence of keys that a benchmark goes through.
func order(n int, next func() int) []uint32 {
	o := make([]uint32, 1<<20)
	if n == 1 {
		return o
	}
	for i := range o {
		o[i] = uint32(next())
	}
	return o
}

// BenchmarkTake is a decision in hybrid mode on credit: a look-up and one compare-and-swap.
func BenchmarkTake(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 2))
	million := benchKeys(1_000_000)
	zipf := rand.NewZipf(rng, 1.1, 1, 999_999)
	for _, c := range []struct {
		name string
		keys []string
		next func() int
	}{
		{"hot1", million[:1], nil},
		{"keys10k", million[:10_000], func() int { return rng.IntN(10_000) }},
		{"zipf1M", million, func() int { return int(zipf.Uint64()) }},
		{"uniform1M", million, func() int { return rng.IntN(1_000_000) }},
	} {
		b.Run(c.name, func(b *testing.B) {
			l := onCredit(b, c.keys)
			seq := order(len(c.keys), c.next)
			runtime.GC()
			b.Run("seq", func(b *testing.B) {
				b.ReportAllocs()
				ctx := context.Background()
				for i := range b.N { // b.Loop would copy each Decision to keep it
					l.Take(ctx, c.keys[seq[i&(1<<20-1)]], 1)
				}
			})
			b.Run("par", func(b *testing.B) {
				b.ReportAllocs()
				b.RunParallel(func(pb *testing.PB) {
					ctx := context.Background()
					for i := rand.IntN(1 << 20); pb.Next(); i++ {
						l.Take(ctx, c.keys[seq[i&(1<<20-1)]], 1)
					}
				})
			})
		})
	}
}

// BenchmarkTakeAlone is a decision of a node alone, on the bare bucket: a look-up, a clock and one compare-and-swap.
func BenchmarkTakeAlone(b *testing.B) {
	keys := benchKeys(10_000)
	node, err := jatah.Start(context.Background(), jatah.Config{})
	if err != nil {
		b.Fatal(err)
	}
	defer node.Close()
	l, err := node.Limit(jatah.Limit{Name: "api", Rate: jatah.PerSecond(3e9), Burst: 1 << 40})
	if err != nil {
		b.Fatal(err)
	}
	seq := order(len(keys), func() int { return rand.IntN(len(keys)) })
	ctx := context.Background()
	for _, n := range []struct {
		name string
		mask int
	}{{"hot1", 0}, {"keys10k", 1<<20 - 1}} {
		b.Run(n.name, func(b *testing.B) {
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				l.Take(ctx, keys[seq[i&n.mask]], 1)
				i++
			}
		})
	}
}

// BenchmarkBareBucket is the floor: one bucket without a table, with the clock that it needs.
func BenchmarkBareBucket(b *testing.B) {
	p, err := bucket.NewParams(jatah.PerSecond(3e9), 1<<40)
	if err != nil {
		b.Fatal(err)
	}
	x := bucket.New(p)
	start := time.Now()
	b.ReportAllocs()
	for b.Loop() {
		x.Take(int64(time.Since(start)), 1)
	}
}

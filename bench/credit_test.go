package bench

import (
	"context"
	"fmt"
	"log/slog"
	"testing"

	"github.com/jatah-io/jatah"
)

// BenchmarkCluster takes tokens at one of three nodes that talk over the loopback interface: one hot key that the node
// owns, and one that another node owns, whose credit it spends. local/op is the part of the decisions that were made
// in the memory of the node; the others asked the owner.
func BenchmarkCluster(b *testing.B) {
	ctx := context.Background()
	limits := openCluster(b, 3)
	for _, own := range []bool{true, false} {
		name := "owner=other"
		if own {
			name = "owner=self"
		}
		key := keyOf(b, limits[0], own)
		drawn := draw([]string{key}, false)
		// Warm up until the owner knows the demand.
		for limits[0].Take(ctx, key, 1).Source != jatah.SourceLocal {
		}
		for _, g := range []int{1, 2} {
			b.Run(fmt.Sprintf("%s/goroutines=%d", name, g), func(b *testing.B) {
				local := spread(b, g, drawn, func(key string) bool {
					return limits[0].Take(ctx, key, 1).Source == jatah.SourceLocal
				})
				b.ReportMetric(float64(local)/float64(b.N), "local/op")
			})
		}
	}
}

// openCluster starts nodes on the loopback interface and returns their handles on one limit that has enough for all.
func openCluster(b *testing.B, n int) []*jatah.Limiter {
	ctx := context.Background()
	var nodes []*jatah.Node
	var join []string
	for i := range n {
		node, err := jatah.Open(ctx, jatah.Config{Node: fmt.Sprintf("n%d", i), Bind: "127.0.0.1:0", Join: join, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { node.Close() })
		nodes, join = append(nodes, node), append(join, node.Addr())
	}
	var limits []*jatah.Limiter
	for _, node := range nodes {
		if err := node.Wait(ctx); err != nil {
			b.Fatal(err)
		}
		l, err := node.Limit(jatah.Limit{Name: "bench", Rate: jatah.Per(ample.tokens, ample.per)})
		if err != nil {
			b.Fatal(err)
		}
		limits = append(limits, l)
	}
	return limits
}

// keyOf finds a key that n0, whose limit this is, owns or does not own.
func keyOf(b *testing.B, l *jatah.Limiter, own bool) string {
	for _, key := range keyNames(10_000) {
		s, err := l.Peek(context.Background(), key)
		if err == nil && (s.Owner == "n0") == own {
			return key
		}
	}
	b.Fatalf("no key found that n0 owns: %v", own)
	return ""
}

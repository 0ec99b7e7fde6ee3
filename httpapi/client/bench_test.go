package client_test

import (
	"context"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jatah-io/jatah/httpapi/client"
)

// benchmarkTake has so many callers of one client, against a real node over loopback.
func benchmarkTake(b *testing.B, callers int, cfg client.Config) {
	srv := httptest.NewServer(api(node(b, perSecond("api", 1_000_000_000, 1_000_000_000))))
	defer srv.Close()
	cfg.Addrs = []string{srv.URL}
	c, err := client.New(cfg)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	var left atomic.Int64
	left.Store(int64(b.N))
	b.ResetTimer()
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				if d, err := take1(c, context.Background()); err != nil || !d.Allowed {
					b.Errorf("%+v, %v", d, err)
					return
				}
			}
		})
	}
	wg.Wait()
}

func BenchmarkTake(b *testing.B) {
	once := client.Retry{Attempts: 1}
	b.Run("alone", func(b *testing.B) { benchmarkTake(b, 1, client.Config{}) })
	b.Run("alone, no repeats", func(b *testing.B) { benchmarkTake(b, 1, client.Config{Retry: once}) })
	b.Run("64 callers", func(b *testing.B) { benchmarkTake(b, 64, client.Config{Retry: once}) })
	b.Run("64 callers, batched", func(b *testing.B) {
		benchmarkTake(b, 64, client.Config{Retry: once, Batch: client.Batch{Max: 64}})
	})
}

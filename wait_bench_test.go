package jatah_test

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/jatah-io/jatah"
)

// BenchmarkWait is what a request that need not wait costs, beside Take: with no queue anywhere, and while other keys have some.
func BenchmarkWait(b *testing.B) {
	keys := benchKeys(1)
	node, err := jatah.Start(context.Background(), jatah.Config{})
	if err != nil {
		b.Fatal(err)
	}
	defer node.Close()
	alone, err := node.Limit(jatah.Limit{Name: "api", Rate: jatah.PerSecond(1e9), Burst: 1 << 40})
	if err != nil {
		b.Fatal(err)
	}
	end, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	limits := []struct {
		name string
		l    *jatah.Limiter
	}{{"alone", alone}, {"credit", onCredit(b, keys)}}
	for _, x := range limits {
		b.Run("take/"+x.name, func(b *testing.B) {
			for b.Loop() {
				x.l.Take(end, keys[0], 1)
			}
		})
		wait := func(ctx context.Context) func(b *testing.B) {
			return func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if _, err := x.l.Wait(ctx, keys[0], 1); err != nil {
						b.Fatal(err)
					}
				}
			}
		}
		b.Run("wait/"+x.name, wait(context.Background()))
		b.Run("deadline/"+x.name, wait(end))
		b.Run("parallel/"+x.name, func(b *testing.B) {
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					_, _ = x.l.Wait(end, keys[0], 1)
				}
			})
		})
	}
}

// BenchmarkWaitRefused is a flood of requests behind a waiter, that are told at once that they cannot make their deadline.
func BenchmarkWaitRefused(b *testing.B) {
	node, err := jatah.Start(context.Background(), jatah.Config{})
	if err != nil {
		b.Fatal(err)
	}
	defer node.Close()
	l, err := node.Limit(jatah.Limit{Name: "api", Rate: jatah.PerDay(1), Burst: 1})
	if err != nil {
		b.Fatal(err)
	}
	l.Take(context.Background(), "k", 1)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { _, _ = l.Wait(ctx, "k", 1); close(done) }()
	defer func() { cancel(); <-done }()
	for jatah.Queues(l) == 0 {
		runtime.Gosched()
	}
	end, stop := context.WithTimeout(context.Background(), time.Hour)
	defer stop()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := l.Wait(end, "k", 1); err == nil {
			b.Fatal("passed")
		}
	}
}

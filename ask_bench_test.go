//go:build unix

package jatah_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jatah-io/jatah"
)

// ownerSeed is set in a process that a benchmark starts to be the other node: the address to join.
const ownerSeed = "JATAH_BENCH_OWNER_JOINS"

func askConfig(name string, secret []byte, join ...string) jatah.Config {
	return jatah.Config{Node: name, Bind: "127.0.0.1:0", Join: join, Secret: secret, Settle: 100 * time.Millisecond, Expect: 2,
		Logger: slog.New(slog.DiscardHandler), AskTimeout: time.Second}
}

var strictLimit = jatah.Limit{Name: "api", Rate: jatah.PerSecond(3e9), Burst: 1 << 40, Mode: jatah.Strict}

func askNode(tb testing.TB, cfg jatah.Config) (*jatah.Node, *jatah.Limiter) {
	tb.Helper()
	n, err := jatah.Start(context.Background(), cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = n.Close() })
	l, err := n.Limit(strictLimit)
	if err != nil {
		tb.Fatal(err)
	}
	return n, l
}

// TestAskOwner is not a test but the other node of BenchmarkAsk, in a process of its own; it runs until its input ends.
func TestAskOwner(t *testing.T) {
	seed, ok := os.LookupEnv(ownerSeed)
	if !ok {
		t.Skip("only as a process of BenchmarkAsk")
	}
	addr, secret, _ := strings.Cut(seed, " ")
	askNode(t, askConfig("owner", []byte(secret), addr))
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// asker is a node with another one beside it that owns the keys.
func asker(b *testing.B, apart bool, secret []byte) (l *jatah.Limiter, keys []string) {
	b.Helper()
	node, l := askNode(b, askConfig("asker", secret))
	if apart {
		cmd := exec.Command(os.Args[0], "-test.run=^TestAskOwner$", "-test.v")
		cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %s", ownerSeed, node.Addr(), secret))
		in, err := cmd.StdinPipe()
		if err != nil {
			b.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			b.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			b.Fatal(err)
		}
		go func() {
			for s := bufio.NewScanner(out); s.Scan(); {
			}
		}()
		b.Cleanup(func() {
			_ = in.Close()
			_ = cmd.Wait()
		})
	} else {
		askNode(b, askConfig("owner", secret, node.Addr()))
	}
	ctx := context.Background()
	deadline := time.Now().Add(30 * time.Second)
	for i := 0; len(keys) < 10_000; i++ {
		key := fmt.Sprintf("user:%08d", i)
		st, err := l.Peek(ctx, key)
		switch {
		case err == nil && st.Owner == "owner" && l.Take(ctx, key, 1).Source == jatah.SourceOwner:
			keys = append(keys, key)
		case len(keys) == 0 && i == 1000: // it has not come yet
			time.Sleep(10 * time.Millisecond)
			i = -1
		}
		if time.Now().After(deadline) {
			b.Fatalf("%d keys of the other node were found: %+v, %v", len(keys), st, err)
		}
	}
	return l, keys
}

// BenchmarkAsk is a strict decision at a node that does not own the key: the way to the owner and back over loopback. "same" has both nodes in
// one process, "apart" in two. callers=1 is the latency, with its distribution; callers=64 the throughput.
func BenchmarkAsk(b *testing.B) {
	for _, where := range []string{"same", "apart"} {
		for _, secret := range []string{"", "0123456789abcdef"} {
			name := where + "/plain"
			if secret != "" {
				name = where + "/encrypted"
			}
			b.Run(name, func(b *testing.B) {
				l, keys := asker(b, where == "apart", []byte(secret))
				for _, callers := range []int{1, 2, 8, 64} {
					b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) { ask(b, l, keys, callers) })
				}
			})
		}
	}
}

func processorTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func ask(b *testing.B, l *jatah.Limiter, keys []string, callers int) {
	b.ReportAllocs()
	ctx := context.Background()
	var left, failed atomic.Int64
	left.Store(int64(b.N))
	took := make([][]time.Duration, callers)
	var all sync.WaitGroup
	before := processorTime()
	b.ResetTimer()
	for c := range callers {
		all.Go(func() {
			r := rand.New(rand.NewPCG(1, uint64(c)))
			for left.Add(-1) >= 0 {
				begin := time.Now()
				d := l.Take(ctx, keys[r.IntN(len(keys))], 1)
				took[c] = append(took[c], time.Since(begin))
				if !d.OK || d.Source != jatah.SourceOwner {
					failed.Add(1)
				}
			}
		})
	}
	all.Wait()
	b.StopTimer()
	b.ReportMetric(float64((processorTime()-before).Nanoseconds())/1e3/float64(b.N), "cpu-µs/op") // of this process
	if n := failed.Load(); n > 0 {
		b.Errorf("%d of %d were not decided by the owner", n, b.N)
	}
	times := slices.Concat(took...)
	slices.Sort(times)
	b.ReportMetric(float64(times[len(times)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(times[len(times)*99/100].Microseconds()), "p99-µs")
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "decisions/s")
}

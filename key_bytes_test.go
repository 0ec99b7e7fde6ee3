package jatah_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jatah-io/jatah"
	"github.com/jatah-io/jatah/cluster/simnet"
)

// nodesForKeys are a node alone and one in a cluster, each with limits of all kinds that keep keys.
func nodesForKeys(t *testing.T) map[string]*jatah.Limiter {
	t.Helper()
	tr, err := simnet.New(1).Transport("10.0.0.1:7946")
	if err != nil {
		t.Fatal(err)
	}
	limiters := map[string]*jatah.Limiter{}
	for name, cfg := range map[string]jatah.Config{"alone": {}, "cluster": {Node: "n1", Transport: tr, Settle: 100 * time.Millisecond}} {
		node, err := jatah.Start(context.Background(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = node.Close() })
		for _, l := range []jatah.Limit{
			{Name: "bucket", Rate: jatah.PerHour(1), Burst: 1000},
			{Name: "window", Rate: jatah.PerHour(1000), Algorithm: jatah.SlidingWindow},
			{Name: "split", Rate: jatah.PerHour(1), Burst: 1000, Mode: jatah.Split},
			{Name: "strict", Rate: jatah.PerHour(1), Burst: 1000, Mode: jatah.Strict},
		} {
			x, err := node.Limit(l)
			if err != nil {
				t.Fatal(err)
			}
			limiters[name+" "+l.Name] = x
		}
	}
	return limiters
}

// TestTakeBytesDoesNotKeepTheKey: a buffer that is used again for another key changes nothing of the first.
func TestTakeBytesDoesNotKeepTheKey(t *testing.T) {
	ctx := context.Background()
	for name, l := range nodesForKeys(t) {
		buf := make([]byte, 0, 64)
		for i := range 100 {
			buf = jatah.AppendKey(buf[:0], "tenant", fmt.Sprint(i))
			if d := l.TakeBytes(ctx, buf, int64(1+i)); !d.OK {
				t.Fatalf("%s: %+v", name, d)
			}
		}
		clear(buf)
		for i := range 100 {
			st, err := l.Peek(ctx, jatah.Key("tenant", fmt.Sprint(i)))
			if err != nil || st.Remaining != int64(1000-1-i) {
				t.Errorf("%s: key %d has %d left, %v", name, i, st.Remaining, err)
			}
		}
	}
}

// TestTakeBytesAllocatesNothing, neither when it admits nor when it refuses.
func TestTakeBytesAllocatesNothing(t *testing.T) {
	ctx := context.Background()
	limiters := nodesForKeys(t)
	for _, name := range []string{"alone bucket", "alone split", "cluster bucket", "cluster split"} {
		l := limiters[name]
		buf := make([]byte, 0, 64)
		admit := func() {
			buf = jatah.AppendKey(buf[:0], "tenant", "7")
			if d := l.TakeBytes(ctx, buf, 1); !d.OK {
				t.Fatalf("%s: %+v", name, d)
			}
		}
		admit()
		if n := testing.AllocsPerRun(100, admit); n != 0 {
			t.Errorf("%s: %v allocations when it admits", name, n)
		}
		for l.Take(ctx, jatah.Key("tenant", "7"), 1).OK {
		}
		refuse := func() {
			buf = jatah.AppendKey(buf[:0], "tenant", "7")
			if d := l.TakeBytes(ctx, buf, 1); d.OK || d.Err != nil {
				t.Fatalf("%s: %+v", name, d)
			}
		}
		refuse()
		if n := testing.AllocsPerRun(100, refuse); n != 0 {
			t.Errorf("%s: %v allocations when it refuses", name, n)
		}
	}
}

// TestAppendKey makes what Key makes, behind what is there.
func TestAppendKey(t *testing.T) {
	for _, parts := range [][]string{{}, {""}, {"a"}, {"a", "b"}, {"", ""}, {"\x00a"}, {"ab", "c"}, {"a", "bc"}} {
		if got := string(jatah.AppendKey([]byte("x"), parts...)); got != "x"+jatah.Key(parts...) {
			t.Errorf("%q: %q, Key makes %q", parts, got, jatah.Key(parts...))
		}
	}
}

package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"
)

// A few tests on real sockets, on loopback. They wait for conditions, never for a time.

func quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

func startReal(t testing.TB, cfg Config, ev Events) *Cluster {
	t.Helper()
	cfg.Logger = quiet()
	c, err := Start(t.Context(), cfg, ev)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// until waits for a condition in real time.
func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !ok(); runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("not yet: %s", what)
		}
	}
}

func echo() Events {
	return Events{Call: func(_ context.Context, _ string, req []byte) ([]byte, error) { return req, nil }}
}

func TestTwoNodesOnLoopback(t *testing.T) {
	for _, bind := range []string{"127.0.0.1:0", "[::1]:0"} {
		t.Run(bind, func(t *testing.T) {
			if l, err := net.Listen("tcp", bind); err != nil {
				t.Skip(err) // a machine without IPv6
			} else {
				_ = l.Close()
			}
			secret := [][]byte{make([]byte, 16)}
			a := startReal(t, Config{Name: "a", Bind: bind, Secrets: secret}, echo())
			b := startReal(t, Config{Name: "b", Bind: bind, Secrets: secret, Join: []string{a.Addr().String()}}, echo())
			until(t, "two members", func() bool { return len(a.View().Members) == 2 && len(b.View().Members) == 2 })
			for _, size := range []int{0, 100, b.MaxMessage(), 1 << 20} {
				got, err := b.Call(t.Context(), "a", make([]byte, size))
				if err != nil || len(got) != size {
					t.Errorf("call of %d bytes: %d, %v", size, len(got), err)
				}
			}
			if b.View().Expect != 2 || a.View().Expect != 0 {
				t.Errorf("expect %d and %d", a.View().Expect, b.View().Expect)
			}
			if err := b.Leave(t.Context()); err != nil {
				t.Error(err)
			}
			if len(a.View().Members) != 1 {
				until(t, "b has left", func() bool { return len(a.View().Members) == 1 })
			}
		})
	}
}

func TestPortInUseFailsTheStart(t *testing.T) {
	a := startReal(t, Config{Name: "a", Bind: "127.0.0.1:0"}, Events{})
	_, err := Start(t.Context(), Config{Name: "b", Bind: a.Addr().String(), Logger: quiet()}, Events{})
	if err == nil || !strings.Contains(err.Error(), a.Addr().String()) {
		t.Errorf("second node on %s: %v", a.Addr(), err)
	}
}

func TestStartNamesTheWrongSetting(t *testing.T) {
	good := Config{Name: "a", Bind: "127.0.0.1:0", Logger: quiet()}
	for want, change := range map[string]func(*Config){
		"name is empty":   func(c *Config) { c.Name = "" },
		"unprintable":     func(c *Config) { c.Name = "a b" },
		"cluster name":    func(c *Config) { c.ClusterName = strings.Repeat("c", 65) },
		"secret 1 has 5":  func(c *Config) { c.Secrets = [][]byte{[]byte("short")} },
		"profile":         func(c *Config) { c.Profile = "moon" },
		"packet size":     func(c *Config) { c.PacketSize = 100 },
		"HTTP address":    func(c *Config) { c.HTTP = strings.Repeat("h", 300) },
		"sync interval":   func(c *Config) { c.SyncInterval = -1 },
		"load":            func(c *Config) { c.Ring.Load = 0.5 },
		`join "::1:7946"`: func(c *Config) { c.Join = []string{"::1:7946"} },
		"set a secret":    func(c *Config) { c.Bind = "0.0.0.0:0"; c.Advertise = "10.0.0.1" },
	} {
		cfg := good
		change(&cfg)
		c, err := Start(t.Context(), cfg, Events{})
		if err == nil {
			_ = c.Close()
		}
		if !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

func TestCloseEndsAllGoroutines(t *testing.T) {
	before := runtime.NumGoroutine()
	a := startReal(t, Config{Name: "a", Bind: "127.0.0.1:0"}, echo())
	// A black hole as a seed: a dial to it must not outlive Close either.
	b := startReal(t, Config{Name: "b", Bind: "127.0.0.1:0", Join: []string{a.Addr().String()}}, echo())
	if _, err := b.Call(t.Context(), "a", make([]byte, 1<<20)); err != nil {
		t.Error(err)
	}
	_ = b.Close()
	_ = a.Close()
	until(t, "goroutines end", func() bool { return runtime.NumGoroutine() <= before })
}

func benchPair(b *testing.B, ev Events, packetSize int) (*Cluster, *Cluster) {
	x := startReal(b, Config{Name: "x", Bind: "127.0.0.1:0", PacketSize: packetSize}, ev)
	y := startReal(b, Config{Name: "y", Bind: "127.0.0.1:0", PacketSize: packetSize, Join: []string{x.Addr().String()}}, ev)
	until(b, "two members", func() bool { return len(x.View().Members) == 2 && len(y.View().Members) == 2 })
	return x, y
}

// A call there and back, one after the other: the round trip.
func BenchmarkCall(b *testing.B) {
	x, _ := benchPair(b, echo(), 0)
	req := make([]byte, 64)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := x.Call(b.Context(), "y", req); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCallParallel(b *testing.B) {
	for _, size := range []int{1400, 65000} {
		b.Run(fmt.Sprint("packet=", size), func(b *testing.B) {
			x, _ := benchPair(b, echo(), size)
			req := make([]byte, 64)
			b.SetParallelism(64)
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if _, err := x.Call(b.Context(), "y", req); err != nil {
						b.Error(err)
						return
					}
				}
			})
			s := x.Stats()
			b.ReportMetric(float64(s.PacketsOut)/float64(max(s.Calls, 1)), "packets/call")
		})
	}
}

// One message each way, handled where it is received.
func BenchmarkSendRoundTrip(b *testing.B) {
	var x, y *Cluster
	back := make(chan struct{}, 1)
	x = startReal(b, Config{Name: "x", Bind: "127.0.0.1:0"}, Events{Packet: func(string, []byte) { back <- struct{}{} }})
	ready := make(chan struct{})
	y = startReal(b, Config{Name: "y", Bind: "127.0.0.1:0", Join: []string{x.Addr().String()}}, Events{
		Packet: func(from string, msg []byte) { <-ready; _ = y.Send(from, msg) },
	})
	close(ready)
	until(b, "two members", func() bool { return len(x.View().Members) == 2 && len(y.View().Members) == 2 })
	msg := make([]byte, 64)
	b.ReportAllocs()
	for b.Loop() {
		if err := x.Send("y", msg); err != nil {
			b.Fatal(err)
		}
		select {
		case <-back:
		case <-time.After(time.Second): // lost
		}
	}
}

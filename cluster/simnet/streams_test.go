package simnet_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jatah-io/jatah/cluster/simnet"
)

// dial connects two hosts and gives both ends.
func dial(t testing.TB, from, to *simnet.Transport) (near, far net.Conn) {
	t.Helper()
	near, err := from.DialTimeout(to.Addr(), time.Second)
	if err != nil {
		t.Fatal(err)
	}
	return near, <-to.StreamCh()
}

func isTimeout(err error) bool {
	var ne net.Error
	return errors.As(err, &ne) && ne.Timeout() && errors.Is(err, os.ErrDeadlineExceeded)
}

func TestStreamCarriesBothWays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := simnet.New(1)
		set(t, n, simnet.Conditions{DelayMin: 5 * ms, DelayMax: 5 * ms})
		a, b := host(t, n, addr(1)), host(t, n, addr(2))
		start := time.Now()
		near, far := dial(t, a, b)
		if took := time.Since(start); took != 10*ms {
			t.Errorf("connecting took %v, want a round trip of 10ms", took)
		}
		if near.RemoteAddr().String() != addr(2) || far.LocalAddr().String() != addr(2) ||
			near.LocalAddr().String() != far.RemoteAddr().String() {
			t.Errorf("ends do not match: %v-%v and %v-%v",
				near.LocalAddr(), near.RemoteAddr(), far.LocalAddr(), far.RemoteAddr())
		}
		start = time.Now()
		buf := make([]byte, 10)
		for _, step := range []struct {
			from, to net.Conn
			msg      string
		}{{near, far, "ping"}, {far, near, "pong"}} {
			if _, err := step.from.Write([]byte(step.msg)); err != nil {
				t.Fatal(err)
			}
			if k, err := step.to.Read(buf); err != nil || string(buf[:k]) != step.msg {
				t.Fatalf("read %q, %v, want %q", buf[:k], err, step.msg)
			}
		}
		if took := time.Since(start); took != 10*ms {
			t.Errorf("there and back took %v, want 10ms", took)
		}
		if _, err := near.Write([]byte("bye")); err != nil {
			t.Fatal(err)
		}
		if err := near.Close(); err != nil {
			t.Fatal(err)
		}
		if err := a.Shutdown(); err != nil { // what a closed stream carries still arrives
			t.Fatal(err)
		}
		if rest, err := io.ReadAll(far); err != nil || string(rest) != "bye" {
			t.Errorf("the rest is %q, %v, want bye and a clean end", rest, err)
		}
		if _, err := near.Read(buf); !errors.Is(err, net.ErrClosed) {
			t.Errorf("read of a closed stream: %v, want net.ErrClosed", err)
		}
		if _, err := far.Write(buf); !errors.Is(err, syscall.EPIPE) {
			t.Errorf("write to a closed reader: %v, want EPIPE", err)
		}
	})
}

func TestStreamIsWholeAndInOrderInBadWeather(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := simnet.New(1)
		a, b := host(t, n, addr(1)), host(t, n, addr(2))
		near, far := dial(t, a, b)
		set(t, n, simnet.Conditions{Loss: 0.2, Duplicate: 0.5, DelayMax: 50 * ms, Straggle: 0.1, StraggleMax: time.Second})
		sent, got := sha256.New(), sha256.New()
		var both sync.WaitGroup
		both.Go(func() {
			r := rand.New(rand.NewPCG(1, 2))
			for range 300 {
				piece := make([]byte, r.IntN(20_000))
				for i := range piece {
					piece[i] = byte(r.Uint32())
				}
				sent.Write(piece)
				if k, err := near.Write(piece); k != len(piece) || err != nil {
					t.Errorf("wrote %d of %d: %v", k, len(piece), err)
				}
			}
			_ = near.Close()
		})
		total, err := io.Copy(got, far)
		both.Wait()
		if err != nil || !bytes.Equal(sent.Sum(nil), got.Sum(nil)) {
			t.Errorf("%d bytes arrived, %v, and are not those sent", total, err)
		}
		if s := n.LinkStats(addr(1), addr(2)); s.StreamBytes != uint64(total) || s.Dials != 1 || s.Connected != 1 {
			t.Errorf("%d bytes arrived on one stream, counted %+v", total, s)
		}
	})
}

func TestStreamDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := simnet.New(1)
		near, far := dial(t, host(t, n, addr(1)), host(t, n, addr(2)))
		buf := make([]byte, 1)
		start := time.Now()
		expect := func(what string, err error, after time.Duration) {
			t.Helper()
			if took := time.Since(start); !isTimeout(err) || took != after {
				t.Errorf("%s ended after %v with %v, want a time-out after %v", what, took, err, after)
			}
			start = time.Now()
		}
		_ = near.SetReadDeadline(start.Add(time.Second))
		_, err := near.Read(buf)
		expect("read", err, time.Second)
		_, err = near.Read(buf)
		expect("read past the deadline", err, 0)

		_ = near.SetReadDeadline(time.Time{})
		time.AfterFunc(3*time.Second, func() { _ = near.SetReadDeadline(time.Now()) })
		_, err = near.Read(buf)
		expect("waiting read whose deadline is set", err, 3*time.Second)

		_ = near.SetDeadline(start.Add(time.Second))
		time.AfterFunc(ms, func() { _ = near.SetDeadline(start.Add(5 * time.Second)) })
		_, err = near.Read(buf)
		expect("waiting read whose deadline is put off", err, 5*time.Second)

		_ = near.SetWriteDeadline(start.Add(2 * time.Second))
		k, err := near.Write(make([]byte, 1<<20))
		expect("write that nobody reads", err, 2*time.Second)
		if k <= 0 || k > 1<<17 {
			t.Errorf("%d bytes fitted into the buffers, want a window", k)
		}
		_ = near.SetDeadline(time.Time{})
		_ = near.Close()
		if rest, err := io.ReadAll(far); err != nil || len(rest) != k {
			t.Errorf("%d bytes arrived, %v, want the %d written", len(rest), err, k)
		}
		if err := near.SetDeadline(time.Time{}); !errors.Is(err, net.ErrClosed) {
			t.Errorf("deadline of a closed stream: %v, want net.ErrClosed", err)
		}
	})
}

func TestCloseWakesAReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := simnet.New(1)
		near, _ := dial(t, host(t, n, addr(1)), host(t, n, addr(2)))
		time.AfterFunc(time.Second, func() { _ = near.Close() })
		if _, err := near.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
			t.Errorf("read ended with %v, want net.ErrClosed", err)
		}
	})
}

func TestStreamStallsAtACutAndGoesOn(t *testing.T) {
	for _, back := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			n := simnet.New(1)
			near, far := dial(t, host(t, n, addr(1)), host(t, n, addr(2)))
			if back {
				n.Cut(addr(2), addr(1))
			} else {
				n.Cut(addr(1), addr(2))
			}
			if _, err := near.Write([]byte("x")); err != nil {
				t.Fatal(err)
			}
			buf := make([]byte, 10)
			_ = far.SetReadDeadline(time.Now().Add(time.Minute))
			if _, err := far.Read(buf); !isTimeout(err) {
				t.Errorf("read through a cut: %v, want a time-out", err)
			}
			_ = far.SetReadDeadline(time.Time{})
			time.AfterFunc(time.Minute, n.Heal)
			if k, err := far.Read(buf); err != nil || string(buf[:k]) != "x" {
				t.Errorf("after the cut: read %q, %v, want x", buf[:k], err)
			}
		})
	}
}

func TestPausedHostAcceptsAndReadsLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := simnet.New(1)
		a, b := host(t, n, addr(1)), host(t, n, addr(2))
		near, far := dial(t, a, b)
		n.Pause(addr(2))
		if _, err := near.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		second, err := a.DialTimeout(addr(2), time.Second) // the kernel answers, not the process
		if err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 10)
		for what, op := range map[string]func([]byte) (int, error){"read": far.Read, "write": far.Write} {
			_ = far.SetDeadline(time.Now().Add(time.Second))
			if _, err := op(buf); !isTimeout(err) {
				t.Errorf("%s of a paused host: %v, want a time-out", what, err)
			}
		}
		if _, err := b.DialTimeout(addr(1), 3*time.Second); !isTimeout(err) {
			t.Errorf("dial by a paused host: %v, want a time-out", err)
		}
		if len(b.StreamCh()) != 0 {
			t.Error("a paused host accepted a stream")
		}
		_ = far.SetDeadline(time.Time{})
		time.AfterFunc(time.Minute, func() { n.Resume(addr(2)) })
		if k, err := far.Read(buf); err != nil || string(buf[:k]) != "x" {
			t.Errorf("after the pause: read %q, %v, want x", buf[:k], err)
		}
		if c := <-b.StreamCh(); c.RemoteAddr().String() != second.LocalAddr().String() {
			t.Errorf("accepted %v, want the end of %v", c.RemoteAddr(), second.LocalAddr())
		}
	})
}

func TestDialFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := simnet.New(1)
		a, b := host(t, n, addr(1)), host(t, n, addr(2))
		try := func() (time.Duration, error) {
			start := time.Now()
			c, err := a.DialTimeout(addr(2), 10*time.Second)
			if err == nil {
				_ = c.Close()
			}
			return time.Since(start), err
		}
		for _, cut := range []Link{{addr(1), addr(2)}, {addr(2), addr(1)}} {
			n.Cut(cut.From, cut.To)
			if took, err := try(); !isTimeout(err) || took != 10*time.Second {
				t.Errorf("with %v cut: %v after %v, want a time-out after 10s", cut, err, took)
			}
			n.Heal()
		}
		// The attempts are at 0, 1, 3 and 7 s.
		n.Isolate(addr(2))
		time.AfterFunc(2*time.Second, n.Heal)
		if took, err := try(); err != nil || took < 3*time.Second || took > 3*time.Second+10*ms {
			t.Errorf("healed after 2 s: %v after %v, want a stream after 3 s", err, took)
		}
		set(t, n, simnet.Conditions{DelayMin: time.Minute, DelayMax: time.Minute})
		if took, err := try(); !isTimeout(err) || took != 10*time.Second {
			t.Errorf("over a minute's delay: %v after %v, want a time-out after 10s", err, took)
		}
		set(t, n, simnet.Conditions{})
		_ = b.Shutdown()
		if took, err := try(); !errors.Is(err, syscall.ECONNREFUSED) || took > ms {
			t.Errorf("nobody there: %v after %v, want a refusal at once", err, took)
		}
		n.Crash(addr(1))
		if _, err := try(); !errors.Is(err, simnet.ErrClosed) {
			t.Errorf("a crashed host dials: %v, want ErrClosed", err)
		}
	})
}

type Link = simnet.Link

func TestCrashResetsStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := simnet.New(1)
		a, b := host(t, n, addr(1)), host(t, n, addr(2))
		reading, _ := dial(t, a, b)
		writing, _ := dial(t, a, b)
		_, own := dial(t, a, b)
		var all sync.WaitGroup
		all.Go(func() {
			if _, err := reading.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("a waiting read got %v, want ECONNRESET", err)
			}
		})
		all.Go(func() {
			if _, err := writing.Write(make([]byte, 1<<20)); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("a waiting write got %v, want ECONNRESET", err)
			}
		})
		all.Go(func() {
			if _, err := own.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
				t.Errorf("the crashed host's read got %v, want net.ErrClosed", err)
			}
		})
		time.Sleep(time.Second)
		n.Crash(addr(2))
		all.Wait()
	})
}

func TestResetIsNotHeardThroughACut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := simnet.New(1)
		a, b := host(t, n, addr(1)), host(t, n, addr(2))
		reading, _ := dial(t, a, b)
		writing, _ := dial(t, a, b)
		n.Isolate(addr(2))
		n.Crash(addr(2))
		start := time.Now()
		time.AfterFunc(time.Minute, n.Heal)
		var all sync.WaitGroup
		for what, op := range map[string]func() error{
			"read":  func() error { _, err := reading.Read(make([]byte, 1)); return err },
			"write": func() error { _, err := writing.Write(make([]byte, 1<<20)); return err },
		} {
			all.Go(func() {
				if err := op(); !errors.Is(err, syscall.ECONNRESET) || time.Since(start) != time.Minute {
					t.Errorf("%s got %v after %v, want ECONNRESET when the network heals", what, err, time.Since(start))
				}
			})
		}
		all.Wait()
	})
}

func TestBacklogIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := simnet.New(1)
		a, b := host(t, n, addr(1)), host(t, n, addr(2))
		var err error
		connected := 0
		for ; connected < 1000 && err == nil; connected++ {
			_, err = a.DialTimeout(addr(2), time.Second)
		}
		if !isTimeout(err) || connected != 129 {
			t.Errorf("dial number %d got %v, want a time-out of number 129", connected, err)
		}
		<-b.StreamCh()
		if _, err := a.DialTimeout(addr(2), time.Second); err != nil {
			t.Errorf("with room again: %v", err)
		}
	})
}

// TestCloseLeaksNothing leaves as much as possible unfinished. Each call must end at the moment
// of Close, not when its time-out comes.
func TestCloseLeaksNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := simnet.New(1)
		set(t, n, simnet.Conditions{DelayMin: ms, DelayMax: time.Hour, Duplicate: 1})
		a, b, c := host(t, n, addr(1)), host(t, n, addr(2)), host(t, n, addr(3))
		if err := n.SetLink(addr(1), addr(2), simnet.Conditions{}); err != nil {
			t.Fatal(err)
		}
		if err := n.SetLink(addr(2), addr(1), simnet.Conditions{}); err != nil {
			t.Fatal(err)
		}
		near, far := dial(t, a, b)
		for i := range 100 {
			number(t, a, addr(3), i)
		}
		n.Isolate(addr(3))
		n.Pause(addr(2))
		calls := []func() error{
			func() error { _, err := near.Read(make([]byte, 1)); return err },
			func() error { _, err := near.Write(make([]byte, 1<<20)); return err },
			func() error { _, err := far.Read(make([]byte, 1)); return err },
			func() error { _, err := c.DialTimeout(addr(1), 0); return err },
			func() error { _, err := a.DialTimeout(addr(3), time.Hour); return err },
			func() error { _, err := b.DialTimeout(addr(1), time.Hour); return err },
		}
		var ended atomic.Int64
		for _, call := range calls {
			go func() {
				if err := call(); err == nil {
					t.Error("a call that cannot succeed did")
				}
				ended.Add(1)
			}()
		}
		time.Sleep(time.Second)
		if ended.Load() != 0 {
			t.Errorf("%d calls ended before Close", ended.Load())
		}
		if err := n.Close(); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if int(ended.Load()) != len(calls) {
			t.Errorf("%d of %d calls ended at Close", ended.Load(), len(calls))
		}
		for _, tr := range []*simnet.Transport{a, b, c} {
			if err := tr.Shutdown(); err != nil {
				t.Error(err)
			}
		}
		if s := n.Stats(); s.InFlight != 0 {
			t.Errorf("%d packets are still in flight", s.InFlight)
		}
		balanced(t, n.Stats())
	})
}

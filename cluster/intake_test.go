package cluster

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// While a handler is held up another goroutine reads on. Nothing is handled twice, at once with another or out of order, and in the end one reads.
func TestReadingGoesOnWhileAHandlerIsHeldUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const every, held = 100 * time.Microsecond, 60 * time.Millisecond
		came := make(chan int, 400) // the kernel's buffer: 40 ms
		var got []int
		handling := false
		var readers, started atomic.Int32
		in := &intake{drop: func() { t.Error("one is dropped") }}
		in.handle = func(b []byte) {
			if handling {
				t.Error("two at once")
			}
			handling = true
			got = append(got, int(b[0])<<8|int(b[1]))
			if len(got) == 100 || len(got) == 1200 {
				time.Sleep(held)
			}
			handling = false
		}
		read := func() {
			readers.Add(1)
			started.Add(1)
			buf := make([]byte, 2)
			for i := range came {
				buf[0], buf[1] = byte(i>>8), byte(i)
				if !in.take(buf) {
					break
				}
			}
			readers.Add(-1)
		}
		in.read = func() { go read() }
		go read()
		for i := range 2000 {
			select {
			case came <- i:
			default:
				t.Fatalf("number %d finds the kernel's buffer full", i)
			}
			time.Sleep(every)
		}
		synctest.Wait()
		if len(got) != 2000 || !slices.IsSorted(got) {
			t.Errorf("%d of 2000 were handled, in order: %v", len(got), slices.IsSorted(got))
		}
		if readers.Load() != 1 || started.Load() != 3 { // one for each time that a handler was held up
			t.Errorf("%d goroutines read at last, %d were started", readers.Load(), started.Load())
		}
		close(came)
		synctest.Wait()
		in.close()
	})
}

func TestWhatWaitsForAHandlerIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		free := make(chan struct{})
		handled, dropped, reads := 0, 0, 0
		in := &intake{drop: func() { dropped++ }, read: func() { reads++ }}
		in.handle = func([]byte) {
			<-free
			handled++
		}
		stays := make(chan bool, 1)
		go func() { stays <- in.take(make([]byte, 1000)) }()
		time.Sleep(time.Second)
		const n = 2 * maxTaken / 1000
		for range n { // as the second reader does
			if !in.take(make([]byte, 1000)) {
				t.Fatal("the second reader is told to stop")
			}
		}
		close(free)
		if <-stays {
			t.Error("the first reader goes on, beside the second")
		}
		if handled+dropped != n+1 || handled-1 != maxTaken/1000 || reads != 1 {
			t.Errorf("%d handled, %d dropped of %d; %d more readers", handled, dropped, n+1, reads)
		}
		in.close()
	})
}

// At rest there is no timer, and with quick handlers no second reader.
func TestQuickHandlersAreLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := &intake{handle: func([]byte) {}, drop: func() {}, read: func() { t.Error("a second reader") }}
		for range 1000 {
			if !in.take([]byte{1}) {
				t.Fatal("the reader is told to stop")
			}
			time.Sleep(time.Millisecond)
		}
		time.Sleep(3 * relieveAfter)
		in.mu.Lock()
		defer in.mu.Unlock()
		if in.watching {
			t.Error("it is still being watched")
		}
	})
}

// BenchmarkFlood sends 20 000 packets a second, one each 50 µs or as soon after as the machine allows, and counts those that do not
// arrive. "held" is with a receiver that stops for 30 ms in each 100 ms, as for the lock of an engine in its tick.
func BenchmarkFlood(b *testing.B) {
	for _, secrets := range [][][]byte{nil, {secret('a', 16)}} {
		for _, held := range []time.Duration{0, 30 * time.Millisecond} {
			name := "plain"
			if secrets != nil {
				name = "encrypted"
			}
			b.Run(fmt.Sprintf("%s/held=%v", name, held), func(b *testing.B) { flood(b, secrets, held) })
		}
	}
}

func flood(b *testing.B, secrets [][]byte, held time.Duration) {
	const perMs = 20
	var got atomic.Int64
	stopped := time.Now()
	x := startReal(b, Config{Name: "x", Bind: "127.0.0.1:0", Secrets: secrets}, Events{})
	y := startReal(b, Config{Name: "y", Bind: "127.0.0.1:0", Secrets: secrets, Join: []string{x.Addr().String()}}, Events{
		Packet: func(string, []byte) {
			got.Add(1)
			if held > 0 && time.Since(stopped) > 100*time.Millisecond {
				time.Sleep(held)
				stopped = time.Now()
			}
		},
	})
	until(b, "two members", func() bool { return len(x.View().Members) == 2 && len(y.View().Members) == 2 })
	msg := make([]byte, 200)
	packets := x.Stats().PacketsOut
	b.ReportAllocs()
	b.ResetTimer()
	begin := time.Now()
	for i := range b.N {
		if i%perMs == 0 {
			time.Sleep(time.Until(begin.Add(time.Duration(i/perMs) * time.Millisecond)))
		}
		if err := x.Send("y", msg); err != nil {
			b.Fatal(err)
		}
	}
	b.StopTimer()
	rate := float64(b.N) / time.Since(begin).Seconds()
	for last := int64(-1); last != got.Load(); time.Sleep(300 * time.Millisecond) {
		last = got.Load()
	}
	b.ReportMetric(float64(int64(b.N)-got.Load()), "lost")
	b.ReportMetric(rate, "packets/s")
	b.ReportMetric(float64(x.Stats().PacketsOut-packets)/float64(b.N), "packets/msg")
}

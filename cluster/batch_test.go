package cluster

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// sent collects what a batcher writes, and checks each packet.
type sent struct {
	t     *testing.T
	space int
	delay time.Duration // each write takes this long

	mu      sync.Mutex
	writing bool
	ids     []uint64
	packets int
}

func (s *sent) write(frames int, encoded []byte) {
	s.mu.Lock()
	if s.writing {
		s.t.Error("two writes at once")
	}
	s.writing = true
	s.mu.Unlock()
	copied := bytes.Clone(encoded)
	if s.delay > 0 {
		time.Sleep(s.delay)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writing = false
	s.packets++
	if !bytes.Equal(copied, encoded) {
		s.t.Error("the bytes changed during the write")
	}
	if len(encoded) > s.space {
		s.t.Errorf("a packet of %d bytes, at most %d fit", len(encoded), s.space)
	}
	h := header{from: "n"}
	p, err := parsePacket(appendPacket(nil, &h, frames, encoded))
	if err != nil {
		s.t.Errorf("%d frames: %v", frames, err)
		return
	}
	for range p.frames {
		f := p.next()
		s.ids = append(s.ids, f.id)
		if len(f.body) >= 8 && binary.BigEndian.Uint64(f.body) != f.id {
			s.t.Errorf("frame %d has the body of %d", f.id, binary.BigEndian.Uint64(f.body))
		}
	}
}

// Whatever comes from however many at once, in sizes from nothing to all that fits: everything
// that was taken is written once, in the order of each sender, in packets that are not too large.
func TestBatcherLosesNothing(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	synctest.Test(t, func(t *testing.T) {
		out := &sent{t: t, space: 300, delay: time.Microsecond}
		var spawned sync.WaitGroup
		b := &batcher{space: out.space, write: out.write, spawn: func(f func()) { spawned.Go(f) }, drop: func(int) {}}
		var senders sync.WaitGroup
		const each = 400
		for s := range uint64(8) {
			senders.Go(func() {
				r := rand.New(rand.NewPCG(seed, s))
				for i := range uint64(each) {
					body := make([]byte, r.IntN(out.space-frameOverhead+1))
					id := s<<32 | i
					if len(body) >= 8 {
						binary.BigEndian.PutUint64(body, id)
					}
					if err := b.add(kindMsg, id, body); err != nil {
						t.Errorf("add: %v", err)
					}
					clear(body) // the caller's own again
					if r.IntN(3) == 0 {
						time.Sleep(time.Duration(r.IntN(2000)))
					}
				}
			})
		}
		senders.Wait()
		spawned.Wait()
		if len(out.ids) != 8*each {
			t.Errorf("%d of %d were written", len(out.ids), 8*each)
		}
		next := make(map[uint64]uint64)
		for _, id := range out.ids {
			if id&0xffffffff != next[id>>32] {
				t.Fatalf("sender %d: %d comes when %d is due", id>>32, id&0xffffffff, next[id>>32])
			}
			next[id>>32]++
		}
		t.Logf("%d frames in %d packets", len(out.ids), out.packets)
	})
}

func TestBatcherSendsAtOnceWhenIdleAndTogetherWhenBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &sent{t: t, space: 1000, delay: time.Millisecond}
		b := &batcher{space: out.space, write: out.write, spawn: func(f func()) { go f() }, drop: func(int) {}}
		began := time.Now()
		go func() { _ = b.add(kindMsg, 0, nil) }()
		time.Sleep(100 * time.Microsecond) // the first one is being written
		for i := range uint64(20) {
			_ = b.add(kindMsg, i+1, nil)
		}
		if took := time.Since(began); took != 100*time.Microsecond {
			t.Errorf("adding to a busy batcher took %v", took)
		}
		time.Sleep(10 * time.Millisecond)
		out.mu.Lock()
		defer out.mu.Unlock()
		if out.packets != 2 || len(out.ids) != 21 {
			t.Errorf("%d frames in %d packets, want 21 in 2", len(out.ids), out.packets)
		}
	})
}

// A caller that finds the batcher idle is not kept busy with what others add.
func TestBatcherLetsItsCallerGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &sent{t: t, space: frameOverhead + 8, delay: time.Millisecond}
		b := &batcher{space: out.space, write: out.write, spawn: func(f func()) { go f() }, drop: func(int) {}}
		stop := make(chan struct{})
		go func() {
			for i := uint64(1); ; i++ {
				select {
				case <-stop:
					return
				case <-time.After(500 * time.Microsecond):
					_ = b.add(kindMsg, i, nil)
				}
			}
		}()
		began := time.Now()
		_ = b.add(kindMsg, 0, nil)
		if took := time.Since(began); took > 20*time.Millisecond {
			t.Errorf("add took %v", took)
		}
		close(stop)
		time.Sleep(time.Second)
	})
}

func TestBatcherQueueIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		block, dropped := make(chan struct{}), 0
		b := &batcher{
			space: 1000, write: func(int, []byte) { <-block },
			spawn: func(f func()) { go f() }, drop: func(n int) { dropped += n },
		}
		go func() { _ = b.add(kindMsg, 0, nil) }()
		synctest.Wait()
		taken := 0
		for range 2000 {
			switch err := b.add(kindMsg, 1, make([]byte, 900)); {
			case err == nil:
				taken++
			case !errors.Is(err, ErrBusy):
				t.Fatal(err)
			}
		}
		if taken < 1000 || taken > maxQueued/900 || dropped != 2000-taken {
			t.Errorf("%d taken, %d dropped", taken, dropped)
		}
		close(block)
	})
}

func TestRequestsAreSeenOnce(t *testing.T) {
	var s seen
	now := time.Unix(0, 0)
	want := func(id uint64, want seenState) {
		t.Helper()
		if got, _ := s.begin(id, now); got != want {
			t.Errorf("request %d: %d, want %d", id, got, want)
		}
	}
	want(5, seenNew)
	want(5, seenRunning)
	s.finish(5, answer{body: []byte("a")})
	want(5, seenAnswered)
	want(3, seenNew) // out of order
	s.cancel(3)
	want(3, seenNew) // it had not run
	now = now.Add(seenFor)
	want(6, seenNew) // and with it the old ones are forgotten
	want(5, seenTooOld)
	want(4, seenTooOld)
	for id := uint64(7); id < 7+2*seenMax; id++ {
		want(id, seenNew)
	}
	want(7, seenTooOld)
	want(7+2*seenMax-1, seenRunning)
	if len(s.m) > seenMax {
		t.Errorf("%d are remembered", len(s.m))
	}
	for id := uint64(1 << 20); id < 1<<20+100; id++ {
		want(id, seenNew)
		s.finish(id, answer{body: make([]byte, 1<<20)})
	}
	if s.bytes > seenBytes+2<<20 {
		t.Errorf("%d bytes are remembered", s.bytes)
	}
}

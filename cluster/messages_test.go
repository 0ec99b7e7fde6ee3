package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jatah-io/jatah/cluster/simnet"
)

func TestCallsAreAnsweredOnceUnderLoss(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		n1, n2, _ := w.three()
		w.set(simnet.Conditions{Loss: 0.2, Duplicate: 0.1, DelayMin: time.Millisecond, DelayMax: 5 * time.Millisecond})
		for i := range 500 {
			req := fmt.Sprint("call ", i)
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			got, err := n1.Call(ctx, "n2", []byte(req))
			cancel()
			if err != nil || string(got) != "re "+req {
				t.Fatalf("call %d: %q, %v", i, got, err)
			}
		}
		n2.mu.Lock()
		defer n2.mu.Unlock()
		for req, times := range n2.executed {
			if times != 1 {
				t.Errorf("%q was executed %d times", req, times)
			}
		}
		s := n2.Stats()
		if n1.Stats().Resends == 0 || s.Duplicates == 0 {
			t.Errorf("nothing was lost: %+v", s)
		}
	})
}

func TestCallErrors(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		n1, n2, n3 := w.three()
		if _, err := n1.Call(t.Context(), "n2", []byte("fail me")); !errors.Is(err, ErrRemote) || !strings.Contains(err.Error(), "refused: me") {
			t.Errorf("handler's error: %v", err)
		}
		for _, to := range []string{"n7", "n1"} {
			if _, err := n1.Call(t.Context(), to, nil); !errors.Is(err, ErrUnknownMember) {
				t.Errorf("call to %s: %v", to, err)
			}
		}
		w.net.Isolate(at(3))
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		began := time.Now()
		if _, err := n1.Call(ctx, "n3", nil); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != 50*time.Millisecond {
			t.Errorf("silent member: %v after %v", err, time.Since(began))
		}
		if _, err := n1.Call(t.Context(), "n3", nil); !errors.Is(err, ErrUnknownMember) { // until it is lost
			t.Errorf("lost member: %v", err)
		}
		if err := n1.Send("n2", make([]byte, n1.MaxMessage()+1)); !errors.Is(err, ErrTooLarge) {
			t.Errorf("large message: %v", err)
		}
		_ = n1.Close()
		if _, err := n1.Call(t.Context(), "n2", nil); !errors.Is(err, ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
		_, _ = n2, n3
	})
}

func TestBigMessagesGoOverStreams(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		n1, n2, _ := w.three()
		w.set(simnet.Conditions{Loss: 0.05, DelayMin: time.Millisecond, DelayMax: 3 * time.Millisecond})
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		big := bytes.Repeat([]byte("x"), 1<<20)
		if got, err := n1.Call(ctx, "n2", big); err != nil || len(got) != len(big)+3 {
			t.Errorf("big request: %d bytes, %v", len(got), err)
		}
		if got, err := n1.Call(ctx, "n2", []byte("big answer")); err != nil || len(got) != 100000 {
			t.Errorf("big answer: %d bytes, %v", len(got), err)
		}
		for _, size := range []int{0, 10, n1.MaxMessage(), n1.MaxMessage() + 1, 5 << 20} {
			if err := n1.Transfer(ctx, "n2", make([]byte, size)); err != nil {
				t.Errorf("transfer of %d: %v", size, err)
			}
			n2.mu.Lock()
			if want := fmt.Sprint("n1 transfers ", size); !slices.Contains(n2.packets, want) {
				t.Errorf("Transfer returned before it was taken: %q", want)
			}
			n2.mu.Unlock()
		}
		if err := n1.Transfer(ctx, "n2", make([]byte, MaxTransfer+1)); !errors.Is(err, ErrTooLarge) {
			t.Errorf("too large: %v", err)
		}
	})
}

func TestPacketsForAnotherIncarnationAreDropped(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		n1, n2, _ := w.three()
		old := n2.Incarnation()
		w.net.Isolate(at(2)) // so that n1 does not hear of it
		if n2.Renew() <= old || n2.Incarnation() == old {
			t.Fatal("not a new incarnation")
		}
		time.Sleep(time.Millisecond) // let go of what is under way
		w.net.Heal()
		if err := n1.Send("n2", []byte("for the old one")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Millisecond)
		if n2.Stats().DropStale == 0 || len(n2.packets) != 0 { // nodes compare views now and then, which may be dropped as well
			t.Errorf("dropped %d, got %q", n2.Stats().DropStale, n2.packets)
		}
		// A packet of the new incarnation is enough for n1 to know it.
		if err := n2.Send("n1", []byte("hello")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Millisecond)
		if m, _ := n1.View().Member("n2"); m.Incarnation != n2.Incarnation() {
			t.Errorf("n1 still knows %x, it is %x", m.Incarnation, n2.Incarnation())
		}
		if err := n1.Send("n2", []byte("for the new one")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Millisecond)
		n2.mu.Lock()
		defer n2.mu.Unlock()
		if !slices.Equal(n2.packets, []string{"n1 for the new one"}) {
			t.Errorf("n2 got %q", n2.packets)
		}
	})
}

// A call survives a split that the caller does not notice, and still runs once.
func TestCallRunsOnceAcrossASplit(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		n1, n2, _ := w.three()
		w.net.Cut(at(2), at(1)) // requests arrive, answers do not
		done := make(chan error, 1)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
		defer cancel()
		go func() {
			_, err := n1.Call(ctx, "n2", []byte("once"))
			done <- err
		}()
		time.Sleep(2 * time.Minute)
		w.net.Heal()
		err := <-done
		n2.mu.Lock()
		defer n2.mu.Unlock()
		if n2.executed["once"] != 1 {
			t.Errorf("executed %d times; the call's error: %v", n2.executed["once"], err)
		}
	})
}

// The network repeats a request while its handler runs, and when memberlist had the sender off its
// list meanwhile.
func TestRequestRunsOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		n1, n2, _ := w.three()
		h := header{from: "n1", sender: n1.Incarnation(), receiver: n2.Incarnation()}
		again := func(body string) {
			n2.receive(appendPacket(nil, &h, 1, appendFrame(nil, kindCall, 1000, []byte(body))))
		}
		again("slow x")
		again("slow x")
		time.Sleep(time.Second)
		again("slow x")

		n2.mu.Lock()
		if n2.executed["slow x"] != 1 {
			t.Errorf("executed %d times", n2.executed["slow x"])
		}
		n2.mu.Unlock()

		n2.Cluster.mu.Lock()
		sender := n2.peers[n1.wire].node
		n2.Cluster.mu.Unlock()
		sender.Meta = (&delegate{n1.Cluster}).NodeMeta(512)
		(&delegate{n2.Cluster}).NotifyLeave(&sender)
		time.Sleep(time.Millisecond)
		(&delegate{n2.Cluster}).NotifyJoin(&sender)
		time.Sleep(time.Millisecond)
		again("slow x")
		time.Sleep(time.Second)
		n2.mu.Lock()
		defer n2.mu.Unlock()
		if n2.executed["slow x"] != 1 {
			t.Errorf("executed %d times after the sender was off the list", n2.executed["slow x"])
		}
	})
}

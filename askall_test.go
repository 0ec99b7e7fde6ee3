package jatah_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jatah-io/jatah"
	"github.com/jatah-io/jatah/cluster"
	"github.com/jatah-io/jatah/cluster/simnet"
)

// said is what the replies are, in short.
func said(rs []jatah.Reply) string {
	var parts []string
	for _, r := range rs {
		what := string(r.Answer)
		for _, e := range []error{jatah.ErrNoAnswer, jatah.ErrUnknownTopic, jatah.ErrAnswer} {
			if errors.Is(r.Err, e) {
				what = strings.TrimPrefix(e.Error(), "jatah: ")
			}
		}
		parts = append(parts, r.Node+": "+what)
	}
	return strings.Join(parts, ", ")
}

func expectReplies(t *testing.T, rs []jatah.Reply, want string) {
	t.Helper()
	if got := said(rs); got != want {
		t.Errorf("replies are\n%s\nwant\n%s", got, want)
	}
	for _, r := range rs {
		if (r.Err == nil) == (r.Answer == nil) {
			t.Errorf("%s: answer %q with error %v", r.Node, r.Answer, r.Err)
		}
	}
}

// greet answers with the node's name, who asks and what is asked.
func greet(n *jatah.Node) jatah.Answerer {
	return func(_ context.Context, from string, question []byte) ([]byte, error) {
		return fmt.Appendf(nil, "%s hears %s of %s", n.Name(), question, from), nil
	}
}

func TestAskAllAlone(t *testing.T) {
	n, err := jatah.Start(t.Context(), jatah.Config{Node: "n1"})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	if err := n.Answer("hello", greet(n)); err != nil {
		t.Fatal(err)
	}
	expectReplies(t, n.AskAll(t.Context(), "hello", []byte("x")), "n1: n1 hears x of n1")
	expectReplies(t, n.AskAll(t.Context(), "other", nil), "n1: unknown topic")
	expectReplies(t, n.AskAll(t.Context(), "", nil), "n1: unknown topic")
	expectReplies(t, n.AskAll(t.Context(), "hello"+strings.Repeat("o", 1000), nil), "n1: unknown topic")
	expectReplies(t, n.AskAll(t.Context(), "hello", make([]byte, jatah.MaxQuestion+1)), "n1: the answer is an error")
	if err := n.Answer("hello", nil); err != nil {
		t.Fatal(err)
	}
	expectReplies(t, n.AskAll(t.Context(), "hello", nil), "n1: unknown topic")
	for _, topic := range []string{"", "jatah.top", strings.Repeat("x", jatah.MaxTopic+1)} {
		if err := n.Answer(topic, greet(n)); !errors.Is(err, jatah.ErrConfig) {
			t.Errorf("topic %q: %v", topic, err)
		}
	}
	_ = n.Answer("fails", func(context.Context, string, []byte) ([]byte, error) {
		return nil, errors.New("no such file" + strings.Repeat("!", 5000))
	})
	rs := n.AskAll(t.Context(), "fails", nil)
	expectReplies(t, rs, "n1: the answer is an error")
	if text := rs[0].Err.Error(); !strings.Contains(text, "no such file") || len(text) > 1200 {
		t.Errorf("the error has %d bytes: %.100s", len(text), text)
	}
	_ = n.Answer("long", func(context.Context, string, []byte) ([]byte, error) { return make([]byte, jatah.MaxAnswer+1), nil })
	expectReplies(t, n.AskAll(t.Context(), "long", nil), "n1: the answer is an error")
	n.Close()
	expectReplies(t, n.AskAll(t.Context(), "long", nil), "n1: no answer")
}

// TestAskAllMembers: all answer, with questions and answers that fit into packets and those that do not; then one does not know, one is slow,
// one is dead; nobody waits longer than asked to.
func TestAskAllMembers(t *testing.T) {
	inBubble(t, 31, jatah.Limit{Name: "api", Rate: jatah.PerSecond(100)}, 1, func(b *bubble) {
		b.start(4)
		asker := b.hosts[1].node()
		for _, h := range b.hosts {
			n := h.node()
			_ = n.Answer("hello", greet(n))
			_ = n.Answer("double", func(_ context.Context, _ string, q []byte) ([]byte, error) { return slices.Concat(q, q), nil })
		}
		expectReplies(b.t, asker.AskAll(b.t.Context(), "hello", []byte("x")),
			"n1: n1 hears x of n2, n2: n2 hears x of n2, n3: n3 hears x of n2, n4: n4 hears x of n2")
		large := bytes.Repeat([]byte("x"), jatah.MaxQuestion)
		for _, r := range asker.AskAll(b.t.Context(), "double", large) {
			if r.Err != nil || len(r.Answer) != 2*len(large) {
				b.t.Errorf("%s: %d bytes, %v", r.Node, len(r.Answer), r.Err)
			}
		}

		_ = b.hosts[0].node().Answer("hello", nil)
		_ = b.hosts[2].node().Answer("hello", func(ctx context.Context, _ string, _ []byte) ([]byte, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		})
		b.hosts[3].crash()
		begin := b.now()
		expectReplies(b.t, asker.AskAll(b.t.Context(), "hello", []byte("x")), "n1: unknown topic, n2: n2 hears x of n2, n3: no answer, n4: no answer")
		if took := b.now() - begin; took > 2100*time.Millisecond {
			b.t.Errorf("it took %v without a deadline", took)
		}
		ctx, cancel := context.WithTimeout(b.t.Context(), 100*time.Millisecond)
		defer cancel()
		begin = b.now()
		asker.AskAll(ctx, "hello", nil)
		if took := b.now() - begin; took > 110*time.Millisecond {
			b.t.Errorf("it took %v with a deadline of 100ms", took)
		}

		b.within(time.Minute, "the dead one is found dead", func() bool { return b.hosts[0].alive() == 3 && b.hosts[1].alive() == 3 })
		// It is named still.
		begin = b.now()
		expectReplies(b.t, b.hosts[0].node().AskAll(b.t.Context(), "double", []byte("x")), "n1: xx, n2: xx, n3: xx, n4: no answer")
		if took := b.now() - begin; took > time.Second {
			b.t.Errorf("%v were waited for a member known to have failed", took)
		}
		time.Sleep(25 * time.Second) // its grace is over
		b.hosts[2].leave()
		expectReplies(b.t, asker.AskAll(b.t.Context(), "double", []byte("x")), "n1: xx, n2: xx")
	})
}

// TestAskAllIsBounded: a node answers so many questions of a topic at once, and runs each once though messages are lost and doubled.
func TestAskAllIsBounded(t *testing.T) {
	inBubble(t, 32, jatah.Limit{Name: "api", Rate: jatah.PerSecond(100)}, 1, func(b *bubble) {
		b.start(2)
		asker := b.hosts[0].node()
		var running, most, runs atomic.Int64
		for _, h := range b.hosts {
			self := h.name
			_ = h.node().Answer("slow", func(context.Context, string, []byte) ([]byte, error) {
				if self == "n2" {
					most.Store(max(most.Load(), running.Add(1)))
					defer running.Add(-1)
					time.Sleep(500 * time.Millisecond)
				}
				return []byte("ok"), nil
			})
			_ = h.node().Answer("count", func(context.Context, string, []byte) ([]byte, error) {
				runs.Add(1)
				return []byte("ok"), nil
			})
		}
		var busy, ok atomic.Int64
		var wg sync.WaitGroup
		for range 40 {
			wg.Go(func() {
				switch r := asker.AskAll(b.t.Context(), "slow", nil)[1]; {
				case r.Err == nil:
					ok.Add(1)
				case errors.Is(r.Err, jatah.ErrNoAnswer) && strings.Contains(r.Err.Error(), "busy"):
					busy.Add(1)
				default:
					b.t.Errorf("%v", r.Err)
				}
			})
		}
		wg.Wait()
		if most.Load() != 16 || ok.Load() != 16 || busy.Load() != 24 {
			b.t.Errorf("%d ran at once, %d were answered, %d found it busy", most.Load(), ok.Load(), busy.Load())
		}
		b.weather(simnet.Conditions{DelayMin: 200 * time.Microsecond, DelayMax: 20 * time.Millisecond, Loss: 0.2, Duplicate: 0.2})
		for range 50 {
			expectReplies(b.t, asker.AskAll(b.t.Context(), "count", nil), "n1: ok, n2: ok")
		}
		if runs.Load() != 100 {
			b.t.Errorf("50 questions ran %d times on two nodes", runs.Load())
		}
	})
}

// TestAskAllOlderVersions: a member that answers no calls is named at once.
func TestAskAllOlderVersions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := simnet.New(33)
		transport := func(addr string) *simnet.Transport {
			tr, err := net.Transport(addr)
			if err != nil {
				t.Fatal(err)
			}
			return tr
		}
		old, err := cluster.Start(t.Context(), cluster.Config{Name: "old", Transport: transport("10.0.0.1:7946")}, cluster.Events{})
		if err != nil {
			t.Fatal(err)
		}
		n, err := jatah.Start(t.Context(), jatah.Config{Node: "new", Transport: transport("10.0.0.2:7946"), Join: []string{"10.0.0.1:7946"}})
		if err != nil {
			t.Fatal(err)
		}
		_ = n.Answer("hello", greet(n))
		begin := time.Now()
		expectReplies(t, n.AskAll(t.Context(), "hello", []byte("x")), "new: new hears x of new, old: unknown topic")
		if took := time.Since(begin); took > 500*time.Millisecond {
			t.Errorf("it took %v", took)
		}
		// Bytes that are no question change nothing.
		for _, q := range [][]byte{nil, {}, {1}, {1, 9, 'h'}, {2, 5, 'h', 'e', 'l', 'l', 'o'}, bytes.Repeat([]byte{255}, 1000)} {
			if b, err := old.Call(t.Context(), "new", q); err != nil || len(b) != 1 || b[0] != 1 {
				t.Errorf("question %v: %v, %v", q, b, err)
			}
		}
		_ = n.Close()
		_ = old.Close()
		time.Sleep(2 * time.Minute) // memberlist's probes outlast their owner
	})
}

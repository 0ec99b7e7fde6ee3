package jatah_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jatah-io/jatah"
	"github.com/jatah-io/jatah/cluster/simnet"
)

// A request that its owner does not answer is counted once, by why it was not.
func TestQuestionsThatFailAreCountedByReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		defer time.Sleep(2 * time.Minute) // memberlist's probes outlast their owner
		network := simnet.New(1)
		var nodes []*jatah.Node
		for i := range 2 {
			tr, err := network.Transport(fmt.Sprintf("10.0.0.%d:7946", i+1))
			if err != nil {
				t.Fatal(err)
			}
			node, err := jatah.Open(t.Context(), jatah.Config{Node: fmt.Sprint("n", i+1), Transport: tr, Join: []string{"10.0.0.1:7946", "10.0.0.2:7946"}, AskTimeout: 50 * time.Millisecond})
			if err != nil {
				t.Fatal(err)
			}
			defer node.Close()
			if err := node.SetLimits(jatah.Limit{Name: "api", Rate: jatah.PerHour(1000), Mode: jatah.Strict}); err != nil {
				t.Fatal(err)
			}
			nodes = append(nodes, node)
		}
		for _, n := range nodes {
			if err := n.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(3 * time.Second) // every share is lent by now
		l, _ := nodes[0].Lookup("api")
		key := ""
		for i := 0; key == ""; i++ {
			if st, err := l.Peek(t.Context(), fmt.Sprint("k", i)); err == nil && st.Owner == "n2" {
				key = st.Key
			}
		}
		expect := func(when string, timedOut, silent, canceled uint64) {
			t.Helper()
			a := nodes[0].Stats().Ask
			if a.TimedOut != timedOut || a.Silent != silent || a.Canceled != canceled {
				t.Errorf("%s: %d timed out, %d of silent owners, %d canceled; want %d, %d, %d", when, a.TimedOut, a.Silent, a.Canceled, timedOut, silent, canceled)
			}
		}
		if d := l.Take(t.Context(), key, 1); d.Source != jatah.SourceOwner {
			t.Errorf("with an owner: %+v", d)
		}
		expect("with an owner", 0, 0, 0)

		network.Isolate("10.0.0.2:7946")
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		l.Take(ctx, key, 1)
		cancel()
		expect("when the context has ended", 0, 0, 1)
		time.Sleep(100 * time.Millisecond) // the question of before goes on without who asked it
		asked := nodes[0].Stats().Ask.TimedOut
		time.Sleep(time.Second)
		for range 3 {
			l.Take(t.Context(), key, 1)
		}
		expect("when the owner is known to be silent", asked, 3, 1)
		if n := nodes[0].Stats().Ticks; n.Count == 0 {
			t.Error("no tick was timed")
		}
	})
}

package dashboard

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jatah-io/jatah"
	"github.com/jatah-io/jatah/cluster/simnet"
)

// TestWaitingForAMemberIsNotTime: while a member that has died is waited for, and when it is given up, the rates of the others stay what they are.
func TestWaitingForAMemberIsNotTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := simnet.New(1)
		var nodes []*jatah.Node
		for i := range 3 {
			tr, err := net.Transport(fmt.Sprintf("10.0.0.%d:7946", i+1))
			if err != nil {
				t.Fatal(err)
			}
			n, err := jatah.Open(t.Context(), jatah.Config{Node: fmt.Sprint("n", i+1), Transport: tr, Join: []string{"10.0.0.1:7946"}, Expect: 3, Logger: quiet})
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				ctx, cancel := context.WithTimeout(context.Background(), time.Second)
				defer cancel()
				_ = n.Shutdown(ctx) // nobody takes over what n3 had
			}()
			nodes = append(nodes, n)
		}
		for _, n := range nodes {
			if err := n.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := n.SetLimits(jatah.Limit{Name: "api", Rate: jatah.PerSecond(1000), Mode: jatah.Split}); err != nil {
				t.Fatal(err)
			}
		}
		net.Crash("10.0.0.3:7946")
		s := newSampler(nodes[0])
		defer s.stop()
		f, done := s.watch(scopeCluster)
		defer done()
		api, _ := nodes[0].Lookup("api")
		for range 20 * 100 { // 100 a second
			api.Take(t.Context(), "u", 1)
			time.Sleep(10 * time.Millisecond)
		}
		p := f.pastOf("")
		if len(p.Times) < 15 {
			t.Fatalf("%d samples", len(p.Times))
		}
		for i, got := range p.Allowed {
			if got < 95 || got > 105 {
				t.Errorf("second %d: %.0f of 100 in a second", i, got)
			}
		}
	})
}

package jatah_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/jatah-io/jatah"
)

// kinds are the kinds of a node's events, and whom they are about.
func kinds(n *jatah.Node) (all []string) {
	for _, e := range n.Events(0) {
		all = append(all, e.Kind+" "+e.Node)
	}
	return all
}

func TestClusterStatsAlone(t *testing.T) {
	n, api := lone(t, jatah.Limit{Name: "api", Rate: jatah.PerHour(2)})
	for range 3 {
		api.Take(t.Context(), "a", 1)
	}
	n.Note(jatah.Event{Kind: "reload", Text: "applied", Seq: 77})
	if es := n.Events(0); len(es) < 2 || es[len(es)-1].Kind == "" || !slices.ContainsFunc(es, func(e jatah.Event) bool { return e.Kind == "reload" && e.Text == "applied" && e.Seq < 77 }) {
		t.Errorf("events: %+v", es)
	}
	c, err := n.ClusterStats(t.Context())
	if err != nil || len(c.Nodes) != 1 || c.Missing != nil || c.Unknown != nil {
		t.Fatalf("%+v, %v", c, err)
	}
	want := []jatah.LimitStats{{Name: "api", Decisions: []jatah.DecisionCount{{Allowed: true, Source: jatah.SourceLocal, Count: 2}, {Allowed: false, Source: jatah.SourceLocal, Count: 1}}, Keys: 1}}
	if x := c.Nodes[0]; x.Node != n.Name() || !x.Ready || x.K != 1 || x.Weight != 1 || x.Omitted != 0 || !reflect.DeepEqual(x.Stats.Limits, want) || x.Stats.Members != 1 {
		t.Errorf("%+v", x)
	}
	n.Close()
	if _, err := n.ClusterStats(t.Context()); !errors.Is(err, jatah.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// TestClusterStatsOfACluster: every node hears what all have counted, and who does not answer; and each has noted who came and went.
func TestClusterStatsOfACluster(t *testing.T) {
	inBubble(t, 71, jatah.Limit{Name: "api", Rate: jatah.PerSecond(20), Burst: 20}, 0, func(b *bubble) {
		b.start(4)
		ctx := context.Background()
		allowed, refused := uint64(0), uint64(0)
		for i := range 30 {
			for _, h := range b.hosts {
				if h.life.Load().lim.Take(ctx, fmt.Sprint("k", i%3), 1).OK {
					allowed++
				} else {
					refused++
				}
			}
			time.Sleep(20 * time.Millisecond)
		}
		time.Sleep(200 * time.Millisecond)
		for _, h := range b.hosts {
			c, err := h.node().ClusterStats(ctx)
			if err != nil || len(c.Nodes) != 4 || c.Missing != nil || c.Unknown != nil {
				b.t.Fatalf("%s: %+v, %v", h.name, c, err)
			}
			var yes, no, asks uint64
			for _, n := range c.Nodes {
				asks += n.Stats.Ask.Latency.Count
				for _, d := range n.Stats.Limits[0].Decisions {
					if d.Allowed {
						yes += d.Count
					} else {
						no += d.Count
					}
				}
				if !n.Ready || n.K != 4 || n.Weight != 0.25 || n.Stats.Members != 4 || n.Stats.PacketsOut == 0 {
					b.t.Errorf("%s of %s: %+v", h.name, n.Node, n)
				}
			}
			if yes != allowed || no != refused || asks == 0 {
				b.t.Errorf("%s: %d allowed, %d refused, %d asks; %d and %d were", h.name, yes, no, asks, allowed, refused)
			}
		}
		b.hosts[2].crash()
		b.hosts[3].leave()
		c, err := b.hosts[0].node().ClusterStats(ctx)
		if err != nil || len(c.Nodes) != 2 || !slices.Equal(c.Missing, []string{"n3"}) {
			b.t.Errorf("without two: %+v, %v", c, err)
		}
		time.Sleep(20 * time.Second)
		got := kinds(b.hosts[0].node())
		for _, want := range []string{"started n1", "ready ", "joined n2", "joined n3", "failed n3", "left n4"} {
			if !slices.Contains(got, want) {
				b.t.Errorf("n1 never noted %q, but %q", want, got)
			}
		}
		if err := b.hosts[0].node().Forget(ctx, "n3"); err != nil {
			b.t.Error(err)
		}
		time.Sleep(2 * time.Second)
		if got := kinds(b.hosts[0].node()); !slices.Contains(got, "forgotten n3") {
			b.t.Errorf("n3 was forgotten, but n1 noted %q", got)
		}
	})
}

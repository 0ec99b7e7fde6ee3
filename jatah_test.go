package jatah_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"

	"github.com/jatah-io/jatah"
)

func ExampleStart() {
	ctx := context.Background()
	node, err := jatah.Start(ctx, jatah.Config{}) // one node, no network
	if err != nil {
		fmt.Println(err)
		return
	}
	defer node.Close()
	api, err := node.Limit(jatah.Limit{Name: "api", Rate: jatah.PerHour(100), Burst: 2})
	if err != nil {
		fmt.Println(err)
		return
	}
	for range 3 {
		d := api.Take(ctx, "user:42", 1)
		fmt.Println(d.OK, d.Remaining)
	}
	// Output:
	// true 1
	// true 0
	// false 0
}

// Three nodes on real sockets keep one limit together.
func TestThreeNodes(t *testing.T) {
	ctx := t.Context()
	var nodes []*jatah.Node
	var join []string
	for i := range 3 {
		n, err := jatah.Open(ctx, jatah.Config{Node: fmt.Sprintf("n%d", i), Bind: "127.0.0.1:0", Join: join, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		defer n.Close()
		join = append(join, n.Addr())
		nodes = append(nodes, n)
	}
	var limits []*jatah.Limiter
	for _, n := range nodes {
		if err := n.Wait(ctx); err != nil {
			t.Fatal(err)
		}
		l, err := n.Limit(jatah.Limit{Name: "api", Rate: jatah.PerDay(1), Burst: 30})
		if err != nil {
			t.Fatal(err)
		}
		limits = append(limits, l)
	}
	admitted, ahead := 0, 0
	for i := range 200 {
		d := limits[i%3].Take(ctx, "k", 1)
		if d.Err != nil {
			t.Fatal(d.Err)
		}
		if d.OK {
			admitted++
		}
		if d.OK && d.Source == jatah.SourceAhead {
			ahead++
		}
	}
	// A machine that is busy with something else may not run a node for a while. That is a fault: an owner that does not answer
	// in time lets others spend ahead of their shares, and a node that was paused may let through the burst once more.
	most := 30 + ahead
	for _, n := range nodes {
		most += 30 * int(n.Stats().Pauses)
	}
	if admitted == 0 || admitted > most {
		t.Errorf("three nodes admitted %d, at most %d of 30, with %d spent ahead", admitted, most, ahead)
	}
	for _, n := range nodes {
		if i := n.Info(); len(i.Members) != 3 || !i.Ready {
			t.Errorf("%s: %+v", n.Name(), i)
		}
	}
}

package jatah_test

import (
	"context"
	"fmt"
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
	api, err := node.Limit(jatah.Limit{Name: "api", Rate: jatah.PerMinute(60), Burst: 2})
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

func TestThreeNodes(t *testing.T) {
	ctx := context.Background()
	var nodes []*jatah.Node
	var join []string
	for i := range 3 {
		n, err := jatah.Open(ctx, jatah.Config{Node: fmt.Sprintf("n%d", i), Bind: "127.0.0.1:0", Join: join})
		if err != nil {
			t.Fatal(err)
		}
		defer n.Close()
		join = append(join, n.Addr())
		nodes = append(nodes, n)
	}
	for _, n := range nodes {
		if err := n.Wait(ctx); err != nil {
			t.Fatal(err)
		}
		l, _ := n.Limit(jatah.Limit{Name: "api", Rate: jatah.PerHour(100), Burst: 30})
		_ = l
	}
	got := 0
	for i := range 100 {
		l, _ := nodes[i%3].Lookup("api")
		d := l.Take(ctx, "k", 1)
		if d.OK {
			got++
		}
		if i > 25 && i < 40 {
			t.Log(i, d)
		}
	}
	t.Log(got)
	for _, n := range nodes {
		t.Logf("%+v", n.Info())
	}
}

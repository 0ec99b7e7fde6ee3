package cluster_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/jatah-io/jatah/cluster"
)

// Two nodes on this machine; the second one joins the first and asks it something.
func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	quiet := slog.New(slog.NewTextHandler(io.Discard, nil))
	answer := cluster.Events{
		Call: func(_ context.Context, from string, req []byte) ([]byte, error) {
			return fmt.Appendf(nil, "hello %s, you said %q", from, req), nil
		},
	}

	a, err := cluster.Start(ctx, cluster.Config{Name: "a", Bind: "127.0.0.1:0", Logger: quiet}, answer)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer a.Close()
	b, err := cluster.Start(ctx, cluster.Config{
		Name: "b", Bind: "127.0.0.1:0", Join: []string{a.Addr().String()}, Logger: quiet,
	}, answer)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer b.Close()

	got, err := b.Call(ctx, "a", []byte("good morning"))
	fmt.Printf("%s, %v\n", got, err)
	fmt.Println(b.Leave(ctx))
	fmt.Println(len(a.View().Members), "left")
	// Output:
	// hello b, you said "good morning", <nil>
	// <nil>
	// 1 left
}

package jatah_test

import (
	"context"
	"fmt"

	"github.com/jatah-io/jatah"
)

// One buffer holds the key of every request: it is free again when TakeBytes returns.
func ExampleLimiter_TakeBytes() {
	ctx := context.Background()
	node, err := jatah.Start(ctx, jatah.Config{})
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
	var key []byte
	for _, user := range []string{"ada", "bob", "ada"} {
		key = jatah.AppendKey(key[:0], "acme", user)
		d := api.TakeBytes(ctx, key, 1)
		fmt.Println(user, d.OK, d.Remaining)
	}
	// Take knows the key by the same name.
	d := api.Take(ctx, jatah.Key("acme", "ada"), 1)
	fmt.Println("ada", d.OK, d.Remaining)
	// Output:
	// ada true 1
	// bob true 1
	// ada true 0
	// ada false 0
}

// The slices can be used again for the next batch.
func ExampleNode_AppendBatch() {
	ctx := context.Background()
	node, err := jatah.Start(ctx, jatah.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer node.Close()
	api, err := node.Limit(jatah.Limit{Name: "api", Rate: jatah.PerHour(100), Burst: 2, Plans: map[string]jatah.Plan{
		"pro": {Rate: jatah.PerHour(1000), Burst: 20},
	}})
	if err != nil {
		fmt.Println(err)
		return
	}
	pro, err := api.Plan("pro")
	if err != nil {
		fmt.Println(err)
		return
	}
	var asks []jatah.Ask
	var decisions []jatah.Decision
	asks = append(asks[:0],
		jatah.Ask{Limiter: api, Key: "ada", Cost: 2},
		jatah.Ask{Limiter: api, Key: "ada", Cost: 1},
		jatah.Ask{Limiter: pro, Key: "bob", Cost: 5})
	decisions = node.AppendBatch(ctx, decisions[:0], asks)
	for i, d := range decisions {
		terms := asks[i].Limiter.Terms(asks[i].Key)
		fmt.Printf("%s %v, %d of %d left\n", asks[i].Key, d.OK, d.Remaining, terms.Burst)
	}
	// Output:
	// ada true, 0 of 2 left
	// ada false, 0 of 2 left
	// bob true, 15 of 20 left
}

package bench

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/sethvargo/go-limiter/memorystore"
	"golang.org/x/time/rate"

	"github.com/jatah-io/jatah"
)

// quota is a limit in the terms that all peers have in common.
type quota struct {
	tokens int64
	per    time.Duration
}

var (
	// ample never denies: no core takes a billion tokens in a second.
	ample = quota{1_000_000_000, time.Second}
	// spent denies all but the first request of a key.
	spent = quota{1, 1000 * time.Hour}
)

// peer is one way to limit each of many keys.
type peer struct {
	name string
	// open makes a limiter; take asks it for one token of a key.
	open func(b *testing.B, q quota) (take func(key string) bool)
}

func peers() []peer {
	return []peer{{"jatah", openJatah}, {"xtime", openXTime}, {"golimiter", openGoLimiter}}
}

// openJatah embeds a node alone with nothing configured.
func openJatah(b *testing.B, q quota) func(string) bool {
	ctx := context.Background()
	node, err := jatah.Start(ctx, jatah.Config{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { node.Close() })
	l, err := node.Limit(jatah.Limit{Name: "bench", Rate: jatah.Per(q.tokens, q.per)})
	if err != nil {
		b.Fatal(err)
	}
	return func(key string) bool { return l.Take(ctx, key, 1).OK }
}

// openXTime is what services write themselves: a map of golang.org/x/time/rate limiters. It never forgets a key.
func openXTime(_ *testing.B, q quota) func(string) bool {
	var limiters sync.Map // string: *rate.Limiter
	every := rate.Limit(float64(q.tokens) / q.per.Seconds())
	return func(key string) bool {
		l, ok := limiters.Load(key)
		if !ok {
			l, _ = limiters.LoadOrStore(key, rate.NewLimiter(every, int(q.tokens)))
		}
		return l.(*rate.Limiter).Allow()
	}
}

// openGoLimiter is github.com/sethvargo/go-limiter's store in memory, with its defaults.
func openGoLimiter(b *testing.B, q quota) func(string) bool {
	ctx := context.Background()
	store, err := memorystore.New(&memorystore.Config{Tokens: uint64(q.tokens), Interval: q.per})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { store.Close(ctx) })
	return func(key string) bool { return allowed(store.Take(ctx, key)) }
}

func allowed(_, _, _ uint64, ok bool, err error) bool { return ok && err == nil }

package edge_test

import (
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jatah-io/jatah"
	"github.com/jatah-io/jatah/httpapi/edge"
)

// Limits that come, go and change from tokens to permits, and edges that follow one another, while requests run: nothing panics, and nothing stays held.
func TestEverythingChangesWhileRequestsRun(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	permits := jatah.Limit{Name: "a", Algorithm: jatah.Concurrency, Max: 5, TTL: time.Second}
	tokens := jatah.Limit{Name: "a", Rate: jatah.PerSecond(100)}
	inBubble(t, []jatah.Limit{permits, {Name: "b", Rate: jatah.PerSecond(50)}, {Name: "c", Rate: jatah.PerSecond(5)}}, func(t *testing.T, node *jatah.Node) {
		rng := rand.New(rand.NewPCG(seed, 0))
		var current atomic.Pointer[edge.Edge]
		key := []edge.Part{edge.Header("K"), edge.Address()}
		build := func() {
			e, err := edge.New(node, edge.Config{FailOpen: rng.IntN(2) == 0, Before: current.Load(), MaxPenalties: 64, Rules: []edge.Rule{{
				Name: "r", Pause: &edge.Pause{After: 2, Base: 10 * time.Millisecond, Max: time.Second}, Soft: &edge.Soft{From: 0.5},
				Uses:   []edge.Use{{Limit: "a", Key: []edge.Part{edge.Text("all")}}, {Limit: "b", Key: key, Candidates: []string{"c"}}},
				Answer: &edge.Answer{Drop: &edge.Drop{After: 3, Within: time.Second}},
			}}, Logger: quiet()})
			if err == nil { // else a is not there, or b has become something that it cannot be
				current.Store(e)
			}
		}
		build()
		var clients sync.WaitGroup
		for i := range 20 {
			own := rand.New(rand.NewPCG(seed, uint64(i)+1))
			clients.Go(func() {
				for range 100 {
					d, broken := time.Duration(own.IntN(1500))*time.Millisecond, own.IntN(5) == 0
					h := current.Load().Middleware(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
						time.Sleep(d)
						if broken {
							panic("broken")
						}
					}))
					serve(h, request("GET", "/", someone, "K", string(rune('a'+own.IntN(200))), "Jatah-Soft", "x"))
					time.Sleep(time.Duration(own.IntN(30)) * time.Millisecond)
				}
			})
		}
		stop := make(chan struct{})
		go func() { clients.Wait(); close(stop) }()
		for changing := true; changing; {
			switch rng.IntN(6) {
			case 0:
				node.RemoveLimit("a")
			case 1, 2:
				_, _ = node.Limit(permits)
			case 3:
				_, _ = node.Limit(tokens)
			default:
				build()
			}
			select {
			case <-stop:
				changing = false
			case <-time.After(time.Duration(rng.IntN(300)) * time.Millisecond):
			}
		}
		node.RemoveLimit("a")
		if _, err := node.Limit(permits); err != nil {
			t.Fatal(err)
		}
		build()
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if n := held(t, node, "a", "all"); n != 0 {
			t.Errorf("%d permits are held at the end", n)
		}
		if got := serve(current.Load().Middleware(http.NotFoundHandler()), request("GET", "/", someone, "K", "new")); got != http.StatusNotFound {
			t.Errorf("at the end: status %d", got)
		}
		if n := len(current.Load().Penalties("", 0)); n > 64 {
			t.Errorf("%d keys are known, at most 64 should be", n)
		}
	})
}

package demo

import (
	"context"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"
)

// workers bounds the requests that run at once: more than a second's worth of
// an owner's silence asks for at the default load, few enough for any machine.
const workers = 192

// load offers requests at a steady pace, whether or not answers come: an open
// loop, as users are. A balancer sends what a dead service would get to others.
type load struct {
	services []*service
	perSec   float64
	nodes    []float64 // probability of each service
	keys     []float64 // probability of each key
	names    []string

	down [nodes]atomic.Bool
	lost atomic.Int64 // requests that the machine was too slow to send
}

// job is one request to send.
type job struct{ node, key int }

// run offers requests until ctx ends and waits for those under way.
func (l *load) run(ctx context.Context, rng *rand.Rand) {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: workers}}
	defer client.CloseIdleConnections()
	jobs := make(chan job, workers)
	var running sync.WaitGroup
	for range workers {
		running.Go(func() {
			for j := range jobs {
				l.send(client, j)
			}
		})
	}
	defer running.Wait()
	defer close(jobs)

	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	start, sent := time.Now(), 0
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for due := int(l.perSec * time.Since(start).Seconds()); sent < due; sent++ {
			select {
			case jobs <- l.pick(rng):
			default:
				l.lost.Add(1)
			}
		}
	}
}

func (l *load) pick(rng *rand.Rand) job {
	j := job{draw(rng, l.nodes), draw(rng, l.keys)}
	for l.down[j.node].Load() {
		j.node = (j.node + 1) % len(l.services)
	}
	return j
}

// draw picks an index with the given probabilities.
func draw(rng *rand.Rand, probabilities []float64) int {
	x := rng.Float64()
	for i, p := range probabilities {
		if x -= p; x < 0 {
			return i
		}
	}
	return len(probabilities) - 1
}

func (l *load) send(client *http.Client, j job) {
	resp, err := client.Get("http://" + l.services[j.node].addr + "/hello?user=" + url.QueryEscape(l.names[j.key]))
	if err != nil {
		return // the service counts what it could not answer
	}
	io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
}

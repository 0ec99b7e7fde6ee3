package chaos

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jatah-io/jatah/httpapi/client"
)

// walk takes from one key after the other, round after round, so that all stay in memory. took is of one goroutine.
type walk struct {
	load   *load
	nodes  []*node
	took   []uint16 // tokens of each key that were certainly admitted
	passes atomic.Int64
	walked atomic.Int64 // takes in all; any len(took) of them in a row are of all keys
}

// walkBatch is how many takes are in a request.
const walkBatch = 500

// run walks at so many keys a second until ctx ends; in the first round it is twice as fast.
func (w *walk) run(ctx context.Context, perSecond float64) {
	requests := make([]client.Request, walkBatch)
	begin, sent := time.Now(), 0
	for ctx.Err() == nil {
		speed := 2.0
		if w.passes.Load() > 0 {
			speed = 1
		}
		for first := 0; first < len(w.took) && ctx.Err() == nil; first += walkBatch {
			n := min(walkBatch, len(w.took)-first)
			for i := range n {
				requests[i] = client.Request{Limit: keptLimit, Key: walkKey(first + i), Cost: 1}
			}
			w.batch(ctx, first, requests[:n])
			sent += n
			w.walked.Add(int64(n))
			due := begin.Add(time.Duration(float64(sent) / (perSecond * speed) * float64(time.Second)))
			if late := time.Since(due); late > time.Second { // what could not be sent is not made up for
				begin = begin.Add(late)
			}
			pause(ctx, time.Until(due))
		}
		w.passes.Add(1)
		begin, sent = time.Now(), 0
	}
}

func walkKey(i int) client.Key { return client.Key{fmt.Sprintf("user-%08d", i)} }

// batch asks the node of these keys, always the same one, so that no other comes to know them. While it is down they are left out.
func (w *walk) batch(ctx context.Context, first int, requests []client.Request) {
	n := w.nodes[first/walkBatch%len(w.nodes)]
	if n.running() == nil || n.troubled.Load() > 0 {
		return
	}
	sent := w.load.now()
	for i, r := range n.ask.Batch(ctx, requests) {
		switch {
		case r.Err != nil:
			w.load.failed(ctx, n, false, r.Err)
		case r.Allowed:
			w.took[first+i]++
		}
	}
	w.load.decisions.Add(int64(len(requests)))
	w.load.took(fmt.Sprintf("batch of %d keys", walkBatch), w.load.now()-sent)
}

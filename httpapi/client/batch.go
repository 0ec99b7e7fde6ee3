package client

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
)

const (
	// maxItems is what a node takes in one batch or take-all unless it was told otherwise.
	maxItems = 1000
	// maxBody keeps a batch below the 1 MiB that a node reads.
	maxBody = 1 << 20
)

// Batch says whether concurrent takes share requests. The zero value: no.
//
// A take that comes while fewer than Calls requests are under way is sent at once and alone, so that nobody waits for company. Those
// that come while all are under way go together in the next. A node decides them in order, each on its own.
//
// It is for many takes at a time: it saves requests and their headers. One take that is slow, because the owner of its key does not answer,
// holds up those that share its request, and with Calls 1 all. A shared take is not repeated when its answer is lost.
type Batch struct {
	// Max is the most takes in one request, up to 1000. 0: takes are not shared.
	Max int
	// Calls is how many requests may be under way at a time. 0: 1.
	Calls int
}

// batcher shares requests among takes.
type batcher struct {
	c          *Client
	max, calls int

	mu      sync.Mutex
	flying  int     // requests under way
	waiting []*item // in order of arrival; some may have gone
}

// item is one take that waits to be sent with others.
type item struct {
	ctx    context.Context
	k      *call
	result chan try // with room for it, so that nobody waits for who has gone

	// The following are under the batcher's lock.

	gone   bool    // its caller no longer waits
	flight *flight // that it is in; nil: none yet
}

// flight is a shared request. It goes on as long as anybody waits for it.
type flight struct {
	cancel context.CancelFunc
	left   int // callers that wait
}

func newBatcher(c *Client, cfg Batch) (*batcher, error) {
	switch {
	case cfg.Max < 0 || cfg.Max > maxItems:
		return nil, fmt.Errorf("%w: Batch.Max: %d is not from 0 to %d", ErrConfig, cfg.Max, maxItems)
	case cfg.Calls < 0 || cfg.Calls > 0 && cfg.Max == 0:
		return nil, fmt.Errorf("%w: Batch.Calls: %d; it must not be negative, and needs Batch.Max", ErrConfig, cfg.Calls)
	case cfg.Max == 0:
		return nil, nil
	}
	return &batcher{c: c, max: cfg.Max, calls: max(1, cfg.Calls)}, nil
}

// take decides one request, perhaps together with others. Each caller has its own retries and pauses.
func (b *batcher) take(ctx context.Context, r Request) (Decision, error) {
	body, err := appendRequest(nil, &r)
	if err != nil {
		return Decision{}, err
	}
	k := &call{method: http.MethodPost, path: "/v1/take", body: body, once: b.c.onceKey(), denies: true}
	t := b.c.persist(ctx, k, func(at int, stay bool) try {
		if stay { // it was sent alone, and a repeat must be the same request
			return b.c.round(ctx, k, at, stay)
		}
		return b.round(ctx, k, at)
	})
	if t.err != nil {
		return Decision{}, t.err
	}
	d, err := readDecision(t.answer)
	if err != nil {
		return Decision{}, err
	}
	return d.decision(r.Key), nil
}

// round sends a take at once, or with those that come before a request is back.
func (b *batcher) round(ctx context.Context, k *call, at int) try {
	b.mu.Lock()
	if b.flying < b.calls {
		b.flying++
		b.mu.Unlock()
		defer b.landed()
		return b.c.round(ctx, k, at, false)
	}
	it := &item{ctx: ctx, k: k, result: make(chan try, 1)}
	b.waiting = append(b.waiting, it)
	b.mu.Unlock()
	select {
	case t := <-it.result:
		return t
	case <-ctx.Done():
		return b.leave(it, at)
	}
}

// leave takes out a caller whose context has ended. The others in its request are not concerned.
func (b *batcher) leave(it *item, at int) try {
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case t := <-it.result: // in the same moment
		return t
	default:
	}
	it.gone = true
	t := try{fate: unsent, at: at, shared: true, err: fmt.Errorf("client: no answer: %w", it.ctx.Err())}
	if f := it.flight; f != nil {
		t.fate = unknown
		if f.left--; f.left == 0 {
			f.cancel()
		}
	}
	return t
}

// landed says that a request is back; the next goes, if anybody waits.
func (b *batcher) landed() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.flying--
	group := b.group()
	if len(group) == 0 {
		return
	}
	b.flying++
	if len(group) == 1 {
		group[0].flight = &flight{cancel: func() {}, left: 1} // its own context ends it
		go b.flyAlone(group[0])
		return
	}
	ctx, cancel := context.WithCancel(context.Background()) // of nobody's own
	f := &flight{cancel, len(group)}
	for _, it := range group {
		it.flight = f
	}
	go b.fly(ctx, f, group)
}

// group takes the next that go together out of the queue.
func (b *batcher) group() (group []*item) {
	size, i := len(`{"takes":[]}`), 0
	for ; i < len(b.waiting) && len(group) < b.max; i++ {
		it := b.waiting[i]
		b.waiting[i] = nil
		if it.gone {
			continue
		}
		if size += len(it.k.body) + 1; size > maxBody && len(group) > 0 {
			b.waiting[i] = it
			break
		}
		group = append(group, it)
	}
	if b.waiting = b.waiting[i:]; len(b.waiting) == 0 {
		b.waiting = nil
	}
	return group
}

func (b *batcher) flyAlone(it *item) {
	defer b.landed()
	it.result <- b.c.round(it.ctx, it.k, int(b.c.at.Load()), false)
}

func (b *batcher) fly(ctx context.Context, f *flight, group []*item) {
	defer b.landed()
	defer f.cancel()
	bodies := make([][]byte, len(group))
	for i, it := range group {
		bodies[i] = it.k.body
	}
	k := &call{method: http.MethodPost, path: "/v1/batch", body: joinTakes(bodies)}
	t := b.c.round(ctx, k, int(b.c.at.Load()), false)
	t.shared = true
	var results []json.RawMessage
	if t.fate == done && t.err == nil {
		if results, t.err = readResults(t.answer, len(group)); t.err != nil {
			t.err = fmt.Errorf("%w: %w", ErrUncertain, t.err)
		}
	}
	for i, it := range group {
		own := t
		if results != nil {
			own.answer.body = results[i]
			own.judgeItem()
		}
		it.result <- own
	}
}

// judgeItem says what the answer to one item means.
func (t *try) judgeItem() {
	if !bytes.HasPrefix(t.answer.body, []byte(`{"error"`)) {
		return // a decision, which its caller reads
	}
	var b struct{ Error json.RawMessage }
	if t.err = t.answer.read("the result of a take", &b); t.err != nil {
		return
	}
	p := parseProblem(b.Error)
	if p.Addr, t.err = t.answer.addr, p; p.Is(ErrUndecided) {
		t.fate = unknown
	}
}

func joinTakes(bodies [][]byte) []byte {
	n := 16
	for _, body := range bodies {
		n += len(body) + 1
	}
	b := append(make([]byte, 0, n), `{"takes":[`...)
	for i, body := range bodies {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, body...)
	}
	return append(b, "]}"...)
}

func appendTakes(rs []Request) ([]byte, error) {
	bodies := make([][]byte, len(rs))
	for i := range rs {
		var err error
		if bodies[i], err = appendRequest(nil, &rs[i]); err != nil {
			return nil, err
		}
	}
	return joinTakes(bodies), nil
}

// readResults splits the answer to a batch of n.
func readResults(a answer, n int) ([]json.RawMessage, error) {
	var b struct{ Results []json.RawMessage }
	if err := a.read("one of a batch", &b); err != nil {
		return nil, err
	}
	if len(b.Results) != n {
		return nil, notAn(a.addr, "one of a batch of so many takes", nil)
	}
	return b.Results, nil
}

// Result is the answer to one request of a batch: a decision, or why there is none.
type Result struct {
	Decision
	Err error
}

// Batch decides many requests, in their order and each on its own, in as few calls as they need. The results are in the order of the
// requests. What befalls a whole call is the error of all requests in it, and the calls after it are not made.
func (c *Client) Batch(ctx context.Context, rs []Request) []Result {
	results := make([]Result, len(rs))
	for from := 0; from < len(rs); {
		n, body := chunk(rs[from:], results[from:])
		if n == 0 { // a request that cannot be sent; it has its error
			from++
			continue
		}
		if err := c.batch(ctx, body, rs[from:from+n], results[from:from+n]); err != nil {
			for i := from; i < len(rs); i++ {
				results[i].Err = err
			}
			return results
		}
		from += n
	}
	return results
}

// chunk makes the body of as many requests as one call holds.
func chunk(rs []Request, results []Result) (n int, body []byte) {
	var bodies [][]byte
	size := len(`{"takes":[]}`)
	for i := range rs {
		b, err := appendRequest(nil, &rs[i])
		if err != nil && i == 0 {
			results[0].Err = err
		}
		if size += len(b) + 1; err != nil || i == maxItems || size > maxBody && i > 0 {
			break
		}
		bodies = append(bodies, b)
	}
	return len(bodies), joinTakes(bodies)
}

func (c *Client) batch(ctx context.Context, body []byte, rs []Request, results []Result) error {
	a, err := c.do(ctx, &call{method: http.MethodPost, path: "/v1/batch", body: body})
	if err != nil {
		return err
	}
	all, err := readResults(a, len(rs))
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUncertain, err)
	}
	for i := range rs {
		t := try{answer: answer{addr: a.addr, body: all[i]}}
		if t.judgeItem(); t.err == nil {
			var d decisionBody
			if d, t.err = readDecision(t.answer); t.err == nil {
				results[i].Decision = d.decision(rs[i].Key)
			}
		}
		if results[i].Err = t.err; t.fate == unknown {
			results[i].Err = fmt.Errorf("%w: %w", ErrUncertain, t.err)
		}
	}
	return nil
}

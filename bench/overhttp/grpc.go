//go:build !nogubernator

package overhttp

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/gubernator-io/gubernator/v2"

	"github.com/jatah-io/jatah/bench/internal/proc"
	"github.com/jatah-io/jatah/bench/report"
)

// withGubernator says that gubernator is measured too.
const withGubernator = true

// rpc asks gubernator over gRPC, with as many callers as wrk has connections.
type rpc struct {
	client gubernator.V1Client
	of     *proc.Process
	asks   []*gubernator.GetRateLimitsReq
}

func newRPC(addr string, of *proc.Process, size, keys int) (*rpc, error) {
	client, err := gubernator.DialV1Server(addr, nil)
	if err != nil {
		return nil, fmt.Errorf("overhttp: %w", err)
	}
	r := &rpc{client: client, of: of}
	for at := 0; at < keys; at += size {
		ask := new(gubernator.GetRateLimitsReq)
		for i := range size {
			ask.Requests = append(ask.Requests, &gubernator.RateLimitReq{
				Name: "api", UniqueKey: keyName((at + i) % keys), Hits: 1, Limit: 1_000_000_000, Duration: 1000,
			})
		}
		r.asks = append(r.asks, ask)
	}
	return r, nil
}

func (r *rpc) measure(ctx context.Context, length time.Duration) (measurement, error) {
	before, err := r.of.CPU()
	if err != nil {
		return measurement{}, err
	}
	var seen [connections]report.Histogram
	var failed [connections]error
	var wg sync.WaitGroup
	start := time.Now()
	for i := range connections {
		wg.Go(func() {
			for at := i; failed[i] == nil && (time.Since(start) < length || seen[i].Count() == 0); at++ {
				asked := time.Now()
				failed[i] = r.ask(ctx, r.asks[at%len(r.asks)])
				seen[i].Add(time.Since(asked))
			}
		})
	}
	wg.Wait()
	took := time.Since(start)
	if err := errors.Join(failed[:]...); err != nil {
		return measurement{}, err
	}
	var all report.Histogram
	for i := range seen {
		all.Merge(&seen[i])
	}
	after, err := r.of.CPU()
	n := all.Count()
	return measurement{float64(n) / took.Seconds(), all.Quantile(0.5), all.Quantile(0.99), (after - before) / time.Duration(n)}, err
}

// ask fails if not all is allowed.
func (r *rpc) ask(ctx context.Context, ask *gubernator.GetRateLimitsReq) error {
	res, err := r.client.GetRateLimits(ctx, ask)
	if err != nil {
		return fmt.Errorf("overhttp: gubernator: %w", err)
	}
	if len(res.Responses) != len(ask.Requests) {
		return fmt.Errorf("overhttp: gubernator answers %d requests with %d responses", len(ask.Requests), len(res.Responses))
	}
	for _, one := range res.Responses {
		if one.Error != "" || one.Status != gubernator.Status_UNDER_LIMIT {
			return fmt.Errorf("overhttp: gubernator answers %v %s", one.Status, one.Error)
		}
	}
	return nil
}

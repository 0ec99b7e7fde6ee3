//go:build !nogubernator

package local

import (
	"context"
	"io"
	"time"

	"github.com/gubernator-io/gubernator/v2"
	"github.com/sirupsen/logrus"
	"google.golang.org/grpc"
)

func gubernatorLibrary() []peer {
	return []peer{{name: "gubernator", open: openGubernator,
		note: "as a library: one instance that owns every key, `GetRateLimits` called directly, without gRPC; token bucket, its cache large enough for all keys; it makes messages for each request"}}
}

func openGubernator(ctx context.Context, q quota, keys int) (*subject, error) {
	quiet := logrus.New()
	quiet.SetOutput(io.Discard)
	// The server never listens: it only is a thing that an instance registers with.
	g, err := gubernator.NewV1Instance(gubernator.Config{GRPCServers: []*grpc.Server{grpc.NewServer()}, CacheSize: max(2*keys, 50_000), Logger: quiet})
	if err != nil {
		return nil, err
	}
	g.SetPeers([]gubernator.PeerInfo{{GRPCAddress: "127.0.0.1:1051", IsOwner: true}})
	return &subject{
		close: func() { _ = g.Close() },
		take: func(key string) bool {
			answer, err := g.GetRateLimits(ctx, &gubernator.GetRateLimitsReq{Requests: []*gubernator.RateLimitReq{
				{Name: "bench", UniqueKey: key, Hits: 1, Limit: q.tokens, Duration: int64(q.per / time.Millisecond)}}})
			return err == nil && answer.Responses[0].Error == "" && answer.Responses[0].Status == gubernator.Status_UNDER_LIMIT
		},
	}, nil
}

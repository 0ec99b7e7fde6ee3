//go:build !nogubernator

package distributed

import (
	"context"
	"errors"
	"fmt"

	"github.com/gubernator-io/gubernator/v2"

	"github.com/jatah-io/jatah/bench/internal/servers"
)

// withGubernator says that gubernator is measured too.
const withGubernator = true

// gubernatorTargets asks a cluster with three behaviours; each client asks one process of it.
func gubernatorTargets(ctx context.Context, g *servers.Group, r rule) ([]*target, error) {
	var clients []gubernator.V1Client
	for _, addr := range g.GRPC {
		c, err := gubernator.DialV1Server(addr, nil)
		if err != nil {
			return nil, fmt.Errorf("distributed: %w", err)
		}
		clients = append(clients, c)
	}
	var ts []*target
	for _, b := range []struct {
		name, note string
		behavior   gubernator.Behavior
	}{
		{"gubernator", "token bucket, default behaviour (batching)", gubernator.Behavior_BATCHING},
		{"gubernator no batching", "token bucket, behaviour NO_BATCHING", gubernator.Behavior_NO_BATCHING},
		{"gubernator GLOBAL", "token bucket, behaviour GLOBAL", gubernator.Behavior_GLOBAL},
	} {
		name := fmt.Sprintf("%s-%d", r.name, b.behavior)
		ask := func(ctx context.Context, client int, key string) (*gubernator.RateLimitResp, error) {
			res, err := clients[client].GetRateLimits(ctx, &gubernator.GetRateLimitsReq{Requests: []*gubernator.RateLimitReq{{
				Name: name, UniqueKey: key, Hits: 1, Limit: r.burst, Duration: r.burst * 1000 / r.rate, Behavior: b.behavior,
			}}})
			if err != nil {
				return nil, err
			}
			if len(res.Responses) != 1 {
				return nil, fmt.Errorf("distributed: gubernator answers one request with %d responses", len(res.Responses))
			}
			if text := res.Responses[0].Error; text != "" {
				return nil, errors.New("distributed: gubernator: " + text)
			}
			return res.Responses[0], nil
		}
		keys, err := firstKeys(ctx, func(key string) (bool, error) {
			res, err := ask(ctx, 0, key)
			if err != nil {
				return false, err
			}
			owner := res.Metadata["owner"]
			return owner != "" && owner != g.GRPC[0], nil
		})
		if err != nil {
			return nil, err
		}
		ts = append(ts, &target{
			name: b.name, note: b.note + "; " + g.Note + "; gRPC to a process that does not own the key", clients: len(clients), batch: 1, keys: keys, procs: g.Procs,
			take: func(ctx context.Context, client int, keys []string) (answer, error) {
				res, err := ask(ctx, client, keys[0])
				if err != nil {
					return answer{}, err
				}
				return one(res.Status == gubernator.Status_UNDER_LIMIT), nil
			},
		})
	}
	return ts, nil
}

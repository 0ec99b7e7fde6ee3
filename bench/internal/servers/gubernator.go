package servers

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/jatah-io/jatah/bench/internal/proc"
)

// GubernatorPackage is the peer's own program, which go.mod pins as a tool.
const GubernatorPackage = "github.com/gubernator-io/gubernator/v2/cmd/gubernator"

// Gubernator starts the built program n times, as a cluster found by memberlist, all else at its defaults.
func Gubernator(ctx context.Context, dir, program string, n int) (*Group, error) {
	addrs, err := proc.Addresses(3 * n)
	if err != nil {
		return nil, err
	}
	g := &Group{GRPC: addrs[:n], HTTP: addrs[n : 2*n], Bind: addrs[2*n:], Note: fmt.Sprintf("%d processes, member-list discovery, else defaults", n)}
	for i := range n {
		p, err := proc.Start(ctx, proc.Spec{
			Name: fmt.Sprintf("gubernator %d", i+1), Program: program,
			Env: []string{
				"GUBER_GRPC_ADDRESS=" + g.GRPC[i],
				"GUBER_HTTP_ADDRESS=" + g.HTTP[i],
				"GUBER_ADVERTISE_ADDRESS=" + g.GRPC[i],
				"GUBER_INSTANCE_ID=g" + fmt.Sprint(i+1),
				"GUBER_PEER_DISCOVERY_TYPE=member-list",
				"GUBER_MEMBERLIST_ADDRESS=" + g.Bind[i],
				"GUBER_MEMBERLIST_BIND_ADDRESS=" + g.Bind[i],
				"GUBER_MEMBERLIST_KNOWN_NODES=" + strings.Join(g.Bind[:max(i, 1)], ","),
				"GUBER_LOG_LEVEL=warn",
				"OTEL_TRACES_EXPORTER=none",
			},
			Log:   filepath.Join(dir, fmt.Sprintf("gubernator-%d-%s.log", i+1, port(g.GRPC[i]))),
			Ready: gubernatorReady(g.HTTP[i], 1),
		})
		if err != nil {
			return nil, errors.Join(err, g.Stop())
		}
		g.Procs = append(g.Procs, p)
	}
	for i, p := range g.Procs {
		if err := p.WaitReady(ctx, gubernatorReady(g.HTTP[i], n)); err != nil {
			return nil, errors.Join(err, g.Stop())
		}
	}
	return g, nil
}

func gubernatorReady(addr string, peers int) func(context.Context) error {
	return func(ctx context.Context) error {
		var health struct {
			Status string `json:"status"`
			Peers  int    `json:"peer_count"`
		}
		if err := getJSON(ctx, "http://"+addr+"/v1/HealthCheck", &health); err != nil {
			return err
		}
		if health.Status != "healthy" || health.Peers < peers {
			return fmt.Errorf("%s is %s and sees %d of %d peers", addr, health.Status, health.Peers, peers)
		}
		return nil
	}
}

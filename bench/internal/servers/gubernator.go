package servers

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jatah-io/jatah/bench/internal/proc"
)

// GubernatorPackage is the program to build for Gubernator.
const GubernatorPackage = "github.com/jatah-io/jatah/bench/cmd/gubernator"

// Gubernator starts the built program n times, as a cluster whose members know each other, all else at its defaults.
func Gubernator(ctx context.Context, dir, program string, n int) (*Group, error) {
	addrs, err := proc.Addresses(2 * n)
	if err != nil {
		return nil, err
	}
	g := &Group{GRPC: addrs[:n], HTTP: addrs[n:], Note: "one process, its defaults"}
	if n > 1 {
		g.Note = fmt.Sprintf("%d processes, its defaults", n)
	}
	for i := range n {
		p, err := proc.Start(ctx, proc.Spec{
			Name: fmt.Sprintf("gubernator %d", i+1), Program: program, Args: []string{"-peers", strings.Join(g.GRPC, ",")},
			Env: []string{
				"GUBER_GRPC_ADDRESS=" + g.GRPC[i],
				"GUBER_HTTP_ADDRESS=" + g.HTTP[i],
				"GUBER_ADVERTISE_ADDRESS=" + g.GRPC[i],
				fmt.Sprintf("GUBER_INSTANCE_ID=g%d", i+1),
				"GUBER_LOG_LEVEL=warn",
			},
			Dir: dir,
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

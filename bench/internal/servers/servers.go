// Package servers starts the servers that the suites ask, each as its documentation says, on free ports of the loopback interface:
// Redis, a cluster of gubernator, a cluster of nodes. What it starts is listening and knows its peers when it returns; when starting fails,
// nothing is left running.
package servers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/jatah-io/jatah/bench/internal/proc"
)

// Group is servers that work together. Stop it once.
type Group struct {
	Procs []*proc.Process
	HTTP  []string // "host:port" of each, if it speaks HTTP
	GRPC  []string // of each, if it speaks gRPC
	Bind  []string // of each, for traffic among them
	Addr  string   // of a server that is alone
	Note  string   // how it was started, for reports
}

// Stop ends all, the last first.
func (g *Group) Stop() error { return proc.StopAll(g.Procs) }

// RedisProgram is what has to be in PATH.
const RedisProgram = "redis-server"

// Redis starts a redis-server that keeps nothing on disk.
func Redis(ctx context.Context, dir string) (*Group, error) {
	program, err := exec.LookPath(RedisProgram)
	if err != nil {
		return nil, fmt.Errorf("servers: %w; install it, on Debian with apt-get install redis-server", err)
	}
	addrs, err := proc.Addresses(1)
	if err != nil {
		return nil, err
	}
	_, port, _ := strings.Cut(addrs[0], ":")
	db := redis.NewClient(&redis.Options{Addr: addrs[0]})
	defer db.Close()
	p, err := proc.Start(ctx, proc.Spec{
		Program: program,
		Args:    []string{"--bind", "127.0.0.1", "--port", port, "--save", "", "--appendonly", "no", "--dir", dir},
		Dir:     dir,
		Ready: func(ctx context.Context) error {
			conn, err := new(net.Dialer).DialContext(ctx, "tcp", addrs[0]) // the client would log each refusal
			if err != nil {
				return err
			}
			conn.Close()
			return db.Ping(ctx).Err()
		},
	})
	if err != nil {
		return nil, err
	}
	g := &Group{Procs: []*proc.Process{p}, Addr: addrs[0]}
	info, err := db.InfoMap(ctx, "server").Result()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("servers: asking Redis for its version: %w", err), g.Stop())
	}
	g.Note = "redis-server " + info["Server"]["redis_version"] + ", loopback TCP, nothing written to disk"
	return g, nil
}

// Nodes starts the built program as n nodes "s1", "s2"... with the limits, each in the form of the flag --limit, and waits until all have
// their share. One node alone has no traffic with others.
func Nodes(ctx context.Context, dir, program string, n int, limits ...string) (*Group, error) {
	addrs, err := proc.Addresses(2 * n)
	if err != nil {
		return nil, err
	}
	g := &Group{HTTP: addrs[:n], Bind: addrs[n:], Note: "jatah serve"}
	for i := range n {
		args := []string{"serve", "--http", g.HTTP[i], "--node", fmt.Sprintf("s%d", i+1), "--log-level", "warn"}
		if n > 1 {
			args = append(args, "--bind", g.Bind[i])
			for _, to := range g.Bind[:i] {
				args = append(args, "--join", to)
			}
		}
		for _, l := range limits {
			args = append(args, "--limit", l)
		}
		p, err := proc.Start(ctx, proc.Spec{
			Name: fmt.Sprintf("node s%d", i+1), Program: program, Args: args, Dir: dir,
		})
		if err != nil {
			return nil, errors.Join(err, g.Stop())
		}
		g.Procs = append(g.Procs, p)
	}
	for i, p := range g.Procs {
		if err := p.WaitReady(ctx, nodeReady(g.HTTP[i], n)); err != nil {
			return nil, errors.Join(err, g.Stop())
		}
	}
	return g, nil
}

// nodeReady asks whether a node has its share and counts as many members as there are.
func nodeReady(addr string, members int) func(context.Context) error {
	ready := proc.HTTPReady("http://" + addr + "/readyz")
	return func(ctx context.Context) error {
		if err := ready(ctx); err != nil {
			return err
		}
		var seen struct {
			Members []json.RawMessage `json:"members"`
		}
		if err := getJSON(ctx, "http://"+addr+"/v1/cluster", &seen); err != nil {
			return err
		}
		if len(seen.Members) != members {
			return fmt.Errorf("%s sees %d of %d members", addr, len(seen.Members), members)
		}
		return nil
	}
}

func getJSON(ctx context.Context, url string, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", url, resp.Status)
	}
	if err := json.NewDecoder(resp.Body).Decode(into); err != nil {
		return fmt.Errorf("%s: %w", url, err)
	}
	return nil
}

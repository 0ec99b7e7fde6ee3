package distributed

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/jatah-io/jatah"
	"github.com/jatah-io/jatah/httpapi/client"

	"github.com/jatah-io/jatah/bench/internal/proc"
	"github.com/jatah-io/jatah/bench/internal/servers"
)

// modes are the limits that every node has, named after their mode.
var modes = []jatah.Mode{jatah.Strict, jatah.Hybrid, jatah.Split}

// flag is the limit as the flag --limit has it.
func (r rule) flag(m jatah.Mode) string {
	return fmt.Sprintf("%s-%s=%d/s,burst=%d,mode=%s", r.name, m, r.rate, r.burst, m)
}

func (r rule) flags() []string {
	var of []string
	for _, m := range modes {
		of = append(of, r.flag(m))
	}
	return of
}

// embedded is nodes in this process.
type embedded struct {
	nodes    []*jatah.Node
	limiters [][]*jatah.Limiter // of each mode, of each node
}

// embed starts n nodes that join others, and returns when each counts all members and has its share.
func embed(ctx context.Context, n int, join []string, others int, r rule) (*embedded, error) {
	e := &embedded{limiters: make([][]*jatah.Limiter, len(modes))}
	if err := e.start(ctx, n, join, others, r); err != nil {
		e.stop()
		return nil, fmt.Errorf("distributed: %w", err)
	}
	return e, nil
}

func (e *embedded) start(ctx context.Context, n int, join []string, others int, r rule) error {
	for i := range n {
		node, err := jatah.Open(ctx, jatah.Config{Node: fmt.Sprintf("e%d", i+1), Bind: "127.0.0.1:0", Join: join, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			return err
		}
		e.nodes, join = append(e.nodes, node), append(join, node.Addr())
		for at, m := range modes {
			l, err := node.Limit(jatah.Limit{Name: fmt.Sprintf("%s-%s", r.name, m), Rate: jatah.PerSecond(r.rate), Burst: r.burst, Mode: m})
			if err != nil {
				return err
			}
			e.limiters[at] = append(e.limiters[at], l)
		}
	}
	deadline := time.Now().Add(30 * time.Second)
	for _, node := range e.nodes {
		if err := node.Wait(ctx); err != nil {
			return err
		}
		// A node that has its share may still count a former K.
		for ; ; time.Sleep(20 * time.Millisecond) {
			info := node.Info()
			if info.K == n+others && info.Settling == 0 {
				break
			}
			if err := ctx.Err(); err != nil {
				return err
			}
			if time.Now().After(deadline) {
				return fmt.Errorf("node %s counts %d of %d members", node.Name(), info.K, n+others)
			}
		}
	}
	return nil
}

func (e *embedded) stop() {
	for i := len(e.nodes) - 1; i >= 0; i-- {
		_ = e.nodes[i].Close() // a hand-off that fails after the measurement matters to nobody
	}
}

// targets asks the nodes themselves, in each mode. procs are the other nodes of the cluster.
func (e *embedded) targets(ctx context.Context, procs []*proc.Process, note string) ([]*target, error) {
	var ts []*target
	for at, m := range modes {
		limiters := e.limiters[at]
		foreign := func(key string) (bool, error) {
			s, err := limiters[0].Peek(ctx, key)
			return s.Owner != e.nodes[0].Name(), err
		}
		where := "the node does not own the key"
		if m == jatah.Split {
			foreign, where = nil, "no key has an owner"
		}
		keys, err := firstKeys(ctx, foreign)
		if err != nil {
			return nil, err
		}
		ts = append(ts, &target{
			name: "jatah " + m.String(), note: fmt.Sprintf("embedded, mode %s; %s; %s", m, note, where),
			clients: len(limiters), batch: 1, keys: keys, procs: procs,
			take: func(ctx context.Context, client int, keys []string) (answer, error) {
				d := limiters[client].Take(ctx, keys[0], 1)
				if d.Err != nil {
					return answer{}, d.Err
				}
				a := one(d.OK)
				if d.Source != jatah.SourceLocal && d.Source != jatah.SourceOwner {
					a = a.oddly()
				}
				return a, nil
			},
		})
	}
	return ts, nil
}

// overHTTP asks nodes with the client of the API, each client one node.
func overHTTP(ctx context.Context, g *servers.Group, r rule, modes []jatah.Mode, batches []int) ([]*target, error) {
	var clients []*client.Client
	for _, addr := range g.HTTP {
		c, err := client.New(client.Config{Addrs: []string{"http://" + addr}})
		if err != nil {
			return nil, fmt.Errorf("distributed: %w", err)
		}
		clients = append(clients, c)
	}
	var ts []*target
	for _, m := range modes {
		limit := fmt.Sprintf("%s-%s", r.name, m)
		keys, err := firstKeys(ctx, func(key string) (bool, error) {
			s, err := clients[0].Peek(ctx, client.Request{Limit: limit, Key: client.Key{key}, Cost: 1})
			return s.Owner != "s1", err
		})
		if err != nil {
			return nil, err
		}
		for _, batch := range batches {
			t := &target{clients: len(clients), batch: batch, keys: keys, procs: g.Procs, note: fmt.Sprintf("mode %s, the client for Go; %s, asked at a node that does not own the key", m, g.Note)}
			if batch == 1 {
				t.name, t.take = fmt.Sprintf("jatah HTTP %s", m), httpTake(clients, limit)
			} else {
				t.name, t.take = fmt.Sprintf("jatah HTTP %s, batches of %d", m, batch), httpBatch(clients, limit)
			}
			ts = append(ts, t)
		}
	}
	return ts, nil
}

func ofHTTP(d client.Decision) answer {
	a := one(d.Allowed)
	if d.Source != "local" && d.Source != "owner" {
		return a.oddly()
	}
	return a
}

func httpTake(clients []*client.Client, limit string) func(context.Context, int, []string) (answer, error) {
	return func(ctx context.Context, at int, keys []string) (answer, error) {
		d, err := clients[at].Take(ctx, client.Request{Limit: limit, Key: client.Key{keys[0]}, Cost: 1})
		if err != nil {
			return answer{}, err
		}
		return ofHTTP(d), nil
	}
}

func httpBatch(clients []*client.Client, limit string) func(context.Context, int, []string) (answer, error) {
	return func(ctx context.Context, at int, keys []string) (answer, error) {
		rs := make([]client.Request, len(keys))
		for i, key := range keys {
			rs[i] = client.Request{Limit: limit, Key: client.Key{key}, Cost: 1}
		}
		var sum answer
		for _, res := range clients[at].Batch(ctx, rs) {
			if res.Err != nil {
				return sum, res.Err
			}
			sum = sum.plus(ofHTTP(res.Decision))
		}
		return sum, nil
	}
}

// isOurs tells our targets from those of peers.
func isOurs(name string) bool { return strings.HasPrefix(name, "jatah ") }

package local

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/jatah-io/jatah"
	"github.com/jatah-io/jatah/cluster/simnet"
)

// name of what the ratios refer to.
const baseline = "jatah hybrid"

func jatahHybrid() peer {
	return peer{name: baseline, big: true,
		note: "on credit, in mode hybrid: one node of a cluster that it is alone in so far, on a network in memory; what every node of a cluster does for a key that it has credit for",
		open: func(ctx context.Context, q quota, keys int) (*subject, error) {
			return openJatah(ctx, member(), jatah.Limit{Rate: jatah.Per(q.tokens, q.per)}, keys)
		}}
}

func jatahAlone() peer {
	return peer{name: "jatah alone",
		note: "`jatah.Start` with a zero Config: a bare bucket for each key, exact, with a clock",
		open: func(ctx context.Context, q quota, keys int) (*subject, error) {
			return openJatah(ctx, jatah.Config{}, jatah.Limit{Rate: jatah.Per(q.tokens, q.per)}, keys)
		}}
}

func jatahSplit() peer {
	return peer{name: "jatah split",
		note: "mode split: as hybrid, but a node spends its own share of a limit and talks to nobody",
		open: func(ctx context.Context, q quota, keys int) (*subject, error) {
			return openJatah(ctx, member(), jatah.Limit{Rate: jatah.Per(q.tokens, q.per), Mode: jatah.Split}, keys)
		}}
}

// settle is short, since nobody else is there to hear of the node.
const settle = 100 * time.Millisecond

// member is the configuration of a node in a cluster on a network of its own.
func member() jatah.Config {
	return jatah.Config{Node: "n0", Bind: "10.0.0.1:7946", Insecure: true, Settle: settle}
}

// openJatah starts a node, on a network in memory if it is to have one.
func openJatah(ctx context.Context, cfg jatah.Config, limit jatah.Limit, keys int) (*subject, error) {
	cfg.MaxKeys = max(2*keys, 1<<20)
	cfg.Logger = slog.New(slog.DiscardHandler)
	clustered := cfg.Bind != ""
	if clustered {
		transport, err := simnet.New(1).Transport(cfg.Bind)
		if err != nil {
			return nil, err
		}
		cfg.Transport = transport
	}
	node, err := jatah.Start(ctx, cfg)
	if err != nil {
		return nil, err
	}
	limit.Name = "bench"
	l, err := node.Limit(limit)
	if err != nil {
		_ = node.Close()
		return nil, err
	}
	s := &subject{take: func(key string) bool { return l.Take(ctx, key, 1).OK }}
	if clustered {
		s = onCredit(ctx, l)
	}
	s.close = func() { _ = node.Close() }
	return s, nil
}

// onCredit counts the decisions that were not made in memory.
func onCredit(ctx context.Context, l *jatah.Limiter) *subject {
	var asked atomic.Int64
	return &subject{
		take: func(key string) bool {
			d := l.Take(ctx, key, 1)
			if d.Source != jatah.SourceLocal {
				asked.Add(1)
			}
			return d.OK
		},
		learn:    func(key string) error { return obtainCredit(ctx, l, key) },
		notLocal: func() int64 { return asked.Swap(0) },
		close:    func() {},
	}
}

// obtainCredit takes tokens until one comes from memory.
func obtainCredit(ctx context.Context, l *jatah.Limiter, key string) error {
	var d jatah.Decision
	for range 100 {
		if d = l.Take(ctx, key, 1); d.Err != nil {
			return d.Err
		}
		if d.Source == jatah.SourceLocal {
			return nil
		}
	}
	return fmt.Errorf("local: no credit for %q after 100 takes; the last was decided by %v", key, d.Source)
}

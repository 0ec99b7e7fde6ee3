package local

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/jatah-io/jatah"
	"github.com/jatah-io/jatah/bench/report"
)

func creditSuite() report.Suite {
	return report.Suite{
		Name: "credit", Run: runCredit,
		Doc: "One token of a hot key at one of three nodes in this process, which talk over the loopback interface: a key that the node owns, and one that another node owns, whose credit it spends. seq and par as in the " +
			"suite local. cpu ns/op has the work of all three nodes in it. No peer does this.",
	}
}

// nodes of the cluster.
const nodes = 3

func runCredit(ctx context.Context, o report.Options, emit func(report.Sample)) error {
	limits, stop, err := openCluster(ctx, nodes)
	if err != nil {
		return err
	}
	defer stop()
	for _, which := range []struct {
		name string
		own  bool
	}{{"own key", true}, {"key of another node", false}} {
		key, err := ownedKey(ctx, limits[0], which.own)
		if err == nil {
			err = obtainCredit(ctx, limits[0], key)
		}
		if err != nil {
			return err
		}
		for range o.Rounds {
			if err := spendCredit(ctx, limits[0], key, which.name, o, emit); err != nil {
				return fmt.Errorf("%s: %w", which.name, err)
			}
		}
	}
	return nil
}

// spendCredit measures decisions on one key.
func spendCredit(ctx context.Context, l *jatah.Limiter, key, name string, o report.Options, emit func(report.Sample)) error {
	s := onCredit(ctx, l)
	for _, how := range ways() {
		got, err := s.turn(drawOne(key), how.goroutines, turnLength(o.Short))
		if err == nil {
			err = got.expect(ample)
		}
		if err != nil {
			return err
		}
		got.emit(report.Sample{Case: name + "/" + how.name, Peer: baseline}, s, emit)
	}
	return nil
}

// openCluster starts nodes on the loopback interface, and returns their handles on one limit that has enough for all.
func openCluster(ctx context.Context, n int) (limits []*jatah.Limiter, stop func(), err error) {
	var open []*jatah.Node
	stop = func() {
		for _, node := range open {
			_ = node.Close()
		}
	}
	var join []string
	for i := range n {
		node, err := jatah.Open(ctx, jatah.Config{Node: fmt.Sprint("n", i), Bind: "127.0.0.1:0", Join: join, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			stop()
			return nil, nil, err
		}
		open, join = append(open, node), append(join, node.Addr())
		l, err := node.Limit(jatah.Limit{Name: "bench", Rate: jatah.Per(ample.tokens, ample.per)})
		if err != nil {
			stop()
			return nil, nil, err
		}
		limits = append(limits, l)
	}
	for _, node := range open {
		if err := node.Wait(ctx); err != nil {
			stop()
			return nil, nil, err
		}
	}
	return limits, stop, nil
}

// ownedKey finds a key that n0, whose limit this is, owns or does not own.
func ownedKey(ctx context.Context, l *jatah.Limiter, own bool) (string, error) {
	var last error
	for i := range 1000 {
		state, err := l.Peek(ctx, keyOf(i))
		if err == nil && (state.Owner == "n0") == own {
			return keyOf(i), nil
		}
		last = err
	}
	return "", errors.Join(fmt.Errorf("local: no key of 1000 is one that n0 owns: %v", own), last)
}

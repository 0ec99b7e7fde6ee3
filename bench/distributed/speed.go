package distributed

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"time"

	"github.com/jatah-io/jatah"
	"github.com/jatah-io/jatah/bench/internal/proc"
	"github.com/jatah-io/jatah/bench/internal/servers"
	"github.com/jatah-io/jatah/bench/report"
)

const speedDoc = `How long one decision takes for one caller, and how many there are per second for many callers, where the decision counts for more than one
process. The limits are so high that nothing is denied; 1000 keys, the same names in the same order for all. Where a peer has owners of keys,
the caller asks a node that owns none of them, which is its worst case.

Redis and gubernator are processes that this program asks over the loopback interface. Embedded, one node is in this program, and two others are
processes of their own (` + "`jatah serve`" + `); over HTTP, this program asks one of them. All peers run from the beginning to the end of the suite, and are idle
but for the one that is asked. "µs of processor time" is that of all processes of a peer and of this program, with what asking costs.
Two readings of the clock are in each latency, which is most of what a decision in memory shows.
No traffic is encrypted or authenticated, on any side. Only decisions count that were
made as the peer means to: what failed, was decided by a fallback or was denied is not in the numbers but in a note; on an idle machine there should be none.`

// Speed is the suite of latency and throughput.
func Speed() report.Suite {
	return report.Suite{Name: "distributed", Doc: speedDoc, Baseline: "jatah strict", Modules: modules, Run: runSpeed}
}

// modules are the peers'; the versions of the programs that are not modules stand in notes.
var modules = []string{"github.com/go-redis/redis_rate/v10", "github.com/redis/go-redis/v9", "github.com/gubernator-io/gubernator/v2"}

// speedPlan is how much is measured.
type speedPlan struct {
	rounds         int
	latency, burst time.Duration // of one measurement
	warm           time.Duration
	callers        []int
}

func planSpeed(o report.Options) speedPlan {
	if o.Short {
		return speedPlan{1, 150 * time.Millisecond, 100 * time.Millisecond, 50 * time.Millisecond, []int{64}}
	}
	return speedPlan{max(o.Rounds, 1), 2 * time.Second, time.Second, 200 * time.Millisecond, []int{1, 4, 16, 64, 256}}
}

func runSpeed(ctx context.Context, o report.Options, emit func(report.Sample)) (err error) {
	var all cleanup
	defer func() { err = errors.Join(err, all.run()) }()
	ts, err := speedTargets(ctx, o, &all)
	if err != nil {
		return err
	}
	return measureSpeed(ctx, ts, planSpeed(o), o.Log, emit)
}

// measureSpeed gives all targets their turn in each round; who is first alternates, so that a trend favours nobody.
func measureSpeed(ctx context.Context, ts []*target, p speedPlan, log func(string, ...any), emit func(report.Sample)) error {
	for round := range p.rounds {
		log("round %d of %d", round+1, p.rounds)
		order := slices.Clone(ts)
		if round%2 == 1 {
			slices.Reverse(order)
		}
		for _, t := range order {
			if err := speedOf(ctx, t, p, emit); err != nil {
				return err
			}
		}
	}
	return nil
}

// quantiles are those of one caller's latency.
var quantiles = []struct {
	name string
	q    float64
}{{"p50", 0.5}, {"p90", 0.9}, {"p99", 0.99}, {"p99.9", 0.999}}

func speedOf(ctx context.Context, t *target, p speedPlan, emit func(report.Sample)) error {
	if _, err := together(ctx, t, 1, p.warm); err != nil {
		return err
	}
	h, s, err := timed(ctx, t, p.latency)
	if err != nil {
		return err
	}
	for i, q := range quantiles {
		one := report.Sample{Case: "latency " + q.name, Peer: t.name, Unit: "µs", Values: []float64{micros(h.Quantile(q.q))}}
		if i == 0 {
			one.Note = t.note
		} else if text := s.spoilt(true); i == 1 && text != "" {
			one.Note = "one caller: " + text
		}
		emit(one)
	}
	emit(report.Sample{Case: "latency distribution", Peer: t.name, Unit: "µs", Points: h.Tail(time.Microsecond), X: report.XTail, LogX: true, LogY: true})

	for _, n := range p.callers {
		if _, err := together(ctx, t, n, p.warm); err != nil { // opens its connections
			return err
		}
		got, err := together(ctx, t, n, p.burst)
		if err != nil {
			return err
		}
		params := map[string]float64{"callers": float64(n)}
		one := report.Sample{Case: "decisions", Peer: t.name, Unit: "decisions/s", Params: params, Values: []float64{got.perSecond}}
		if text := got.spoilt(true); text != "" {
			one.Note = fmt.Sprintf("%d callers: %s", n, text)
		}
		emit(one)
		emit(report.Sample{Case: "processor time of a decision", Peer: t.name, Unit: "µs", Params: params, Values: []float64{micros(got.cpu)}})
		emit(report.Sample{Case: "throughput against callers", Peer: t.name, Unit: "decisions/s", Points: []report.Point{{X: float64(n), Y: got.perSecond}},
			X: "callers", LogX: true, LogY: true})
	}
	return nil
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// cleanup is what has to be undone, the last first.
type cleanup []func() error

func (c *cleanup) add(f func() error) { *c = append(*c, f) }

func (c *cleanup) run() error {
	var errs []error
	for _, f := range slices.Backward(*c) {
		errs = append(errs, f())
	}
	return errors.Join(errs...)
}

// peers are the servers that do not depend on who asks them.
func peers(ctx context.Context, o report.Options, r rule, clients int, all *cleanup) ([]*target, error) {
	o.Log("starting the peers")
	ts, err := startRedis(ctx, o.Dir, r, clients, all)
	if errors.Is(err, exec.ErrNotFound) && o.Short {
		o.Log("Redis is left out: %v", err)
	} else if err != nil {
		return nil, err
	}
	if !withGubernator {
		return ts, nil
	}
	program, err := proc.BuildHere(ctx, o.Dir, servers.GubernatorPackage)
	if err != nil {
		return nil, err
	}
	g, err := servers.Gubernator(ctx, o.Dir, program, 3)
	if err != nil {
		return nil, err
	}
	all.add(g.Stop)
	more, err := gubernatorTargets(ctx, g, r)
	return append(ts, more...), err
}

func startRedis(ctx context.Context, dir string, r rule, clients int, all *cleanup) ([]*target, error) {
	g, err := servers.Redis(ctx, dir)
	if err != nil {
		return nil, err
	}
	all.add(g.Stop)
	ts, stop, err := redisTargets(ctx, g, r, clients)
	if err != nil {
		return nil, err
	}
	all.add(func() error { stop(); return nil })
	return ts, nil
}

// speedTargets starts all peers; all undoes it.
func speedTargets(ctx context.Context, o report.Options, all *cleanup) ([]*target, error) {
	others, err := peers(ctx, o, ample, 1, all)
	if err != nil {
		return nil, err
	}
	o.Log("starting three nodes")
	program, err := proc.BuildNode(ctx, o.Dir)
	if err != nil {
		return nil, err
	}
	g, err := servers.Nodes(ctx, o.Dir, program, 2, ample.flags()...)
	if err != nil {
		return nil, err
	}
	all.add(g.Stop)
	e, err := embed(ctx, 1, g.Bind, 2, ample)
	if err != nil {
		return nil, err
	}
	all.add(func() error { e.stop(); return nil })
	ts, err := e.targets(ctx, g.Procs, "the other two nodes are processes of their own")
	if err != nil {
		return nil, err
	}
	web, err := overHTTP(ctx, g, ample, []jatah.Mode{jatah.Strict, jatah.Hybrid}, []int{1, 100})
	if err != nil {
		return nil, err
	}
	return slices.Concat(ts, web, others), nil
}

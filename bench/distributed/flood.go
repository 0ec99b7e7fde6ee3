package distributed

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jatah-io/jatah"
	"github.com/jatah-io/jatah/bench/internal/proc"
	"github.com/jatah-io/jatah/bench/internal/servers"
	"github.com/jatah-io/jatah/bench/report"
)

const floodDoc = `How many are admitted, beside how many the limit promises, when three clients ask for one key far above its limit of 1000 per second with a
burst of 1000. The key is new in each round, so its bucket is full. "admitted/limit" is what was admitted divided by burst + rate × time: above 1 is too many, and
below 1 are tokens that nobody got. "excess/burst" is the most that was admitted above burst + rate × time in any interval within the flood, in bursts.

Each client offers 10 000 requests per second if it is answered fast enough, from eight callers; "asked/s" is what it came to. A client of Redis is a pool of connections;
of gubernator a connection to one of three processes; of the nodes one of three, embedded in this program or ` + "`jatah serve`" + ` over HTTP.
gubernator has its token bucket, which fills all at once when the second is over, and INCR+EXPIRE starts anew in each second of the clock: where a
flood ends in a second that has just begun, it got that second's tokens already, up to one burst more in the time of the flood.`

// Flood is the suite of admissions.
func Flood() report.Suite {
	return report.Suite{Name: "flood", Doc: floodDoc, Modules: modules, Run: runFlood, Check: checkFlood}
}

// load is what a flood offers.
type load struct {
	clients, callers int // callers for each client
	perSecond        int // requests of each client
	length           time.Duration
}

func planFlood(o report.Options) (l load, rounds int) {
	l = load{clients: 3, callers: 8, perSecond: 10_000, length: 5 * time.Second}
	if o.Short {
		l.length = time.Second
		return l, 1
	}
	return l, max(o.Rounds, 1)
}

func runFlood(ctx context.Context, o report.Options, emit func(report.Sample)) (err error) {
	var all cleanup
	defer func() { err = errors.Join(err, all.run()) }()
	l, rounds := planFlood(o)
	ts, err := floodTargets(ctx, o, l.clients, &all)
	if err != nil {
		return err
	}
	for round := range rounds {
		o.Log("round %d of %d", round+1, rounds)
		order := slices.Clone(ts)
		if round%2 == 1 {
			slices.Reverse(order)
		}
		for _, t := range order {
			if err := floodOf(ctx, t, l, fmt.Sprintf("flood:%d", round), emit); err != nil {
				return err
			}
		}
	}
	return nil
}

func floodOf(ctx context.Context, t *target, l load, key string, emit func(report.Sample)) error {
	s, admissions, took, err := flood(ctx, t, l, key)
	if err != nil {
		return err
	}
	a := accountOf(tight, took, admissions)
	emit(report.Sample{Case: "admitted", Peer: t.name, Unit: "admitted/limit", Values: []float64{a.ratio()}, Note: t.note})
	emit(report.Sample{Case: "worst interval", Peer: t.name, Unit: "excess/burst", Values: []float64{a.excess / float64(tight.burst)}})
	emit(report.Sample{Case: "asked", Peer: t.name, Unit: "asked/s", Values: []float64{float64(s.calls) / took.Seconds()}, Note: s.spoilt(false)})
	return nil
}

// flood asks for one key, and returns what was seen, when callers were told of admissions, and how long all took. Admissions by a fallback
// are admissions.
func flood(ctx context.Context, t *target, l load, key string) (sum tally, admissions []time.Duration, took time.Duration, err error) {
	type seen struct {
		tally
		admissions []time.Duration
	}
	all := make([]seen, l.clients*l.callers)
	step := time.Second * time.Duration(l.callers) / time.Duration(l.perSecond)
	var wg sync.WaitGroup
	start := time.Now()
	for i := range all {
		wg.Go(func() {
			keys := []string{key}
			// Callers begin one after the other, so that their questions are spread.
			for next := step * time.Duration(i) / time.Duration(len(all)); ctx.Err() == nil; next += step {
				now := time.Since(start)
				if max(now, next) >= l.length {
					return
				}
				if wait := next - now; wait > 0 {
					sleep(ctx, wait)
				} else if wait < -100*time.Millisecond {
					next = now // what was not offered in time is not offered later
				}
				a, err := t.take(ctx, i%l.clients, keys)
				all[i].add(a, err)
				for range a.allowed + a.oddAllowed {
					all[i].admissions = append(all[i].admissions, time.Since(start))
				}
			}
		})
	}
	wg.Wait()
	took = time.Since(start)
	for _, one := range all {
		sum.merge(one.tally)
		admissions = append(admissions, one.admissions...)
	}
	if err := ctx.Err(); err != nil {
		return sum, nil, took, err
	}
	if sum.calls == sum.failed {
		return sum, nil, took, fmt.Errorf("distributed: %s answers no flood: %w", t.name, sum.err)
	}
	return sum, admissions, took, nil
}

// checkFlood fails when nodes admit more than their limit by more than the times of a busy machine explain.
func checkFlood(s report.Set) []error {
	var errs []error
	for _, one := range s.All("flood") {
		const most = 1.02
		if got := report.Median(one.Values); one.Unit == "admitted/limit" && isOurs(one.Peer) && got > most {
			errs = append(errs, fmt.Errorf("%s admitted %.2f of its limit, more than %.2f", one.Peer, got, most))
		}
	}
	return errs
}

// floodTargets starts all peers; all undoes it.
func floodTargets(ctx context.Context, o report.Options, clients int, all *cleanup) ([]*target, error) {
	others, err := peers(ctx, o, tight, clients, all)
	if err != nil {
		return nil, err
	}
	o.Log("starting %d embedded nodes, and as many as processes", clients)
	program, err := proc.BuildNode(ctx, o.Dir)
	if err != nil {
		return nil, err
	}
	g, err := servers.Nodes(ctx, o.Dir, program, clients, tight.flags()...)
	if err != nil {
		return nil, err
	}
	all.add(g.Stop)
	e, err := embed(ctx, clients, nil, 0, tight)
	if err != nil {
		return nil, err
	}
	all.add(func() error { e.stop(); return nil })
	ts, err := e.targets(ctx, nil, "all nodes are in this program")
	if err != nil {
		return nil, err
	}
	web, err := overHTTP(ctx, g, tight, []jatah.Mode{jatah.Hybrid}, []int{1})
	if err != nil {
		return nil, err
	}
	return slices.Concat(ts, web, others), nil
}

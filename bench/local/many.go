package local

import (
	"context"
	"fmt"
	"slices"

	"github.com/jatah-io/jatah/bench/report"
)

func keysSuite() report.Suite {
	return report.Suite{
		Name: "keys", Baseline: baseline, Modules: modules(), Run: runKeys,
		Doc: "How the cost of a decision grows with the number of known keys: drawn evenly, one goroutine, time on the clock. Ten million keys are measured for ours, the floor and the best two peers. A node " +
			"returns credit that it has not used for some seconds; where making the keys known takes longer than that, some decisions ask: see what part was decided in memory.",
	}
}

func runKeys(ctx context.Context, o report.Options, emit func(report.Sample)) error {
	for _, keys := range manyKeys(o.Short) {
		d := draw(keys, uniform)
		rounds := o.Rounds
		switch {
		case o.Short:
			rounds = 1
		case keys > 1_000_000:
			rounds = min(rounds, 3) // filling takes long
		}
		for round := range rounds {
			for _, p := range peers() {
				if keys > 1_000_000 && !p.big {
					continue
				}
				if err := runWithKeys(ctx, p, d, keys, o, emit); err != nil {
					return fmt.Errorf("%s, %d keys: %w", p.name, keys, err)
				}
			}
			o.Log("keys: %d: round %d of %d", keys, round+1, rounds)
		}
	}
	return nil
}

func manyKeys(short bool) []int {
	all := []int{10, 1000, 100_000, 1_000_000, 10_000_000}
	if short {
		return []int{10, 1000, 10_000}
	}
	return all
}

func runWithKeys(ctx context.Context, p peer, d *draws, keys int, o report.Options, emit func(report.Sample)) error {
	s, err := p.known(ctx, ample, keys)
	if err != nil {
		return err
	}
	defer s.close()
	if err := s.warm(ctx, d); err != nil {
		return err
	}
	quietHeap()
	got, err := s.turn(d, 1, turnLength(o.Short))
	if err == nil {
		err = got.expect(ample)
	}
	if err != nil {
		return err
	}
	one := report.Sample{Case: "cost", Peer: p.name, Unit: "ns/op", X: "keys", LogX: true, LogY: true, Points: []report.Point{{X: float64(keys), Y: got.per(got.clock)}}}
	emit(one)
	if s.notLocal != nil && slices.Contains([]int{1_000_000, 10_000_000}, keys) {
		emit(report.Sample{Case: "cost", Peer: p.name, Unit: "decided in memory/op", Plain: true, Params: map[string]float64{"keys": float64(keys)}, Values: []float64{got.inMemory()}})
	}
	return nil
}

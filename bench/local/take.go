package local

import (
	"context"
	"fmt"
	"time"

	"github.com/jatah-io/jatah/bench/report"
)

// Suites are the suites of this package.
func Suites() []report.Suite {
	return []report.Suite{takeSuite(), keysSuite(), memorySuite(), creditSuite(), latencySuite()}
}

// modules are those of the peers.
func modules() []string {
	return []string{"github.com/go-chi/httprate", "github.com/gubernator-io/gubernator/v2", "github.com/sethvargo/go-limiter", "github.com/throttled/throttled/v2",
		"github.com/ulule/limiter/v3", "go.uber.org/ratelimit", "golang.org/x/time"}
}

func takeSuite() report.Suite {
	return report.Suite{
		Name: "local", Baseline: baseline, Modules: modules(), Run: runTake, Check: checkTake,
		Doc: "One token of one key, decided in one process. hot1: one key; keys10k: ten thousand, evenly; zipf1M: a million by Zipf's law with exponent 1.1; uniform1M: a million, evenly; " +
			"denied: one key that has nothing left. seq: one goroutine; par: two at once, and the time is for both together. All keys are known before. ns/op is time on the clock, cpu ns/op time on " +
			"processors with what the peer does in the background; trust it more where the machine was busy. gain of two goroutines: time of seq by time of par, 2 at best. allocs/op has what the peer allocates in the background in it. All include drawing the key from a list, and a call through a function value, the same for all.",
	}
}

// group is cases for which a peer is opened once in a round.
type group struct {
	keys  int
	limit quota
	cases []takeCase
}

type takeCase struct {
	name   string
	spread spread
}

func groups(short bool) []group {
	all := []group{
		{1, ample, []takeCase{{"hot1", uniform}}},
		{10_000, ample, []takeCase{{"keys10k", uniform}}},
		{1_000_000, ample, []takeCase{{"zipf1M", zipf}, {"uniform1M", uniform}}},
		{1, spent, []takeCase{{"denied", uniform}}},
	}
	if short {
		return append(all[:2:2], all[3])
	}
	return all
}

// turnLength is how long a peer has its turn in a case.
func turnLength(short bool) time.Duration {
	if short {
		return 30 * time.Millisecond
	}
	return 300 * time.Millisecond
}

func runTake(ctx context.Context, o report.Options, emit func(report.Sample)) error {
	for _, g := range groups(o.Short) {
		drawn := make(map[spread]*draws)
		for _, c := range g.cases {
			drawn[c.spread] = draw(g.keys, c.spread)
		}
		for round := range o.Rounds {
			for _, p := range peers() {
				if g.limit == spent && p.blocks {
					continue
				}
				if err := g.measure(ctx, p, drawn, turnLength(o.Short), emit); err != nil {
					return fmt.Errorf("%s, %d keys: %w", p.name, g.keys, err)
				}
			}
			o.Log("local: %s: round %d of %d", g.cases[0].name, round+1, o.Rounds)
		}
	}
	return nil
}

// measure gives one peer its turn in all cases of the group.
func (g group) measure(ctx context.Context, p peer, drawn map[spread]*draws, length time.Duration, emit func(report.Sample)) error {
	s, err := p.known(ctx, g.limit, g.keys)
	if err != nil {
		return err
	}
	defer s.close()
	for _, c := range g.cases {
		if err := s.warm(ctx, drawn[c.spread]); err != nil {
			return err
		}
		var alone float64
		for _, how := range ways() {
			quietHeap()
			got, err := s.turn(drawn[c.spread], how.goroutines, length)
			if err == nil {
				err = got.expect(g.limit)
			}
			if err != nil {
				return err
			}
			got.emit(report.Sample{Case: c.name + "/" + how.name, Peer: p.name, Note: p.note}, s, emit)
			if how.goroutines == 1 {
				alone = got.per(got.clock)
				continue
			}
			emit(report.Sample{Case: c.name, Peer: p.name, Unit: "gain of two goroutines", Values: []float64{alone / got.per(got.clock)}})
		}
	}
	return nil
}

// way is how many ask at once.
type way struct {
	name       string
	goroutines int
}

func ways() []way { return []way{{"seq", 1}, {"par", 2}} }

// emit emits what one turn of the subject took, in several units, each as the given sample.
func (c cost) emit(as report.Sample, s *subject, emit func(report.Sample)) {
	figure := func(unit string, value float64, plain bool) {
		as.Unit, as.Values, as.Plain = unit, []float64{value}, plain
		emit(as)
	}
	figure("ns/op", c.per(c.clock), false)
	figure("cpu ns/op", c.per(c.cpu), false)
	figure("allocs/op", float64(c.mallocs)/float64(c.ops), true)
	if s.notLocal != nil {
		figure("decided in memory/op", c.inMemory(), true)
	}
}

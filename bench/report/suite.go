package report

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Suite is benchmarks that belong together.
type Suite struct {
	Name string // one word, lower case: a part of file names and of the flag -only
	Doc  string // Markdown: what is measured and how, what the peers leave out; stands above the tables
	// Baseline is the peer that the ratios in the tables refer to. "": there are none.
	Baseline string
	// Modules are the paths of the modules that are measured; the page has their versions, as they are linked into this program.
	Modules []string
	// Run measures and emits, from one goroutine at a time. It ends early, with the context's error, when ctx does.
	Run func(ctx context.Context, o Options, emit func(Sample)) error
	// Check says what is wrong with the results, with much room for noise: it is for allocations and for ratios that are far off. Nil: nothing is checked.
	Check func(Set) []error
}

// Options are for one run of a suite.
type Options struct {
	// Short asks for seconds instead of minutes: fewer cases, fewer keys. The numbers need not mean much.
	Short  bool
	Rounds int                           // at least 1: how often each peer has its turn
	Dir    string                        // an empty directory for scratch files, removed afterwards
	Log    func(format string, a ...any) // progress, without newline; never nil
}

// Point is one point of a curve.
type Point struct{ X, Y float64 }

// Sample is what was measured. It is a plain value; nothing in it is changed once it is emitted.
type Sample struct {
	Suite string // filled in by RunSuites
	Case  string
	Peer  string
	Unit  string // of Values and of the Y of Points: "ns/op", "req/s", "µs", "B/key", "admitted/limit"
	// Params belong to the case: Case "take" with Params {"callers": 64} is shown as "take callers=64".
	Params map[string]float64
	Values []float64 // one for each round
	Points []Point   // a curve
	// X is the label of the curve's horizontal axis. LogX and LogY ask for logarithmic axes, on which only what is above 0 is drawn.
	X          string
	LogX, LogY bool
	// Plain values are to be looked up: they get no ratios and no plot.
	Plain bool
	Note  string // how the peer was set up or what it cannot do; each different note of a peer is listed once
}

// RunSuites runs suites one after the other and returns all samples. A suite that fails ends no other one: its samples so far are kept, and its
// error is part of the one returned.
func RunSuites(ctx context.Context, suites []Suite, o Options) ([]Sample, error) {
	var all []Sample
	var errs []error
	for _, s := range suites {
		if ctx.Err() != nil {
			errs = append(errs, fmt.Errorf("suite %s: %w", s.Name, ctx.Err()))
			continue
		}
		start := time.Now()
		o.Log("suite %s", s.Name)
		err := s.Run(ctx, o, func(one Sample) {
			one.Suite = s.Name
			all = append(all, one)
		})
		if err != nil {
			errs = append(errs, fmt.Errorf("suite %s: %w", s.Name, err))
		}
		o.Log("suite %s: %v", s.Name, time.Since(start).Round(100*time.Millisecond))
	}
	return all, errors.Join(errs...)
}

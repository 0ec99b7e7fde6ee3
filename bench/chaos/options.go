package chaos

import (
	"errors"
	"fmt"
	"time"
)

// Options say what is run. Use Defaults and change what you want.
type Options struct {
	Duration time.Duration // of the faults; the start and the end come on top
	Seed     uint64
	Nodes    int           // at least 3
	Quiet    time.Duration // after each recovery
	Longest  time.Duration // of a fault
	Faults   []Kind        // nil: all that are possible here
	Rate     int64         // of each judged limit, per second
	Race     bool          // build the nodes with the race detector
	Program  string        // of a node that is built already, instead of building it
	Out      string        // a directory for the page and, below it, logs and plots
	KeepLogs bool          // of the nodes, also where no promise is broken
	// Soak, if above 0, runs for so long with a load on so many Keys, and restarts as the only faults.
	Soak time.Duration
	Keys int
	Log  func(format string, a ...any) // progress, without newline
}

// Defaults are those of a long run.
func Defaults() Options {
	return Options{
		Duration: 30 * time.Minute, Seed: 1, Nodes: 5, Quiet: 8 * time.Second, Longest: 20 * time.Second, Rate: 100, Out: "results", Keys: 1_000_000,
	}
}

// ErrOptions is wrapped by errors about options.
var ErrOptions = errors.New("chaos: bad options")

// check returns what is wrong.
func (o Options) check() error {
	switch {
	case o.Soak < 0 || o.Soak == 0 && o.Duration < 10*time.Second:
		return fmt.Errorf("%w: a run of %v shows nothing; take at least 10s", ErrOptions, max(o.Soak, o.Duration))
	case o.Nodes < 3 || o.Nodes > 50:
		return fmt.Errorf("%w: %d nodes; take 3 to 50", ErrOptions, o.Nodes)
	case o.Quiet < time.Second:
		return fmt.Errorf("%w: a quiet period of %v; take at least 1s, or one fault runs into the next", ErrOptions, o.Quiet)
	case o.Longest < time.Second || o.Longest > 40*time.Second:
		return fmt.Errorf("%w: faults of up to %v; take 1s to 40s: what lasts longer than grace, 60s, has other promises", ErrOptions, o.Longest)
	case o.Rate < 20:
		return fmt.Errorf("%w: a rate of %d/s; take at least 20, or no fault can be told from noise", ErrOptions, o.Rate)
	case o.Keys < 1000:
		return fmt.Errorf("%w: %d keys; take at least 1000", ErrOptions, o.Keys)
	}
	return nil
}

// What is waited for before a promise counts as broken: much longer than the nodes take, so that a busy machine breaks none.
const (
	recoverTime = 2 * time.Minute
	changeTime  = 20 * time.Second
)

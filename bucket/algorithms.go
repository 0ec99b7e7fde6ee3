package bucket

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// ErrSpec is the error of a definition that cannot be; its text names the field.
var ErrSpec = errors.New("bucket: bad definition")

// DefaultMaxLog is how many events a sliding_log keeps per key if MaxLog is 0.
const DefaultMaxLog = 1024

// Spec defines a limit. Fields that an algorithm does not use must be zero.
type Spec struct {
	Algorithm string // a name of Algorithms; "" is token_bucket

	// Rates: the first is the rate of the limit. More of them hold too: a request passes
	// if all agree, and the tightest one answers.
	Rates []Rate

	Burst int64 // tokens of a bucket when full, for the first rate; 0: the rate's count

	Calendar string // fixed_window: hour, day, week, month or year instead of the rate's duration; "": from the epoch
	Timezone string // of the calendar, such as Europe/Berlin; "": UTC

	Queue   int64         // leaky_bucket: how many tokens may wait; 0 with MaxWait: no bound
	MaxWait time.Duration // leaky_bucket: the longest wait; 0 with Queue: no bound

	BurstRate      Rate          // burst_average: the speed while the average is below the threshold
	BurstThreshold Rate          // burst_average
	BurstTime      time.Duration // burst_average: over how long the average is taken

	MaxLog int // sliding_log: events kept per key; 0: DefaultMaxLog

	Max int64 // concurrency: permits held at once. It has no rates

	// RoundUp: an owner's part of the limit is rounded up to whole tokens, so that a small limit
	// can be used by who holds only a part of it, at the price of less than a token of excess per part.
	RoundUp bool
}

// family is one line of the table of algorithms.
type family struct {
	name    string
	fields  string // of Spec that it uses, beside Rates and RoundUp
	compile func(s Spec, r Rate, burst int64, a *Algorithm) (rule, error)
}

// rule is one compiled rate of an algorithm.
type rule interface {
	meter() Meter
	capacity() float64      // the largest cost that can ever pass
	share(k, rank int) rule // one of k whole shares
}

// families is the table: an algorithm is a file and a line here.
func families() []family {
	return []family{
		{"token_bucket", "burst", compileTokenBucket},
		{"fixed_window", "calendar timezone", compileWindow},
		{"sliding_window", "", compileSliding},
		{"sliding_log", "max_log", compileLog},
		{"leaky_bucket", "burst queue max_wait", compileLeaky},
		{"burst_average", "burst burst_rate burst_threshold burst_time", compileAverage},
		{"concurrency", "max", compileConcurrency},
	}
}

// Algorithms returns the names of all algorithms, in the order of the documentation.
func Algorithms() []string {
	var names []string
	for _, f := range families() {
		names = append(names, f.name)
	}
	return names
}

// Algorithm is a compiled Spec. It is immutable and safe for concurrent use.
type Algorithm struct {
	spec      Spec
	rules     []rule
	coalesced *atomic.Uint64
	k, rank   int  // of a share
	used      bool // see KeepUsed
}

// Validate tells what is wrong with the definition, as Compile does.
func (s Spec) Validate() error {
	_, err := Compile(s)
	return err
}

// Compile checks a definition and prepares its arithmetic. Errors match ErrSpec, ErrRateRange or ErrBurst.
func Compile(s Spec) (*Algorithm, error) {
	s.Rates = slices.Clone(s.Rates)
	if s.Algorithm == "" {
		s.Algorithm = "token_bucket"
	}
	i := slices.IndexFunc(families(), func(f family) bool { return f.name == s.Algorithm })
	if i < 0 {
		return nil, specError("algorithm %q is unknown; use one of %s", s.Algorithm, strings.Join(Algorithms(), ", "))
	}
	f := families()[i]
	rates := s.Rates
	switch permits := s.Algorithm == "concurrency"; {
	case permits && len(rates) > 0:
		return nil, specError("rate has no meaning for %s, which has a max; leave it out", f.name)
	case permits:
		rates = make([]Rate, 1) // one rule
	case len(rates) == 0:
		return nil, specError("rate is missing")
	}
	if err := s.unused(f); err != nil {
		return nil, err
	}
	a := &Algorithm{spec: s, coalesced: new(atomic.Uint64)}
	for i, r := range rates {
		if err := r.Validate(); err != nil {
			return nil, fmt.Errorf("%w: rate %s: %w", ErrSpec, r, err)
		}
		burst := int64(0)
		if i == 0 {
			burst = s.Burst
		}
		rule, err := f.compile(s, r, burst, a)
		if err != nil {
			return nil, err
		}
		a.rules = append(a.rules, rule)
	}
	return a, nil
}

// unused refuses fields that the algorithm would ignore.
func (s Spec) unused(f family) error {
	set := []struct {
		field string
		is    bool
	}{
		{"burst", s.Burst != 0}, {"calendar", s.Calendar != ""}, {"timezone", s.Timezone != ""},
		{"queue", s.Queue != 0}, {"max_wait", s.MaxWait != 0}, {"burst_rate", s.BurstRate != Rate{}},
		{"burst_threshold", s.BurstThreshold != Rate{}}, {"burst_time", s.BurstTime != 0}, {"max_log", s.MaxLog != 0},
		{"max", s.Max != 0},
	}
	for _, x := range set {
		if x.is && !slices.Contains(strings.Fields(f.fields), x.field) {
			return specError("%s has no meaning for %s; leave it out", x.field, f.name)
		}
	}
	return nil
}

// Spec returns the definition.
func (a *Algorithm) Spec() Spec {
	s := a.spec
	s.Rates = slices.Clone(s.Rates)
	return s
}

// Limit returns the largest cost that can ever pass, in tokens.
func (a *Algorithm) Limit() int64 {
	limit := a.rules[0].capacity()
	for _, r := range a.rules[1:] {
		limit = min(limit, r.capacity())
	}
	return int64(limit)
}

// DenyAll tells whether a rate is 0: nothing passes, not even a look.
func (a *Algorithm) DenyAll() bool {
	return slices.ContainsFunc(a.spec.Rates, func(r Rate) bool { return r.Count == 0 })
}

// New returns the meter of a key that has used nothing.
func (a *Algorithm) New() Meter {
	if len(a.rules) == 1 {
		return a.rules[0].meter()
	}
	m := &multiMeter{}
	for _, r := range a.rules {
		m.meters = append(m.meters, r.meter())
	}
	return m
}

// Share returns the algorithm of one of k holders of the limit who do not talk to each other. Amounts
// are divided into whole tokens, floor or ceil by rank (0 to k-1, each held once), so that they add up to
// the limit; speeds are divided by k.
func (a *Algorithm) Share(k, rank int) (*Algorithm, error) {
	if k < 1 || rank < 0 || rank >= k {
		return nil, fmt.Errorf("%w: rank %d of %d", ErrShare, rank, k)
	}
	s := &Algorithm{spec: a.spec, coalesced: a.coalesced, k: k, rank: rank}
	for _, r := range a.rules {
		s.rules = append(s.rules, r.share(k, rank))
	}
	return s, nil
}

// Coalesced returns how often a sliding_log was full and had to merge events, since the
// definition was compiled: raise MaxLog if that matters.
func (a *Algorithm) Coalesced() uint64 { return a.coalesced.Load() }

func specError(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrSpec, fmt.Sprintf(format, args...))
}

// windowTokens checks the count of a window.
func windowTokens(r Rate) (float64, error) {
	if r.Count > maxTokens {
		return 0, specError("rate %s: more than %d tokens per window", r, int64(maxTokens))
	}
	return float64(r.Count), nil
}

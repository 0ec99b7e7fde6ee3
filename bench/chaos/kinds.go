package chaos

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// Kind is a way to break something.
type Kind string

// The kinds. Those that cut or lose packets need root.
const (
	Kill     Kind = "kill"     // kill -9; started again later
	Pause    Kind = "pause"    // SIGSTOP, later SIGCONT
	Isolate  Kind = "isolate"  // a node and all others hear nothing of each other
	OneWay   Kind = "one-way"  // a node does not hear another, which hears it
	Halves   Kind = "halves"   // two groups hear nothing of each other
	Corner   Kind = "corner"   // two nodes hear nothing of each other, and all others do
	Loss     Kind = "loss"     // a part of all packets is lost
	Restart  Kind = "restart"  // SIGTERM; started again at once
	Rolling  Kind = "rolling"  // all nodes, one after the other
	Blackout Kind = "blackout" // all nodes end at once, killed or in good order, and are started again
	Join     Kind = "join"     // one more node comes and leaves in good order
	Gone     Kind = "gone"     // one more node comes, is killed and forgotten
	Disk     Kind = "disk"     // the disk of a node's state_dir is full
	Files    Kind = "files"    // a node can open no more files and connections
	Clock    Kind = "clock"    // the clock of a node steps, and later back
	Reload   Kind = "reload"   // the files of all nodes change, and one is broken in between
	Limits   Kind = "limits"   // limits are defined, changed and removed over the API
	Keys     Kind = "keys"     // a flood of keys that nobody has seen
)

// trait is what the schedule has to know of a kind.
type trait struct {
	kind    Kind
	network bool // needs a lab
	root    bool
	victims int
}

// traits are those of all kinds.
func traits() []trait {
	return []trait{
		{kind: Kill, victims: 1}, {kind: Pause, victims: 1}, {kind: Isolate, victims: 1, network: true},
		{kind: OneWay, victims: 2, network: true}, {kind: Halves, victims: 2, network: true}, {kind: Corner, victims: 2, network: true},
		{kind: Loss, network: true}, {kind: Restart, victims: 1}, {kind: Rolling}, {kind: Blackout}, {kind: Join}, {kind: Gone},
		{kind: Disk, victims: 1, root: true}, {kind: Files, victims: 1}, {kind: Clock, victims: 1, root: true}, {kind: Reload}, {kind: Limits}, {kind: Keys},
	}
}

func traitOf(k Kind) trait {
	all := traits()
	return all[slices.IndexFunc(all, func(t trait) bool { return t.kind == k })]
}

// Kinds are the names of all kinds.
func Kinds() (all []Kind) {
	for _, k := range traits() {
		all = append(all, k.kind)
	}
	return all
}

// ErrKind is wrapped by the error about a kind that there is not.
var ErrKind = errors.New("chaos: no such kind of fault")

// ParseKinds reads names with commas between them.
func ParseKinds(s string) (all []Kind, err error) {
	for name := range strings.SplitSeq(s, ",") {
		k := Kind(strings.TrimSpace(name))
		if !slices.Contains(Kinds(), k) {
			return nil, fmt.Errorf("%w: %q; there are: %s", ErrKind, name, joined(Kinds()))
		}
		all = append(all, k)
	}
	return all, nil
}

// KindNames are all names, for people.
func KindNames() string { return joined(Kinds()) }

func joined(all []Kind) string {
	names := make([]string, len(all))
	for i, k := range all {
		names[i] = string(k)
	}
	return strings.Join(names, ", ")
}

// Step is one fault as it was drawn.
type Step struct {
	Number  int
	Kind    Kind
	Nodes   []int         // whom it befalls, from 0
	For     time.Duration // how long it lasts, for kinds that last
	Loss    float64       // part of the packets
	Offset  time.Duration // of the clock
	Orderly bool          // of a blackout: SIGTERM, and not kill -9
}

// String is a line of the schedule.
func (s Step) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%3d %-8s", s.Number, s.Kind)
	for _, n := range s.Nodes {
		fmt.Fprintf(&b, " %s", nodeName(n))
	}
	switch s.Kind {
	case Loss:
		fmt.Fprintf(&b, " %.0f %%", 100*s.Loss)
	case Blackout:
		b.WriteString(map[bool]string{true: " SIGTERM", false: " kill -9"}[s.Orderly])
	case Clock:
		fmt.Fprintf(&b, " by %v", s.Offset)
	}
	fmt.Fprintf(&b, " for %v", s.For)
	return b.String()
}

// schedule draws steps without end. The same arguments of newSchedule give the same ones.
type schedule struct {
	rng     *rand.Rand
	kinds   []Kind
	deck    []Kind // what is left of kinds until it is shuffled again
	nodes   int
	longest time.Duration
	drawn   int
}

func newSchedule(seed uint64, kinds []Kind, nodes int, longest time.Duration) *schedule {
	return &schedule{rng: rand.New(rand.NewPCG(seed, 1)), kinds: kinds, nodes: nodes, longest: longest}
}

// shortest is below what a node notices.
const shortest = 100 * time.Millisecond

// next draws one: every kind has its turn before one comes again.
func (s *schedule) next() Step {
	if len(s.deck) == 0 {
		s.deck = slices.Clone(s.kinds)
		s.rng.Shuffle(len(s.deck), func(i, j int) { s.deck[i], s.deck[j] = s.deck[j], s.deck[i] })
	}
	s.drawn++
	step := Step{Number: s.drawn, Kind: s.deck[0]}
	s.deck = s.deck[1:]
	// Short ones are as interesting as long ones: evenly in the logarithm.
	x := s.rng.Float64()
	step.For = time.Duration(float64(shortest) * math.Pow(float64(s.longest)/float64(shortest), x)).Round(10 * time.Millisecond)
	order := s.rng.Perm(s.nodes)
	step.Nodes = order[:min(traitOf(step.Kind).victims, s.nodes)]
	if step.Kind == Halves {
		step.Nodes = order[:s.nodes/2]
	}
	step.Loss = 0.05 + 0.35*s.rng.Float64()
	step.Orderly = s.rng.IntN(2) == 0
	step.Offset = time.Duration(s.rng.IntN(7200)-3600) * time.Second
	return step
}

package ring

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/buraksezer/consistent"
)

// Defaults of [Config]: what a field means that is left zero.
const (
	DefaultPartitions  = 271  // a prime; with 100 members still 2 to 4 partitions each
	DefaultLoad        = 1.25 // at most a quarter more than the fair part
	DefaultReplication = 20   // points per member: 2000 for 100 members
)

// Upper bounds that keep a mistyped setting from eating the memory of every node.
const (
	maxPartitions  = 1 << 20
	maxReplication = 1 << 12
)

// Errors of [New] and [Config.Validate], to be matched with errors.Is.
var (
	// ErrLoad: the bound on a member's partitions would leave some partition without an owner.
	ErrLoad = errors.New("ring: load bound leaves no room")
	// ErrPartitions: the number of partitions is out of range.
	ErrPartitions = errors.New("ring: bad number of partitions")
	// ErrReplication: the number of points per member is out of range.
	ErrReplication = errors.New("ring: bad replication")
	// ErrMember: a member has no name.
	ErrMember = errors.New("ring: bad member")
)

// Config says how a ring is made. All nodes of a cluster must use the same. The zero
// value means the defaults and seed 0. It is copied and never changed.
type Config struct {
	// Partitions is the number of slots that keys are hashed into, 1 to 2^20; 0 means 271.
	// More partitions balance better and cost more at each change of the members.
	Partitions int
	// Load bounds the partitions of one member as a multiple of the fair part,
	// Partitions/members; 0 means 1.25. At least 1: below that some partition would find no
	// owner. Near 1 the balance is best and the movement on a change worst.
	Load float64
	// Seed is mixed into every hash: of keys, partitions and members. Any value, also 0.
	Seed uint64
	// Replication is the number of points each member has on the circle, 1 to 4096;
	// 0 means 20. Higher is smoother and slower to build.
	Replication int
}

func (c Config) withDefaults() Config {
	if c.Partitions == 0 {
		c.Partitions = DefaultPartitions
	}
	if c.Load == 0 {
		c.Load = DefaultLoad
	}
	if c.Replication == 0 {
		c.Replication = DefaultReplication
	}
	return c
}

// Validate reports what [New] would refuse whatever the members, so that a wrong setting
// is found when a node starts and not when the cluster grows.
func (c Config) Validate() error {
	c = c.withDefaults()
	if c.Partitions < 1 || c.Partitions > maxPartitions {
		return fmt.Errorf("%w: %d, want 1 to %d", ErrPartitions, c.Partitions, maxPartitions)
	}
	// Some loads below 1 happen to fit, by rounding up, for some numbers of members. They
	// are refused for all: a ring that breaks on the next join is no use. From 1 on there is
	// always room, since members * ceil(Partitions/members) >= Partitions.
	if !(c.Load >= 1) || math.IsInf(c.Load, 1) {
		return fmt.Errorf("%w: load %v, want a number of at least 1 (such as %v)", ErrLoad, c.Load, DefaultLoad)
	}
	if c.Replication < 1 || c.Replication > maxReplication {
		return fmt.Errorf("%w: %d points per member, want 1 to %d", ErrReplication, c.Replication, maxReplication)
	}
	return nil
}

// Ring is an immutable table: partition -> owner and heir. Make it with [New], pass it by
// pointer. Safe for concurrent use. The zero value has no partitions and no members.
type Ring struct {
	cfg     Config
	members []string // sorted, distinct
	owner   []int32  // by partition: index into members; empty without members

	// Heirs cost another table per owner, and most callers want those of one owner only
	// (their own node), so they are found at the first question. heirOnce[m] guards heir[p]
	// for the partitions p that m owns, and no others.
	heirOnce []sync.Once
	heir     []int32
}

// New builds the ring of these members. Order and repetitions do not matter; no members
// at all is a valid ring without owners. The slice is not kept.
func New(cfg Config, members []string) (*Ring, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	sorted := slices.Clone(members)
	slices.Sort(sorted)
	sorted = slices.Compact(sorted)
	if len(sorted) > 0 && sorted[0] == "" {
		return nil, fmt.Errorf("%w: empty name, give each node a name of its own", ErrMember)
	}
	r := &Ring{cfg: cfg, members: sorted}
	if len(sorted) > 0 {
		r.owner = assign(cfg, sorted, -1)
		r.heirOnce = make([]sync.Once, len(sorted))
		r.heir = make([]int32, cfg.Partitions)
	}
	return r, nil
}

// point is a member as the library sees it, with its index so that the answer needs no search.
type point struct {
	name  string
	index int32
}

func (p point) String() string { return p.name }

// assign gives the owner of each partition, as an index into members, in the ring of all
// members but the one at index skip. There must be one left.
func assign(cfg Config, members []string, skip int) []int32 {
	points := make([]consistent.Member, 0, len(members))
	for i, name := range members {
		if i != skip {
			points = append(points, point{name, int32(i)})
		}
	}
	c := consistent.New(points, consistent.Config{
		Hasher:            seeded(cfg.Seed),
		PartitionCount:    cfg.Partitions,
		ReplicationFactor: cfg.Replication,
		Load:              cfg.Load,
	})
	table := make([]int32, cfg.Partitions)
	for p := range table {
		table[p] = c.GetPartitionOwner(p).(point).index
	}
	return table
}

// Partitions is the number of partitions.
func (r *Ring) Partitions() int { return r.cfg.Partitions }

// Partition is the partition of a key's hash, 0 to Partitions-1.
func (r *Ring) Partition(hash uint64) int {
	if r.cfg.Partitions == 0 {
		return 0
	}
	return int(hash % uint64(r.cfg.Partitions))
}

// Owner is the member that owns partition p. It is false when the ring has no members or
// no such partition.
func (r *Ring) Owner(p int) (string, bool) {
	if p < 0 || p >= len(r.owner) {
		return "", false
	}
	return r.members[r.owner[p]], true
}

// Heir is the member that would own partition p if its owner left: Owner(p) of a ring of
// the other members. It is false when there is no other member or no such partition.
// The first question about any partition of an owner builds a table, which takes as long
// as New; later ones are look-ups.
func (r *Ring) Heir(p int) (string, bool) {
	if p < 0 || p >= len(r.owner) || len(r.members) < 2 {
		return "", false
	}
	owner := r.owner[p]
	r.heirOnce[owner].Do(func() {
		for q, next := range assign(r.cfg, r.members, int(owner)) {
			if r.owner[q] == owner {
				r.heir[q] = next
			}
		}
	})
	return r.members[r.heir[p]], true
}

// Members are the members, sorted and distinct, in a slice of the caller's own.
func (r *Ring) Members() []string { return slices.Clone(r.members) }

// Len is the number of members.
func (r *Ring) Len() int { return len(r.members) }

// Has says whether name is a member.
func (r *Ring) Has(name string) bool {
	_, found := slices.BinarySearch(r.members, name)
	return found
}

// MaxLoad is the number of partitions that no member exceeds:
// ceil(Partitions / members * Load), and 0 without members.
func (r *Ring) MaxLoad() int {
	if len(r.members) == 0 {
		return 0
	}
	bound := math.Ceil(float64(r.cfg.Partitions) / float64(len(r.members)) * r.cfg.Load)
	return int(min(bound, float64(r.cfg.Partitions)))
}

// Config is the configuration of the ring, defaults filled in.
func (r *Ring) Config() Config { return r.cfg }

// Published is a place where one goroutine puts the newest ring and others read it. The
// zero value is ready and holds none. Safe for concurrent use; must not be copied.
type Published struct {
	p atomic.Pointer[Ring]
}

// Load is the ring stored last, nil before the first. A caller that looks up several
// things which must fit together loads once.
func (p *Published) Load() *Ring { return p.p.Load() }

// Store publishes r: who loads it afterwards sees all of it.
func (p *Published) Store(r *Ring) { p.p.Store(r) }

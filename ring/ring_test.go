package ring

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

func mustNew(t testing.TB, cfg Config, members ...string) *Ring {
	t.Helper()
	r, err := New(cfg, members)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// owners is the whole table.
func owners(t testing.TB, r *Ring) []string {
	t.Helper()
	table := make([]string, r.Partitions())
	for p := range table {
		owner, ok := r.Owner(p)
		if ok != (r.Len() > 0) {
			t.Fatalf("partition %d of a ring of %d members has an owner: %v", p, r.Len(), ok)
		}
		table[p] = owner
	}
	return table
}

// check holds what every ring promises: live owners, and the bound on the load.
func check(t testing.TB, r *Ring) {
	t.Helper()
	loads := make(map[string]int)
	for p, owner := range owners(t, r) {
		if r.Len() > 0 && !r.Has(owner) {
			t.Fatalf("partition %d belongs to %q, which is no member", p, owner)
		}
		loads[owner]++
	}
	if r.Len() == 0 {
		return
	}
	cfg := r.Config()
	bound := math.Ceil(float64(cfg.Partitions) / float64(r.Len()) * cfg.Load)
	for member, load := range loads {
		if float64(load) > bound || load > r.MaxLoad() {
			t.Fatalf("%s of %d members has %d of %d partitions, want at most %v (MaxLoad says %d)",
				member, r.Len(), load, cfg.Partitions, bound, r.MaxLoad())
		}
	}
}

func names(prefix string, n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprint(prefix, i+1)
	}
	return list
}

// random makes a generator and prints its seed.
func random(t testing.TB) *rand.Rand {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// randomRing draws a configuration and members, with names that are prefixes of each other.
func randomRing(r *rand.Rand) (Config, []string) {
	cfg := Config{
		Partitions:  1 + r.IntN(60),
		Load:        1 + r.Float64()*float64(r.IntN(3)),
		Seed:        r.Uint64(),
		Replication: 1 + r.IntN(30),
	}
	prefix := []string{"node", "n", "10.0.0.", "1", "ü"}[r.IntN(5)]
	members := make([]string, r.IntN(40))
	for i := range members {
		members[i] = fmt.Sprint(prefix, r.IntN(120))
	}
	return cfg, members
}

func TestMembersComeAndGo(t *testing.T) {
	for _, prefix := range []string{"n", "node"} { // node1 is a prefix of node11
		all := names(prefix, 16)
		for first := 0; first <= len(all); first++ {
			for last := first; last <= len(all); last++ {
				check(t, mustNew(t, Config{}, all[first:last]...))
			}
		}
	}
}

func TestThreeMembersBecomeSeven(t *testing.T) {
	check(t, mustNew(t, Config{}, names("n", 3)...))
	seven := mustNew(t, Config{}, names("n", 7)...)
	check(t, seven)
	if got := seven.MaxLoad(); got != 49 { // ceil(271/7 * 1.25) = ceil(48.39)
		t.Errorf("the bound for 271 partitions and 7 members is %d, want 49", got)
	}
}

func TestMoreMembersThanPartitions(t *testing.T) {
	for _, c := range []struct{ partitions, members int }{{1, 1}, {1, 16}, {7, 16}, {7, 7}, {7, 8}, {3, 200}} {
		for _, load := range []float64{1, 1.25, 100} {
			r := mustNew(t, Config{Partitions: c.partitions, Load: load}, names("n", c.members)...)
			check(t, r)
			for p := range c.partitions {
				owner, _ := r.Owner(p)
				heir, ok := r.Heir(p)
				if ok != (c.members > 1) || heir == owner || ok && !r.Has(heir) {
					t.Errorf("%+v: heir of partition %d is %q, %v, and its owner %q", c, p, heir, ok, owner)
				}
			}
		}
	}
}

func TestNoMembersNoOwner(t *testing.T) {
	for _, r := range []*Ring{mustNew(t, Config{}), mustNew(t, Config{}, []string{}...), new(Ring)} {
		p := r.Partition(r.Hash("api", "u1"))
		if owner, ok := r.Owner(p); ok || owner != "" {
			t.Errorf("an empty ring has the owner %q, %v", owner, ok)
		}
		if heir, ok := r.Heir(p); ok || heir != "" {
			t.Errorf("an empty ring has the heir %q, %v", heir, ok)
		}
		if r.Len() != 0 || len(r.Members()) != 0 || r.MaxLoad() != 0 || r.Has("") {
			t.Errorf("an empty ring has %d members %v, bound %d", r.Len(), r.Members(), r.MaxLoad())
		}
	}
}

func TestNoSuchPartition(t *testing.T) {
	r := mustNew(t, Config{Partitions: 7}, "a", "b")
	for _, p := range []int{-1, 7, math.MaxInt, math.MinInt} {
		if owner, ok := r.Owner(p); ok {
			t.Errorf("partition %d has the owner %q", p, owner)
		}
		if heir, ok := r.Heir(p); ok {
			t.Errorf("partition %d has the heir %q", p, heir)
		}
	}
}

func TestOneMemberOwnsAllAndHasNoHeir(t *testing.T) {
	r := mustNew(t, Config{}, "only")
	for p := range r.Partitions() {
		if owner, ok := r.Owner(p); owner != "only" || !ok {
			t.Fatalf("partition %d belongs to %q, %v", p, owner, ok)
		}
		if heir, ok := r.Heir(p); ok {
			t.Fatalf("partition %d has the heir %q", p, heir)
		}
	}
}

func TestAWrongConfigurationIsAnError(t *testing.T) {
	for _, c := range []struct {
		cfg  Config
		want error
	}{
		{Config{Load: 0.99}, ErrLoad},
		{Config{Load: -1}, ErrLoad},
		{Config{Load: math.NaN()}, ErrLoad},
		{Config{Load: math.Inf(1)}, ErrLoad},
		{Config{Load: math.Inf(-1)}, ErrLoad},
		{Config{Partitions: -1}, ErrPartitions},
		{Config{Partitions: 1<<20 + 1}, ErrPartitions},
		{Config{Replication: -1}, ErrReplication},
		{Config{Replication: 1 << 20}, ErrReplication},
		{Config{}, nil},
		{Config{Partitions: 1, Load: 1, Replication: 1}, nil},
		{Config{Load: math.MaxFloat64}, nil},
	} {
		if err := c.cfg.Validate(); !errors.Is(err, c.want) {
			t.Errorf("Validate of %+v: %v, want %v", c.cfg, err, c.want)
		}
		r, err := New(c.cfg, []string{"a", "b", "c"})
		if !errors.Is(err, c.want) || (r == nil) != (c.want != nil) {
			t.Errorf("New of %+v: %v, want %v", c.cfg, err, c.want)
		}
		if err != nil && !strings.HasPrefix(err.Error(), "ring: ") {
			t.Errorf("the message %q does not name the package", err)
		}
	}
	if _, err := New(Config{}, []string{"a", ""}); !errors.Is(err, ErrMember) {
		t.Errorf("a member without a name: %v, want ErrMember", err)
	}
}

func TestOrderAndRepetitionDoNotMatter(t *testing.T) {
	rnd := random(t)
	for range 80 {
		cfg, members := randomRing(rnd)
		r := mustNew(t, cfg, members...)
		check(t, r)
		shuffled := append(slices.Clone(members), members[:len(members)/2]...)
		rnd.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		given := slices.Clone(shuffled)
		other := mustNew(t, cfg, shuffled...)
		if !slices.Equal(shuffled, given) {
			t.Fatal("New changed the caller's slice")
		}
		if !slices.Equal(owners(t, r), owners(t, other)) {
			t.Fatalf("%+v: %q and %q give different tables", cfg, members, shuffled)
		}
		if got := other.Members(); !slices.IsSorted(got) || !slices.Equal(got, r.Members()) ||
			len(slices.Compact(slices.Clone(got))) != len(got) {
			t.Fatalf("members are %q and %q, want them equal, sorted, distinct", got, r.Members())
		}
	}
}

func TestHeirIsTheOwnerOnceTheOwnerLeft(t *testing.T) {
	rnd := random(t)
	for range 25 {
		cfg, members := randomRing(rnd)
		r := mustNew(t, cfg, members...)
		for _, gone := range r.Members() {
			rest := mustNew(t, cfg, slices.DeleteFunc(r.Members(), func(m string) bool { return m == gone })...)
			for p := range r.Partitions() {
				if owner, _ := r.Owner(p); owner != gone {
					continue
				}
				want, wantOK := rest.Owner(p)
				if heir, ok := r.Heir(p); heir != want || ok != wantOK {
					t.Fatalf("%+v %q: the heir of partition %d of %s is %q, %v, but its next owner %q, %v",
						cfg, members, p, gone, heir, ok, want, wantOK)
				}
			}
		}
	}
}

// TestTheTableIsFixed pins one small table, found by another implementation of the algorithm. Nodes
// of different versions must agree on it: if this test fails, the change breaks rolling upgrades.
func TestTheTableIsFixed(t *testing.T) {
	r := mustNew(t, Config{Partitions: 13, Seed: 42}, "node1", "node11", "node2")
	got := strings.Join(owners(t, r), " ")
	const want = "node2 node11 node11 node1 node11 node1 node1 node1 node2 node2 node1 node2 node2"
	if got != want {
		t.Errorf("owners are\n%s, want\n%s", got, want)
	}
}

func TestTheSeedChangesTheTable(t *testing.T) {
	a := mustNew(t, Config{Seed: 1}, names("n", 5)...)
	b := mustNew(t, Config{Seed: 2}, names("n", 5)...)
	same := 0
	for p := range a.Partitions() {
		x, _ := a.Owner(p)
		if y, _ := b.Owner(p); x == y {
			same++
		}
	}
	if same > a.Partitions()/2 { // chance gives a fifth
		t.Errorf("two seeds agree on %d of %d owners", same, a.Partitions())
	}
}

// TestOneMemberMoreMovesLittle measures what a join moves, in units of the newcomer's fair part. The
// names are drawn from fixed seeds, so that the outcome is the same in each run.
func TestOneMemberMoreMovesLittle(t *testing.T) {
	for _, c := range []struct {
		members     int
		sets        uint64
		mean, worst float64 // the bounds that doc.go states
	}{{1, 60, 1.25, 2.2}, {3, 60, 1.25, 2.2}, {7, 60, 1.25, 2.2}, {20, 60, 1.25, 2.2},
		{30, 20, 2, 3.4}, {50, 20, 2, 3.4}, {100, 20, 2, 3.4}} {
		var sum, worst float64
		for seed := range c.sets {
			r := rand.New(rand.NewPCG(seed, 1))
			var members []string
			for i := range c.members + 1 {
				members = append(members, fmt.Sprintf("node%d-%d", i, r.IntN(1000)))
			}
			before := owners(t, mustNew(t, Config{}, members[:c.members]...))
			after := owners(t, mustNew(t, Config{}, members...))
			moved := 0
			for p := range before {
				if before[p] != after[p] {
					moved++
				}
			}
			part := float64(moved) / (DefaultPartitions / float64(c.members+1))
			sum += part
			worst = max(worst, part)
		}
		mean := sum / float64(c.sets)
		t.Logf("%3d members and one: mean %.2f, worst %.2f", c.members, mean, worst)
		if mean > c.mean || worst > c.worst {
			t.Errorf("%d members and one: moved %.2f fair parts on average and %.2f at worst, want at most %v and %v",
				c.members, mean, worst, c.mean, c.worst)
		}
	}
}

func TestARingHasManyReaders(t *testing.T) {
	var place Published
	if place.Load() != nil {
		t.Error("the zero Published holds a ring")
	}
	rings := make([]*Ring, 8)
	heirs := make([][]string, len(rings)) // of twins, so that the rings find theirs during the race
	for i := range rings {
		rings[i] = mustNew(t, Config{}, names("n", i+2)...)
		twin := mustNew(t, Config{}, names("n", i+2)...)
		for p := range twin.Partitions() {
			heir, _ := twin.Heir(p)
			heirs[i] = append(heirs[i], heir)
		}
	}
	place.Store(rings[0])
	var all sync.WaitGroup
	for reader := range 4 {
		all.Go(func() {
			for round := range 2000 {
				r := place.Load()
				p := (round*7 + reader) % r.Partitions()
				if heir, ok := r.Heir(p); !ok || heir != heirs[r.Len()-2][p] {
					t.Errorf("heir of partition %d among %d is %q, want %q", p, r.Len(), heir, heirs[r.Len()-2][p])
					return
				}
				r.Members()[0] = "changed by a reader"
			}
		})
	}
	all.Go(func() {
		for round := range 2000 {
			place.Store(rings[round%len(rings)])
		}
	})
	all.Wait()
	for _, r := range rings {
		check(t, r)
	}
}

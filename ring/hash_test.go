package ring

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/cespare/xxhash/v2"
)

// encode is what Hash says it hashes.
func encode(limit, key string) []byte {
	return fmt.Append(binary.LittleEndian.AppendUint64(nil, uint64(len(limit))), limit, key)
}

func FuzzHash(f *testing.F) {
	f.Add(uint64(0), "a", "bc", "ab", "c")
	f.Add(uint64(1), "", "abc", "abc", "")
	f.Add(uint64(2), "a\x00", "b", "a", "\x00b")
	f.Add(uint64(3), "\x01\x00\x00\x00\x00\x00\x00\x00a", "", "\x01", "\x00\x00\x00\x00\x00\x00\x00a")
	f.Add(uint64(1<<63), strings.Repeat("limit", 20), strings.Repeat("key", 100), "x", "y")
	f.Fuzz(func(t *testing.T, seed uint64, limit1, key1, limit2, key2 string) {
		h1, h2 := Hash(seed, limit1, key1), Hash(seed, limit2, key2)
		d := xxhash.NewWithSeed(seed)
		if _, err := d.Write(encode(limit1, key1)); err != nil || d.Sum64() != h1 {
			t.Errorf("Hash(%d, %q, %q) = %x, want the hash of its encoding, %x", seed, limit1, key1, h1, d.Sum64())
		}
		if b := HashBytes(seed, limit1, []byte(key1)); b != h1 {
			t.Errorf("HashBytes gives %x, Hash %x", b, h1)
		}
		// The encoding must tell any two pairs apart. The hash could only by chance, 1 in 2^64.
		if same := limit1 == limit2 && key1 == key2; same != (h1 == h2) {
			t.Errorf("(%q, %q) and (%q, %q): hashes %x and %x", limit1, key1, limit2, key2, h1, h2)
		}
		if split := limit1 + key1; len(split) > 0 {
			for i := range min(len(split)+1, 64) { // all would take quadratic time
				if i != len(limit1) && Hash(seed, split[:i], split[i:]) == h1 {
					t.Errorf("%q splits into the same hash after %d and %d bytes", split, i, len(limit1))
				}
			}
		}
	})
}

func TestRingsHashWithTheirSeed(t *testing.T) {
	a, b := mustNew(t, Config{Seed: 1}), mustNew(t, Config{Seed: 2})
	if a.Hash("api", "u1") != Hash(1, "api", "u1") || a.HashBytes("api", []byte("u1")) != Hash(1, "api", "u1") {
		t.Error("the ring's hash is not that of its seed")
	}
	if a.Hash("api", "u1") == b.Hash("api", "u1") {
		t.Error("two seeds give one hash")
	}
}

// TestTheHashIsFixed pins one value, found by another implementation of XXH64: nodes of different versions must agree on it.
func TestTheHashIsFixed(t *testing.T) {
	const want = 0x5b946977434fb642
	if got := Hash(42, "api", "user:42"); got != want {
		t.Errorf("got %#x, want %#x", got, uint64(want))
	}
}

func TestKeysSpreadOverPartitions(t *testing.T) {
	r := mustNew(t, Config{}, "a")
	counts := make([]int, r.Partitions())
	const keys = 271 * 1000
	for i := range keys {
		counts[r.Partition(r.Hash("api", fmt.Sprint("user:", i)))]++
	}
	// Standard deviation: about sqrt(1000) = 32; the largest of 271 stays within 5 of them.
	if lo, hi := slices.Min(counts), slices.Max(counts); lo < 840 || hi > 1160 {
		t.Errorf("partitions have %d to %d of %d keys, want about 1000 each", lo, hi, keys)
	}
}

func TestLookingUpDoesNotAllocate(t *testing.T) {
	r := mustNew(t, Config{}, names("n", 10)...)
	members, key := r.Members(), []byte("user:42")
	r.Heir(r.Partition(r.Hash("api", "user:42"))) // builds the table of heirs
	var place Published
	place.Store(r)
	if n := testing.AllocsPerRun(100, func() {
		r := place.Load()
		h := r.Hash("api", "user:42")
		p := r.Partition(h ^ r.HashBytes("api", key) ^ h)
		owner, _ := r.Owner(p)
		heir, _ := r.Heir(p)
		if owner == heir || Rank(members, owner, h) < 0 {
			t.Error("wrong look-up")
		}
	}); n != 0 {
		t.Errorf("a look-up allocates %v times, want none: it is on the path of every request", n)
	}
}

func TestRanksAreAPermutationThatAllAgreeOn(t *testing.T) {
	rnd := random(t)
	for range 300 {
		_, list := randomRing(rnd)
		slices.Sort(list)
		members := slices.Compact(list)
		hash := rnd.Uint64()
		rank := make(map[string]int)
		seen := make([]bool, len(members))
		for _, m := range members {
			rank[m] = Rank(members, m, hash)
			if rank[m] < 0 || rank[m] >= len(members) || seen[rank[m]] {
				t.Fatalf("%q: rank %d of %q is out of range or taken", members, rank[m], m)
			}
			seen[rank[m]] = true
		}
		rnd.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
		for _, m := range members {
			if got := Rank(members, m, hash); got != rank[m] {
				t.Fatalf("%q: rank of %q is %d, and %d in another order", members, m, got, rank[m])
			}
		}
		if len(members) == 0 {
			continue
		}
		// Who goes takes a rank away; the others keep their order.
		gone, rest := members[0], members[1:]
		for _, m := range rest {
			want := rank[m]
			if want > rank[gone] {
				want--
			}
			if got := Rank(rest, m, hash); got != want {
				t.Fatalf("%q without %q: rank of %q is %d, want %d", members, gone, m, got, want)
			}
		}
		if got := Rank(rest, gone, hash); got != -1 {
			t.Fatalf("rank of %q, which is no member, is %d, want -1", gone, got)
		}
	}
	if got := Rank(nil, "a", 1); got != -1 {
		t.Errorf("rank among no members is %d, want -1", got)
	}
}

func TestEveryMemberHasEveryRankEquallyOften(t *testing.T) {
	members := []string{"node1", "node11", "node2", "node12", "node111"}
	const keys = 50_000
	for _, c := range []struct {
		what string
		hash func(i int) uint64
	}{
		{"hashes of keys", func(i int) uint64 { return Hash(7, "api", fmt.Sprint("user:", i)) }},
		{"small numbers", func(i int) uint64 { return uint64(i) }},
		{"keys of one partition", func(i int) uint64 { return uint64(i)*271 + 3 }},
	} {
		counts := make(map[string][]int)
		for _, m := range members {
			counts[m] = make([]int, len(members))
		}
		for i := range keys {
			h := c.hash(i)
			for _, m := range members {
				counts[m][Rank(members, m, h)]++
			}
		}
		for _, m := range members {
			for rank, n := range counts[m] {
				// Standard deviation: sqrt(50000 * 0.2 * 0.8) = 89.
				if math.Abs(float64(n)-keys/5) > 450 {
					t.Errorf("%s: %s has rank %d for %d of %d, want about a fifth", c.what, m, rank, n, keys)
				}
			}
		}
	}
}

package ring

import (
	"encoding/binary"

	"github.com/cespare/xxhash/v2"
)

// seeded is the hash that the library places members and partitions with.
type seeded uint64

func (s seeded) Sum64(b []byte) uint64 {
	var d xxhash.Digest
	d.ResetWithSeed(uint64(s))
	_, _ = d.Write(b)
	return d.Sum64()
}

// Hash is the hash of a limit's key under the ring's seed; see the function [Hash].
func (r *Ring) Hash(limit, key string) uint64 { return Hash(r.cfg.Seed, limit, key) }

// HashBytes is Hash for a key that is not a string; the same bytes give the same hash.
func (r *Ring) HashBytes(limit string, key []byte) uint64 {
	return HashBytes(r.cfg.Seed, limit, key)
}

// Hash is xxhash64, under the seed, of the length of limit as 8 bytes (little endian), limit,
// and key. The length keeps ("a", "bc") and ("ab", "c") apart. It does not allocate.
func Hash(seed uint64, limit, key string) uint64 {
	var d xxhash.Digest
	start(&d, seed, limit)
	_, _ = d.WriteString(key)
	return d.Sum64()
}

// HashBytes is [Hash] for a key that is not a string. It neither keeps nor changes key.
func HashBytes(seed uint64, limit string, key []byte) uint64 {
	var d xxhash.Digest
	start(&d, seed, limit)
	_, _ = d.Write(key)
	return d.Sum64()
}

func start(d *xxhash.Digest, seed uint64, limit string) {
	var length [8]byte
	binary.LittleEndian.PutUint64(length[:], uint64(len(limit)))
	d.ResetWithSeed(seed)
	_, _ = d.Write(length[:])
	_, _ = d.WriteString(limit)
}

// Rank is the place of member, from 0, in the order in which the key with this hash prefers
// the members. All nodes that call it with the same set get the same order, whatever the order
// of the slice; when a member goes, the others keep theirs relative to each other. Over
// many keys every member has every rank equally often. The names must be distinct; -1
// means that member is not among them. It takes time proportional to their number and
// does not allocate.
func Rank(members []string, member string, hash uint64) int {
	mine := score(member, hash)
	rank, found := 0, false
	for _, other := range members {
		if other == member {
			found = true
			continue
		}
		// Equal scores are next to impossible, but two nodes must not both be right.
		if s := score(other, hash); s > mine || s == mine && other < member {
			rank++
		}
	}
	if !found {
		return -1
	}
	return rank
}

// score mixes a member's name with a key's hash. The finalizer of splitmix64 (Steele, Lea,
// Flood, 2014) makes every bit of both count: a bare exclusive or would rank two members
// the same way for every key that differs in low bits only.
func score(member string, hash uint64) uint64 {
	x := xxhash.Sum64String(member) ^ hash
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

package ring

import (
	"fmt"
	"testing"
)

func BenchmarkNew(b *testing.B) {
	for _, n := range []int{3, 20, 100} {
		members := names("node", n)
		b.Run(fmt.Sprintf("members=%d", n), func(b *testing.B) {
			for b.Loop() {
				if _, err := New(Config{}, members); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkNewWithOwnHeirs adds the heirs of one member's partitions: what a node needs per view.
func BenchmarkNewWithOwnHeirs(b *testing.B) {
	members := names("node", 100)
	for b.Loop() {
		r := mustNew(b, Config{}, members...)
		for p := range r.Partitions() {
			if owner, _ := r.Owner(p); owner == "node1" {
				r.Heir(p)
			}
		}
	}
}

func BenchmarkLookUp(b *testing.B) {
	r := mustNew(b, Config{}, names("node", 100)...)
	for b.Loop() {
		r.Owner(r.Partition(r.Hash("api", "user:1234567890")))
	}
}

func BenchmarkHash(b *testing.B) {
	for _, size := range []int{8, 32, 256} {
		key := fmt.Sprintf("%0*d", size, 1)
		b.Run(fmt.Sprintf("key=%d", size), func(b *testing.B) {
			for b.Loop() {
				Hash(1, "api", key)
			}
		})
	}
}

func BenchmarkRank(b *testing.B) {
	for _, n := range []int{3, 20, 100} {
		members := names("node", n)
		b.Run(fmt.Sprintf("members=%d", n), func(b *testing.B) {
			for b.Loop() {
				Rank(members, "node1", 12345)
			}
		})
	}
}

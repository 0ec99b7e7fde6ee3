package local

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// Each peer is what it is taken for: of a burst of 100 and more it lets 100 through, for each key apart.
func TestEachPeerAdmitsItsLimit(t *testing.T) {
	const tokens = 100
	for _, p := range peers() {
		t.Run(strings.ReplaceAll(p.name, "/", "_"), func(t *testing.T) {
			s, err := p.open(t.Context(), quota{tokens, 1000 * time.Hour}, 2)
			if err != nil {
				t.Fatal(err)
			}
			defer s.close()
			if p.blocks {
				if !s.take("a") {
					t.Error("it is said to delay, but denies")
				}
				return
			}
			for _, key := range []string{"a", "b"} {
				got, spentOn := 0, 0
				if p.name == "floor" {
					if err := s.learn(key); err != nil {
						t.Fatal(err)
					}
				}
				for range 3 * tokens {
					if s.take(key) {
						got++
					} else {
						spentOn++
					}
				}
				if got != tokens || spentOn != 2*tokens {
					t.Errorf("key %s: %d of %d admitted, want %d", key, got, 3*tokens, tokens)
				}
			}
		})
	}
}

// Under the ample limit nobody denies, and under the spent one nobody admits a second time.
func TestAmpleAndSpent(t *testing.T) {
	for _, p := range peers() {
		t.Run(strings.ReplaceAll(p.name, "/", "_"), func(t *testing.T) {
			s, err := p.known(t.Context(), ample, 3)
			if err != nil {
				t.Fatal(err)
			}
			defer s.close()
			for i := range 20_000 {
				if !s.take(keyOf(i % 3)) {
					t.Fatalf("take %d is denied", i)
				}
			}
			if s.notLocal != nil {
				if n := s.notLocal(); n > 200 {
					t.Errorf("%d of 20000 were not decided in memory", n)
				}
			}
			if p.blocks {
				return
			}
			d, err := p.known(t.Context(), spent, 3)
			if err != nil {
				t.Fatal(err)
			}
			defer d.close()
			for i := range 300 {
				if i >= 3 && d.take(keyOf(i%3)) {
					t.Fatalf("take %d is allowed", i)
				}
			}
		})
	}
}

func TestKeyBytes(t *testing.T) {
	for _, n := range []int{0, 1, 9, 10, 11, 100, 101, 12345} {
		want := 0
		for i := range n {
			want += len(keyOf(i))
		}
		if got := keyBytes(n); got != want {
			t.Errorf("keyBytes(%d) = %d, want %d", n, got, want)
		}
	}
}

func TestDraws(t *testing.T) {
	counts := make(map[string]int)
	even, again := draw(100, uniform), draw(100, uniform)
	for i := range even.mask + 1 {
		counts[even.at(i)]++
		if even.at(i) != again.at(i+again.mask+1) {
			t.Fatalf("draw %d is %q, and the next time %q", i, even.at(i), again.at(i))
		}
	}
	if len(counts) != 100 || counts["user:0"] > 2*counts["user:99"] {
		t.Errorf("100 keys evenly: %d different, the first %d times and the last %d", len(counts), counts["user:0"], counts["user:99"])
	}
	clear(counts)
	skewed := draw(1_000_000, zipf)
	for i := range skewed.mask + 1 {
		counts[skewed.at(i)]++
	}
	if part := float64(counts["user:0"]) / float64(skewed.mask+1); part < 0.05 || part > 0.2 {
		t.Errorf("the first key has %.3f of the requests, want about a tenth", part)
	}
	if got := fmt.Sprint(draw(1, zipf).at(77)); got != "user:0" {
		t.Errorf("the only key is %q", got)
	}
}

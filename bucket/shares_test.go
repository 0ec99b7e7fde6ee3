package bucket

import (
	"testing"
	"time"
)

// A share of half the limit comes: without its tokens it counts as used up, with them it is free; of several rates each.
func TestBringFreesWhatAShareBrings(t *testing.T) {
	for _, name := range Algorithms() {
		if name == "concurrency" {
			continue // a share that comes is free by itself
		}
		s := Spec{Algorithm: name, Rates: []Rate{Per(100, time.Minute)}}
		if name == "burst_average" {
			s.Burst, s.BurstRate, s.BurstThreshold, s.BurstTime = 100, Per(400, time.Minute), Per(50, time.Minute), time.Minute
		}
		if name == "token_bucket" || name == "fixed_window" || name == "sliding_window" || name == "sliding_log" {
			s.Rates = append(s.Rates, Per(1000, time.Hour))
		}
		a, err := Compile(s)
		if err != nil {
			t.Fatal(name, err)
		}
		m := a.New()
		m.Advance(1e18, 0, 0)
		m.Advance(1e18, 0.5, 0)
		if got := m.Free(); got != 0 {
			t.Errorf("%s: a share that came has %v tokens, want none", name, got)
		}
		c := Clone(m)
		Bring(m, 0.5, 0)
		if got := m.Free(); got != 50 && name != "leaky_bucket" && name != "burst_average" || got <= 0 {
			t.Errorf("%s: with what the share brought there are %v tokens, want 50", name, got)
		}
		if got := c.Free(); got != 0 {
			t.Errorf("%s: the copy has %v tokens by what happened to the original", name, got)
		}
	}
}

// A coarse copy never frees tokens before the original does.
func TestCoarseAgesLate(t *testing.T) {
	a, err := Compile(Spec{Algorithm: "sliding_log", Rates: []Rate{Per(500, time.Minute)}})
	if err != nil {
		t.Fatal(err)
	}
	m := a.New()
	now := int64(1e18)
	for range 500 {
		now += int64(100 * time.Millisecond)
		m.Advance(now, 1, 0)
		m.Use(1, 0)
	}
	c := Coarse(m, 32)
	if n := len(c.State(nil)); n > 32*16+40 {
		t.Errorf("the state of 32 events takes %d bytes", n)
	}
	if a.Coalesced() != 0 {
		t.Errorf("counted %d logs as full", a.Coalesced())
	}
	for range 700 {
		now += int64(100 * time.Millisecond)
		m.Advance(now, 1, 0)
		c.Advance(now, 1, 0)
		if c.Free() > m.Free() {
			t.Fatalf("the copy has %v tokens, the original %v", c.Free(), m.Free())
		}
	}
	if c.Free() != m.Free() || m.Free() != 500 {
		t.Errorf("a minute later the copy has %v tokens, the original %v, want 500", c.Free(), m.Free())
	}
}

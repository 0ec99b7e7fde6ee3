package local

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jatah-io/jatah/bench/report"
)

// results are those of a run in which all is well, with what the test changes.
func results(changed map[[3]string]float64) report.Set {
	good := map[[3]string]float64{}
	for _, c := range []string{"hot1/seq", "keys10k/seq", "denied/seq"} {
		good[[3]string{c, "cpu ns/op", baseline}] = 20
		good[[3]string{c, "cpu ns/op", "floor"}] = 14
		for _, p := range rivals() {
			good[[3]string{c, "cpu ns/op", p}] = 90
		}
		good[[3]string{c, "allocs/op", baseline}] = 0
	}
	for k, v := range changed {
		good[k] = v
	}
	var samples []report.Sample
	for k, v := range good {
		if v >= 0 {
			samples = append(samples, report.Sample{Suite: "local", Case: k[0], Unit: k[1], Peer: k[2], Values: []float64{v}})
		}
	}
	return report.Collect(samples)
}

func TestCheckFindsOnlyWhatIsFarOff(t *testing.T) {
	const missing = -1
	for _, c := range []struct {
		name    string
		changed map[[3]string]float64
		want    []string // in one error each
	}{
		{"all is well", nil, nil},
		{"noise", map[[3]string]float64{{"hot1/seq", "cpu ns/op", baseline}: 55, {"keys10k/seq", "allocs/op", baseline}: 0.2}, nil},
		{"an allocation", map[[3]string]float64{{"hot1/seq", "allocs/op", baseline}: 1}, []string{"hot1/seq: jatah hybrid allocates 1.000"}},
		{"an allocation for denials", map[[3]string]float64{{"denied/seq", "allocs/op", baseline}: 2}, []string{"denied/seq: jatah hybrid allocates 2.000"}},
		{"far from the floor", map[[3]string]float64{{"keys10k/seq", "cpu ns/op", baseline}: 57}, []string{"keys10k/seq: jatah hybrid takes 57.0 ns, more than 4 times"}},
		{"slower than a peer", map[[3]string]float64{{"hot1/seq", "cpu ns/op", "throttled"}: 19}, []string{"hot1/seq: jatah hybrid takes 20.0 ns, throttled 19.0"}},
		{"not measured", map[[3]string]float64{{"hot1/seq", "cpu ns/op", baseline}: missing}, []string{"hot1/seq: jatah hybrid was not measured"}},
		{"allocations not measured", map[[3]string]float64{{"denied/seq", "allocs/op", baseline}: missing}, []string{"denied/seq: jatah hybrid allocates"}},
		{"no floor", map[[3]string]float64{{"hot1/seq", "cpu ns/op", "floor"}: missing}, nil},
	} {
		got := checkTake(results(c.changed))
		if len(got) != len(c.want) {
			t.Errorf("%s: %v, want %d errors", c.name, got, len(c.want))
			continue
		}
		for i, part := range c.want {
			if !strings.Contains(got[i].Error(), part) {
				t.Errorf("%s: %v, want one that says %q", c.name, got[i], part)
			}
		}
	}
}

func TestRivalsAreNeitherOursNorTheFloor(t *testing.T) {
	got := strings.Join(rivals(), " ")
	if strings.Contains(got, "jatah") || strings.Contains(got, "floor") || len(rivals()) != len(peers())-4 {
		t.Errorf("rivals: %s", got)
	}
}

// A turn counts every take once, for each goroutine, and finds wrong answers.
func TestTurn(t *testing.T) {
	for _, goroutines := range []int{1, 2} {
		asked := int64(7)
		s := &subject{take: func(key string) bool { return key == "user:0" }, notLocal: func() int64 { return asked }}
		c, err := s.turn(draw(1, uniform), goroutines, 5*time.Millisecond)
		if err != nil {
			t.Fatal(err)
		}
		if c.ops < chunk || c.ops%chunk != 0 || c.allowed != c.ops || c.asked != asked || c.clock < 5*time.Millisecond {
			t.Errorf("%d goroutines: %+v", goroutines, c)
		}
		if err := c.expect(ample); err != nil {
			t.Error(err)
		}
		if err := c.expect(spent); !errors.Is(err, ErrWrongAnswers) {
			t.Errorf("all allowed under a limit that is spent: %v", err)
		}
		c.allowed--
		if err := c.expect(ample); !errors.Is(err, ErrWrongAnswers) {
			t.Errorf("one of %d denied under an ample limit: %v", c.ops, err)
		}
	}
}

// Before a turn ours asks until it has credit for what is drawn.
func TestWarmGoesOnUntilDecisionsAreMadeInMemory(t *testing.T) {
	d := draw(1, uniform)
	for _, c := range []struct {
		name string
		part int64 // one in so many takes is decided elsewhere, in the first round only
		want int
	}{{"in memory at once", 0, 1}, {"one in a hundred asks", 100, 2}} {
		takes, asked, rounds := int64(0), int64(0), 0
		s := &subject{take: func(string) bool {
			if takes++; c.part > 0 && rounds == 0 && takes%c.part == 0 {
				asked++
			}
			return true
		}}
		s.notLocal = func() int64 {
			rounds++
			n := asked
			asked = 0
			return n
		}
		if err := s.warm(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		if rounds != c.want || takes != int64(c.want*(d.mask+1)) {
			t.Errorf("%s: %d rounds with %d takes, want %d through all %d draws", c.name, rounds, takes, c.want, d.mask+1)
		}
	}
}

func TestMemoryIsWhatTheKeysTake(t *testing.T) {
	const keys = 100_000
	for _, c := range []struct {
		peer        string
		least, most float64
	}{
		{"floor", 40, 50},         // 2^18 slots of 16 bytes, and 2 for the length
		{"x/time/rate", 150, 300}, // a limiter, an entry of a sync.Map
	} {
		for _, p := range peers() {
			if p.name != c.peer {
				continue
			}
			var got float64
			if err := weigh(t.Context(), p, keys, func(s report.Sample) {
				if s.Unit == "B/key" {
					got = s.Values[0]
				}
			}); err != nil {
				t.Fatal(err)
			}
			if got < c.least || got > c.most {
				t.Errorf("%s: %.1f bytes per key, want %v to %v", c.peer, got, c.least, c.most)
			}
		}
	}
}

package bucket

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// holder is one of several owners that hold parts of one limit.
type holder struct {
	m      Meter
	thirds int
	out    float64
}

func (h *holder) advance(now int64) { h.m.Advance(now, float64(h.thirds)/3, h.out) }

// TestSharesThatMoveAreNotSpentTwice moves thirds of a limit between three owners at random times while all of
// them admit what they can, directly and as credit that is spent later. All that was spent, of all owners together, must
// be what one meter with the whole limit could have admitted, except that a bucket may be late by what moving rounds.
func TestSharesThatMoveAreNotSpentTwice(t *testing.T) {
	minute := Per(60, time.Minute)
	specs := []Spec{
		{Algorithm: "token_bucket", Rates: []Rate{minute}, Burst: 30},
		{Algorithm: "fixed_window", Rates: []Rate{minute}},
		{Algorithm: "sliding_log", Rates: []Rate{minute}, MaxLog: 1 << 12},
	}
	for _, s := range specs {
		t.Run(s.Algorithm, func(t *testing.T) {
			rnd := source(t)
			a := mustCompile(t, s)
			for range 10 {
				shareRun(t, rnd, a)
			}
		})
	}
}

func shareRun(t *testing.T, rnd *rand.Rand, a *Algorithm) {
	now := int64(t0) + rnd.Int64N(int64(time.Hour))
	hs := []*holder{{m: a.New(), thirds: 3}, {m: a.New()}, {m: a.New()}}
	for _, h := range hs {
		h.advance(now)
	}
	var log []event
	total := 0.0
	spend := func(n float64) {
		total += n
		if last := len(log) - 1; last >= 0 && log[last].at == now {
			log[last].n += n
			return
		}
		log = append(log, event{now, n})
	}
	for range 600 {
		now += rnd.Int64N(5 * second)
		for _, h := range hs {
			h.advance(now)
		}
		if rnd.IntN(12) == 0 { // first it goes, then it comes
			from, to := hs[rnd.IntN(3)], hs[rnd.IntN(3)]
			// Credit cannot follow a share, so there must be room for it in what is left.
			if from.thirds > 0 && from.out <= float64(a.Limit()*int64(from.thirds-1)/3) {
				from.thirds--
				from.advance(now)
				to.thirds++
				to.advance(now)
			}
		}
		h := hs[rnd.IntN(3)]
		if n := float64(rnd.IntN(40)); h.out > 0 && rnd.IntN(2) == 0 {
			n = min(n, h.out)
			h.out -= n
			if rnd.IntN(4) == 0 {
				h.m.Return(n, h.out)
			} else {
				h.advance(now)
				spend(n)
			}
		} else if n >= 1 && h.m.Free() >= n {
			if rnd.IntN(3) == 0 {
				h.out += n
			} else {
				spend(n)
			}
			h.m.Use(n, h.out)
		}
	}
	if total < 200 {
		t.Errorf("only %v tokens were used in %d minutes: nothing was tested", total, (now-int64(t0))/int64(time.Minute))
	}
	if err := within(a, log); err != nil {
		t.Error(err)
	}
}

// within checks what was spent against the definition, in the simplest way.
func within(a *Algorithm, log []event) error {
	s := a.spec
	for i, first := range log {
		sum := 0.0
		for _, e := range log[i:] {
			sum += e.n
			d := e.at - first.at
			switch s.Algorithm {
			case "token_bucket":
				if most := float64(s.Burst) + float64(d)/float64(second) + 1e-6; sum > most {
					return fmt.Errorf("%v tokens in %v, of at most %v", sum, time.Duration(d), most)
				}
			case "fixed_window":
				if e.at/int64(time.Minute) == first.at/int64(time.Minute) && sum > 60 {
					return fmt.Errorf("%v tokens in one window", sum)
				}
			case "sliding_log":
				if d < int64(time.Minute) && sum > 60 {
					return fmt.Errorf("%v tokens within %v", sum, time.Duration(d))
				}
			}
		}
	}
	return nil
}

func TestWholeSharesAddUpToTheLimit(t *testing.T) {
	for _, s := range []Spec{
		{Algorithm: "fixed_window", Rates: []Rate{Per(5, time.Minute)}},
		{Algorithm: "sliding_window", Rates: []Rate{Per(5, time.Minute)}},
		{Algorithm: "sliding_log", Rates: []Rate{Per(5, time.Minute)}},
		{Algorithm: "token_bucket", Rates: []Rate{Per(60, time.Minute)}, Burst: 5},
		{Algorithm: "leaky_bucket", Rates: []Rate{Per(60, time.Minute)}, Burst: 5},
	} {
		a := mustCompile(t, s)
		var got []int
		for rank := range 3 {
			share, err := a.Share(3, rank)
			if err != nil {
				t.Fatal(err)
			}
			m := share.New()
			got = append(got, spendMany(m, t0, 10))
			if s.Burst > 0 {
				if w := m.Wait(1); w != 3*time.Second {
					t.Errorf("%s: a third of 1/s brings the next token after %v", s.Algorithm, w)
				}
			}
		}
		if fmt.Sprint(got) != "[2 2 1]" {
			t.Errorf("%s: shares of 5 admit %v", s.Algorithm, got)
		}
	}
	if _, err := mustCompile(t, specMinute("fixed_window", 5)).Share(3, 3); err == nil {
		t.Error("rank 3 of 3 is accepted")
	}
}

func specMinute(algorithm string, n int64) Spec {
	return Spec{Algorithm: algorithm, Rates: []Rate{Per(n, time.Minute)}}
}

func TestASmallLimitRoundsUpForOnePart(t *testing.T) {
	s := specMinute("fixed_window", 1)
	m := mustCompile(t, s).New()
	m.Advance(t0, 2.0/3, 0)
	if m.Free() >= 1 || m.Wait(1) != Never {
		t.Errorf("two thirds of 1 are %v", m.Free())
	}
	s.RoundUp = true
	m = mustCompile(t, s).New()
	m.Advance(t0, 2.0/3, 0)
	if m.Free() != 1 {
		t.Errorf("two thirds of 1 are %v", m.Free())
	}
}

func TestAMeterThatStartsWithNoPartStartsEmpty(t *testing.T) {
	for _, name := range []string{"token_bucket", "fixed_window", "sliding_window", "sliding_log"} {
		m := mustCompile(t, specMinute(name, 60)).New()
		m.Advance(t0+second, 0, 0)
		m.Advance(t0+2*second, 1, 0)
		if m.Free() != 0 {
			t.Errorf("%s: %v free", name, m.Free())
		}
		m.Return(30, 0) // the caller knows that half of it is unused
		if m.Free() != 30 {
			t.Errorf("%s: %v free after 30 were brought along", name, m.Free())
		}
		m.Advance(t0+3*60*second, 1, 0)
		if !m.Fresh() || m.Free() != 60 {
			t.Errorf("%s: %v free later", name, m.Free())
		}
	}
}

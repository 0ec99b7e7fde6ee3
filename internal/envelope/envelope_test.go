package envelope

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

const ms = time.Millisecond

func at(moments ...time.Duration) []Admission {
	var out []Admission
	for _, m := range moments {
		out = append(out, Admission{m, m})
	}
	return out
}

func TestFullBurstThenTheRateIsNoExcess(t *testing.T) {
	var all []Admission
	for range 10 {
		all = append(all, at(0)...)
	}
	for i := range 100 {
		all = append(all, at(time.Duration(i+1)*100*ms)...)
	}
	if e := WorstExcess(all, 10, 10); math.Abs(e.Tokens) > 1e-9 {
		t.Errorf("excess %v, want 0", e)
	}
	all = append(all, at(5050*ms)...)
	if e := WorstExcess(all, 10, 10); math.Abs(e.Tokens-1) > 1e-9 {
		t.Errorf("excess %v after one token too many, want 1", e)
	}
}

func TestAnExcessLaterThanAPauseIsFound(t *testing.T) {
	all := at(0, 10*time.Second, 10*time.Second, 10*time.Second+ms, 10*time.Second+2*ms)
	e := WorstExcess(all, 1, 2)
	if want := 4 - 2 - 0.002; math.Abs(e.Tokens-want) > 1e-9 || e.From != 10*time.Second || e.To != 10*time.Second+2*ms {
		t.Errorf("excess %+v, want %v in the interval from 10s to 10.002s", e, want)
	}
}

// Twenty tokens over two seconds of which all the answers come at once.
func TestLateAnswersAreNoExcess(t *testing.T) {
	var all []Admission
	for i := range 20 {
		all = append(all, Admission{Sent: time.Duration(i) * 100 * ms, Done: 2 * time.Second})
	}
	if e := WorstExcess(all, 10, 1); e.Tokens > 0 {
		t.Errorf("excess %+v, want none", e)
	}
}

func TestNothingAdmittedIsNoExcess(t *testing.T) {
	if e := WorstExcess(nil, 10, 1); e.Tokens > 0 {
		t.Errorf("excess %+v, want none", e)
	}
}

func TestWorstExcessIsThatOfAllIntervals(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for range 300 {
		rate, burst := float64(1+rng.IntN(50)), float64(1+rng.IntN(5))
		all := make([]Admission, 1+rng.IntN(40))
		for i := range all {
			sent := time.Duration(rng.IntN(2000)) * ms
			all[i] = Admission{sent, sent + time.Duration(rng.IntN(100))*ms}
		}
		worst := math.Inf(-1)
		for _, from := range all {
			for _, to := range all {
				n := 0
				for _, a := range all {
					if a.Sent >= from.Sent && a.Done <= to.Done {
						n++
					}
				}
				if to.Done >= from.Sent && n > 0 {
					worst = max(worst, float64(n)-rate*(to.Done-from.Sent).Seconds()-burst)
				}
			}
		}
		if got := WorstExcess(all, rate, burst).Tokens; math.Abs(got-worst) > 1e-6 {
			t.Fatalf("rate %v burst %v: got %v, want %v, of %v", rate, burst, got, worst, all)
		}
	}
}

func TestAnAllowanceIsForIntervalsThatMeetIt(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for range 300 {
		const rate, burst = 20, 2
		all := make([]Admission, 1+rng.IntN(30))
		for i := range all {
			sent := time.Duration(rng.IntN(2000)) * ms
			all[i] = Admission{sent, sent + time.Duration(rng.IntN(100))*ms}
		}
		besides := make([]Allowance, rng.IntN(4))
		for i := range besides {
			from := time.Duration(rng.IntN(2200)-100) * ms
			besides[i] = Allowance{from, from + time.Duration(rng.IntN(300))*ms, float64(rng.IntN(6))}
		}
		worst := math.Inf(-1)
		for _, from := range all {
			for _, to := range all {
				n := 0.0
				for _, a := range all {
					if a.Sent >= from.Sent && a.Done <= to.Done {
						n++
					}
				}
				if n == 0 || to.Done < from.Sent {
					continue
				}
				for _, b := range besides {
					if from.Sent <= b.To && to.Done >= b.From {
						n -= b.Tokens
					}
				}
				worst = max(worst, n-rate*(to.Done-from.Sent).Seconds()-burst)
			}
		}
		if got := WorstExcess(all, rate, burst, besides...).Tokens; math.Abs(got-worst) > 1e-6 {
			t.Fatalf("got %v, want %v, of %v with %v", got, worst, all, besides)
		}
	}
}

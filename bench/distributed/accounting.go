package distributed

import (
	"slices"
	"time"
)

// account says what a flood got, beside what its limit promises. Make it with accountOf.
type account struct {
	admitted int
	bound    float64       // what the limit may admit in the time of the flood: burst + rate*t
	excess   float64       // the most tokens admitted above burst + rate*t in any interval
	length   time.Duration // from before the first question until after the last answer
}

// ratio is what was admitted beside what may be.
func (a account) ratio() float64 { return float64(a.admitted) / a.bound }

// accountOf reckons with the times at which callers were told of an admission, counted from the start of the flood.
//
// The length begins before anything was asked and ends when everything was answered, so an exact limiter is never above the bound, and is below it
// by what it refuses too much. The excess has the times of the answers: one that was late by d may count up to rate*d too much,
// because it stands beside admissions that came later.
func accountOf(r rule, length time.Duration, admissions []time.Duration) account {
	a := account{admitted: len(admissions), length: length}
	a.bound = float64(r.burst) + float64(r.rate)*length.Seconds()
	// An exact bucket that is filled as the rule says and may go below zero: how far it does is the excess.
	tokens, at := float64(r.burst), time.Duration(0)
	for _, now := range slices.Sorted(slices.Values(admissions)) {
		tokens = min(float64(r.burst), tokens+float64(r.rate)*(now-at).Seconds()) - 1
		at = now
		a.excess = max(a.excess, -tokens)
	}
	return a
}

package httpapi

import (
	"cmp"
	"time"

	"github.com/jatah-io/jatah"
)

// limitBody is a definition with the names and forms of the configuration file. What an algorithm does not use is left out.
type limitBody struct {
	Name      string   `json:"name"`
	Rate      string   `json:"rate,omitempty"`
	Rates     []string `json:"rates,omitempty"` // instead of rate
	Burst     *int64   `json:"burst,omitempty"`
	Algorithm string   `json:"algorithm"`
	Mode      string   `json:"mode"`
	Overshoot float64  `json:"overshoot"`
	Fallback  string   `json:"fallback"`
	DryRun    bool     `json:"dry_run"`
	Origin    string   `json:"origin"`
	Parent    string   `json:"parent,omitempty"`

	Calendar       string `json:"calendar,omitempty"`
	Timezone       string `json:"timezone,omitempty"`
	Queue          int64  `json:"queue,omitempty"`
	MaxWait        string `json:"max_wait,omitempty"`
	BurstRate      string `json:"burst_rate,omitempty"`
	BurstThreshold string `json:"burst_threshold,omitempty"`
	BurstTime      string `json:"burst_time,omitempty"`
	MaxLog         int    `json:"max_log,omitempty"`

	Max int64  `json:"max,omitempty"` // concurrency
	TTL string `json:"ttl,omitempty"` // concurrency

	Costs map[string]int64 `json:"costs,omitempty"`

	Plans     map[string]amountsBody `json:"plans,omitempty"`
	Overrides []overrideBody         `json:"overrides,omitempty"`
}

func bodyOf(l jatah.Limit) limitBody {
	b := limitBody{
		Name: l.Name, Algorithm: cmp.Or(l.Algorithm, jatah.TokenBucket), Burst: burstOf(l),
		Mode: l.Mode.String(), Overshoot: l.Overshoot, Fallback: l.Fallback.String(), DryRun: l.DryRun, Parent: l.Parent,
		Calendar: l.Calendar, Timezone: l.Timezone, Queue: l.Queue, MaxWait: spanOf(l.MaxWait),
		BurstRate: rateOf(l.BurstRate), BurstThreshold: rateOf(l.BurstThreshold), BurstTime: spanOf(l.BurstTime), MaxLog: l.MaxLog,
		Costs: l.Costs,
	}
	switch {
	case b.Algorithm == jatah.Concurrency:
		b.Max, b.TTL = l.Max, spanOf(l.TTL)
	case len(l.Rates) == 0:
		b.Rate = l.Rate.String()
	}
	for _, r := range l.Rates {
		b.Rates = append(b.Rates, r.String())
	}
	b.addPlans(l)
	return b
}

// burstOf is the burst that a definition has or means; nil: the algorithm has none.
func burstOf(l jatah.Limit) *int64 {
	burst := l.Burst
	switch {
	case l.Queued() || l.Algorithm == jatah.Concurrency || l.Algorithm == jatah.FixedWindow || l.Algorithm == jatah.SlidingWindow || l.Algorithm == jatah.SlidingLog:
		return nil
	case burst == 0 && len(l.Rates) > 0:
		burst = l.Rates[0].Count
	case burst == 0:
		burst = l.Capacity()
	}
	if burst == 0 {
		return nil // everything is denied
	}
	return &burst
}

func rateOf(r jatah.Rate) string {
	if r == (jatah.Rate{}) {
		return ""
	}
	return r.String()
}

func spanOf(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return d.String()
}

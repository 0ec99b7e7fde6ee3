package dashboard

import "time"

const (
	// samples is how many are kept: five minutes.
	samples = 300
	// mostSeries is for how many limits.
	mostSeries = 1000
)

// series is the rate of admissions and refusals, per second, in a ring.
type series struct {
	allowed, refused [samples]float32
	used             int // the sample in which it last was not zero
}

// history keeps what was counted in the last samples. It is not safe for concurrent use.
type history struct {
	n      int // samples so far: the next is at n mod samples
	times  [samples]time.Time
	total  series
	limits map[string]*series
	full   bool // a limit was used that there was no room for
}

func newHistory() *history { return &history{limits: map[string]*series{}} }

// rate is how many a second.
type rate struct{ allowed, refused float64 }

// add takes one sample. Limits that are not in it were not used.
func (h *history) add(now time.Time, total rate, limits map[string]rate) {
	at := h.n % samples
	h.times[at] = now
	h.total.allowed[at], h.total.refused[at] = float32(total.allowed), float32(total.refused)
	for name, s := range h.limits {
		if _, used := limits[name]; used {
			continue
		}
		if h.n-s.used >= samples {
			delete(h.limits, name)
			h.full = false
			continue
		}
		s.allowed[at], s.refused[at] = 0, 0
	}
	for name, r := range limits {
		s := h.limits[name]
		if s == nil {
			if len(h.limits) >= mostSeries {
				h.full = true
				continue
			}
			s = new(series)
			h.limits[name] = s
		}
		s.allowed[at], s.refused[at], s.used = float32(r.allowed), float32(r.refused), h.n
	}
	h.n++
}

// past is the history of one limit, or of all, as the page gets it.
type past struct {
	Limit    string    `json:"limit"` // "": all
	Times    []int64   `json:"times"` // Unix, ms; each is later than the one before
	Allowed  []float32 `json:"allowed"`
	Refused  []float32 `json:"refused"`
	Recorded bool      `json:"recorded"` // false: there are more limits in use than are recorded
}

func (h *history) of(limit string) past {
	p := past{Limit: limit, Times: []int64{}, Allowed: []float32{}, Refused: []float32{}, Recorded: true}
	s := &h.total
	if limit != "" {
		var known bool
		if s, known = h.limits[limit]; !known {
			s, p.Recorded = new(series), !h.full
		}
	}
	for i := max(0, h.n-samples); i < h.n; i++ {
		at := h.times[i%samples].UnixMilli()
		if n := len(p.Times); n > 0 && at <= p.Times[n-1] { // the clock was set back: what came before has no place in a chart
			p.Times, p.Allowed, p.Refused = p.Times[:0], p.Allowed[:0], p.Refused[:0]
		}
		p.Times = append(p.Times, at)
		p.Allowed = append(p.Allowed, s.allowed[i%samples])
		p.Refused = append(p.Refused, s.refused[i%samples])
	}
	return p
}

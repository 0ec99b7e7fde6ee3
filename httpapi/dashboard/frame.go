package dashboard

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/jatah-io/jatah"
)

// mostLimits is how many limits a frame has; the page finds the others by name.
const mostLimits = 200

// frame is what the page shows, a second's worth. Rates are per second, times Unix milliseconds.
type frame struct {
	Time       int64    `json:"time"`
	Scope      string   `json:"scope"`
	First      bool     `json:"first"` // there is no sample to compare it with yet: its rates say nothing
	Node       string   `json:"node"`
	Version    string   `json:"version"`
	Ready      bool     `json:"ready"`
	Reason     string   `json:"reason,omitempty"`
	K          int      `json:"k"`
	Weight     float64  `json:"weight"`
	Partitions int      `json:"partitions"`
	SettlingMS int64    `json:"settling_ms"`
	GraceMS    *int64   `json:"grace_ms"` // null: for ever
	Handing    int      `json:"handing"`
	Members    []member `json:"members"`
	Missing    []string `json:"missing"` // cluster: members that did not answer
	Unknown    []string `json:"unknown"` // cluster: members of a version that cannot tell

	Now         rateBody `json:"now"`
	Ask         askBody  `json:"ask"`
	Debt        float64  `json:"debt"`
	DebtAll     uint64   `json:"debt_total"`
	Keys        int      `json:"keys"`
	Ledgers     int      `json:"ledgers"`
	Evictions   uint64   `json:"evictions"`
	Overflows   uint64   `json:"overflows"`
	Pauses      uint64   `json:"pauses"`
	PacketsIn   float64  `json:"packets_in"`
	PacketsOut  float64  `json:"packets_out"`
	BytesIn     float64  `json:"bytes_in"`
	BytesOut    float64  `json:"bytes_out"`
	TickMS      float64  `json:"tick_ms"`
	Limits      []limit  `json:"limits"`
	LimitsTotal int      `json:"limits_total"` // that there are, also those that do not match
	Matching    int      `json:"limits_matching"`

	Events []event `json:"events"` // since the frame before of this stream
}

type rateBody struct {
	Allowed float64 `json:"allowed"`
	Refused float64 `json:"refused"`
}

func (r rate) body() rateBody { return rateBody{tidy(r.allowed), tidy(r.refused)} }

type askBody struct {
	Sent     float64  `json:"sent"`
	TimedOut float64  `json:"timed_out"`
	InFlight int      `json:"in_flight"`
	P50MS    *float64 `json:"p50_ms"` // null: nothing was asked lately
	P99MS    *float64 `json:"p99_ms"`
}

type member struct {
	Name       string    `json:"name"`
	State      string    `json:"state"` // alive, failed or left
	Self       bool      `json:"self"`
	Silent     bool      `json:"silent"`
	Addr       string    `json:"addr"`
	HTTP       string    `json:"http"`
	Version    string    `json:"version"`
	Partitions int       `json:"partitions"`
	LendsTo    int       `json:"lends_to"`
	LentBy     int       `json:"lent_by"`
	Share      float64   `json:"share"`
	HeardMS    int64     `json:"heard_ms"`
	Since      int64     `json:"since,omitempty"`
	ReservedMS *int64    `json:"reserved_ms"` // null: until it is forgotten
	Answered   string    `json:"answered"`    // yes, no, unknown; node: empty
	Rates      *rateBody `json:"rates"`       // null: not known
	K          int       `json:"k"`           // 0: not known
}

type limit struct {
	Name      string   `json:"name"`
	Rate      string   `json:"rate"`
	Burst     int64    `json:"burst"`
	Algorithm string   `json:"algorithm"`
	Mode      string   `json:"mode"`
	Fallback  string   `json:"fallback"`
	DryRun    bool     `json:"dry_run"`
	Known     bool     `json:"known"` // this node has the limit too
	Now       rateBody `json:"now"`   // of the last second
	Smooth    rateBody `json:"smooth"`
	Dry       float64  `json:"dry"`
	Allowed   uint64   `json:"allowed"` // since the start
	Refused   uint64   `json:"refused"`
	Keys      int      `json:"keys"`
	Permits   int      `json:"permits"`
	Sources   []source `json:"sources"`
}

type source struct {
	Source string `json:"source"`
	rateBody
}

type event struct {
	Seq  uint64 `json:"seq"`
	Time int64  `json:"time"`
	Kind string `json:"kind"`
	Node string `json:"node"`
	Text string `json:"text"`
	Warn bool   `json:"warn"`
}

// tidy is a rate that JSON can say, in thousandths.
func tidy(f float64) float64 {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return 0
	}
	return math.Round(1000*f) / 1000
}

func millis(d time.Duration) int64 { return int64((d + time.Millisecond - 1) / time.Millisecond) }

// orNever is null where a time never comes.
func orNever(d time.Duration) *int64 {
	if d == jatah.Never {
		return nil
	}
	ms := millis(d)
	return &ms
}

// view is what one stream wants to see.
type view struct {
	scope string // node or cluster
	find  string // part of the names of limits, in lower case; "": all
	limit string // that is there in any case; "": none
}

// frame is the newest sample of a feed as one stream sees it, without events; ok is false before the first.
func (h *Handler) frame(f *feed, v view, who answers) (fr frame, ok bool) {
	in := h.node.Info()
	fr = frame{Scope: v.scope, Node: in.Node, Ready: in.Ready, Reason: in.Reason, K: in.K, Weight: tidy(in.Weight), Partitions: in.Partitions,
		SettlingMS: millis(in.Settling), GraceMS: orNever(in.Grace), Handing: in.Handing, Members: []member{}, Missing: append([]string{}, who.missing...),
		Unknown: append([]string{}, who.unknown...), Limits: []limit{}, Events: []event{}}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.at.IsZero() {
		return fr, false
	}
	fr.Time, fr.First = f.at.UnixMilli(), f.n < 2
	for _, m := range in.Members {
		if m.Self {
			fr.Version = m.Version
		}
		fr.Members = append(fr.Members, h.member(f, &m, v, &who))
	}
	s := &f.state
	fr.Now = s.now.body()
	fr.Ask = askBody{Sent: tidy(s.asks), TimedOut: tidy(s.timedOut), InFlight: s.inFlight, P50MS: f.quantileMS(0.5), P99MS: f.quantileMS(0.99)}
	fr.Debt, fr.DebtAll, fr.Keys, fr.Ledgers, fr.Evictions, fr.Overflows, fr.Pauses = tidy(s.debt), s.owed, s.keys, s.ledgers, s.evictions, s.overflow, s.pause
	fr.PacketsIn, fr.PacketsOut, fr.BytesIn, fr.BytesOut = tidy(s.packetsIn), tidy(s.packetsOut), tidy(s.bytesIn), tidy(s.bytesOut)
	fr.TickMS = tidy(s.tick.Seconds() * 1000)
	h.addLimits(&fr, f, v)
	return fr, true
}

func (f *feed) quantileMS(q float64) *float64 {
	d, ok := f.quantile(q)
	if !ok {
		return nil
	}
	ms := tidy(d.Seconds() * 1000)
	return &ms
}

func (h *Handler) member(f *feed, m *jatah.MemberInfo, v view, who *answers) member {
	x := member{Name: m.Name, State: m.State, Self: m.Self, Silent: m.Silent, Addr: m.Addr, HTTP: m.HTTP, Version: m.Version, Partitions: m.Partitions,
		LendsTo: m.LendsTo, LentBy: m.LentBy, Share: tidy(m.Share), HeardMS: millis(m.Heard), ReservedMS: orNever(m.Reserved)}
	if !m.Since.IsZero() {
		x.Since = m.Since.UnixMilli()
	}
	if v.scope == scopeNode && !m.Self {
		return x
	}
	if i := slices.IndexFunc(f.nodes, func(n jatah.NodeStats) bool { return n.Node == m.Name }); i >= 0 {
		r := f.last[m.Name].rate.body()
		x.Rates, x.K = &r, f.nodes[i].K
	}
	if v.scope == scopeCluster {
		switch {
		case x.Rates != nil:
			x.Answered = "yes"
		case slices.Contains(who.unknown, m.Name):
			x.Answered = "unknown"
		case slices.Contains(who.missing, m.Name):
			x.Answered = "no"
		}
	}
	return x
}

// addLimits adds those that were used most, of those that the stream wants to see.
func (h *Handler) addLimits(fr *frame, f *feed, v view) {
	fr.LimitsTotal = len(f.rates)
	var names []string
	for _, name := range f.busiest() {
		if v.find != "" && !strings.Contains(strings.ToLower(name), v.find) {
			continue
		}
		if fr.Matching++; len(names) < mostLimits {
			names = append(names, name)
		}
	}
	if _, known := f.rates[v.limit]; known && !slices.Contains(names, v.limit) {
		names = append(names, v.limit)
	}
	slices.Sort(names)
	for _, name := range names {
		fr.Limits = append(fr.Limits, h.limit(name, f.rates[name]))
	}
}

func (h *Handler) limit(name string, u *use) limit {
	l := limit{Name: name, Mode: u.mode.String(), Now: u.now.body(), Smooth: u.smooth.body(), Dry: tidy(u.dry), Allowed: u.allowed, Refused: u.refused,
		Keys: u.keys, Permits: u.permits, Sources: []source{}}
	if x, ok := h.node.Lookup(name); ok {
		d := x.Limit()
		l.Known, l.Algorithm, l.Mode, l.Fallback, l.DryRun, l.Burst = true, cmp.Or(d.Algorithm, jatah.TokenBucket), d.Mode.String(), d.Fallback.String(), d.DryRun, d.Burst
		switch {
		case d.Algorithm == jatah.Concurrency:
			l.Burst = d.Max
		case len(d.Rates) == 0:
			l.Rate = d.Rate.String()
		default:
			var all []string
			for _, r := range d.Rates {
				all = append(all, r.String())
			}
			l.Rate = strings.Join(all, ", ")
		}
	}
	for src, r := range u.sources {
		l.Sources = append(l.Sources, source{src.String(), r.body()})
	}
	slices.SortFunc(l.Sources, func(a, b source) int { return cmp.Compare(a.Source, b.Source) })
	return l
}

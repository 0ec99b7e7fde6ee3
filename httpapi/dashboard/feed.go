package dashboard

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/jatah-io/jatah"
)

// calm is how much of a smoothed rate a new sample makes: digits that change wildly cannot be read. The history has the samples themselves.
const calm = 0.4

// feed turns counters into rates, for one scope. Its lock is held for moments only.
type feed struct {
	mu    sync.Mutex
	past  *history
	last  map[string]*counted // by node
	rates map[string]*use     // by limit, smoothed
	nodes []jatah.NodeStats   // of the last sample
	state totals
	asks  []float64       // how many took how long, of about the last ten seconds
	under []time.Duration // the bounds of asks
	at    time.Time       // of the last sample; zero: none yet
	next  chan struct{}   // closed by the next sample
	n     int             // samples so far
}

// counted is what a node had counted when it was last heard of.
type counted struct {
	at     time.Time
	limits map[string]jatah.LimitStats
	stats  jatah.Stats
	rate   rate // smoothed, for the table of members

	again   bool // it was heard of before, so that it has a rate
	partial bool // it has more limits
}

// use is what becomes of one limit.
type use struct {
	now     rate // in the last sample
	smooth  rate
	dry     float64 // of what was allowed, what would be refused were it no dry run
	sources map[jatah.Source]*rate
	allowed uint64 // since the nodes started
	refused uint64
	keys    int
	permits int
	mode    jatah.Mode
}

// totals are sums over the nodes of a scope.
type totals struct {
	now                        rate
	asks, timedOut, debt       float64 // per second, smoothed
	packetsIn, packetsOut      float64
	bytesIn, bytesOut          float64
	owed                       uint64
	inFlight, keys, ledgers    int
	evictions, overflow, pause uint64
	tick                       time.Duration
}

func newFeed() *feed {
	return &feed{past: newHistory(), last: map[string]*counted{}, rates: map[string]*use{}, next: make(chan struct{})}
}

// wait returns a channel that the next sample closes.
func (f *feed) wait() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.next
}

// pastOf is the history of one limit, or of all.
func (f *feed) pastOf(limit string) past {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.past.of(limit)
}

// take adds a sample: the counters of each node that answered.
func (f *feed) take(now time.Time, nodes []jatah.NodeStats) {
	f.mu.Lock()
	defer f.mu.Unlock()
	before := f.state
	f.state = totals{}
	first, second := f.n == 0, f.n == 1 // rates begin with the second, and are smoothed with those before from the third on
	f.n++
	for i := range f.asks {
		f.asks[i] *= 0.9
	}
	fresh := map[string]*use{}
	for i := range nodes {
		f.node(now, &nodes[i], fresh)
	}
	for name := range f.last {
		if !slices.ContainsFunc(nodes, func(n jatah.NodeStats) bool { return n.Node == name }) && now.Sub(f.last[name].at) > time.Minute {
			delete(f.last, name) // it is gone, or so long away that the mean of the time says little
		}
	}
	active := map[string]rate{}
	var total rate
	for name, u := range fresh {
		if was := f.rates[name]; second {
			u.blend(nil)
		} else {
			u.blend(was)
		}
		if u.now != (rate{}) {
			active[name] = u.now
		}
		total.allowed += u.now.allowed
		total.refused += u.now.refused
	}
	f.state.now = total
	if !second {
		f.state.blend(&before)
	}
	if !first {
		f.past.add(now, total, active)
	}
	f.rates, f.nodes, f.at = fresh, nodes, now
	close(f.next)
	f.next = make(chan struct{})
}

// node adds what one node counted since it was last heard of.
func (f *feed) node(now time.Time, n *jatah.NodeStats, fresh map[string]*use) {
	s, t := &n.Stats, &f.state
	t.inFlight += s.Ask.InFlight
	t.keys += s.Accounts + s.Buckets
	t.ledgers += s.Ledgers
	t.owed += s.Debt
	t.evictions += s.Evictions
	t.overflow += s.Overflows
	t.pause += s.Pauses
	t.tick = max(t.tick, s.Tick)
	was := f.last[n.Node]
	is := &counted{at: now, limits: make(map[string]jatah.LimitStats, len(s.Limits)), stats: *s, again: was != nil, partial: n.Omitted > 0}
	perSecond := func(uint64, uint64) float64 { return 0 }
	if was != nil && now.After(was.at) {
		span := now.Sub(was.at).Seconds()
		perSecond = func(now, before uint64) float64 {
			if now < before {
				return 0 // it was started anew
			}
			return float64(now-before) / span
		}
		t.asks += perSecond(s.Ask.Sent, was.stats.Ask.Sent)
		t.timedOut += perSecond(s.Ask.TimedOut, was.stats.Ask.TimedOut)
		t.debt += perSecond(s.Debt, was.stats.Debt)
		t.packetsIn += perSecond(s.PacketsIn, was.stats.PacketsIn)
		t.packetsOut += perSecond(s.PacketsOut, was.stats.PacketsOut)
		t.bytesIn += perSecond(s.BytesIn, was.stats.BytesIn)
		t.bytesOut += perSecond(s.BytesOut, was.stats.BytesOut)
		f.latencies(&s.Ask.Latency, &was.stats.Ask.Latency)
	}
	var sum rate
	for _, l := range s.Limits {
		is.limits[l.Name] = l
		u := fresh[l.Name]
		if u == nil {
			u = &use{sources: map[jatah.Source]*rate{}, mode: l.Mode}
			fresh[l.Name] = u
		}
		var before jatah.LimitStats
		known := false
		if was != nil {
			before, known = was.limits[l.Name]
		}
		// One that is new was counted from its start, unless it did not fit into what the node said before.
		u.add(&l, &before, known || was != nil && !was.partial, perSecond, &sum)
	}
	is.rate = sum
	if was != nil && was.again {
		is.rate = rate{smooth(was.rate.allowed, sum.allowed), smooth(was.rate.refused, sum.refused)}
	}
	is.stats.Limits = nil // they are in is.limits
	f.last[n.Node] = is
}

// add adds the decisions of one node since before. sum is all that the node did.
func (u *use) add(l, before *jatah.LimitStats, known bool, perSecond func(now, before uint64) float64, sum *rate) {
	u.keys += l.Keys
	u.permits += l.Permits
	known = known && decisions(l) >= decisions(before) // else its node was started anew
	count := func(ds []jatah.DecisionCount, d jatah.DecisionCount) uint64 {
		for _, x := range ds {
			if x.Allowed == d.Allowed && x.Source == d.Source {
				return x.Count
			}
		}
		return 0
	}
	for _, d := range l.Decisions {
		r := 0.0
		if known {
			r = perSecond(d.Count, count(before.Decisions, d))
		}
		s := u.sources[d.Source]
		if s == nil {
			s = new(rate)
			u.sources[d.Source] = s
		}
		if d.Allowed {
			u.allowed += d.Count
			u.now.allowed += r
			s.allowed += r
			sum.allowed += r
		} else {
			u.refused += d.Count
			u.now.refused += r
			s.refused += r
			sum.refused += r
		}
	}
	// What a dry run let pass is counted as refused, since it tells what would be: it was not.
	let := min(l.DryRun, u.refused)
	u.allowed += let
	u.refused -= let
	if known {
		dry := min(perSecond(l.DryRun, before.DryRun), u.now.refused, sum.refused)
		u.dry += dry
		for _, r := range []*rate{&u.now, sum} {
			r.allowed += dry
			r.refused -= dry
		}
	}
}

// decisions is how many there were of a limit.
func decisions(l *jatah.LimitStats) (n uint64) {
	for _, d := range l.Decisions {
		n += d.Count
	}
	return n
}

func smooth(before, now float64) float64 {
	if v := before + calm*(now-before); v > 0.005 {
		return v
	}
	return 0
}

// blend smooths what was just sampled with what was there before; nil: nothing was.
func (u *use) blend(before *use) {
	u.smooth = u.now
	if before == nil {
		return
	}
	u.smooth = rate{smooth(before.smooth.allowed, u.now.allowed), smooth(before.smooth.refused, u.now.refused)}
	u.dry = smooth(before.dry, u.dry)
	for src, r := range u.sources {
		if b := before.sources[src]; b != nil {
			*r = rate{smooth(b.allowed, r.allowed), smooth(b.refused, r.refused)}
		}
	}
}

func (t *totals) blend(before *totals) {
	for _, x := range [][2]*float64{{&t.asks, &before.asks}, {&t.timedOut, &before.timedOut}, {&t.debt, &before.debt}, {&t.packetsIn, &before.packetsIn},
		{&t.packetsOut, &before.packetsOut}, {&t.bytesIn, &before.bytesIn}, {&t.bytesOut, &before.bytesOut}} {
		*x[0] = smooth(*x[1], *x[0])
	}
}

// latencies adds the asks that a node made since before. Nodes with other bounds than the first are left out.
func (f *feed) latencies(now, before *jatah.Histogram) {
	if f.under == nil {
		f.under, f.asks = now.Bounds, make([]float64, len(now.Counts))
	}
	if !slices.Equal(f.under, now.Bounds) || len(now.Counts) != len(f.asks) || len(before.Counts) != len(f.asks) {
		return
	}
	for i, n := range now.Counts {
		if n > before.Counts[i] {
			f.asks[i] += float64(n - before.Counts[i])
		}
	}
}

// quantile is how long the part q of the recent asks took at most, taken as even within the bounds; false: there were none.
func (f *feed) quantile(q float64) (time.Duration, bool) {
	var all float64
	for _, n := range f.asks {
		all += n
	}
	if all < 0.5 {
		return 0, false
	}
	want, low := q*all, time.Duration(0)
	for i, n := range f.asks {
		if i == len(f.under) {
			break
		}
		if want <= n {
			return low + time.Duration(want/n*float64(f.under[i]-low)), true
		}
		want -= n
		low = f.under[i]
	}
	return low, true
}

// busiest lists limits, those with most decisions a second first, then by name.
func (f *feed) busiest() []string {
	names := make([]string, 0, len(f.rates))
	for name := range f.rates {
		names = append(names, name)
	}
	all := func(name string) float64 { return f.rates[name].smooth.allowed + f.rates[name].smooth.refused }
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(cmp.Compare(all(b), all(a)), cmp.Compare(a, b)) })
	return names
}

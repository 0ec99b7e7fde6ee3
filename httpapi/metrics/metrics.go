// Package metrics shows the counters of a [jatah.Node] to Prometheus.
//
// # Guarantees
//
//   - Labels are names of limits and members and words of this package, never anything from a
//     request. So the number of series depends on the configuration and the members only: it is the same
//     after one request as after requests for a million keys.
//   - Every series is there from the first scrape on, with 0, so that rates are right from the start.
//   - A scrape reads counters; it stops no decision. Counters count since the start of the node.
//   - Histograms are classic ones, and native ones too for scrapers that ask for them.
//
// docs/metrics.md has all metrics in a table, and what to do about them.
//
// # No guarantees
//
//   - The counters of one scrape were not read at one instant.
package metrics

import (
	"net/http"
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/jatah-io/jatah"
)

// Handler serves the metrics of a node, of the Go runtime and of the process, and
// jatah_build_info with the version, from a registry of its own, which has what else there is to show too. It goes into httpapi.Config.Metrics.
// It panics if two collectors have the same metric.
func Handler(node *jatah.Node, version string, more ...prometheus.Collector) http.Handler {
	reg := prometheus.NewRegistry()
	build := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "jatah_build_info", Help: "Always 1; the labels say what is running.",
		ConstLabels: prometheus.Labels{"version": version, "goversion": runtime.Version()},
	}, func() float64 { return 1 })
	reg.MustRegister(NewCollector(node), build,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	reg.MustRegister(more...)
	// Scrapes are few; more than these at once are somebody's mistake.
	return promhttp.HandlerFor(reg, promhttp.HandlerOpts{MaxRequestsInFlight: 4})
}

// Collector reads node.Stats() and node.Info() at each scrape. Use [NewCollector]; it is
// safe for concurrent use and holds no counters itself.
type Collector struct {
	node   *jatah.Node
	desc   descs
	memory memoryDescs
	shares
}

// descs are the metrics.
type descs struct {
	decisions, dryRun, keys                *prometheus.Desc
	merged, permits                        *prometheus.Desc
	asks, resent, timedOut, inFlight, wait *prometheus.Desc
	members, entries                       *prometheus.Desc
	evictions, overflows, debt, pauses     *prometheus.Desc
	handOffs, packets, bytes, dropped      *prometheus.Desc
	tick, state                            *prometheus.Desc
	near, failures, ticks, rejoins, lookup *prometheus.Desc
}

// NewCollector makes a collector, for those who have a registry already.
// One registry takes the collector of one node only.
func NewCollector(node *jatah.Node) *Collector {
	def := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("jatah_"+name, help, labels, nil)
	}
	return &Collector{node: node, shares: newShares(), memory: newMemoryDescs(), desc: descs{
		decisions: def("decisions_total", "Decisions, by what was decided and how.", "limit", "result", "source"),
		dryRun:    def("dry_run_denied_total", "Requests that passed only because the limit is in dry run.", "limit"),
		keys:      def("limit_keys", "Keys of which this node remembers something.", "limit"),
		merged:    def("logs_merged_total", "Sliding logs that were full, so that neighbours were merged.", "limit"),
		permits:   def("permits", "Permits of concurrency limits that this node holds.", "limit"),
		asks:      def("asks_total", "Questions to the owner of a key."),
		resent:    def("asks_resent_total", "Questions that were sent again."),
		timedOut:  def("asks_timed_out_total", "Questions that were not answered in time."),
		inFlight:  def("asks_in_flight", "Questions that wait for an answer now."),
		wait:      def("ask_seconds", "Time from question to answer."),
		members:   def("members", "Nodes as this one sees them.", "state"),
		entries:   def("table_entries", "Keys in memory: account (known here), active (of these, with credit, debt or something to report), ledger (owned here and not full), bucket (decided here alone).", "kind"),
		evictions: def("evictions_total", "Keys that were forgotten because they were full again."),
		overflows: def("overflows_total", "Requests for new keys that were refused because the memory for keys is at its bound."),
		debt:      def("debt_tokens_total", "Tokens that were spent beyond credit and charged when this node, as owner, heard of it."),
		pauses:    def("pauses_total", "Times that this node noticed that it had been paused."),
		handOffs:  def("hand_offs_total", "Hand-offs of owned keys between nodes.", "result"),
		packets:   def("packets_total", "Packets between nodes.", "direction"),
		bytes:     def("packet_bytes_total", "Bytes in these packets.", "direction"),
		dropped:   def("packets_dropped_total", "Packets that were not used.", "reason"),
		state:     def("state_writes_total", "Times that the state file was written, or could not be.", "result"),
		tick:      def("tick_seconds", "How long the last sync took."),
		near: def("near_limit_total", "Decisions that admitted and left less than 20 % of the burst, as far as this node knew: what the answers said was remaining. "+
			"They are among jatah_decisions_total with the result allowed.", "limit"),
		failures: def("ask_failures_total", "Requests that got no answer of the owner: in time (timeout), because it was silent anyway (silent), because their context ended (canceled). "+
			"Fallback decided but for the last.", "reason"),
		ticks:   def("tick_duration_seconds", "How long syncs took."),
		rejoins: def("rejoins_total", "Attempts to reach seeds and lost members after the start, by what came of them.", "result"),
		lookup:  def("join_lookup_errors_total", "Names of seeds that could not be looked up."),
	}}
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	d := &c.desc
	for _, desc := range []*prometheus.Desc{
		d.decisions, d.dryRun, d.keys, d.merged, d.permits, d.asks, d.resent, d.timedOut, d.inFlight, d.wait, d.members, d.entries,
		d.evictions, d.overflows, d.debt, d.pauses, d.handOffs, d.packets, d.bytes, d.dropped, d.state, d.tick,
		d.near, d.failures, d.ticks, d.rejoins, d.lookup,
	} {
		ch <- desc
	}
	c.shares.describe(ch)
	c.memory.describe(ch)
}

// Collect implements prometheus.Collector.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	s, d := c.node.Stats(), &c.desc
	count := func(desc *prometheus.Desc, n uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(n), labels...)
	}
	gauge := func(desc *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, v, labels...)
	}
	for i := range s.Limits {
		l := &s.Limits[i]
		for src, n := range decisions(l) {
			count(d.decisions, n.allowed, l.Name, "allowed", jatah.Source(src).String())
			count(d.decisions, n.denied, l.Name, "denied", jatah.Source(src).String())
		}
		count(d.dryRun, l.DryRun, l.Name)
		count(d.near, l.Near, l.Name)
		gauge(d.keys, float64(l.Keys), l.Name)
		count(d.merged, l.Merged, l.Name)
		gauge(d.permits, float64(l.Permits), l.Name)
	}
	count(d.asks, s.Ask.Sent)
	count(d.resent, s.Ask.Resent)
	count(d.timedOut, s.Ask.TimedOut)
	count(d.failures, s.Ask.TimedOut, "timeout")
	count(d.failures, s.Ask.Silent, "silent")
	count(d.failures, s.Ask.Canceled, "canceled")
	gauge(d.inFlight, float64(s.Ask.InFlight))
	ch <- histogram(d.wait, s.Ask.Latency)
	gauge(d.members, float64(s.Members), jatah.Alive)
	gauge(d.members, float64(s.MembersFailed), jatah.Failed)
	gauge(d.entries, float64(s.Accounts), "account")
	gauge(d.entries, float64(s.Active), "active")
	gauge(d.entries, float64(s.Ledgers), "ledger")
	gauge(d.entries, float64(s.Buckets), "bucket")
	count(d.evictions, s.Evictions)
	count(d.overflows, s.Overflows)
	count(d.debt, s.Debt)
	count(d.pauses, s.Pauses)
	count(d.handOffs, s.HandOffsIn, "received")
	count(d.handOffs, s.HandOffsOut, "sent")
	count(d.handOffs, s.HandOffsLost, "lost")
	count(d.packets, s.PacketsIn, "in")
	count(d.packets, s.PacketsOut, "out")
	count(d.bytes, s.BytesIn, "in")
	count(d.bytes, s.BytesOut, "out")
	for reason, n := range s.Dropped { // the reasons are the node's own words
		count(d.dropped, n, reason)
	}
	count(d.state, s.StateWrites, "ok")
	count(d.state, s.StateFailures, "failed")
	gauge(d.tick, s.Tick.Seconds())
	ch <- histogram(d.ticks, s.Ticks)
	count(d.rejoins, s.Rejoins-min(s.Rejoins, s.RejoinErrors), "ok")
	count(d.rejoins, s.RejoinErrors, "failed")
	count(d.lookup, s.LookupErrors)
	c.shares.collect(c.node, gauge)
	c.memory.collect(ch, &s.Memory)
}

// results are the decisions of one source.
type results struct{ allowed, denied uint64 }

// decisions lists the counts by source, also of those that never decided:
// a series that appears with its first decision hides that one from rate().
func decisions(l *jatah.LimitStats) (by [jatah.SourceAllow + 1]results) {
	for _, n := range l.Decisions {
		switch {
		case int(n.Source) >= len(by):
		case n.Allowed:
			by[n.Source].allowed += n.Count
		default:
			by[n.Source].denied += n.Count
		}
	}
	return by
}

package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/jatah-io/jatah/httpapi/edge"
)

// EdgeCollector shows the counters of an [edge.Edge]. Use [NewEdgeCollector]; it is safe for concurrent use and holds no counters itself.
type EdgeCollector struct {
	current                              func() *edge.Edge
	requests, events, candidates, missed *prometheus.Desc
}

// NewEdgeCollector makes a collector for the edge that current returns at each scrape; nil: there is none, and so no series. The labels are the names
// of rules and limits. The counters of a rule go on in an edge that follows another one, those of candidates begin anew.
func NewEdgeCollector(current func() *edge.Edge) *EdgeCollector {
	def := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("jatah_edge_"+name, help, labels, nil)
	}
	return &EdgeCollector{
		current:  current,
		requests: def("requests_total", "Requests that a rule of the edge decided.", "rule", "result"),
		events: def("events_total", "Of these, those that a dry run let pass (would_refuse), that the node could not decide (undecided), whose cost could not be "+
			"read (bad_request), that took the softer step (soft), that a growing pause refused (paused), that got no answer (dropped).", "rule", "event"),
		candidates: def("candidate_requests_total", "Requests that were measured against a candidate, by what that would have done.", "rule", "candidate", "result"),
		missed:     def("candidate_missed_total", "Requests that were not measured.", "rule", "candidate"),
	}
}

// Describe implements prometheus.Collector.
func (c *EdgeCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.requests, c.events, c.candidates, c.missed} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *EdgeCollector) Collect(ch chan<- prometheus.Metric) {
	e := c.current()
	if e == nil {
		return
	}
	count := func(desc *prometheus.Desc, n uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(n), labels...)
	}
	for _, r := range e.Stats() {
		count(c.requests, r.Admitted, r.Rule, "admitted")
		count(c.requests, r.Refused, r.Rule, "refused")
		for event, n := range map[string]uint64{
			"would_refuse": r.WouldRefuse, "undecided": r.Undecided, "bad_request": r.BadRequests,
			"soft": r.Soft, "paused": r.Paused, "dropped": r.Dropped,
		} {
			count(c.events, n, r.Rule, event)
		}
	}
	sums := map[[2]string]edge.CandidateReport{} // a rule may measure a candidate beside several limits
	for _, r := range e.Candidates() {
		name := [2]string{r.Rule, r.Candidate}
		sum := sums[name]
		sum.Requests, sum.Refused, sum.Missed = sum.Requests+r.Requests, sum.Refused+r.Refused, sum.Missed+r.Missed
		sums[name] = sum
	}
	for name, r := range sums {
		count(c.candidates, r.Requests-min(r.Refused, r.Requests), name[0], name[1], "admitted")
		count(c.candidates, r.Refused, name[0], name[1], "refused")
		count(c.missed, r.Missed, name[0], name[1])
	}
}

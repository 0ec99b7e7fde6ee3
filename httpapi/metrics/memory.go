package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/jatah-io/jatah"
)

// memoryDescs are the metrics of the memory for keys.
type memoryDescs struct {
	used, limit, keys, keyLimit, overflowed, full *prometheus.Desc
}

func newMemoryDescs() memoryDescs {
	def := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("jatah_"+name, help, labels, nil)
	}
	return memoryDescs{
		used:       def("memory_bytes", "Memory that keys take, by what it is for. The process takes more.", "part"),
		limit:      def("memory_limit_bytes", "Bound on the memory of keys, max_memory; 0: none."),
		keys:       def("keys", "Keys that this node uses and that are not full; those that it owns are counted apart."),
		keyLimit:   def("keys_limit", "Bound on these, max_keys; 0: none."),
		overflowed: def("overflow_decisions_total", "Requests of new keys that found no room, by the policy that decided them.", "policy"),
		full:       def("memory_full", "1: a new key found no room in the last seconds."),
	}
}

func (d *memoryDescs) describe(ch chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{d.used, d.limit, d.keys, d.keyLimit, d.overflowed, d.full} {
		ch <- desc
	}
}

func (d *memoryDescs) collect(ch chan<- prometheus.Metric, m *jatah.MemoryStats) {
	gauge := func(desc *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, v, labels...)
	}
	for part, n := range m.Parts { // the parts are the node's own words
		gauge(d.used, float64(n), part)
	}
	gauge(d.limit, float64(m.Limit))
	gauge(d.keys, float64(m.Keys))
	gauge(d.keyLimit, float64(m.MaxKeys))
	full := 0.0
	if m.Full {
		full = 1
	}
	gauge(d.full, full)
	for policy, n := range m.Overflowed {
		ch <- prometheus.MustNewConstMetric(d.overflowed, prometheus.CounterValue, float64(n), jatah.Overflow(policy).String())
	}
}

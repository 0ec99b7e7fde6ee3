package main

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// reloadCounters are the metrics of reloads. The configuration that the node was started with counts as successful, and not as a reload. Safe for
// any number of goroutines.
type reloadCounters struct {
	mu               sync.Mutex
	applied, refused uint64
	successful       bool      // the last one
	at               time.Time // of the last one that was

	reloads, last, when *prometheus.Desc
}

func newReloadCounters(started time.Time) *reloadCounters {
	return &reloadCounters{successful: true, at: started,
		reloads: prometheus.NewDesc("jatah_config_reloads_total", "Times that the configuration was read again while the node ran, by what came of it.", []string{"result"}, nil),
		last:    prometheus.NewDesc("jatah_config_last_reload_successful", "1: the configuration is in force as it was read last. 0: that was refused, and the one before stays.", nil, nil),
		when:    prometheus.NewDesc("jatah_config_last_reload_success_timestamp_seconds", "When the configuration that is in force was read, in Unix time.", nil, nil),
	}
}

func (c *reloadCounters) note(now time.Time, successful bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.successful = successful; !successful {
		c.refused++
		return
	}
	c.applied++
	c.at = now
}

// Describe implements prometheus.Collector.
func (c *reloadCounters) Describe(ch chan<- *prometheus.Desc) {
	ch <- c.reloads
	ch <- c.last
	ch <- c.when
}

// Collect implements prometheus.Collector.
func (c *reloadCounters) Collect(ch chan<- prometheus.Metric) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ch <- prometheus.MustNewConstMetric(c.reloads, prometheus.CounterValue, float64(c.applied), "applied")
	ch <- prometheus.MustNewConstMetric(c.reloads, prometheus.CounterValue, float64(c.refused), "refused")
	last := 0.0
	if c.successful {
		last = 1
	}
	ch <- prometheus.MustNewConstMetric(c.last, prometheus.GaugeValue, last)
	ch <- prometheus.MustNewConstMetric(c.when, prometheus.GaugeValue, float64(c.at.UnixNano())/1e9)
}

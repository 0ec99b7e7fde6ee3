package main

import (
	"context"
	"crypto/tls"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/jatah-io/jatah/cmd/node/internal/config"
)

const (
	// soon is how long before its end a certificate is warned of.
	soon = 14 * 24 * time.Hour
	// reminder is how often.
	reminder = 24 * time.Hour
)

// certificates are what the API shows to its clients and wants from them. Safe for concurrent use.
type certificates struct {
	log *slog.Logger
	now atomic.Pointer[served]

	expiry *prometheus.Desc
}

// served is one state of them, which does not change.
type served struct {
	of     *config.TLS
	config *tls.Config
}

func newCertificates(t *config.TLS, log *slog.Logger) *certificates {
	c := &certificates{log: log, expiry: prometheus.NewDesc("jatah_tls_certificate_expiry_timestamp_seconds",
		"When the certificate of the HTTP API expires, and the first of the authorities for those of clients, in Unix time.", []string{"certificate"}, nil)}
	c.set(t)
	return c
}

func (c *certificates) set(t *config.TLS) {
	c.now.Store(&served{of: t, config: &tls.Config{
		Certificates: []tls.Certificate{t.Certificate},
		MinVersion:   max(t.MinVersion, tls.VersionTLS12),
		ClientAuth:   t.ClientAuth, ClientCAs: t.ClientCAs,
		NextProtos: []string{"h2", "http/1.1"},
		// Who resumes a session shows no certificate: one that was good for an authority that is gone would still be.
		SessionTicketsDisabled: t.ClientCAs != nil,
	}})
	c.remind(time.Now())
}

// config is that of the server: each new connection gets what counts then; those that are there go on.
func (c *certificates) config() *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return c.now.Load().config, nil },
	}
}

// prepare is a part of a reload. The files were read and checked before.
func (c *certificates) prepare(next config.Config) (change func(), err error) {
	before := c.now.Load().of
	if next.TLS == nil || next.TLS.Same(before) {
		return func() {}, nil
	}
	return func() {
		c.set(next.TLS)
		c.log.Info("the certificate of the HTTP API was replaced", "until", next.TLS.Certificate.Leaf.NotAfter, "serial", next.TLS.Certificate.Leaf.SerialNumber)
	}, nil
}

// expiries are when what is served ends, by what it is.
func (c *certificates) expiries() map[string]time.Time {
	t := c.now.Load().of
	all := map[string]time.Time{"server": t.Certificate.Leaf.NotAfter}
	if !t.ClientCAsUntil.IsZero() {
		all["client_ca"] = t.ClientCAsUntil
	}
	return all
}

// remind logs what expires soon.
func (c *certificates) remind(now time.Time) {
	for what, until := range c.expiries() {
		switch left := until.Sub(now); {
		case left <= 0:
			c.log.Error("a certificate has expired, clients refuse it: replace the file, it is read again", "certificate", what, "expired", until)
		case left < soon:
			c.log.Warn("a certificate expires soon: replace the file, it is read again", "certificate", what, "expires", until, "left", left.Round(time.Hour).String())
		}
	}
}

// run reminds each day until ctx ends.
func (c *certificates) run(ctx context.Context) {
	ticker := time.NewTicker(reminder)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			c.remind(now)
		}
	}
}

// Describe implements prometheus.Collector.
func (c *certificates) Describe(ch chan<- *prometheus.Desc) { ch <- c.expiry }

// Collect implements prometheus.Collector.
func (c *certificates) Collect(ch chan<- prometheus.Metric) {
	for what, until := range c.expiries() {
		ch <- prometheus.MustNewConstMetric(c.expiry, prometheus.GaugeValue, float64(until.Unix()), what)
	}
}

package main

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/jatah-io/jatah/cmd/node/internal/config"
	"github.com/jatah-io/jatah/httpapi"
)

// accessPart keeps who may call as the configuration has it. It is used by one goroutine.
type accessPart struct {
	api *httpapi.Handler
	log *slog.Logger
}

// prepare is a part of a reload. The tokens were read and checked before.
func (p *accessPart) prepare(next config.Config) (change func(), err error) {
	return func() {
		p.api.SetAccess(next.Access())
		advise(next, p.log)
	}, nil
}

// advise logs what is allowed and not wise.
func advise(cfg config.Config, log *slog.Logger) {
	for _, text := range advice(cfg) {
		log.Warn(text)
	}
}

func advice(cfg config.Config) []string {
	all := slices.Clone(cfg.Warnings)
	switch {
	case !beyondLoopback(cfg.HTTP):
	case cfg.Tokens == nil && cfg.InsecureAdmin:
		all = append(all, "insecure_admin: whoever reaches "+cfg.HTTP+" may change limits, reset keys and forget members")
	case cfg.Tokens == nil && (cfg.TLS == nil || cfg.TLS.ClientAuth != config.RequireCertificate):
		all = append(all, "no tokens_file: whoever reaches "+cfg.HTTP+" may take and read; admin calls are answered on this machine only")
	case cfg.Tokens != nil && cfg.TLS == nil:
		all = append(all, "tokens without tls: they cross the network of "+cfg.HTTP+" in the clear")
	}
	return all
}

// beyondLoopback says whether other machines may reach an address.
func beyondLoopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil || host == "localhost" {
		return err != nil
	}
	ip, err := netip.ParseAddr(host)
	return err != nil || !ip.Unmap().IsLoopback()
}

// describeAccess is what check says of who may call.
func describeAccess(w io.Writer, cfg config.Config) {
	if t := cfg.TLS; t != nil {
		clients := ""
		if t.ClientCAs != nil {
			clients = ", clients may show a certificate"
			if t.ClientAuth == config.RequireCertificate {
				clients = ", clients need a certificate"
			}
		}
		fmt.Fprintf(w, "TLS with a certificate until %s%s\n", t.Certificate.Leaf.NotAfter.UTC().Format(time.RFC3339), clients)
	}
	if cfg.Tokens != nil {
		fmt.Fprintf(w, "callers need one of %d tokens\n", cfg.Tokens.Len())
	}
	for _, text := range advice(cfg) {
		fmt.Fprintf(w, "warning: %s\n", text)
	}
}

// accessMetrics show connections and calls that were refused.
type accessMetrics struct {
	ln  *httpapi.Listener
	api func() *httpapi.Handler

	open, accepted, refused, denied *prometheus.Desc
}

func newAccessMetrics(ln *httpapi.Listener, api func() *httpapi.Handler) *accessMetrics {
	def := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("jatah_http_"+name, help, labels, nil)
	}
	return &accessMetrics{ln: ln, api: api,
		open:     def("connections", "Connections of the HTTP API that are open now."),
		accepted: def("connections_accepted_total", "Connections that were let in."),
		refused:  def("connections_refused_total", "Connections that were closed at once, because of all that are open or of those from one address.", "bound"),
		denied: def("calls_refused_total", "Calls that were refused: without a token (missing), with one that is none (unknown), without the role or for other limits (forbidden), "+
			"admin calls from elsewhere where there are no tokens (not_local), calls that a page of another site sent (cross_site).", "reason"),
	}
}

// Describe implements prometheus.Collector.
func (m *accessMetrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.open, m.accepted, m.refused, m.denied} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (m *accessMetrics) Collect(ch chan<- prometheus.Metric) {
	count := func(desc *prometheus.Desc, n uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(n), labels...)
	}
	c, a := m.ln.Stats(), m.api().AccessStats()
	ch <- prometheus.MustNewConstMetric(m.open, prometheus.GaugeValue, float64(c.Open))
	count(m.accepted, c.Accepted)
	count(m.refused, c.RefusedTotal, "all")
	count(m.refused, c.RefusedByAddress, "address")
	for reason, n := range map[string]uint64{
		"missing": a.Missing, "unknown": a.Unknown, "forbidden": a.Forbidden, "not_local": a.NotLocal, "cross_site": a.CrossSite,
	} {
		count(m.denied, n, reason)
	}
}

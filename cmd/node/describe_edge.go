package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"github.com/jatah-io/jatah"
	"github.com/jatah-io/jatah/cmd/node/internal/config"
	"github.com/jatah-io/jatah/httpapi/edge"
)

// describeEdge is the section edge in words: who is believed, and a line for each rule.
func describeEdge(cfg config.Config) []string {
	e := cfg.Edge
	lines := []string{"edge: " + describeTrust(e)}
	if e.FailOpen {
		lines = append(lines, "  what cannot be decided passes")
	}
	if len(e.Rules) == 0 {
		lines = append(lines, "  no rules: every request passes")
	}
	for i := range e.Rules {
		r := &e.Rules[i]
		lines = append(lines, fmt.Sprintf("  rule %s: %s: %s", r.Name, describeWhen(r), describeUses(r, cfg.Limits)))
	}
	return lines
}

func describeTrust(e *config.Edge) string {
	if len(e.TrustedProxies) == 0 {
		return "no proxy is trusted, so that nobody can ask by forward auth: name your proxies in trusted_proxies"
	}
	var proxies []string
	for _, p := range e.TrustedProxies {
		proxies = append(proxies, p.String())
	}
	text := fmt.Sprintf("trusts %s; clients from %s, IPv6 by /%d", strings.Join(proxies, ", "),
		cmp.Or(e.ClientHeader, "X-Forwarded-For"), cmp.Or(e.IPv6Prefix, 64))
	if e.AccountHeader == "" {
		return text + "; nobody is known by name"
	}
	return text + "; accounts from " + e.AccountHeader
}

func describeWhen(r *config.EdgeRule) string {
	parts := []string{cmp.Or(r.For, "everyone")}
	parts = append(parts, describeMatch(&r.When, "")...)
	parts = append(parts, describeMatch(&r.Not, "not ")...)
	return strings.Join(parts, ", ")
}

func describeMatch(m *config.EdgeMatch, not string) (parts []string) {
	for _, one := range []struct {
		what   string
		values []string
	}{{"path", m.Path}, {"method", m.Method}, {"header", m.Header}, {"cookie", m.Cookie}} {
		if len(one.values) > 0 {
			parts = append(parts, not+one.what+" "+strings.Join(one.values, " or "))
		}
	}
	return parts
}

func describeUses(r *config.EdgeRule, limits []jatah.Limit) string {
	if len(r.Use) == 0 {
		return "nothing is counted"
	}
	var uses []string
	for _, u := range r.Use {
		cost := "1"
		switch i := slices.IndexFunc(limits, func(l jatah.Limit) bool { return l.Name == u.Limit }); {
		case u.Cost != nil:
			cost = describeCost(u.Cost)
		case i >= 0 && len(limits[i].Costs) > 0:
			cost = "the cost of the path"
		}
		text := fmt.Sprintf("%s of %s by %s", cost, u.Limit, strings.Join(u.Key, " and "))
		if u.Plan != "" {
			text += ", plan " + u.Plan
		}
		if len(u.Candidates) > 0 {
			text += ", beside it is measured " + strings.Join(u.Candidates, " and ")
		}
		uses = append(uses, text)
	}
	text := strings.Join(uses, "; ")
	if len(uses) > 1 {
		text += "; all or none"
	}
	if r.Soft != nil {
		text += fmt.Sprintf("; from %g of a limit on with the header %s", r.Soft.From, cmp.Or(r.Soft.Header, edge.SoftHeader))
	}
	if r.Pause != nil {
		text += "; who goes on when refused is paused, longer each time"
	}
	if r.DryRun {
		text += "; dry run"
	}
	return text
}

func describeCost(c *config.EdgeCost) string {
	if c.Query == "" {
		return fmt.Sprint(c.Tokens)
	}
	if c.Per == 0 {
		var costs []string
		for _, value := range slices.Sorted(maps.Keys(c.Values)) {
			costs = append(costs, fmt.Sprintf("%q %d", value, c.Values[value]))
		}
		return fmt.Sprintf("by ?%s= (%s)", c.Query, strings.Join(costs, ", "))
	}
	text := fmt.Sprintf("1 for each %d of ?%s=", c.Per, c.Query)
	for _, bound := range []struct {
		what string
		n    int64
	}{{"at least", c.Min}, {"at most", c.Max}, {"without it", c.Missing}} {
		if bound.n > 0 {
			text += fmt.Sprintf(", %s %d", bound.what, bound.n)
		}
	}
	return "(" + text + ")"
}

// checkEdge prints the edge, and what making it warns of.
func checkEdge(w io.Writer, cfg config.Config) error {
	if cfg.Edge == nil {
		return nil
	}
	for _, line := range describeEdge(cfg) {
		fmt.Fprintln(w, line)
	}
	return tryEdge(cfg, slog.New(warnings{w}))
}

// warnings is a slog.Handler that prints the text of warnings.
type warnings struct{ w io.Writer }

func (h warnings) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelWarn }
func (h warnings) WithAttrs([]slog.Attr) slog.Handler           { return h }
func (h warnings) WithGroup(string) slog.Handler                { return h }

func (h warnings) Handle(_ context.Context, r slog.Record) error {
	fmt.Fprintf(h.w, "  warning: %s", r.Message)
	r.Attrs(func(a slog.Attr) bool { fmt.Fprintf(h.w, " %s=%q", a.Key, a.Value); return true })
	_, err := fmt.Fprintln(h.w)
	return err
}

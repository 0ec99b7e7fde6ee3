package config

import (
	"log/slog"
	"math"
	"strings"

	"github.com/jatah-io/jatah"
	"github.com/jatah-io/jatah/httpapi/clientip"
	"github.com/jatah-io/jatah/httpapi/edge"
)

// Open makes the edge that the section describes. The node must have the limits, and must outlive it. before is the edge that it
// follows, nil for none. A nil logger is slog.Default; logRefusals is for [Config.LogRefusals].
func (e *Edge) Open(node *jatah.Node, before *edge.Edge, log *slog.Logger, logRefusals bool) (*edge.Edge, error) {
	client, err := clientip.New(clientip.Config{
		TrustedProxies: e.TrustedProxies, Header: e.ClientHeader, IPv6Prefix: e.IPv6Prefix, Logger: log,
	})
	if err != nil {
		return nil, err
	}
	cfg := edge.Config{Client: client, FailOpen: e.FailOpen, Before: before, Logger: log, LogRefusals: logRefusals}
	if e.AccountHeader != "" {
		cfg.Account = edge.AccountFromHeader(e.AccountHeader)
	}
	if e.Answer != nil {
		cfg.Answer = *e.Answer.answer()
	}
	for _, r := range e.Rules {
		cfg.Rules = append(cfg.Rules, r.rule())
	}
	return edge.New(node, cfg)
}

func (r *EdgeRule) rule() edge.Rule {
	out := edge.Rule{Name: r.Name, DryRun: r.DryRun, Answer: r.Answer.answer()}
	if s := r.Soft; s != nil {
		out.Soft = &edge.Soft{From: s.From, Header: s.Header}
	}
	if p := r.Pause; p != nil {
		out.Pause = &edge.Pause{Limit: p.Limit, After: int(min(p.After, math.MaxInt32)), Base: p.Base, Max: p.Max, Factor: p.Factor, Forget: p.Forget}
	}
	switch r.For {
	case "anonymous":
		out.When = append(out.When, edge.Anonymous())
	case "authenticated":
		out.When = append(out.When, edge.Authenticated())
	}
	out.When = append(out.When, r.When.conditions()...)
	for _, c := range r.Not.conditions() {
		out.When = append(out.When, edge.Not(c))
	}
	for _, u := range r.Use {
		use := edge.Use{Limit: u.Limit, Plan: u.plan(), Cost: u.Cost.cost(), Candidates: u.Candidates}
		for _, part := range u.Key {
			use.Key = append(use.Key, partOf(part))
		}
		out.Uses = append(out.Uses, use)
	}
	return out
}

// conditions are one for each list that is not empty.
func (m *EdgeMatch) conditions() (all []edge.Condition) {
	if len(m.Path) > 0 {
		all = append(all, edge.Path(m.Path...))
	}
	if len(m.Method) > 0 {
		all = append(all, edge.Method(m.Method...))
	}
	var some []edge.Condition
	for _, h := range m.Header {
		if name, value, is := strings.Cut(h, "="); is {
			some = append(some, edge.HeaderIs(name, value))
		} else {
			some = append(some, edge.HasHeader(name))
		}
	}
	if len(some) > 0 {
		all = append(all, edge.Any(some...))
	}
	some = nil
	for _, name := range m.Cookie {
		some = append(some, edge.HasCookie(name))
	}
	if len(some) > 0 {
		all = append(all, edge.Any(some...))
	}
	return all
}

func (u *EdgeUse) plan() func(*edge.Request) string {
	if u.Plan == "" {
		return nil
	}
	if name, ok := strings.CutPrefix(u.Plan, "header:"); ok {
		return edge.AccountFromHeader(name) // a plan is believed as an account is: from a trusted proxy
	}
	return func(*edge.Request) string { return u.Plan }
}

func (c *EdgeCost) cost() edge.Cost {
	switch {
	case c == nil:
		return nil
	case c.Query == "":
		return edge.Fixed(c.Tokens)
	case c.Per > 0:
		return edge.Query(c.Query).Per(c.Per, edge.Bounds{Min: c.Min, Max: c.Max, Missing: c.Missing})
	}
	return edge.Query(c.Query).Table(c.Values)
}

func partOf(s string) edge.Part {
	kind, name, _ := strings.Cut(s, ":")
	switch kind {
	case "account":
		return edge.Account()
	case "address":
		return edge.Address()
	case "route":
		return edge.Route()
	case "method":
		return func(q *edge.Request) (string, bool) { return q.Method, true }
	case "header":
		return edge.Header(name)
	case "cookie":
		return edge.Cookie(name)
	}
	return edge.Text(name)
}

func (a *EdgeAnswer) answer() *edge.Answer {
	if a == nil {
		return nil
	}
	var page []byte
	if a.Page != "" {
		page = []byte(a.Page)
	}
	return &edge.Answer{
		Page: page, ContentType: a.PageType,
		Status: a.Status, OmitRateLimit: a.NoRateLimit, OmitXRateLimit: a.NoXRateLimit, Legacy: a.Legacy, ResetEpoch: a.Epoch, Jitter: a.Jitter,
	}
}

package config

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/jatah-io/jatah"
	"github.com/jatah-io/jatah/httpapi/clientip"
)

const (
	edgePath       = "edge"
	edgeRulesPath  = "edge.rules"
	edgeAnswerPath = "edge.answer"
)

// Edge is the section of that name: who is asking, and the rules by which forward auth decides. It is plain data; [Edge.Open]
// makes it work. It may be copied; slices are shared.
type Edge struct {
	TrustedProxies []netip.Prefix // nobody else is believed
	ClientHeader   string         // "": X-Forwarded-For
	IPv6Prefix     int            // in bits; 0: 64
	AccountHeader  string         // "": everybody is anonymous
	FailOpen       bool
	Answer         *EdgeAnswer // nil: the defaults
	Rules          []EdgeRule
}

// EdgeRule is one rule, as it is written.
type EdgeRule struct {
	Name string
	For  string    // "anonymous", "authenticated", or "" for everyone
	When EdgeMatch // each list that is not empty must match
	Not  EdgeMatch // none may match
	Use  []EdgeUse // none: exempt
	// DryRun counts and reports what would be refused, and refuses nothing.
	DryRun bool
	Soft   *EdgeSoft   // nil: none
	Pause  *EdgePause  // nil: none
	Answer *EdgeAnswer // nil: that of the edge
}

// EdgeMatch are lists of which one element must match.
type EdgeMatch struct {
	Path   []string // patterns of edge.Path
	Method []string // GET stands for HEAD too
	Header []string // NAME, or NAME=VALUE
	Cookie []string // NAME
}

// EdgeUse is what a request takes of one limit.
type EdgeUse struct {
	Limit string
	Key   []string  // account, address, route, method, header:NAME, cookie:NAME, text:WORD
	Plan  string    // a plan's name, or header:NAME; "": none
	Cost  *EdgeCost // nil: that of the path in the limit's costs
	// Candidates are limits that are measured beside this one.
	Candidates []string
}

// EdgeCost is what a request costs: Tokens; or, with Query, what a parameter of the query says.
type EdgeCost struct {
	Tokens int64
	Query  string
	// One token for each Per; 0: by Values.
	Per               int64
	Min, Max, Missing int64 // as in edge.Bounds
	Values            map[string]int64
}

// most is the most that is certain to be asked for; 0: that depends on the request.
func (c *EdgeCost) most() (most int64) {
	switch {
	case c.Query == "":
		return c.Tokens
	case c.Per > 0:
		return max(c.Min, c.Max)
	}
	for _, cost := range c.Values {
		most = max(most, cost)
	}
	return most
}

// EdgeSoft is a softer step before refusal, from a part of a limit on.
type EdgeSoft struct {
	From   float64
	Header string // "": edge.SoftHeader
}

// EdgePause is a pause that grows; all zero values are the defaults of edge.Pause.
type EdgePause struct {
	Limit             string
	After             int64
	Base, Max, Forget time.Duration
	Factor            float64
}

// EdgeAnswer is how a rule refuses, and which headers it sets.
type EdgeAnswer struct {
	Status       int // 0: 429
	NoRateLimit  bool
	NoXRateLimit bool
	Legacy       bool
	Epoch        bool
	Jitter       time.Duration
	Page         string // "": problem+json
	PageType     string // "": HTML
}

// edge is the section, made when its first field is set.
func (c *Config) edge() *Edge {
	if c.Edge == nil {
		c.Edge = &Edge{}
	}
	return c.Edge
}

// edgeFields have a variable each. Rules are for files only.
var edgeFields = []*field{
	{"edge.trusted_proxies", "", list, "addresses of your proxies, such as 10.0.0.0/8, 192.0.2.1, loopback or private", setProxies},
	{"edge.client_header", "", word, "the header in which the proxies say whom a request is from, such as X-Forwarded-For or CF-Connecting-IP",
		setHeader(func(c *Config) *string { return &c.edge().ClientHeader })},
	{"edge.ipv6_prefix", "", integer, "how many bits of an IPv6 address count, such as 64", setPrefix},
	{"edge.account_header", "", word, "the header in which the proxies say who is logged in, such as X-User",
		setHeader(func(c *Config) *string { return &c.edge().AccountHeader })},
	{"edge.fail_open", "", boolean, "true or false", setBool(func(c *Config) *bool { return &c.edge().FailOpen })},
}

func setProxies(c *Config, v []string) (err error) {
	c.edge().TrustedProxies, err = clientip.ParseProxies(v)
	return err
}

func setHeader(at func(*Config) *string) func(*Config, []string) error {
	return func(c *Config, v []string) error {
		if err := checkHeader(v[0]); err != nil {
			return err
		}
		*at(c) = v[0]
		return nil
	}
}

func setPrefix(c *Config, v []string) error {
	n, err := parseWhole(v[0], 1)
	if err == nil {
		c.edge().IPv6Prefix = int(n)
		_, err = clientip.New(clientip.Config{IPv6Prefix: int(n)})
	}
	return err
}

// placedUse is a use with where it was written, to be judged when all limits are known.
type placedUse struct {
	EdgeUse
	path                          string
	limit, plan, cost, candidates place
}

// checkEdge judges what concerns more than one field.
func (l *loader) checkEdge() {
	e := l.cfg.Edge
	if e == nil {
		return
	}
	for _, f := range []string{"edge.client_header", "edge.account_header"} {
		if at, ok := l.at[f]; ok && len(e.TrustedProxies) == 0 {
			l.problem(at, f, "nobody is believed as long as no proxy is trusted: name your proxies in trusted_proxies, or remove it")
		}
	}
	for _, u := range l.uses {
		l.checkUse(u)
	}
}

// limitOf finds the limit that something at a place names.
func (l *loader) limitOf(name string, at place, path string) (jatah.Limit, bool) {
	var names []string
	for _, x := range l.cfg.Limits {
		if x.Name == name {
			return x, true
		}
		names = append(names, x.Name)
	}
	l.problem(at, path, "no limit is named %q: %s", shorten(name), among(name, names, "define it under limits"))
	return jatah.Limit{}, false
}

func (l *loader) checkUse(u placedUse) {
	for _, name := range u.Candidates {
		l.limitOf(name, u.candidates, u.path+".candidates")
	}
	limit, ok := l.limitOf(u.Limit, u.limit, u.path+".limit")
	switch {
	case !ok:
		return
	case limit.Algorithm == jatah.Concurrency:
		l.problem(u.limit, u.path+".limit", "%q counts requests in flight, and who asks by forward auth does not tell when one is over: "+
			"use a limit that has a rate, or the middleware in Go", u.Limit)
		return
	case limit.Queued():
		l.problem(u.limit, u.path+".limit", "%q has a queue, and a proxy does not wait: use a limit without", u.Limit)
		return
	}
	if _, ok := limit.Plans[u.Plan]; u.Plan != "" && !ok && !strings.HasPrefix(u.Plan, "header:") {
		names := slices.Sorted(maps.Keys(limit.Plans))
		l.problem(u.plan, u.path+".plan", "the limit %q has no plan %q: %s", u.Limit, shorten(u.Plan), among(u.Plan, names, "it has none at all"))
	}
	if u.Cost != nil && u.Cost.most() > mostOf(limit) {
		l.problem(u.cost, u.path+".cost", "the limit %q never lets more than %d pass at once: write that or less", u.Limit, mostOf(limit))
	}
}

// mostOf is the most that passes at once, of any key under any plan.
func mostOf(l jatah.Limit) int64 {
	most := l.Capacity()
	amounts := slices.Collect(maps.Values(l.Plans))
	for _, o := range l.Overrides {
		if o.Rate != (jatah.Rate{}) || len(o.Rates) > 0 {
			amounts = append(amounts, jatah.Plan{Rate: o.Rate, Rates: o.Rates, Burst: o.Burst})
		}
	}
	for _, p := range amounts {
		one := l
		one.Rate, one.Rates, one.Burst = p.Rate, p.Rates, p.Burst
		most = max(most, one.Capacity())
	}
	return most
}

// among offers what a name was meant to be.
func among(name string, known []string, none string) string {
	switch near := nearest(name, known); {
	case near != "":
		return fmt.Sprintf("did you mean %q?", near)
	case len(known) == 0:
		return none
	}
	return "there are " + strings.Join(known, ", ")
}

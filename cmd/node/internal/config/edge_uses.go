package config

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"
	"github.com/jatah-io/jatah"
	"github.com/jatah-io/jatah/httpapi/edge"
)

func (w *walker) use(n ast.Node, path string) EdgeUse {
	u := placedUse{path: path}
	if !isMapping(n) {
		w.problem(n, path, "needs fields, as in {limit: api, key: [address]}; this is %s", describe(n))
		return u.EdgeUse
	}
	before := len(w.loader.problems)
	for _, e := range w.entries(n, path) {
		at := under(path, e.key)
		switch e.key {
		case "limit":
			u.limit = w.place(e.value)
			w.filled(e, at, "the name of a limit, such as api", &u.Limit)
		case "key":
			u.Key = w.words(e.value, at, "parts of a key such as account, address or header:X-Api-Key", checkPart)
		case "plan":
			u.plan = w.place(e.value)
			if w.filled(e, at, "the name of a plan, or header:X-Plan", &u.Plan); strings.HasPrefix(u.Plan, "header:") {
				w.judge(e, at, checkHeader(strings.TrimPrefix(u.Plan, "header:")))
			}
		case "cost":
			u.cost = w.place(e.value)
			u.Cost = w.cost(e, at)
		case "candidates":
			u.candidates = w.place(e.value)
			u.Candidates = w.words(e.value, at, "names of limits", func(s string) error { return probe(jatah.Limit{Name: s}) })
		default:
			w.noField(e, at, "a use", useFields)
		}
	}
	switch {
	case len(w.loader.problems) > before:
		return u.EdgeUse
	case u.Limit == "":
		w.problem(n, path, "has no limit: add `limit: ` with the name of one")
	case len(u.Key) == 0:
		w.problem(n, path, "has no key: add `key: ` with whose usage counts, such as [account] or [address]")
	default:
		w.loader.uses = append(w.loader.uses, u)
	}
	return u.EdgeUse
}

// cost reads a number, or how to find one in the query.
func (w *walker) cost(e entry, path string) *EdgeCost {
	c := &EdgeCost{}
	if !isMapping(e.value) {
		w.whole(e, path, "a whole number of tokens, or {query: rows, per: 500}", 0, &c.Tokens)
		return c
	}
	before := len(w.loader.problems)
	for _, f := range w.entries(e.value, path) {
		at := under(path, f.key)
		switch f.key {
		case "query":
			w.filled(f, at, "the name of a parameter, such as rows", &c.Query)
		case "per":
			w.whole(f, at, "how many are one token, such as 500", 1, &c.Per)
		case "min":
			w.whole(f, at, "the least cost, in tokens", 1, &c.Min)
		case "max":
			w.whole(f, at, "the highest cost, in tokens", 1, &c.Max)
		case "missing":
			w.whole(f, at, "the cost without the parameter, in tokens", 1, &c.Missing)
		case "values":
			c.Values = w.table(f, at)
		default:
			w.noField(f, at, "a cost", costFields)
		}
	}
	switch bounded := c.Min > 0 || c.Max > 0 || c.Missing > 0; {
	case len(w.loader.problems) > before:
	case c.Query == "":
		w.problem(e.value, path, "has no query: add `query: ` with the name of a parameter; a body cannot be read here, as proxies do not send it")
	case c.Per > 0 == (c.Values != nil):
		w.problem(e.value, path, "needs either per, as in {query: rows, per: 500}, or values, as in {query: deep_scan, values: {\"true\": 5}}")
	case c.Values != nil && bounded:
		w.problem(e.value, path, "has values, with which min, max and missing mean nothing: remove them; the cost without the parameter is the value \"\"")
	case c.Max > 0 && c.Max < max(c.Min, c.Missing):
		w.problem(e.value, path, "has a max below its min or missing: raise it")
	}
	return c
}

// table reads costs by value.
func (w *walker) table(e entry, path string) map[string]int64 {
	const want = `values with their costs, as in {"true": 5}`
	if !isMapping(e.value) {
		w.problem(e.value, path, "needs %s; this is %s", want, describe(e.value))
		return nil
	}
	table := map[string]int64{}
	for _, f := range w.entries(e.value, path) {
		var cost int64
		w.whole(f, under(path, f.key), "a whole number of tokens, such as 5", 0, &cost)
		table[f.key] = cost
	}
	if len(table) == 0 {
		w.problem(e.value, path, "is empty: write %s", want)
	}
	return table
}

func (w *walker) soft(n ast.Node, path string) *EdgeSoft {
	s, given := &EdgeSoft{}, false
	for _, e := range w.entries(n, path) {
		at := under(path, e.key)
		switch e.key {
		case "from":
			given = true
			if values, ok := w.values(e, at, number, "a part of the limit, such as 0.8"); ok {
				var err error
				if s.From, err = strconv.ParseFloat(values[0], 64); err == nil && !(s.From > 0 && s.From < 1) {
					err = fmt.Errorf("%s is no part of a limit: write more than 0 and less than 1, such as 0.8", values[0])
				}
				w.judge(e, at, err)
			}
		case "header":
			w.filled(e, at, "the name of a header such as "+edge.SoftHeader, &s.Header)
			w.judge(e, at, checkHeader(cmp.Or(s.Header, edge.SoftHeader)))
		default:
			w.noField(e, at, "soft", softFields)
		}
	}
	if !given {
		w.problem(n, path, "has no from: add `from: ` with the part of the limit from which on the application is told, such as 0.8")
	}
	return s
}

func (w *walker) pause(n ast.Node, path string) *EdgePause {
	p := &EdgePause{}
	for _, e := range w.entries(n, path) {
		at := under(path, e.key)
		switch e.key {
		case "limit":
			w.filled(e, at, "the name of one of the limits of the rule", &p.Limit)
		case "after":
			w.whole(e, at, "how many refusals make a pause, such as 10", 1, &p.After)
		case "base":
			w.span(e, at, time.Millisecond, &p.Base)
		case "max":
			w.span(e, at, time.Millisecond, &p.Max)
		case "forget":
			w.span(e, at, time.Millisecond, &p.Forget)
		case "factor":
			if values, ok := w.values(e, at, number, "a factor such as 2"); ok {
				f, err := strconv.ParseFloat(values[0], 64)
				if err == nil && f < 1 {
					err = fmt.Errorf("%s is too small: write 1 or more", values[0])
				}
				w.judge(e, at, err)
				p.Factor = f
			}
		default:
			w.noField(e, at, "a pause", pauseFields)
		}
	}
	if p.Max > 0 && p.Base > p.Max {
		w.problem(n, path, "begins with %v, which is longer than the longest, %v", p.Base, p.Max)
	}
	return p
}

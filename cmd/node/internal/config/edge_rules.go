package config

import (
	"fmt"
	"mime"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"
	"github.com/jatah-io/jatah"
)

var (
	ruleFields   = []string{"name", "for", "path", "method", "header", "cookie", "not", "use", "exempt", "dry_run", "soft", "pause", "answer"}
	matchFields  = []string{"path", "method", "header", "cookie"}
	useFields    = []string{"limit", "key", "plan", "cost", "candidates"}
	costFields   = []string{"query", "per", "min", "max", "missing", "values"}
	softFields   = []string{"from", "header"}
	pauseFields  = []string{"limit", "after", "base", "max", "factor", "forget"}
	answerFields = []string{"status", "ratelimit", "x_ratelimit", "legacy", "reset", "jitter", "page", "content_type"}
)

// elsewhere are fields that a rule in Go has and one in a file cannot, with the reason.
var elsewhere = map[string]string{
	"after":  "what a request costs when it is over cannot be charged here: who asks by forward auth does not tell when that is; use the middleware in Go, or POST /v1/charge",
	"counts": "whether a request counts cannot depend on its answer here: who asks by forward auth does not tell it; use the middleware in Go, or POST /v1/refund",
	"body":   "a body cannot be read here, as proxies do not send it: take a parameter of the query, or use the middleware in Go",
	"status": "whether a request counts cannot depend on its answer here: who asks by forward auth does not tell it; use the middleware in Go, or POST /v1/refund",
}

// items are the elements of a list that must have some.
func (w *walker) items(n ast.Node, path, want string) []ast.Node {
	seq, ok := n.(*ast.SequenceNode)
	if _, null := n.(*ast.NullNode); null || ok && len(seq.Values) == 0 {
		w.problem(n, path, "is empty: write %s, or remove the line", want)
		return nil
	}
	if !ok {
		w.problem(n, path, "needs %s; this is %s", want, describe(n))
		return nil
	}
	return seq.Values
}

func (w *walker) rules(n ast.Node) {
	if _, empty := n.(*ast.NullNode); empty {
		return
	}
	edge := w.loader.cfg.edge()
	if seq, ok := n.(*ast.SequenceNode); ok && len(seq.Values) == 0 {
		return
	}
	first := map[string]ast.Node{}
	for i, item := range w.items(n, edgeRulesPath, "a list, each rule beginning with `- name: `") {
		path := fmt.Sprintf("%s[%d]", edgeRulesPath, i)
		before := len(w.loader.problems)
		r, given := w.rule(item, path)
		if len(w.loader.problems) > before {
			continue
		}
		if at := first[r.Name]; at != nil {
			w.problem(given["name"], under(path, "name"), "two rules are named %q, here and at %s: rename one", r.Name, w.place(at))
			continue
		}
		first[r.Name] = item
		edge.Rules = append(edge.Rules, r)
	}
}

// rule reads one, and returns where its fields stand.
func (w *walker) rule(n ast.Node, path string) (r EdgeRule, given map[string]ast.Node) {
	given = map[string]ast.Node{}
	if _, empty := n.(*ast.NullNode); empty {
		w.problem(n, path, "is empty: give it a name and what it uses, or remove the dash")
		return r, given
	}
	before, exempt := len(w.loader.problems), false
	for _, e := range w.entries(n, path) {
		given[e.key] = e.node
		at := under(path, e.key)
		switch e.key {
		case "name":
			if w.filled(e, at, "a name such as api", &r.Name); r.Name != "" {
				w.judge(e, at, probe(jatah.Limit{Name: r.Name})) // what is good for a limit is good for a metric
			}
		case "for":
			if w.oneOf(e, at, &r.For, "anonymous", "authenticated", "everyone"); r.For == "everyone" {
				r.For = ""
			}
		case "path", "method", "header", "cookie":
			w.match(&r.When, e, at)
		case "not":
			r.Not = w.not(e, at)
		case "use":
			for i, item := range w.items(e.value, at, "a list, as in [{limit: api, key: [address]}]") {
				r.Use = append(r.Use, w.use(item, fmt.Sprintf("%s[%d]", at, i)))
			}
		case "exempt":
			w.truth(e, at, &exempt)
		case "dry_run":
			w.truth(e, at, &r.DryRun)
		case "soft":
			r.Soft = w.soft(e.value, at)
		case "pause":
			r.Pause = w.pause(e.value, at)
		case "answer":
			r.Answer = w.answer(e.value, at)
		default:
			w.noField(e, at, "a rule", ruleFields)
		}
	}
	switch {
	case len(w.loader.problems) > before:
	case given["name"] == nil:
		w.problem(n, path, "has no name: add `name: ` with a word for metrics and logs, such as api")
	case exempt && given["use"] != nil:
		w.problem(given["exempt"], under(path, "exempt"), "the rule uses limits too: keep one of the two")
	case !exempt && given["use"] == nil:
		w.problem(n, path, "uses no limit: add `use: [{limit: ..., key: [address]}]`, or `exempt: true` if nothing is to be counted")
	case exempt && (given["dry_run"] != nil || given["soft"] != nil || given["pause"] != nil || given["answer"] != nil):
		w.problem(n, path, "refuses nobody, as exempt: remove dry_run, soft, pause and answer")
	case r.Pause != nil && r.Pause.Limit != "" && !slices.ContainsFunc(r.Use, func(u EdgeUse) bool { return u.Limit == r.Pause.Limit }):
		w.problem(given["pause"], under(path, "pause"), "counts refusals by %q, which the rule does not use: name one of its limits", shorten(r.Pause.Limit))
	}
	return r, given
}

func (w *walker) noField(e entry, path, what string, known []string) {
	if why, ok := elsewhere[e.key]; ok {
		w.problem(e.node, path, "%s", why)
		return
	}
	w.problem(e.node, path, "%s", unknownField(e.key, "a field of "+what, known, nil))
}

// judge reports what is wrong with a value that could be read.
func (w *walker) judge(e entry, path string, err error) {
	if err != nil {
		w.problem(e.value, path, "%s", plain(err))
	}
}

func (w *walker) truth(e entry, path string, to *bool) {
	if values, ok := w.values(e, path, boolean, "true or false"); ok {
		*to = values[0] == "true"
	}
}

func (w *walker) oneOf(e entry, path string, to *string, words ...string) {
	w.filled(e, path, strings.Join(words[:len(words)-1], ", ")+" or "+words[len(words)-1], to)
	if *to != "" && !slices.Contains(words, *to) {
		w.problem(e.value, path, "%q is none of them: %s", shorten(*to), among(*to, words, ""))
		*to = ""
	}
}

// match reads one of the four lists.
func (w *walker) match(m *EdgeMatch, e entry, path string) {
	lists := map[string]struct {
		to    *[]string
		want  string
		check func(string) error
	}{
		"path":   {&m.Path, "paths such as /api/*", checkPath},
		"method": {&m.Method, "methods such as POST", checkMethod},
		"header": {&m.Header, "names of headers such as X-Api-Key, or X-Env=test for one value", checkHeaderIs},
		"cookie": {&m.Cookie, "names of cookies such as sid", checkCookie},
	}
	l := lists[e.key]
	*l.to = w.words(e.value, path, l.want, l.check)
}

// words reads a list of words, or a single one.
func (w *walker) words(n ast.Node, path, want string, check func(string) error) (out []string) {
	nodes := []ast.Node{n}
	if one, ok := scalar(n, word); !ok {
		nodes = w.items(n, path, "a list of "+want)
	} else if one == "" {
		w.problem(n, path, "is empty: write %s", want)
		return nil
	}
	for _, item := range nodes {
		value, ok := scalar(item, word)
		if !ok {
			value, ok = unsplit(item)
		}
		if !ok {
			w.problem(item, path, "needs %s; this is %s%s", want, describe(item), quoteHint(item, text))
			continue
		}
		if err := check(value); err != nil {
			w.problem(item, path, "%s", plain(err))
			continue
		}
		out = append(out, value)
	}
	return out
}

func (w *walker) not(e entry, path string) (m EdgeMatch) {
	if !isMapping(e.value) {
		w.problem(e.value, path, "needs fields, as in {path: [/health]}; this is %s", describe(e.value))
		return m
	}
	for _, f := range w.entries(e.value, path) {
		if !slices.Contains(matchFields, f.key) {
			w.noField(f, under(path, f.key), "not", matchFields)
			continue
		}
		w.match(&m, f, under(path, f.key))
	}
	return m
}

func (w *walker) answer(n ast.Node, path string) *EdgeAnswer {
	a := &EdgeAnswer{}
	for _, e := range w.entries(n, path) {
		at := under(path, e.key)
		switch e.key {
		case "status":
			if values, ok := w.values(e, at, integer, "a status such as 429"); ok {
				status, err := parseWhole(values[0], 400)
				if err == nil && (status > 599 || status == http.StatusUnauthorized) {
					err = fmt.Errorf("%d is no refusal: write 429, or another status from 400 to 599 but 401", status)
				}
				a.Status = int(status)
				w.judge(e, at, err)
			}
		case "ratelimit":
			w.omit(e, at, &a.NoRateLimit)
		case "x_ratelimit":
			w.omit(e, at, &a.NoXRateLimit)
		case "legacy":
			w.truth(e, at, &a.Legacy)
		case "reset":
			var form string
			w.oneOf(e, at, &form, "seconds", "epoch")
			a.Epoch = form == "epoch"
		case "jitter":
			w.span(e, at, 0, &a.Jitter)
		case "page":
			w.filled(e, at, "the page itself, as text", &a.Page)
		case "content_type":
			w.filled(e, at, "the type of the page, such as text/plain; charset=utf-8", &a.PageType)
			if _, _, err := mime.ParseMediaType(a.PageType); a.PageType != "" && err != nil {
				w.problem(e.value, at, "%q is no type: write one such as text/plain; charset=utf-8", shorten(a.PageType))
			}
		default:
			w.noField(e, at, "answer", answerFields)
		}
	}
	if a.PageType != "" && a.Page == "" {
		w.problem(n, path, "content_type is that of page, which is missing: write it, or remove content_type")
	}
	return a
}

// omit reads what is on unless it is turned off.
func (w *walker) omit(e entry, path string, off *bool) {
	on := true
	w.truth(e, path, &on)
	*off = !on
}

// whole reads a number.
func (w *walker) whole(e entry, path, want string, least int64, to *int64) {
	if values, ok := w.values(e, path, integer, want); ok {
		n, err := parseWhole(values[0], least)
		w.judge(e, path, err)
		*to = n
	}
}

func (w *walker) span(e entry, path string, least time.Duration, to *time.Duration) {
	if values, ok := w.values(e, path, duration, "a duration such as 5s"); ok {
		d, err := parseDuration(values[0], least)
		w.judge(e, path, err)
		*to = d
	}
}

package config

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
	"github.com/jatah-io/jatah"
)

// The document is walked node by node instead of being decoded into a struct:
// only so does every mistake, including one that needs two places to explain,
// have its line and column, and only so are all of them found at once.

// readDocument reads the YAML file.
func (l *loader) readDocument(name string, data []byte) {
	l.readYAML(name, data, func(w *walker, body ast.Node) { w.section(body, "") })
}

// readYAML reads the one document of a YAML file, if it has any.
func (l *loader) readYAML(name string, data []byte, read func(w *walker, body ast.Node)) {
	if i := invalidUTF8(data); i >= 0 {
		line := 1 + strings.Count(string(data[:i]), "\n")
		column := i - strings.LastIndexByte(string(data[:i]), '\n')
		l.problem(place{inFile, name, line, column}, "", "the file is not UTF-8 text: save it as UTF-8")
		return
	}
	data = bytes.TrimPrefix(data, []byte("\ufeff")) // some editors put a byte order mark before UTF-8; YAML allows it
	// Keys given twice are found in the walk, which names both places.
	file, err := parser.ParseBytes(data, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		l.problem(syntaxPlace(name, err), "", "%s", syntaxText(err))
		return
	}
	w := &walker{loader: l, name: name}
	seen := false
	for _, doc := range file.Docs {
		if doc.Body == nil {
			continue
		}
		if seen {
			l.problem(w.place(doc.Body), "", "a second document begins here: keep one, without a line ---")
			return
		}
		seen = true
		read(w, doc.Body)
	}
}

func invalidUTF8(data []byte) int {
	for i := 0; i < len(data); {
		r, n := utf8.DecodeRune(data[i:])
		if r == utf8.RuneError && n == 1 {
			return i
		}
		i += n
	}
	return -1
}

func syntaxPlace(name string, err error) place {
	at := place{layer: inFile, source: name, line: 1, column: 1}
	var e yaml.Error
	if errors.As(err, &e) && e.GetToken() != nil {
		at = tokenPlace(name, e.GetToken())
	}
	return at
}

func syntaxText(err error) string {
	var e yaml.Error
	if errors.As(err, &e) {
		return "this is not YAML: " + e.GetMessage()
	}
	return "this is not YAML: " + err.Error()
}

func tokenPlace(name string, t *token.Token) place {
	at := place{layer: inFile, source: name, line: 1, column: 1}
	if t != nil && t.Position != nil {
		at.line, at.column = max(1, t.Position.Line), max(1, t.Position.Column)
	}
	return at
}

// walker reads one document into the loader.
type walker struct {
	loader *loader
	name   string
}

// place is where a node begins; a mapping begins at its first key.
func (w *walker) place(n ast.Node) place {
	switch n := n.(type) {
	case *ast.MappingNode:
		if len(n.Values) > 0 && !n.IsFlowStyle {
			return w.place(n.Values[0].Key)
		}
	case *ast.MappingValueNode:
		return w.place(n.Key)
	}
	return tokenPlace(w.name, n.GetToken())
}

func (w *walker) problem(n ast.Node, path, format string, args ...any) {
	w.loader.problem(w.place(n), path, format, args...)
}

// entry is one key and its value.
type entry struct {
	key   string
	node  ast.Node // the key
	value ast.Node
}

// entries are the keys of a mapping, without those that are not names or are
// given twice, which are reported. An empty value (null) is an empty mapping:
// that is what remains when all lines under a heading are commented out.
func (w *walker) entries(n ast.Node, path string) []entry {
	var values []*ast.MappingValueNode
	switch n := n.(type) {
	case *ast.NullNode:
		return nil
	case *ast.MappingNode:
		values = n.Values
	case *ast.MappingValueNode:
		values = []*ast.MappingValueNode{n}
	default:
		w.problem(n, path, "needs fields, one `name: value` a line; this is %s", describe(n))
		return nil
	}
	var out []entry
	for _, v := range values {
		key, ok := v.Key.(*ast.StringNode)
		if !ok {
			w.problem(v.Key, path, "a field's name must be a plain word; this is %s", describe(v.Key))
			continue
		}
		first := slices.IndexFunc(out, func(e entry) bool { return e.key == key.Value })
		if first >= 0 {
			w.problem(key, under(path, key.Value), "is given twice, here and at %s: keep one", w.place(out[first].node))
			continue
		}
		out = append(out, entry{key: key.Value, node: key, value: v.Value})
	}
	return out
}

func under(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// section reads the top level (path ""), or the section cluster or edge.
func (w *walker) section(n ast.Node, path string) {
	for _, e := range w.entries(n, path) {
		full := under(path, e.key)
		switch {
		case full == "cluster":
			w.section(e.value, full)
		case full == edgePath:
			w.section(e.value, full)
		case full == edgeRulesPath:
			w.rules(e.value)
		case full == edgeAnswerPath:
			w.loader.cfg.edge().Answer = w.answer(e.value, full)
		case full == limitsPath:
			w.limits(e.value)
		default:
			f := fieldOf(nodeFields, full)
			if f == nil || strings.Contains(e.key, ".") {
				where, others := "a top-level field", map[string]string{}
				if path != "" {
					where = "a field of " + path
				}
				for _, other := range nodeFields {
					section, name, ok := strings.Cut(other.path, ".")
					if !ok {
						section, name = "", other.path
					}
					if section != path {
						others[name] = section
					}
				}
				w.problem(e.node, full, "%s", unknownField(e.key, where, sectionNames(path), others))
				continue
			}
			if values, ok := w.values(e, full, f.kind, f.want); ok {
				w.loader.set(w.place(e.value), f, values)
			}
		}
	}
}

func sectionNames(path string) []string {
	var names []string
	for _, f := range nodeFields {
		section, name, ok := strings.Cut(f.path, ".")
		if !ok {
			section, name = "", f.path
		}
		if section == path {
			names = append(names, name)
		}
	}
	if path == "" {
		names = append(names, "cluster", limitsPath, edgePath)
	}
	if path == edgePath {
		names = append(names, "answer", "rules")
	}
	return names
}

// unknownField says what a name that is no field was meant to be. Others maps
// the fields of other sections to their section.
func unknownField(name, where string, known []string, others map[string]string) string {
	text := fmt.Sprintf("%q is not %s", shorten(name), where)
	if section, ok := others[name]; ok {
		if section == "" {
			return text + ": it belongs at the top level, not indented"
		}
		return text + ": it belongs under " + section
	}
	if near := nearest(name, known); near != "" {
		return fmt.Sprintf("%s: did you mean %q?", text, near)
	}
	return text + "; there are " + strings.Join(known, ", ")
}

func (w *walker) limits(n ast.Node) {
	if _, empty := n.(*ast.NullNode); empty {
		return
	}
	seq, ok := n.(*ast.SequenceNode)
	if !ok {
		w.problem(n, limitsPath, "needs a list, each limit beginning with `- name: `; this is %s", describe(n))
		return
	}
	for i, item := range seq.Values {
		w.limit(item, i)
	}
}

func (w *walker) limit(n ast.Node, index int) {
	path := fmt.Sprintf("%s[%d]", limitsPath, index)
	if _, empty := n.(*ast.NullNode); empty {
		w.problem(n, path, "is empty: give it a name and a rate, or remove the dash")
		return
	}
	before := len(w.loader.problems)
	var limit jatah.Limit
	var costs []entry
	var fits []fit
	given := map[string]bool{}
	entries := w.entries(n, path)
	for _, e := range entries {
		given[e.key] = true
		f := limitFieldOf(e.key)
		if f == nil {
			w.problem(e.node, under(path, e.key), "%s", unknownField(e.key, "a field of a limit", limitFieldNames(), nil))
			continue
		}
		switch e.key {
		case costsField:
			costs = w.costs(e.value, under(path, e.key), &limit)
			continue
		case plansField:
			fits = append(fits, w.plans(e.value, under(path, e.key), &limit)...)
			continue
		case overridesField:
			fits = append(fits, w.overrides(e.value, under(path, e.key), &limit, planNames(entries))...)
			continue
		}
		w.setLimit(&limit, e, under(path, e.key), f)
	}
	if len(w.loader.problems) > before {
		return
	}
	given["rate"] = given["rate"] || given["rates"]
	for _, name := range []string{"name", "rate"} {
		if !given[name] && (name == "name" || limit.Algorithm != jatah.Concurrency) { // of permits there is no rate
			w.problem(n, path, "has no %s: add `%s: ` with %s", name, name, limitFieldOf(name).want)
			return
		}
	}
	if w.fitAmounts(fits, limit); len(w.loader.problems) > before {
		return
	}
	if w.fitCosts(costs, under(path, costsField), limit); len(w.loader.problems) > before {
		return
	}
	if err := limit.Validate(); err != nil {
		text := verdict(err, limit.Name)
		if i := slices.IndexFunc(entries, func(e entry) bool { return strings.HasPrefix(text, e.key+" ") }); i >= 0 {
			w.problem(entries[i].node, under(path, entries[i].key), "%s", text)
			return
		}
	}
	w.loader.addLimit(w.place(n), limit)
}

// setLimit gives a limit the value of one field, or each element of its list.
func (w *walker) setLimit(limit *jatah.Limit, e entry, path string, f *limitField) {
	nodes := []ast.Node{e.value}
	if seq, isList := e.value.(*ast.SequenceNode); isList {
		nodes = seq.Values
	}
	if _, null := e.value.(*ast.NullNode); f.kind == list && (null || len(nodes) == 0) {
		w.problem(e.value, path, "is empty: write a list of %s, or remove the line", f.want)
		return
	}
	values, ok := w.values(e, path, f.kind, f.want)
	if !ok {
		return
	}
	for i, value := range values {
		if err := f.set(limit, value); err != nil {
			w.problem(nodes[i], path, "%s", plain(err))
		}
	}
}

// values reads the value of a field, which must be of its kind.
func (w *walker) values(e entry, path string, k kind, want string) ([]string, bool) {
	if k == list {
		return w.listValues(e.value, path, want)
	}
	value, ok := scalar(e.value, k)
	if !ok {
		found := describe(e.value) + quoteHint(e.value, k)
		if path == secretPath {
			found = "not a text: put it in quotes" // the value is nobody's business
		}
		w.problem(e.value, path, "needs %s; this is %s", want, found)
		return nil, false
	}
	return []string{value}, true
}

func (w *walker) listValues(n ast.Node, path, want string) ([]string, bool) {
	if _, empty := n.(*ast.NullNode); empty {
		return nil, false
	}
	seq, ok := n.(*ast.SequenceNode)
	if !ok {
		w.problem(n, path, "needs a list of %s, as in [a, b]; this is %s", want, describe(n))
		return nil, false
	}
	out := []string{}
	for _, item := range seq.Values {
		value, isText := scalar(item, word)
		if !isText {
			value, isText = unsplit(item)
		}
		if !isText {
			w.problem(item, path, "needs %s; this is %s", want, describe(item))
			ok = false
			continue
		}
		out = append(out, value)
	}
	return out, ok
}

// unsplit undoes what the parser does to host:port in a list inside braces,
// {join: [10.0.0.1:7946]}: it takes the colon for that of a key, which by the
// YAML specification it is only when white space follows.
func unsplit(n ast.Node) (string, bool) {
	m, ok := n.(*ast.MappingNode)
	if !ok || m.IsFlowStyle || len(m.Values) != 1 {
		return "", false
	}
	key, colon, value := m.Values[0].Key.GetToken(), m.Values[0].Start, m.Values[0].Value.GetToken()
	if key.Position.Line != value.Position.Line || key.Type != token.StringType ||
		colon.Position.Column != key.Position.Column+len(key.Value) || value.Position.Column != colon.Position.Column+1 {
		return "", false
	}
	switch m.Values[0].Value.(type) {
	case *ast.StringNode, *ast.IntegerNode:
		return key.Value + ":" + value.Value, true
	}
	return "", false
}

// scalar is the value of a node as it is written, if it is of the kind.
func scalar(n ast.Node, k kind) (string, bool) {
	switch n := n.(type) {
	case *ast.StringNode:
		return n.Value, k == text || k == word || k == duration
	case *ast.LiteralNode:
		return n.Value.Value, k == text || k == word
	case *ast.IntegerNode:
		return n.Token.Value, k == integer || k == number
	case *ast.FloatNode:
		return n.Token.Value, k == number
	case *ast.BoolNode:
		return n.Token.Value, k == boolean
	}
	return "", false
}

// quoteHint says how to write as text what YAML takes for something else.
func quoteHint(n ast.Node, k kind) string {
	if k != text {
		return ""
	}
	switch n.(type) {
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		return fmt.Sprintf(" (in quotes it is text: %q)", n.GetToken().Value)
	}
	return ""
}

func describe(n ast.Node) string {
	switch n := n.(type) {
	case *ast.NullNode:
		return "empty"
	case *ast.StringNode:
		return fmt.Sprintf("the text %q", shorten(n.Value))
	case *ast.LiteralNode:
		return "a text of several lines"
	case *ast.IntegerNode, *ast.FloatNode, *ast.InfinityNode, *ast.NanNode:
		return "the number " + shorten(n.GetToken().Value)
	case *ast.BoolNode:
		return n.Token.Value
	case *ast.SequenceNode:
		return "a list"
	case *ast.MappingNode, *ast.MappingValueNode:
		return "a group of fields"
	case *ast.AnchorNode, *ast.AliasNode, *ast.MergeKeyNode:
		return "an anchor or alias, which are not read: write the value out"
	case *ast.TagNode:
		return "a tag, which are not read: write the value alone"
	}
	return "something else"
}

// shorten cuts what YAML takes for a word and may be a screenful.
func shorten(s string) string {
	if len(s) > 40 {
		return strings.ToValidUTF8(s[:40], "") + "..."
	}
	return s
}

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
	if line := tooDeep(data); line > 0 {
		l.problem(place{inFile, name, line, 1}, "", "more than %d lists and groups are open within each other: that is no configuration", mostNested)
		return
	}
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

// mostNested bounds how deep lists and groups may be within each other: what the parser takes grows with the square of it, so that a file of a few
// megabytes of opening brackets would keep it busy for hours.
const mostNested = 1000

// tooDeep is the line in which too much is open, 0 if there is none. It counts brackets wherever they stand, also in texts and comments, and
// the marks of lists and keys with which a line begins.
func tooDeep(data []byte) int {
	open, line := 0, 1
	for text := range bytes.Lines(data) {
		marks, begin := 0, true
		for _, c := range text {
			switch c {
			case '[', '{':
				open++
			case ']', '}':
				open = max(0, open-1)
			case '-', '?':
				if begin {
					marks++
				}
			}
			begin = begin && (c == '-' || c == '?' || c == ' ' || c == '\t')
			if open > mostNested || marks > mostNested {
				return line
			}
		}
		line++
	}
	return 0
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

// entries are the keys of a mapping, see [definition.Reader.Entries].
func (w *walker) entries(n ast.Node, path string) (out []entry) {
	for _, e := range w.reader().Entries(valueOf(n), path) {
		out = append(out, entry{key: e.Name, node: nodeOf(e.At), value: nodeOf(e.Value)})
	}
	return out
}

// section reads the top level (path ""), or the section cluster or edge.
func (w *walker) section(n ast.Node, path string) {
	for _, e := range w.entries(n, path) {
		full := under(path, e.key)
		switch {
		case full == "cluster", full == tlsPath:
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
		names = append(names, "cluster", tlsPath, limitsPath, edgePath)
	}
	if path == edgePath {
		names = append(names, "answer", "rules")
	}
	return names
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
	if limit, ok := w.reader().Limit(valueOf(n), fmt.Sprintf("%s[%d]", limitsPath, index)); ok {
		w.loader.addLimit(w.place(n), limit)
	}
}

// values reads the value of a field, which must be of its kind.
func (w *walker) values(e entry, path string, k kind, want string) ([]string, bool) {
	if hidden(path) && !texts(e.value) { // the value is nobody's business
		w.problem(e.value, path, "needs %s; this is not a text: put it in quotes", want)
		return nil, false
	}
	if value, ok := scalar(e.value, word); ok && path == minVersionPath { // a number, which some write as a text
		return []string{value}, true
	}
	return w.reader().Values(valueOf(e.value), path, k, want)
}

// texts says whether a value is a text, or a list of texts.
func texts(n ast.Node) bool {
	if list, ok := n.(*ast.SequenceNode); ok {
		return !slices.ContainsFunc(list.Values, func(n ast.Node) bool { _, ok := scalar(n, text); return !ok })
	}
	_, ok := scalar(n, text)
	return ok
}

// filled reads a text that must not be empty.
func (w *walker) filled(e entry, path, want string, to *string) {
	w.reader().Filled(valueOf(e.value), path, want, to)
}

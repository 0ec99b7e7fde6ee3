package edge

import (
	"encoding/json"
	"strings"
)

// walk finds fields in what is known to be valid JSON. encoding/json has no way to see a name that is there twice without
// making values of everything.
type walk struct {
	b []byte
	i int
}

// value reads the value that comes next, and in it the field at the path.
func (w *walk) value(path []string, l leaf) (r reading) {
	switch c := w.peek(); {
	case c == '{':
		r.odd = len(path) == 0
		for w.more('}') {
			name := w.text()
			w.accept(':')
			if len(path) > 0 && strings.EqualFold(name, path[0]) {
				r.larger(w.value(path[1:], l))
			} else {
				w.skip()
			}
		}
	case c == '[':
		for w.more(']') {
			r.plus(w.value(path, l))
		}
	case len(path) > 0:
		w.skip()
	default:
		r = l.of(w.text())
	}
	return r
}

// peek is the next byte that is not a space.
func (w *walk) peek() byte {
	for w.b[w.i] == ' ' || w.b[w.i] == '\t' || w.b[w.i] == '\n' || w.b[w.i] == '\r' {
		w.i++
	}
	return w.b[w.i]
}

func (w *walk) accept(c byte) bool {
	if w.peek() != c {
		return false
	}
	w.i++
	return true
}

// more goes to the next member or element, or past the end of the object or array.
func (w *walk) more(end byte) bool {
	if w.accept(end) {
		return false
	}
	if !w.accept(',') {
		w.i++ // the beginning, with the first behind it
		return !w.accept(end)
	}
	return true
}

// text reads a scalar: what a string says, nothing for null, else what is written.
func (w *walk) text() string {
	w.peek()
	start := w.i
	w.skip()
	raw := w.b[start:w.i]
	if raw[0] == '"' {
		var s string
		_ = json.Unmarshal(raw, &s) // it is valid
		return s
	}
	if string(raw) == "null" {
		return ""
	}
	return string(raw)
}

// skip goes past a value.
func (w *walk) skip() {
	w.peek()
	for depth := 0; ; {
		switch w.b[w.i] {
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		case '"':
			for w.i++; w.b[w.i] != '"'; w.i++ {
				if w.b[w.i] == '\\' {
					w.i++
				}
			}
		default:
			if depth == 0 {
				w.literal()
				return
			}
		}
		if w.i++; depth == 0 {
			return
		}
	}
}

// literal goes past a number, true, false or null.
func (w *walk) literal() {
	for w.i < len(w.b) && !strings.ContainsRune(" \t\r\n,]}", rune(w.b[w.i])) {
		w.i++
	}
}

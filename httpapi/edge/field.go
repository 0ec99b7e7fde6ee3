package edge

import (
	"bytes"
	"encoding/json"
	"io"
	"mime"
	"mime/multipart"
	"net/url"
	"slices"
	"strings"
)

// Field is where in a request its cost is told: make it with [Query] or [Body] and a cost of it with Per or Table.
//
// Names are compared without regard to case, as encoding/json and many frameworks do, so that Rows=5000 does not cost what a request without
// rows does.
type Field struct {
	name  string
	path  []string
	body  bool
	bound int64
}

// Query is a field of the query.
func Query(name string) Field { return Field{name: name} }

// BodyBytes is how much of a body is read to find a field, unless Field.Within says otherwise.
const BodyBytes = 64 << 10

// Body is a field of a JSON body, such as "options.rows", or of a form: there the whole name is one field's. What the elements of an array have
// is added up, so that "queries.rows" is the sum over all queries. A body that is neither refuses the request with 400.
//
// The body is read before the request is admitted, up to [BodyBytes]; the handler gets it again unchanged. A longer one is not searched, for
// what was found in its beginning might be said again, and otherwise, in its end; nor is a compressed one, or one that the edge does not
// have: of a request that a proxy asks about, or of another protocol.
func Body(path string) Field {
	f := Field{name: path, body: true, bound: BodyBytes}
	if path != "" {
		f.path = strings.Split(path, ".")
	}
	return f
}

// Within sets how many bytes of a body are read at most. Less than 1 leaves it as it is.
func (f Field) Within(n int64) Field {
	if n > 0 {
		f.bound = n
	}
	return f
}

// reading is what was found of a field.
type reading struct {
	cost   int64
	found  bool
	odd    bool // it is there, and cannot be read
	unseen bool // what it would be in cannot be read
}

// larger keeps the dearer of two readings of what should be there once.
func (r *reading) larger(o reading) {
	r.cost, r.found, r.odd, r.unseen = max(r.cost, o.cost), r.found || o.found, r.odd || o.odd, r.unseen || o.unseen
}

// plus adds the reading of another element.
func (r *reading) plus(o reading) {
	r.cost, r.found, r.odd = saturating(r.cost, o.cost), r.found || o.found, r.odd || o.odd
}

// leaf is the cost of a value; ok is false where it cannot be read.
type leaf func(text string) (cost int64, ok bool)

func (l leaf) of(text string) reading {
	cost, ok := l(text)
	return reading{cost: cost, found: true, odd: !ok}
}

func (f Field) read(q *Request, l leaf) reading {
	if !f.body {
		return f.ofPairs(q.rawQuery, l)
	}
	return f.ofBody(q, l)
}

// ofPairs reads a query or a form. It splits at semicolons too, as some servers do, and reads on where net/url leaves pairs out.
func (f Field) ofPairs(raw string, l leaf) (r reading) {
	for raw != "" {
		pair, rest := raw, ""
		if i := strings.IndexAny(raw, "&;"); i >= 0 {
			pair, rest = raw[:i], raw[i+1:]
		}
		raw = rest
		name, value, _ := strings.Cut(pair, "=")
		if !strings.EqualFold(name, f.name) {
			if !strings.ContainsAny(name, "%+ [") {
				continue
			}
			if s, err := url.QueryUnescape(name); err != nil || !f.isNamed(s) {
				continue
			}
		}
		text, err := url.QueryUnescape(value)
		if err != nil {
			r.larger(reading{found: true, odd: true})
			continue
		}
		r.larger(l.of(text))
	}
	return r
}

// isNamed says whether a name is the field's, also rows[] and rows[0], which are rows to those who make arrays of them.
func (f Field) isNamed(name string) bool {
	name = strings.TrimSpace(name)
	if i := strings.IndexByte(name, '['); i > 0 && strings.EqualFold(name[:i], f.name) {
		return true
	}
	return strings.EqualFold(name, f.name)
}

func (f Field) ofBody(q *Request, l leaf) (r reading) {
	if !q.served {
		return reading{unseen: true}
	}
	// A handler before the edge may have read a form already.
	for name, values := range q.HTTP.PostForm {
		if f.isNamed(name) {
			for _, text := range values {
				r.larger(l.of(text))
			}
		}
	}
	if r.found {
		return r
	}
	data, whole := q.peek(f.bound)
	encoded := slices.ContainsFunc(q.Header.Values("Content-Encoding"), func(s string) bool { return !strings.EqualFold(strings.TrimSpace(s), "identity") })
	switch {
	case !whole || encoded && len(data) > 0:
		return reading{unseen: true}
	case len(data) == 0:
		return reading{}
	}
	kind, params, _ := mime.ParseMediaType(q.Header.Get("Content-Type"))
	switch kind {
	case "multipart/form-data":
		r = f.ofParts(data, params["boundary"], l)
	case "application/x-www-form-urlencoded":
		r = f.ofPairs(string(data), l)
	default:
		return f.ofJSON(data, json.Valid(data), l)
	}
	// Many handlers read JSON whatever the type says, the first value and not what follows it. So it is looked for in what is sent as a form too.
	if data = bytes.TrimLeft(bytes.TrimPrefix(data, bom), " \t\r\n"); len(data) > 0 && (data[0] == '{' || data[0] == '[') {
		var first json.RawMessage
		err := json.NewDecoder(bytes.NewReader(data)).Decode(&first)
		r.larger(f.ofJSON(first, err == nil, l))
	}
	return r
}

var bom = []byte("\xef\xbb\xbf")

func (f Field) ofJSON(data []byte, valid bool, l leaf) reading {
	if !valid {
		return reading{odd: true}
	}
	w := walk{b: data}
	return w.value(f.path, l)
}

// ofParts reads a form whose fields are parts.
func (f Field) ofParts(data []byte, boundary string, l leaf) (r reading) {
	parts := multipart.NewReader(bytes.NewReader(data), boundary)
	for {
		p, err := parts.NextPart()
		if err == io.EOF {
			return r
		}
		var text []byte
		if err == nil {
			text, err = io.ReadAll(p)
		}
		switch {
		case err != nil:
			return reading{odd: true}
		case f.isNamed(p.FormName()):
			r.larger(l.of(string(text)))
		}
	}
}

// Part is a part of a key from the field, such as the name that somebody tries to log in with; case and spaces around it do not keep keys apart.
// A request says what it likes there, so a rule needs the address in another part or another use. Where the field is not there, is
// there twice or cannot be read, which must not be a way around the rule, all share one key.
func (f Field) Part() Part {
	return func(q *Request) (string, bool) {
		var values []string
		r := f.read(q, func(text string) (int64, bool) {
			values = append(values, folded(text))
			return 0, true
		})
		if len(values) != 1 || values[0] == "" || r.odd || r.unseen {
			return "?", true
		}
		return values[0], true
	}
}

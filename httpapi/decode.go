package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"strings"

	"github.com/jatah-io/jatah"
)

// take is the decoded body of a take, refund or charge. limit, route, plan and echo are
// parts of the body and live as long as it does. The cost of one with a route is known
// when its limit is: see limiterOf.
type take struct {
	limit []byte
	route []byte // nil: the cost was given
	plan  []byte // empty: none is named
	key   string // as the limiter counts it
	echo  []byte // the key as JSON, as it was sent
	cost  int64
}

// The fields of a take, as bits of what was seen.
const (
	seenLimit = 1 << iota
	seenKey
	seenCost
	seenRoute
	seenPlan
)

// decodeTake reads {"limit":...,"key":...,"cost":...}, or "route" instead of "cost", and "plan". It is strict: every field
// once, none unknown, nothing after the object.
func decodeTake(body []byte) (t take, p *problem) {
	s := scanner{b: body}
	if s.plain(&t) && spaceTo(body, s.i) == len(body) {
		return t, nil
	}
	return decodeObject(body)
}

// decodeObject is decodeTake for all bodies.
func decodeObject(body []byte) (t take, p *problem) {
	s := scanner{b: body}
	seen, p := s.object(&t)
	if p != nil {
		return t, p
	}
	if s.space(); s.i < len(body) {
		return t, badBody("There is something after the JSON object, at byte %d; send one object only.", s.i+1)
	}
	return t, t.complete(seen)
}

// object reads the fields of a take, and says which there are.
func (s *scanner) object(t *take) (seen int, p *problem) {
	switch s.peek() {
	case '{':
		s.i++
	case 0:
		if s.i == len(s.b) {
			return 0, badBody(`The body is empty; send {"limit":"...","key":"..."}.`)
		}
		return 0, s.malformed("a JSON object")
	default:
		return 0, notObject(s.b)
	}
	t.cost = 1
	for more := !s.accept('}'); more; {
		if p = s.member(t, &seen); p != nil {
			return seen, p
		}
		switch {
		case s.accept(','):
		case s.accept('}'):
			more = false
		default:
			return seen, s.malformed(`"," or "}"`)
		}
	}
	return seen, nil
}

// complete says which field is missing, or one too many.
func (t *take) complete(seen int) *problem {
	switch {
	case seen&seenLimit == 0:
		return badField("limit", "limit is missing; name the limit to ask.")
	case seen&seenKey == 0:
		return badField("key", "key is missing; say whose usage is counted, for example a user or an address.")
	case seen&seenCost != 0 && seen&seenRoute != 0:
		return badField("route", "cost and route are both there; send a cost, or the route whose cost the limit names.")
	}
	return nil
}

// member reads one field and its value.
func (s *scanner) member(t *take, seen *int) *problem {
	raw, name, p := s.str()
	if p != nil {
		return p
	}
	var bit int
	switch string(name) {
	case "limit":
		bit = seenLimit
	case "key":
		bit = seenKey
	case "cost":
		bit = seenCost
	case "route":
		bit = seenRoute
	case "plan":
		bit = seenPlan
	default:
		return badField(string(name), "There is no field %s; the fields are limit, key and cost, or route instead of cost, and plan.", quote(string(raw[1:len(raw)-1])))
	}
	if *seen&bit != 0 {
		return badField(string(name), "%s is there twice; send each field once.", name)
	}
	*seen |= bit
	if !s.accept(':') {
		return s.malformed(`":"`)
	}
	switch bit {
	case seenLimit:
		return s.limit(t)
	case seenKey:
		return s.key(t)
	case seenRoute:
		return s.route(t)
	case seenPlan:
		return s.plan(t)
	}
	return s.cost(t)
}

func (s *scanner) route(t *take) (p *problem) {
	if s.wrong("\"") {
		return badField("route", "route must be a string, as in the costs of the limit.")
	}
	_, t.route, p = s.str()
	return p
}

func (s *scanner) plan(t *take) (p *problem) {
	if s.wrong("\"") {
		return badField("plan", "plan must be a string, the name of one of the plans of the limit.")
	}
	_, t.plan, p = s.str()
	return p
}

// limiterOf finds the limit of a take under its plan, and the cost of its route.
func (h *Handler) limiterOf(ctx context.Context, t *take) (*jatah.Limiter, *problem) {
	if p := h.outOfScope(ctx, t.limit); p != nil {
		return nil, p
	}
	l, ok := h.node.Lookup(string(t.limit))
	if !ok {
		return nil, h.unknownTo(ctx, string(t.limit))
	}
	if t.route != nil {
		t.cost = l.Cost(string(t.route))
	}
	if len(t.plan) == 0 {
		return l, nil
	}
	return underPlan(l, string(t.plan))
}

func (s *scanner) limit(t *take) (p *problem) {
	if s.wrong("\"") {
		return badField("limit", "limit must be a string.")
	}
	_, t.limit, p = s.str()
	return p
}

// key reads a string or an array of strings.
func (s *scanner) key(t *take) *problem {
	if s.wrong("\"[") {
		return badField("key", "key must be a string or an array of strings.")
	}
	if s.peek() == '"' {
		raw, val, p := s.str()
		t.echo, t.key = raw, string(val)
		if len(val) > 0 && val[0] == 0 {
			t.key = jatah.Key(t.key) // or it could pass for a joined array
		}
		return p
	}
	start := s.i
	if !s.accept('[') {
		return s.malformed("a string or an array")
	}
	var parts []string
	if s.accept(']') {
		return badField("key", "key must not be an empty array; say whose usage is counted.")
	}
	for {
		if s.wrong("\"") {
			return badField("key", "key must be a string or an array of strings, and nothing else may be in the array.")
		}
		_, val, p := s.str()
		if p != nil {
			return p
		}
		parts = append(parts, string(val))
		if s.accept(']') {
			break
		}
		if !s.accept(',') {
			return s.malformed(`"," or "]"`)
		}
	}
	t.echo, t.key = s.b[start:s.i], jatah.Key(parts...)
	return nil
}

func (s *scanner) cost(t *take) *problem {
	if s.wrong("-0123456789") {
		return badField("cost", "cost must be a whole number, written without quotes.")
	}
	text, whole, p := s.number()
	if p != nil {
		return p
	}
	if !whole {
		return badField("cost", "cost must be a whole number without fraction or exponent, not %s; count in a smaller unit.", quote(string(text)))
	}
	n, err := strconv.ParseInt(string(text), 10, 64)
	switch {
	case err != nil && text[0] != '-':
		return badField("cost", "cost is too large; at most 9223372036854775807 can be counted.")
	case err != nil || n < 0:
		return badField("cost", "cost must not be negative; use /v1/refund to give tokens back.")
	}
	t.cost = n
	return nil
}

// wrong says that the value that comes next is valid so far but of another
// kind than one that begins with a byte of first. What cannot begin any value is left to
// the reader of the value, which says what is malformed.
func (s *scanner) wrong(first string) bool {
	c := s.peek()
	return strings.IndexByte(`"{[tfn-0123456789`, c) >= 0 && strings.IndexByte(first, c) < 0
}

// notObject is the problem of a body that does not begin with a brace.
func notObject(body []byte) *problem {
	if p := checkJSON(body); p != nil {
		return p
	}
	return badBody(`The body must be a JSON object like {"limit":"...","key":"..."}.`)
}

// checkJSON says where a body is not JSON, or nil.
func checkJSON(body []byte) *problem {
	var any json.RawMessage
	err := json.Unmarshal(body, &any)
	if syntax := (*json.SyntaxError)(nil); errors.As(err, &syntax) {
		return badBody("The body is not valid JSON: %v, near byte %d.", syntax, syntax.Offset)
	}
	if err != nil {
		return badBody("The body is not valid JSON: %v.", err)
	}
	return nil
}

// decodeBatch splits {"takes":[...]} into the bodies of its takes.
func decodeBatch(body []byte, most int) (items [][]byte, p *problem) {
	const form = `{"takes":[{"limit":"...","key":"..."}]}`
	s := scanner{b: body}
	if s.peek() == 0 && s.i == len(body) {
		return nil, badBody("The body is empty; send %s.", form)
	}
	if p := checkJSON(body); p != nil {
		return nil, p
	}
	if !s.accept('{') {
		return nil, badBody("The body must be a JSON object like %s.", form)
	}
	seen := false
	for more := !s.accept('}'); more; {
		raw, name, p := s.str()
		if p != nil {
			return nil, p
		}
		if string(name) != "takes" {
			return nil, badField(string(name), "There is no field %s; the only field is takes.", quote(string(raw[1:len(raw)-1])))
		}
		if seen {
			return nil, badField("takes", "takes is there twice; send each field once.")
		}
		seen = true
		s.accept(':')
		if !s.accept('[') {
			return nil, badField("takes", "takes must be an array, like %s.", form)
		}
		for last := s.accept(']'); !last; last = !s.accept(',') && s.accept(']') {
			if items = append(items, s.skip()); len(items) > most {
				return nil, badField("takes", "takes has more than %d items; split it.", most)
			}
		}
		more = s.accept(',')
	}
	if !seen {
		return nil, badField("takes", "takes is missing; send %s.", form)
	}
	return items, nil
}

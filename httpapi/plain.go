package httpapi

import (
	"bytes"
	"encoding/binary"
	"math/bits"
)

// plain reads a take in the form that nearly all have: strings without escapes, the key a string, the cost a whole number of
// at most 18 digits. In the body there may be more behind it. ok false says no more than that object has to read it, from
// where s is: then s is where it was, and t is not to be used. What plain reads it reads as object does.
func (s *scanner) plain(t *take) (ok bool) {
	b, i := s.b, spaceTo(s.b, s.i)
	if i >= len(b) || b[i] != '{' {
		return false
	}
	t.cost = 1
	for seen := 0; ; {
		i = spaceTo(b, i+1)
		bit, at := plainName(b[i:])
		if bit == 0 || seen&bit != 0 {
			return false
		}
		seen |= bit
		i = spaceTo(b, i+at)
		if bit == seenCost {
			if t.cost, i = plainCost(b, i); i < 0 {
				return false
			}
		} else {
			end := plainString(b, i)
			if end < 0 {
				return false
			}
			switch val := b[i+1 : end]; bit {
			case seenLimit:
				t.limit = val
			case seenKey:
				t.echo, t.key = b[i:end+1], string(val)
			case seenRoute:
				t.route = val
			case seenPlan:
				t.plan = val
			}
			i = end + 1
		}
		if i = spaceTo(b, i); i >= len(b) {
			return false
		}
		switch b[i] {
		case ',':
		case '}':
			if t.complete(seen) != nil {
				return false
			}
			s.i = i + 1
			return true
		default:
			return false
		}
	}
}

// spaceTo is where white space ends that begins at i.
func spaceTo(b []byte, i int) int {
	for i < len(b) && b[i] <= ' ' && (b[i] == ' ' || b[i] == '\n' || b[i] == '\r' || b[i] == '\t') {
		i++
	}
	return i
}

// plainName reads the name of a field and the colon right behind it; 0: there is something else.
func plainName(b []byte) (bit, length int) {
	const limit, key, cost, route, plan = `"limit":`, `"key":`, `"cost":`, `"route":`, `"plan":`
	switch {
	case len(b) < len(limit): // there is no value then
	case string(b[:len(limit)]) == limit:
		return seenLimit, len(limit)
	case string(b[:len(key)]) == key:
		return seenKey, len(key)
	case string(b[:len(cost)]) == cost:
		return seenCost, len(cost)
	case string(b[:len(route)]) == route:
		return seenRoute, len(route)
	case string(b[:len(plan)]) == plan:
		return seenPlan, len(plan)
	}
	return 0, 0
}

// plainString is where the string ends that begins at i, at its last quote; -1: it has escapes, or is none.
func plainString(b []byte, i int) int {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	if i >= len(b) || b[i] != '"' {
		return -1
	}
	for i++; i+8 <= len(b); i += 8 {
		// The highest bit of each byte that is a quote, a backslash or below a space. Borrows set more of them, but
		// none below the first that is right.
		w := binary.LittleEndian.Uint64(b[i:])
		quote, back := w^('"'*ones), w^('\\'*ones)
		hit := ((quote-ones)&^quote | (back-ones)&^back | (w-' '*ones)&^w) & highs
		if hit == 0 {
			continue
		}
		if i += bits.TrailingZeros64(hit) / 8; b[i] == '"' {
			return i
		}
		return -1
	}
	for ; i < len(b); i++ {
		switch c := b[i]; {
		case c == '"':
			return i
		case c == '\\' || c < ' ':
			return -1
		}
	}
	return -1
}

// plainCost reads a whole number that does not overflow, and returns where it ends; -1: it is not of that form.
func plainCost(b []byte, i int) (n int64, end int) {
	const most = 18 // digits
	for end = i; end < len(b) && '0' <= b[end] && b[end] <= '9'; end++ {
		n = n*10 + int64(b[end]-'0')
	}
	if digits := end - i; digits == 0 || digits > most || digits > 1 && b[i] == '0' {
		return 0, -1
	}
	return n, end // what may not follow a whole number is no comma either
}

// takesIn reads {"takes":[...]} if all of it is good, and appends its takes to items. ok false says no more than that decodeBatch and
// decodeTake have to read it: nothing was decided yet.
func takesIn(body []byte, items []item, most int) (_ []item, ok bool) {
	const takes = `"takes"`
	s := scanner{b: body}
	if !s.accept('{') || s.peek() != '"' || !bytes.HasPrefix(body[s.i:], []byte(takes)) {
		return items, false
	}
	s.i += len(takes)
	if !s.accept(':') || !s.accept('[') {
		return items, false
	}
	for last := s.accept(']'); !last; {
		if len(items) == most {
			return items, false
		}
		items = append(items, item{})
		if t := &items[len(items)-1].take; !s.plain(t) {
			*t = take{}
			if seen, p := s.object(t); p != nil || t.complete(seen) != nil {
				return items, false
			}
		}
		if last = s.accept(']'); !last && !s.accept(',') {
			return items, false
		}
	}
	return items, s.accept('}') && spaceTo(body, s.i) == len(body)
}

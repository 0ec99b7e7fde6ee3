package httpapi

import (
	"unicode/utf16"
	"unicode/utf8"
)

// scanner reads the few forms of JSON (RFC 8259) that the bodies of this API
// have, without allocating. It accepts exactly what encoding/json accepts of
// them, which a fuzz test holds; it differs in that strings keep bytes that are
// not valid UTF-8, and lone surrogates as their three bytes, so that two different keys stay different.
type scanner struct {
	b []byte
	i int
}

func (s *scanner) space() {
	for s.i < len(s.b) {
		switch s.b[s.i] {
		case ' ', '\t', '\n', '\r':
			s.i++
		default:
			return
		}
	}
}

// peek returns the next byte that is not white space, or 0 at the end.
// A NUL in the body is no token of JSON either, so 0 needs no second result.
func (s *scanner) peek() byte {
	s.space()
	if s.i < len(s.b) {
		return s.b[s.i]
	}
	return 0
}

// accept consumes c if it comes next.
func (s *scanner) accept(c byte) bool {
	if s.peek() != c || s.i >= len(s.b) {
		return false
	}
	s.i++
	return true
}

// malformed is the problem of a body that is not JSON, here.
func (s *scanner) malformed(want string) *problem {
	if s.i >= len(s.b) {
		return badBody("The body is not valid JSON: it ends after %d bytes where %s should follow.", len(s.b), want)
	}
	return badBody("The body is not valid JSON: at byte %d there is %s where %s should be.", s.i+1, quote(string(s.b[s.i:s.i+1])), want)
}

// str reads a string. raw is its form in the body with the quotes, val what it
// means; val is part of the body if there is no escape in it.
func (s *scanner) str() (raw, val []byte, p *problem) {
	if !s.accept('"') {
		return nil, nil, s.malformed("a string")
	}
	start := s.i
	for ; s.i < len(s.b); s.i++ {
		switch c := s.b[s.i]; {
		case c == '"':
			s.i++
			return s.b[start-1 : s.i], s.b[start : s.i-1], nil
		case c == '\\':
			return s.escaped(start)
		case c < ' ':
			return nil, nil, s.malformed("the rest of a string (control characters must be escaped)")
		}
	}
	return nil, nil, s.malformed("the end of a string")
}

// firstEscaped is the room, in bytes, that a string gets at first for what follows its first escape.
const firstEscaped = 64

// escaped goes on with str at the first backslash.
func (s *scanner) escaped(start int) (raw, val []byte, p *problem) {
	// Not room for all of the body: it may hold many such strings, and each would get that.
	val = append(make([]byte, 0, s.i-start+firstEscaped), s.b[start:s.i]...)
	for s.i < len(s.b) {
		switch c := s.b[s.i]; {
		case c == '"':
			s.i++
			return s.b[start-1 : s.i], val, nil
		case c == '\\':
			s.i++
			if val, p = s.escape(val); p != nil {
				return nil, nil, p
			}
		case c < ' ':
			return nil, nil, s.malformed("the rest of a string (control characters must be escaped)")
		default:
			val = append(val, c)
			s.i++
		}
	}
	return nil, nil, s.malformed("the end of a string")
}

// escape reads what follows a backslash and appends what it means.
func (s *scanner) escape(val []byte) ([]byte, *problem) {
	const want = `an escape (one of "\/bfnrtu)`
	if s.i >= len(s.b) {
		return nil, s.malformed(want)
	}
	c := s.b[s.i]
	switch c {
	case '"', '\\', '/':
	case 'b':
		c = '\b'
	case 'f':
		c = '\f'
	case 'n':
		c = '\n'
	case 'r':
		c = '\r'
	case 't':
		c = '\t'
	case 'u':
		s.i++
		return s.unicode(val)
	default:
		return nil, s.malformed(want)
	}
	s.i++
	return append(val, c), nil
}

// unicode reads the digits after \u, and the second half of a surrogate pair.
func (s *scanner) unicode(val []byte) ([]byte, *problem) {
	r, ok := s.hex4(s.i)
	if !ok {
		return nil, s.malformed("four hexadecimal digits")
	}
	s.i += 4
	if !utf16.IsSurrogate(r) {
		return utf8.AppendRune(val, r), nil
	}
	if s.i+1 < len(s.b) && s.b[s.i] == '\\' && s.b[s.i+1] == 'u' {
		if low, ok := s.hex4(s.i + 2); ok {
			if pair := utf16.DecodeRune(r, low); pair != utf8.RuneError {
				s.i += 6
				return utf8.AppendRune(val, pair), nil
			}
		}
	}
	// Half a pair: no character, but a key all the same, and another one than its neighbours.
	return append(val, byte(0xe0|r>>12), byte(0x80|r>>6&0x3f), byte(0x80|r&0x3f)), nil
}

func (s *scanner) hex4(at int) (r rune, ok bool) {
	if at+4 > len(s.b) {
		return 0, false
	}
	for _, c := range s.b[at : at+4] {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}

// number reads a number and returns it as written; whole says that it has
// neither a fraction nor an exponent.
func (s *scanner) number() (text []byte, whole bool, p *problem) {
	s.space()
	start := s.i
	if s.i < len(s.b) && s.b[s.i] == '-' {
		s.i++
	}
	switch {
	case s.i < len(s.b) && s.b[s.i] == '0':
		s.i++
	case !s.digits():
		return nil, false, s.malformed("a digit")
	}
	whole = true
	if s.i < len(s.b) && s.b[s.i] == '.' {
		whole = false
		s.i++
		if !s.digits() {
			return nil, false, s.malformed("a digit")
		}
	}
	if s.i < len(s.b) && (s.b[s.i] == 'e' || s.b[s.i] == 'E') {
		whole = false
		s.i++
		if s.i < len(s.b) && (s.b[s.i] == '+' || s.b[s.i] == '-') {
			s.i++
		}
		if !s.digits() {
			return nil, false, s.malformed("a digit")
		}
	}
	return s.b[start:s.i], whole, nil
}

// digits skips decimal digits and says whether there was one.
func (s *scanner) digits() bool {
	start := s.i
	for s.i < len(s.b) && '0' <= s.b[s.i] && s.b[s.i] <= '9' {
		s.i++
	}
	return s.i > start
}

// skip passes over one value of a body that is known to be valid JSON and
// returns it.
func (s *scanner) skip() []byte {
	s.space()
	start := s.i
	for depth := 0; s.i < len(s.b); {
		switch s.b[s.i] {
		case '"':
			for s.i++; s.b[s.i] != '"'; s.i++ {
				if s.b[s.i] == '\\' {
					s.i++
				}
			}
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 {
				return s.b[start:s.i]
			}
			depth--
		case ',':
			if depth == 0 {
				return s.b[start:s.i]
			}
		}
		s.i++
	}
	return s.b[start:s.i]
}

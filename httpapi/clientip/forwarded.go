package clientip

import (
	"net/netip"
	"strings"
)

// cutElement takes the right-most element off a line of Forwarded.
//
// It reads from the right, because only there the text is surely a proxy's: what a client leaves on the left may have an open
// quote, and reading from the left would then take the proxy's element for the inside of a string. From the right
// there is no doubt about a well-formed element. Its quotes are those that open a string, which
// follow an equals sign; those inside one, which follow a backslash; and those that close one, which are the only
// ones outside. Malformed ones are cut somewhere, and readElement finds them out.
func cutElement(list string) (rest, element string, more bool) {
	quoted := false
	for i := len(list) - 1; i >= 0; i-- {
		switch c := list[i]; {
		case c == '"' && !quoted:
			quoted = true
		case c == '"' && i > 0 && list[i-1] == '=':
			quoted = false
		case c == ',' && !quoted:
			return list[:i], list[i+1:], true
		}
	}
	return "", list, false
}

// readElement gives the address of for= in an element of RFC 7239, which has pairs name=value with semicolons in between. Not ok:
// it has none, or the element is malformed. White space beside the semicolons is let pass, since proxies write it.
func readElement(s string) (addr netip.Addr, ok bool) {
	for {
		s = trimLeft(s)
		if s != "" && s[0] != ';' {
			end := tokenLen(s)
			if end == 0 || end == len(s) || s[end] != '=' {
				return netip.Addr{}, false
			}
			name := s[:end]
			value, rest, read := cutValue(s[end+1:])
			if !read {
				return netip.Addr{}, false
			}
			if strings.EqualFold(name, "for") {
				if ok { // a name twice is malformed, and no one says which of the two counts
					return netip.Addr{}, false
				}
				if addr, ok = readNode(value); !ok {
					return netip.Addr{}, false
				}
			}
			s = trimLeft(rest)
		}
		if s == "" {
			return addr, ok
		}
		if s[0] != ';' {
			return netip.Addr{}, false
		}
		s = s[1:]
	}
}

// cutValue takes a token or a quoted string off the left. The value is as it was written, with quotes and escapes.
func cutValue(s string) (value, rest string, ok bool) {
	if !strings.HasPrefix(s, `"`) {
		end := tokenLen(s)
		return s[:end], s[end:], end > 0
	}
	for i := 1; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"':
			return s[:i+1], s[i+1:], true
		case c == '\\':
			if i++; i == len(s) || isControl(s[i]) {
				return "", "", false
			}
		case isControl(c):
			return "", "", false
		}
	}
	return "", "", false
}

// readNode reads the value of for=: an IPv4 address or an IPv6 address in brackets, either with a port, which may be hidden
// behind a name (_p).
func readNode(value string) (netip.Addr, bool) {
	var buf [64]byte
	if value[0] == '"' {
		value = value[1 : len(value)-1]
		if strings.IndexByte(value, '\\') >= 0 {
			plain, ok := unescape(buf[:0], value)
			if !ok {
				return netip.Addr{}, false
			}
			value = string(plain)
		}
	}
	host, port := splitPort(value)
	if port != "" && !isPort(port) && !isHiddenPort(port) {
		return netip.Addr{}, false
	}
	if !strings.HasPrefix(host, "[") && strings.IndexByte(host, ':') >= 0 {
		return netip.Addr{}, false
	}
	return readHost(host)
}

// unescape appends the text of a quoted string to buf, as far as there is room: no address needs more.
func unescape(buf []byte, s string) ([]byte, bool) {
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' {
			i++
		}
		if len(buf) == cap(buf) {
			return nil, false
		}
		buf = append(buf, s[i])
	}
	return buf, true
}

// isHiddenPort: a colon and the obfport of RFC 7239.
func isHiddenPort(s string) bool {
	if len(s) < 3 || s[0] != ':' || s[1] != '_' {
		return false
	}
	for _, c := range []byte(s[2:]) {
		if !isAlphanumeric(c) && c != '.' && c != '_' && c != '-' {
			return false
		}
	}
	return true
}

// tokenLen is how many bytes from the left on make a token of HTTP.
func tokenLen(s string) int {
	for i := range len(s) {
		if c := s[i]; !isAlphanumeric(c) && strings.IndexByte("!#$%&'*+-.^_`|~", c) < 0 {
			return i
		}
	}
	return len(s)
}

func isToken(s string) bool { return s != "" && tokenLen(s) == len(s) }

func isAlphanumeric(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

func isControl(c byte) bool { return c < ' ' && c != '\t' || c == 0x7f }

package clientip

import (
	"net/netip"
	"strings"
)

// readAddr reads an address as proxies write it: 192.0.2.1, 192.0.2.1:80, 2001:db8::1, [2001:db8::1],
// [2001:db8::1]:80, each IPv6 also with a zone. IPv6 with a port but without brackets cannot be told from a longer address and is
// read as that.
func readAddr(s string) (netip.Addr, bool) {
	host, port := splitPort(s)
	if port != "" && !isPort(port) {
		return netip.Addr{}, false
	}
	return readHost(host)
}

// splitPort leaves the brackets to the host and the colon to the port. It splits what has a port; whether host and port
// are valid is for the caller to see.
func splitPort(s string) (host, port string) {
	if strings.HasPrefix(s, "[") {
		if i := strings.IndexByte(s, ']'); i >= 0 {
			return s[:i+1], s[i+1:]
		}
		return s, ""
	}
	if i := strings.IndexByte(s, ':'); i >= 0 && strings.IndexByte(s[i+1:], ':') < 0 {
		return s[:i], s[i:]
	}
	return s, ""
}

func readHost(host string) (netip.Addr, bool) {
	if strings.HasPrefix(host, "[") {
		if !strings.HasSuffix(host, "]") || strings.IndexByte(host, ':') < 0 {
			return netip.Addr{}, false
		}
		host = host[1 : len(host)-1]
	}
	// The zone goes before parsing: netip keeps every zone that it sees in a table of its own, and clients could fill it.
	if i := strings.IndexByte(host, '%'); i >= 0 && i < len(host)-1 && strings.IndexByte(host[:i], ':') >= 0 {
		host = host[:i]
	}
	a, err := netip.ParseAddr(host)
	return plain(a), err == nil
}

// plain is the one form in which addresses are compared.
func plain(a netip.Addr) netip.Addr { return a.Unmap().WithZone("") }

// isPort: a colon and a number from 0 to 65535.
func isPort(s string) bool {
	if len(s) < 2 || len(s) > 6 || s[0] != ':' {
		return false
	}
	n := 0
	for _, c := range []byte(s[1:]) {
		if c < '0' || c > '9' {
			return false
		}
		n = n*10 + int(c-'0')
	}
	return n <= 65535
}

// isUnix says whether the peer's address is that of a unix socket: without a name (Go says "@" or nothing), with an
// abstract name, or a path.
func isUnix(peer string) bool { return peer == "" || peer[0] == '@' || peer[0] == '/' }

// trim removes the white space that HTTP allows around the entries of a list.
func trim(s string) string { return trimLeft(trimRight(s)) }

func trimLeft(s string) string {
	for s != "" && isSpace(s[0]) {
		s = s[1:]
	}
	return s
}

func trimRight(s string) string {
	for s != "" && isSpace(s[len(s)-1]) {
		s = s[:len(s)-1]
	}
	return s
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' }

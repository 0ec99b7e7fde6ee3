package clientip

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"strings"
)

// ErrConfig: a setting is wrong; the text names it and says what to write. Match it with errors.Is.
var ErrConfig = errors.New("clientip: bad configuration")

// Unknown is the key of requests whose peer has no readable address, such as those over a unix socket. No address
// has this key.
const Unknown = "unknown"

// Headers that are lists, as net/http spells them. All others hold one address.
const (
	forwardedFor = "X-Forwarded-For"
	forwarded    = "Forwarded"
)

// maxHops ends the walk. Nobody has so many proxies one behind the other.
const maxHops = 64

// Config says whom to believe. The zero value believes nobody: the peer is the client.
type Config struct {
	// TrustedProxies are the addresses of your proxies; ParseProxies reads them. IPv4 and IPv6 are named apart.
	// Nil or empty: nobody.
	TrustedProxies []netip.Prefix

	// TrustUnix trusts peers that have no IP address because they came over a unix socket: who can open that
	// socket is settled by the rights of its file.
	TrustUnix bool

	// Header is where proxies say whom they got a request from: "X-Forwarded-For" (the default), "Forwarded", or any
	// header with one address, such as "CF-Connecting-IP" or "X-Real-IP". Case does not matter. To set it while nobody is
	// trusted is an error.
	Header string

	// IPv6Prefix is how many bits of an IPv6 address make its key, 1 to 128. Default (0): 64.
	IPv6Prefix int

	// Logger gets the warnings. Default: slog.Default().
	Logger *slog.Logger
}

// Resolver finds the clients of requests. It is safe for concurrent use. Use New; the zero value is not valid.
type Resolver struct {
	proxies proxySet
	unix    bool
	header  string
	bits    int
	warn    warnings
}

// New checks the configuration. Its errors are ErrConfig.
func New(c Config) (*Resolver, error) {
	proxies, err := newProxySet(c.TrustedProxies)
	if err != nil {
		return nil, err
	}
	r := &Resolver{proxies: proxies, unix: c.TrustUnix, header: forwardedFor, bits: 64, warn: warnings{to: c.Logger}}
	if c.Header != "" {
		if !isToken(c.Header) {
			return nil, fmt.Errorf("%w: Header %q is not the name of a header: want one such as X-Forwarded-For or CF-Connecting-IP",
				ErrConfig, c.Header)
		}
		if !r.trustsAnybody() {
			return nil, fmt.Errorf("%w: Header %q has no effect while nobody is trusted: "+
				"name your proxies in TrustedProxies (trusted_proxies), or leave it out", ErrConfig, c.Header)
		}
		r.header = http.CanonicalHeaderKey(c.Header)
	}
	if c.IPv6Prefix != 0 {
		if c.IPv6Prefix < 1 || c.IPv6Prefix > 128 {
			return nil, fmt.Errorf("%w: IPv6Prefix %d: want 1 to 128 bits; networks have 64, customers often 56 or 48", ErrConfig, c.IPv6Prefix)
		}
		r.bits = c.IPv6Prefix
	}
	if (r.header == forwardedFor || r.header == forwarded) && proxies.hasEverybody() {
		r.warn.everybody(r.header)
	}
	return r, nil
}

// Addr is the address of the client that sent the request, without zone and never IPv4 in IPv6 form. It is not valid
// if the client is the peer and has no readable address, as with a unix socket: such requests share the key Unknown.
func (r *Resolver) Addr(req *http.Request) netip.Addr { return r.AddrOf(req.RemoteAddr, req.Header) }

// AddrOf is Addr without a request. The peer is an address with or without a port. The names in h are spelled as
// http.CanonicalHeaderKey does, so that metadata of other protocols has to be put in with h.Add.
func (r *Resolver) AddrOf(peer string, h http.Header) netip.Addr {
	addr, _ := readAddr(peer)
	if !r.trusts(peer, addr) {
		r.warn.untrusted(addr, h, r.trustsAnybody())
		return addr
	}
	lines := h[r.header]
	if len(lines) == 0 {
		r.warn.missing(addr, r.header, h)
		return addr
	}
	if r.header == forwardedFor || r.header == forwarded {
		return r.walk(addr, lines)
	}
	if len(lines) > 1 {
		return addr
	}
	if client, ok := readAddr(trim(lines[0])); ok {
		return client
	}
	return addr
}

// Key is what to count the address by: "192.0.2.1", or the network of an IPv6 address, "2001:db8:1:2::/64"
// (with IPv6Prefix 128 the address as it is), or Unknown.
func (r *Resolver) Key(a netip.Addr) string {
	a = plain(a)
	if !a.IsValid() {
		return Unknown
	}
	var buf [64]byte
	if a.Is4() || r.bits == 128 {
		return string(a.AppendTo(buf[:0]))
	}
	return string(netip.PrefixFrom(a, r.bits).Masked().AppendTo(buf[:0]))
}

// Trusted says whether the peer is a trusted proxy, so that its other headers may be believed too, such as
// X-Forwarded-Uri. It says nothing about whether the proxy overwrites them.
func (r *Resolver) Trusted(req *http.Request) bool { return r.TrustedPeer(req.RemoteAddr) }

// TrustedPeer is Trusted without a request. The peer is an address with or without a port.
func (r *Resolver) TrustedPeer(peer string) bool {
	addr, _ := readAddr(peer)
	return r.trusts(peer, addr)
}

func (r *Resolver) trustsAnybody() bool { return r.unix || len(r.proxies) > 0 }

func (r *Resolver) trusts(peer string, addr netip.Addr) bool {
	return addr.IsValid() && r.proxies.has(addr) || r.unix && isUnix(peer)
}

// walk goes through the entries of a list from the right, for as long as who wrote them is trusted.
func (r *Resolver) walk(peer netip.Addr, lines []string) netip.Addr {
	last, hops := peer, 0
	for i := len(lines) - 1; i >= 0; i-- {
		for rest, more := lines[i], true; more; {
			var entry string
			rest, entry, more = r.cut(rest)
			if entry = trim(entry); entry == "" {
				continue
			}
			addr, ok := r.read(entry)
			if !ok {
				return last
			}
			last = addr
			if hops++; hops == maxHops || !r.proxies.has(addr) {
				return last
			}
		}
	}
	return last
}

// cut takes the right-most entry off a list.
func (r *Resolver) cut(list string) (rest, entry string, more bool) {
	if r.header == forwarded {
		return cutElement(list)
	}
	if i := strings.LastIndexByte(list, ','); i >= 0 {
		return list[:i], list[i+1:], true
	}
	return "", list, false
}

func (r *Resolver) read(entry string) (netip.Addr, bool) {
	if r.header == forwarded {
		return readElement(entry)
	}
	return readAddr(entry)
}

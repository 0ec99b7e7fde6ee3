package clientip

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Words that ParseProxies knows, and what they stand for. Loopback and private are what netip calls so.
var (
	loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}
	private  = []netip.Prefix{
		netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("172.16.0.0/12"),
		netip.MustParsePrefix("192.168.0.0/16"), netip.MustParsePrefix("fc00::/7"),
	}
)

// ParseProxies reads what Config.TrustedProxies needs: networks (10.0.0.0/8), single addresses, and the words loopback
// (127.0.0.0/8, ::1) and private (10.0.0.0/8, 172.16.0.0/12, 192.168.0.0/16, fc00::/7). IPv4 written as IPv6 becomes IPv4. Its
// errors are ErrConfig and name the entry.
func ParseProxies(list []string) ([]netip.Prefix, error) {
	var out []netip.Prefix
	for _, s := range list {
		switch s = strings.TrimSpace(s); s {
		case "loopback":
			out = append(out, loopback...)
			continue
		case "private":
			out = append(out, private...)
			continue
		}
		p, err := parseProxy(s)
		if err != nil {
			return nil, err
		}
		out = append(out, p)
	}
	return out, nil
}

func parseProxy(s string) (netip.Prefix, error) {
	if strings.ContainsRune(s, '%') {
		return netip.Prefix{}, fmt.Errorf("%w: trusted proxy %q: leave out the zone, addresses are compared without", ErrConfig, s)
	}
	if a, err := netip.ParseAddr(s); err == nil {
		a = a.Unmap()
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	p, err := netip.ParsePrefix(s)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("%w: trusted proxy %q: want an address such as 192.0.2.1, "+
			"a network such as 10.0.0.0/8, or loopback or private", ErrConfig, s)
	}
	return checkProxy(p)
}

// checkProxy brings a network to the form in which addresses are compared.
func checkProxy(p netip.Prefix) (netip.Prefix, error) {
	if !p.IsValid() {
		return netip.Prefix{}, fmt.Errorf("%w: trusted proxy %v: the prefix is not valid; ParseProxies makes valid ones", ErrConfig, p)
	}
	if p.Addr().Is4In6() {
		if p.Bits() < 96 {
			return netip.Prefix{}, fmt.Errorf("%w: trusted proxy %v is neither IPv4 nor IPv6: name the networks of each apart", ErrConfig, p)
		}
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	if p != p.Masked() { // meant is one address, or a network, and only the writer knows which
		return netip.Prefix{}, fmt.Errorf("%w: trusted proxy %v: write %v for the network or %v for the address",
			ErrConfig, p, p.Masked(), p.Addr())
	}
	return p, nil
}

// proxySet holds disjoint networks in ascending order, IPv4 first.
type proxySet []netip.Prefix

func newProxySet(list []netip.Prefix) (proxySet, error) {
	all := make([]netip.Prefix, 0, len(list))
	for _, p := range list {
		p, err := checkProxy(p)
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	// Networks are disjoint or one holds the other; the larger one sorts first.
	slices.SortFunc(all, func(a, b netip.Prefix) int {
		if c := a.Addr().Compare(b.Addr()); c != 0 {
			return c
		}
		return a.Bits() - b.Bits()
	})
	var set proxySet
	for _, p := range all {
		if n := len(set); n == 0 || !set[n-1].Overlaps(p) {
			set = append(set, p)
		}
	}
	return set, nil
}

// has looks for the last network that does not begin above the address. Lists of CDNs have hundreds.
func (s proxySet) has(a netip.Addr) bool {
	low, high := 0, len(s)
	for low < high {
		mid := int(uint(low+high) >> 1)
		if s[mid].Addr().Compare(a) <= 0 {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return low > 0 && s[low-1].Contains(a)
}

// hasEverybody says whether all addresses of IPv4 or of IPv6 are in the set.
func (s proxySet) hasEverybody() bool {
	return slices.ContainsFunc(s, func(p netip.Prefix) bool { return p.Bits() == 0 })
}

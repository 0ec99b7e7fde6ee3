package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	srvPrefix = "dns+srv://"
	// lookupTimeout bounds one look-up; a name server that is away must not delay the start by more.
	lookupTimeout = 3 * time.Second
)

// seed is one parsed entry of Config.Join.
type seed struct {
	text string
	addr netip.AddrPort // an address; or else
	host string         // a name to look up, with port
	port uint16
	srv  string // or a name of SRV records
}

// parseSeed reads "host:port", "[v6]:port", "host" or "dns+srv://name".
func parseSeed(s string) (seed, error) {
	text := strings.TrimSpace(s)
	if name, ok := strings.CutPrefix(text, srvPrefix); ok {
		if name == "" || strings.ContainsAny(name, "/: ") {
			return seed{}, fmt.Errorf("%w: join %q, want %s_service._proto.name", ErrConfig, s, srvPrefix)
		}
		return seed{text: text, srv: name}, nil
	}
	if i := strings.Index(text, "://"); i >= 0 {
		return seed{}, fmt.Errorf("%w: join %q: unknown scheme %q, want host:port or %sname", ErrConfig, s, text[:i], srvPrefix)
	}
	host, port, err := splitHostPort("join", text)
	if err != nil {
		return seed{}, err
	}
	if host == "" || port == 0 {
		return seed{}, fmt.Errorf("%w: join %q: want a host and a port other than 0", ErrConfig, s)
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		return seed{text: text, addr: netip.AddrPortFrom(ip.Unmap(), port)}, nil
	}
	return seed{text: text, host: host, port: port}, nil
}

// splitHostPort is net.SplitHostPort with a default port, and with errors that say what to write.
func splitHostPort(setting, s string) (string, uint16, error) {
	rest := s
	var host string
	switch {
	case strings.HasPrefix(s, "["):
		h, after, ok := strings.Cut(s[1:], "]")
		if _, err := netip.ParseAddr(h); !ok || err != nil || after != "" && after[0] != ':' {
			return "", 0, fmt.Errorf("%w: %s %q: want [address]:port", ErrConfig, setting, s)
		}
		host, rest = h, after
	case strings.Count(s, ":") > 1:
		return "", 0, fmt.Errorf("%w: %s %q is ambiguous: write an IPv6 address in brackets, as in [::1]:%d",
			ErrConfig, setting, s, DefaultPort)
	default:
		var after string
		var ok bool
		if host, after, ok = strings.Cut(s, ":"); ok {
			rest = ":" + after
		} else {
			rest = ""
		}
	}
	if strings.ContainsAny(host, "/ \t\n") {
		return "", 0, fmt.Errorf("%w: %s %q: %q is not a host name or address", ErrConfig, setting, s, host)
	}
	if rest == "" {
		return host, DefaultPort, nil
	}
	port, err := strconv.ParseUint(rest[1:], 10, 16)
	if err != nil {
		return "", 0, fmt.Errorf("%w: %s %q: port %q, want 0 to 65535", ErrConfig, setting, s, rest[1:])
	}
	return host, uint16(port), nil
}

// resolve gives the distinct addresses of all seeds, sorted. For a seed that cannot be looked up
// right now the addresses of the last time (last) stand in, so that a name server that is
// away does not make the cluster look smaller.
func resolve(ctx context.Context, r Resolver, seeds []seed, last map[string][]netip.AddrPort) ([]netip.AddrPort, error) {
	type answer struct {
		addrs []netip.AddrPort
		err   error
	}
	answers := make([]answer, len(seeds))
	done := make(chan struct{})
	for i, s := range seeds {
		go func() {
			defer func() { done <- struct{}{} }()
			ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
			defer cancel()
			answers[i].addrs, answers[i].err = s.resolve(ctx, r)
		}()
	}
	for range seeds {
		<-done
	}
	var all []netip.AddrPort
	var errs []error
	for i, s := range seeds {
		if answers[i].err != nil {
			errs = append(errs, fmt.Errorf("cluster: join %q: %w", s.text, answers[i].err))
		} else {
			last[s.text] = answers[i].addrs
		}
		all = append(all, last[s.text]...)
	}
	slices.SortFunc(all, netip.AddrPort.Compare)
	return slices.Compact(all), errors.Join(errs...)
}

// allNotFound says that an error of resolve means that names do not exist, and nothing else: then nobody is there, as
// before the first pod of a service is ready.
func allNotFound(err error) bool {
	if all, ok := err.(interface{ Unwrap() []error }); ok {
		return !slices.ContainsFunc(all.Unwrap(), func(err error) bool { return !allNotFound(err) })
	}
	var dns *net.DNSError
	return errors.As(err, &dns) && dns.IsNotFound
}

func (s seed) resolve(ctx context.Context, r Resolver) ([]netip.AddrPort, error) {
	switch {
	case s.addr.IsValid():
		return []netip.AddrPort{s.addr}, nil
	case s.srv == "":
		return lookupHost(ctx, r, s.host, s.port)
	}
	_, records, err := r.LookupSRV(ctx, "", "", s.srv)
	if err != nil {
		return nil, err
	}
	var all []netip.AddrPort
	var errs []error
	for _, rec := range records {
		addrs, err := lookupHost(ctx, r, strings.TrimSuffix(rec.Target, "."), rec.Port)
		all, errs = append(all, addrs...), append(errs, err)
	}
	if len(all) > 0 {
		return all, nil
	}
	return nil, errors.Join(errs...)
}

func lookupHost(ctx context.Context, r Resolver, host string, port uint16) ([]netip.AddrPort, error) {
	if ip, err := netip.ParseAddr(host); err == nil {
		return []netip.AddrPort{netip.AddrPortFrom(ip.Unmap(), port)}, nil
	}
	ips, err := r.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil, err
	}
	addrs := make([]netip.AddrPort, len(ips))
	for i, ip := range ips {
		addrs[i] = netip.AddrPortFrom(ip.Unmap(), port)
	}
	return addrs, nil
}

// addresses is where a node listens and what it tells the others.
type addresses struct {
	bind      netip.AddrPort
	advertise netip.AddrPort // port 0: that of bind
}

// loopback: neither side of it can be reached from another machine.
func (a addresses) loopback() bool {
	return a.bind.Addr().IsLoopback() && a.advertise.Addr().IsLoopback()
}

// findAddresses decides on what to bind to and to advertise. local lists this host's addresses.
func findAddresses(ctx context.Context, c Config, local func() ([]net.Addr, error)) (addresses, error) {
	var a addresses
	var err error
	if a.bind, err = oneAddress(ctx, c.Resolver, "bind", c.Bind); err != nil {
		return a, err
	}
	everywhere := a.bind.Addr().IsUnspecified()
	switch {
	case c.Advertise != "":
		a.advertise, err = parseAdvertise(ctx, c.Resolver, c.Advertise)
		if err != nil {
			return a, err
		}
		if a.advertise.Addr().IsLoopback() && !a.bind.Addr().IsLoopback() {
			return a, fmt.Errorf("%w: advertise %s is a loopback address but bind is %s: set advertise to an address others can reach",
				ErrConfig, c.Advertise, c.Bind)
		}
	case everywhere:
		ip, err := privateAddr(a.bind.Addr().Is4(), local)
		if err != nil {
			return a, fmt.Errorf("%w: bind is %s and %w: set advertise to the address others reach this node at",
				ErrConfig, c.Bind, err)
		}
		a.advertise = netip.AddrPortFrom(ip, 0)
	default:
		a.advertise = netip.AddrPortFrom(a.bind.Addr(), 0)
	}
	if !a.loopback() && len(c.Secrets) == 0 && !c.Insecure {
		return a, fmt.Errorf("%w: bind %s can be reached from other machines: set a secret (16, 24 or 32 bytes), or insecure to do without",
			ErrConfig, c.Bind)
	}
	return a, nil
}

// parseAdvertise reads "host" or "host:port"; without a port that of bind is meant.
func parseAdvertise(ctx context.Context, r Resolver, s string) (netip.AddrPort, error) {
	if ip, err := netip.ParseAddr(s); err == nil { // also a bare IPv6 address: no port, no doubt
		return checkAdvertise(netip.AddrPortFrom(ip.Unmap(), 0), s)
	}
	if !strings.Contains(s, ":") || strings.HasSuffix(s, "]") {
		s += ":0"
	}
	a, err := oneAddress(ctx, r, "advertise", s)
	if err != nil {
		return a, err
	}
	return checkAdvertise(a, s)
}

func checkAdvertise(a netip.AddrPort, s string) (netip.AddrPort, error) {
	if ip := a.Addr(); ip.IsUnspecified() || ip.IsMulticast() {
		return a, fmt.Errorf("%w: advertise %s is no address of one node: set advertise to the address others reach this node at", ErrConfig, s)
	}
	return a, nil
}

// oneAddress reads "host:port" where host may be a name; an empty host is all interfaces.
func oneAddress(ctx context.Context, r Resolver, setting, s string) (netip.AddrPort, error) {
	host, port, err := splitHostPort(setting, s)
	if err != nil {
		return netip.AddrPort{}, err
	}
	if host == "" {
		if setting != "bind" {
			return netip.AddrPort{}, fmt.Errorf("%w: %s %q has no host", ErrConfig, setting, s)
		}
		return netip.AddrPortFrom(netip.IPv4Unspecified(), port), nil
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	addrs, err := lookupHost(ctx, r, host, port)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("%w: %s %q: %w", ErrConfig, setting, s, err)
	}
	// A name with both kinds of addresses ("localhost") means the one that all can reach.
	slices.SortStableFunc(addrs, func(a, b netip.AddrPort) int {
		return btoi(b.Addr().Is4()) - btoi(a.Addr().Is4())
	})
	if len(addrs) == 0 {
		return netip.AddrPort{}, fmt.Errorf("%w: %s %q has no address", ErrConfig, setting, s)
	}
	return addrs[0], nil
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

var errNoPrivate = errors.New("this host has no private address")

// privateAddr is this host's first private address (RFC 1918, RFC 4193), IPv4 before IPv6.
// A public one is not guessed: to offer a cluster port there has to be somebody's decision.
func privateAddr(only4 bool, local func() ([]net.Addr, error)) (netip.Addr, error) {
	addrs, err := local()
	if err != nil {
		return netip.Addr{}, err
	}
	var six netip.Addr
	for _, a := range addrs {
		p, err := netip.ParsePrefix(a.String())
		if err != nil {
			continue
		}
		ip := p.Addr().Unmap()
		switch {
		case !ip.IsPrivate():
		case ip.Is4():
			return ip, nil
		case !six.IsValid():
			six = ip
		}
	}
	if only4 || !six.IsValid() {
		return netip.Addr{}, errNoPrivate
	}
	return six, nil
}

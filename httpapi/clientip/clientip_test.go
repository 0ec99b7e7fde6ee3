package clientip

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
)

// resolver trusts the networks named; the header may be empty.
func resolver(t testing.TB, header string, proxies ...string) *Resolver {
	t.Helper()
	list, err := ParseProxies(proxies)
	if err != nil {
		t.Fatal(err)
	}
	r, err := New(Config{TrustedProxies: list, Header: header, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// request is one as the server sees it; lines are those of the header, in order.
func request(peer, header string, lines ...string) *http.Request {
	req := httptest.NewRequest(http.MethodGet, "/", nil)
	req.RemoteAddr = peer
	for _, line := range lines {
		req.Header.Add(header, line)
	}
	return req
}

func spoofed(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "198.51.%d.%d, ", i/256, i%256)
	}
	return b.String()
}

// A proxy at 10.0.0.5 hands over; 10.1.1.1 is another one before it; 203.0.113.9 is the client.
func TestForwardedFor(t *testing.T) {
	r := resolver(t, "", "10.0.0.0/8", "2001:db8:ffff::/48")
	for _, c := range []struct {
		what   string
		lines  []string
		client string
	}{
		{"no header", nil, "10.0.0.5"},
		{"one hop", []string{"203.0.113.9"}, "203.0.113.9"},
		{"written by the client, two lines", []string{"1.2.3.4", "203.0.113.9:51234, 10.1.1.1"}, "203.0.113.9"},
		{"each hop a line", []string{"1.2.3.4", "203.0.113.9", "10.1.1.1"}, "203.0.113.9"},
		{"port of a proxy", []string{"203.0.113.9, 10.1.1.1:8080"}, "203.0.113.9"},
		{"brackets and port", []string{"[2001:db8::7]:443, 10.1.1.1"}, "2001:db8::7"},
		{"brackets", []string{"[2001:db8::7], 10.1.1.1"}, "2001:db8::7"},
		{"IPv6 bare", []string{"2001:db8::7,10.1.1.1"}, "2001:db8::7"},
		{"IPv6 proxy", []string{"203.0.113.9, [2001:db8:ffff::1]:80"}, "203.0.113.9"},
		{"white space and an empty entry", []string{"203.0.113.9 ,\t10.1.1.1 ,"}, "203.0.113.9"},
		{"empty entries and lines", []string{",203.0.113.9,, \t,10.1.1.1", "", " , ,"}, "203.0.113.9"},
		{"nothing but empty entries", []string{"", ",,", " "}, "10.0.0.5"},
		{"a hundred planted", []string{spoofed(100) + "203.0.113.9"}, "203.0.113.9"},
		{"trusted ones planted", []string{"10.9.9.9, 203.0.113.9"}, "203.0.113.9"},
		{"mapped IPv4", []string{"::ffff:203.0.113.9, ::ffff:10.1.1.1"}, "203.0.113.9"},
		{"zone", []string{"[fe80::7%eth0]:80, 10.1.1.1"}, "fe80::7"},
		{"zone without brackets", []string{"fe80::7%eth0"}, "fe80::7"},
		{"all trusted", []string{"10.3.3.3, 10.2.2.2", "10.1.1.1"}, "10.3.3.3"},
		{"unreadable right away", []string{"203.0.113.9, unknown"}, "10.0.0.5"},
		{"unreadable after a proxy", []string{"203.0.113.9, unknown, 10.1.1.1"}, "10.1.1.1"},
		{"unreadable left of the client", []string{"\x00\"', 203.0.113.9"}, "203.0.113.9"},
		{"name", []string{"example.com"}, "10.0.0.5"},
		{"port out of range", []string{"203.0.113.9:65536"}, "10.0.0.5"},
		{"port with sign", []string{"203.0.113.9:+80"}, "10.0.0.5"},
		{"port empty", []string{"203.0.113.9:"}, "10.0.0.5"},
		{"leading zeros", []string{"203.0.113.009"}, "10.0.0.5"},
		{"IPv4 in brackets", []string{"[203.0.113.9]"}, "10.0.0.5"},
		{"bracket left open", []string{"[2001:db8::7"}, "10.0.0.5"},
		{"bracket and more", []string{"[2001:db8::7]x"}, "10.0.0.5"},
		{"zone of IPv4", []string{"203.0.113.9%eth0"}, "10.0.0.5"},
		{"zone empty", []string{"fe80::7%"}, "10.0.0.5"},
		{"quotes", []string{`"203.0.113.9"`}, "10.0.0.5"},
		{"two addresses and a space", []string{"1.2.3.4 203.0.113.9"}, "10.0.0.5"},
	} {
		if got := r.Addr(request("10.0.0.5:4000", "X-Forwarded-For", c.lines...)).String(); got != c.client {
			t.Errorf("%s: %q: %s, want %s", c.what, c.lines, got, c.client)
		}
	}
}

func TestForwarded(t *testing.T) {
	r := resolver(t, "forwarded", "10.0.0.0/8")
	for _, c := range []struct {
		what   string
		lines  []string
		client string
	}{
		{"no header", nil, "10.0.0.5"},
		{"the last counts", []string{`for=192.0.2.43, for="[2001:db8:cafe::17]:4711"`}, "2001:db8:cafe::17"},
		{"planted inside a string", []string{`ext="bad,for=9.9.9.9";for=203.0.113.9`}, "203.0.113.9"},
		{"planted inside the last string", []string{`for=203.0.113.9;ext="bad,for=9.9.9.9"`}, "203.0.113.9"},
		{"planted after an escaped quote", []string{`for=203.0.113.9;host="a\", for=9.9.9.9;x=\"b"`}, "203.0.113.9"},
		{"escaped backslashes at both ends", []string{`for=203.0.113.9;host="\\a, for=9.9.9.9\\"`}, "203.0.113.9"},
		{"hidden", []string{"for=203.0.113.9;proto=https, for=_hidden"}, "10.0.0.5"},
		{"unknown", []string{"for=203.0.113.9, for=unknown"}, "10.0.0.5"},
		{"hidden port", []string{`FOR="203.0.113.9:_p"`}, "203.0.113.9"},
		{"port", []string{`For="203.0.113.9:80";by="10.0.0.5"`}, "203.0.113.9"},
		{"IPv6 without quotes", []string{"for=2001:db8::1"}, "10.0.0.5"},
		{"IPv6 without brackets", []string{`for="2001:db8::1"`}, "10.0.0.5"},
		{"port without quotes", []string{`for=203.0.113.9:80`}, "10.0.0.5"},
		{"two lines", []string{"for=6.6.6.6", "for=203.0.113.9"}, "203.0.113.9"},
		{"through two proxies", []string{"for=6.6.6.6, for=203.0.113.9;proto=https", `proto=http;for="10.1.1.1:80"`}, "203.0.113.9"},
		{"all trusted", []string{"for=10.2.2.2, for=10.1.1.1"}, "10.2.2.2"},
		{"hidden after a proxy", []string{"for=203.0.113.9, for=_x, for=10.1.1.1"}, "10.1.1.1"},
		{"no for", []string{"for=6.6.6.6, proto=https"}, "10.0.0.5"},
		{"empty elements", []string{"for=203.0.113.9 , ,\t,", ""}, "203.0.113.9"},
		{"empty pairs", []string{";;for=203.0.113.9;"}, "203.0.113.9"},
		{"space beside semicolons", []string{"proto=https ; for=203.0.113.9 ;\tby=_me"}, "203.0.113.9"},
		{"for twice", []string{"for=203.0.113.9;for=203.0.113.9"}, "10.0.0.5"},
		{"escapes", []string{`for="\2\03\.0.113.9"`}, "203.0.113.9"},
		{"escapes and too long", []string{`for="` + strings.Repeat(`\1`, 1000) + `"`}, "10.0.0.5"},
		{"mapped IPv4", []string{`for="[::ffff:203.0.113.9]"`}, "203.0.113.9"},
		{"empty string", []string{`for=""`}, "10.0.0.5"},
		{"no value", []string{`for=`}, "10.0.0.5"},
		{"space beside the equals sign", []string{`for= 203.0.113.9`}, "10.0.0.5"},
		{"text after the value", []string{`for=203.0.113.9 x`}, "10.0.0.5"},
		{"text after the string", []string{`for="203.0.113.9"x`}, "10.0.0.5"},
		{"a control in a string", []string{"for=203.0.113.9;x=\"\x01\""}, "10.0.0.5"},
		{"a control escaped", []string{"for=203.0.113.9;x=\"\\\x01\""}, "10.0.0.5"},
		{"hidden port without a name", []string{`for="203.0.113.9:_"`}, "10.0.0.5"},
		{"hidden port with other signs", []string{`for="203.0.113.9:_a b"`}, "10.0.0.5"},
		{"a list of addresses", []string{"203.0.113.9"}, "10.0.0.5"},
		{"an open quote of the client", []string{`for="6.6.6.6, for=203.0.113.9`}, "203.0.113.9"},
		{"an open quote before a string", []string{`for=6.6.6.6;x=", for="[2001:db8::7]"`}, "2001:db8::7"},
		{"an open quote and a backslash", []string{`x="\, for=203.0.113.9;by=""`}, "203.0.113.9"},
		{"an open quote at the end", []string{`for=203.0.113.9;x="`}, "10.0.0.5"},
		{"a quote alone", []string{`"`}, "10.0.0.5"},
	} {
		if got := r.Addr(request("10.0.0.5:4000", "Forwarded", c.lines...)).String(); got != c.client {
			t.Errorf("%s: %q: %s, want %s", c.what, c.lines, got, c.client)
		}
	}
}

func TestSingleAddressHeaders(t *testing.T) {
	for _, header := range []string{"CF-Connecting-IP", "x-real-ip", "X-Client"} {
		r := resolver(t, header, "10.0.0.0/8")
		for _, c := range []struct {
			what   string
			peer   string
			lines  []string
			client string
		}{
			{"believed", "10.0.0.5:4000", []string{"203.0.113.9"}, "203.0.113.9"},
			{"IPv6", "10.0.0.5:4000", []string{"2001:db8::7"}, "2001:db8::7"},
			{"port, space, mapped", "10.0.0.5:4000", []string{" [::ffff:203.0.113.9]:80\t"}, "203.0.113.9"},
			{"a trusted address", "10.0.0.5:4000", []string{"10.1.1.1"}, "10.1.1.1"},
			{"the peer is not trusted", "192.0.2.1:4000", []string{"203.0.113.9"}, "192.0.2.1"},
			{"none", "10.0.0.5:4000", nil, "10.0.0.5"},
			{"several lines", "10.0.0.5:4000", []string{"203.0.113.9", "203.0.113.9"}, "10.0.0.5"},
			{"a list", "10.0.0.5:4000", []string{"203.0.113.9, 203.0.113.10"}, "10.0.0.5"},
			{"unreadable", "10.0.0.5:4000", []string{"localhost"}, "10.0.0.5"},
			{"empty", "10.0.0.5:4000", []string{""}, "10.0.0.5"},
		} {
			req := request(c.peer, header, c.lines...)
			req.Header.Add("X-Forwarded-For", "6.6.6.6") // another header than the one that counts
			req.Header.Add("Forwarded", "for=6.6.6.6")
			if got := r.Addr(req).String(); got != c.client {
				t.Errorf("%s: %s: %q: %s, want %s", header, c.what, c.lines, got, c.client)
			}
		}
	}
}

func TestNobodyIsTrustedByDefault(t *testing.T) {
	r := resolver(t, "")
	for _, peer := range []string{"127.0.0.1:4000", "10.0.0.5:4000", "203.0.113.1:4000", "[::1]:80"} {
		req := request(peer, "X-Forwarded-For", "6.6.6.6")
		for _, name := range []string{"Forwarded", "X-Real-IP", "CF-Connecting-IP"} {
			req.Header.Set(name, "for=6.6.6.6")
		}
		if got := r.Addr(req); got != netip.MustParseAddrPort(peer).Addr() || r.Trusted(req) {
			t.Errorf("%s: %s, trusted %v", peer, got, r.Trusted(req))
		}
	}
}

func TestPeers(t *testing.T) {
	proxies, err := ParseProxies([]string{"10.0.0.0/8", "fe80::/64"})
	if err != nil {
		t.Fatal(err)
	}
	for _, unix := range []bool{false, true} {
		r, err := New(Config{TrustedProxies: proxies, TrustUnix: unix, Logger: quiet})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			peer    string
			trusted bool
			client  string // with a header that says 203.0.113.9
			key     string
		}{
			{"10.0.0.5:4000", true, "203.0.113.9", "203.0.113.9"},
			{"10.0.0.5", true, "203.0.113.9", "203.0.113.9"},
			{"[::ffff:10.0.0.5]:4000", true, "203.0.113.9", "203.0.113.9"},
			{"[fe80::1%eth0]:4000", true, "203.0.113.9", "203.0.113.9"},
			{"192.0.2.1:4000", false, "192.0.2.1", "192.0.2.1"},
			{"[::ffff:192.0.2.1]:4000", false, "192.0.2.1", "192.0.2.1"},
			{"[2001:db8:1:2:3::1%eth0]:4000", false, "2001:db8:1:2:3::1", "2001:db8:1:2::/64"},
			{"pipe", false, "invalid IP", Unknown},
			{"@", unix, "", ""},
			{"", unix, "", ""},
			{"@name", unix, "", ""},
			{"/run/a.sock", unix, "", ""},
		} {
			if c.client == "" {
				if c.client, c.key = "invalid IP", Unknown; unix {
					c.client, c.key = "203.0.113.9", "203.0.113.9"
				}
			}
			req := request(c.peer, "X-Forwarded-For", "203.0.113.9")
			got := r.Addr(req)
			if got.String() != c.client || r.Key(got) != c.key || r.Trusted(req) != c.trusted {
				t.Errorf("unix %v: %q: %s, key %s, trusted %v; want %s, %s, %v", unix, c.peer, got, r.Key(got), r.Trusted(req),
					c.client, c.key, c.trusted)
			}
			if of := r.AddrOf(c.peer, req.Header); of != got || r.TrustedPeer(c.peer) != c.trusted {
				t.Errorf("without a request: %s, trusted %v", of, r.TrustedPeer(c.peer))
			}
		}
		if got := r.Addr(request("@", "X-Forwarded-For", "unknown")); got.IsValid() {
			t.Errorf("over a unix socket, unreadable: %s", got)
		}
		if got := r.AddrOf("192.0.2.1:80", nil); got != netip.MustParseAddr("192.0.2.1") {
			t.Error(got)
		}
	}
}

func TestKeys(t *testing.T) {
	for _, c := range []struct {
		bits      int
		addr, key string
	}{
		{0, "192.0.2.1", "192.0.2.1"},
		{0, "::ffff:192.0.2.1", "192.0.2.1"},
		{0, "2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"},
		{0, "2001:db8:1:2::", "2001:db8:1:2::/64"},
		{0, "2001:db8:1:3::", "2001:db8:1:3::/64"},
		{0, "fe80::1%eth0", "fe80::/64"},
		{48, "2001:db8:1:2:3:4:5:6", "2001:db8:1::/48"},
		{56, "2001:db8:1:2ff::", "2001:db8:1:200::/56"},
		{1, "ffff::", "8000::/1"},
		{1, "192.0.2.1", "192.0.2.1"},
		{127, "2001:db8::3", "2001:db8::2/127"},
		{128, "2001:db8:1:2:3:4:5:6", "2001:db8:1:2:3:4:5:6"},
		{128, "fe80::1%eth0", "fe80::1"},
		{128, "64:ff9b::192.0.2.1", "64:ff9b::c000:201"},
		{0, "2001:db8:1111:2222:3333:4444:5555:6666", "2001:db8:1111:2222::/64"},
	} {
		r, err := New(Config{IPv6Prefix: c.bits})
		if err != nil {
			t.Fatal(err)
		}
		if got := r.Key(netip.MustParseAddr(c.addr)); got != c.key {
			t.Errorf("%s by %d bits: %s, want %s", c.addr, c.bits, got, c.key)
		}
	}
}

func TestAWalkEnds(t *testing.T) {
	r := resolver(t, "", "10.0.0.0/8")
	for _, c := range []struct{ hops, want int }{{1, 1}, {63, 63}, {64, 64}, {65, 64}, {100_000, 64}} {
		hops := make([]string, c.hops)
		for i := range hops {
			n := c.hops - i // from the right, beginning with 1
			hops[i] = netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)}).String()
		}
		want := netip.AddrFrom4([4]byte{10, 0, 0, byte(c.want)})
		if got := r.Addr(request("10.0.0.5:4000", "X-Forwarded-For", strings.Join(hops, ", "))); got != want {
			t.Errorf("%d hops in a line: %s, want %s", c.hops, got, want)
		}
		if got := r.Addr(request("10.0.0.5:4000", "X-Forwarded-For", hops...)); got != want {
			t.Errorf("%d hops in lines of their own: %s, want %s", c.hops, got, want)
		}
	}
}

func TestConfigErrorsSayWhatToDo(t *testing.T) {
	ten := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	for _, c := range []struct {
		c    Config
		says string
	}{
		{Config{Header: "X-Real-IP"}, "TrustedProxies (trusted_proxies)"},
		{Config{TrustedProxies: ten, Header: "X Real IP"}, `"X Real IP" is not the name of a header`},
		{Config{TrustedProxies: ten, Header: "X-Real-IP:"}, "is not the name of a header"},
		{Config{IPv6Prefix: -1}, "want 1 to 128 bits"},
		{Config{IPv6Prefix: 129}, "want 1 to 128 bits"},
		{Config{TrustedProxies: []netip.Prefix{{}}}, "not valid"},
		{Config{TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.5/8")}}, "10.0.0.0/8"},
	} {
		if r, err := New(c.c); r != nil || !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%+v: %v; want %s", c.c, err, c.says)
		}
	}
	if _, err := New(Config{TrustUnix: true, Header: "X-Real-IP"}); err != nil {
		t.Error(err)
	}
}

func TestNothingIsAllocated(t *testing.T) {
	for _, c := range cases(t) {
		if n := testing.AllocsPerRun(100, func() { c.r.Addr(c.req) }); n != 0 {
			t.Errorf("%s: %v allocations", c.name, n)
		}
	}
	r, a := resolver(t, ""), netip.MustParseAddr("2001:db8:1:2::7")
	if n := testing.AllocsPerRun(100, func() { sink = r.Key(a) }); n > 1 {
		t.Errorf("a key: %v allocations, want the string only", n)
	}
}

package clientip

import (
	"net/http"
	"net/netip"
	"strings"
	"testing"
)

var sink string

// benchCase is a request whose client is found, on the ordinary path.
type benchCase struct {
	name string
	r    *Resolver
	req  *http.Request
}

func cases(t testing.TB) []benchCase {
	none, xff, fwd := resolver(t, ""), resolver(t, "", "10.0.0.0/8"), resolver(t, "Forwarded", "10.0.0.0/8")
	cdn := make([]string, 300)
	for i := range cdn {
		cdn[i] = netip.PrefixFrom(netip.AddrFrom4([4]byte{20, byte(i), 0, 0}), 17).String()
	}
	none.Addr(request("10.0.0.5:4000", "X-Forwarded-For")) // the warning is out
	const peer = "10.0.0.5:4000"
	return []benchCase{
		{"peer", none, request("203.0.113.9:4000", "X-Forwarded-For")},
		{"peer/private", none, request(peer, "X-Forwarded-For")},
		{"forwarded-for/hops=1", xff, request(peer, "X-Forwarded-For", "203.0.113.9")},
		{"forwarded-for/hops=3", xff, request(peer, "X-Forwarded-For", "203.0.113.9, 10.1.1.1", "10.2.2.2:80")},
		{"forwarded-for/ipv6", xff, request(peer, "X-Forwarded-For", "[2001:db8::7%eth0]:443")},
		{"forwarded-for/planted=100", xff, request(peer, "X-Forwarded-For", spoofed(100)+"203.0.113.9")},
		{"forwarded-for/planted=10000", xff, request(peer, "X-Forwarded-For", spoofed(10000)+"203.0.113.9")},
		{"forwarded-for/commas=10000", xff, request(peer, "X-Forwarded-For", "203.0.113.9"+strings.Repeat(",", 10000))},
		{"forwarded-for/trusted=10000", xff, request(peer, "X-Forwarded-For", strings.Repeat("10.1.1.1, ", 10000))},
		{"forwarded-for/networks=300", resolver(t, "", append(cdn, "10.0.0.0/8")...), request(peer, "X-Forwarded-For", "203.0.113.9")},
		{"forwarded/hops=1", fwd, request(peer, "Forwarded", `for=203.0.113.9;proto=https;host="example.com:443"`)},
		{"forwarded/hops=3", fwd, request(peer, "Forwarded", `for=203.0.113.9, for="10.1.1.1:80";proto=http`, "for=10.2.2.2")},
		{"forwarded/planted=10000", fwd, request(peer, "Forwarded", strings.Repeat(`for=6.6.6.6;x="`, 10000)+`, for="[2001:db8::7]:80"`)},
		{"one address", resolver(t, "CF-Connecting-IP", "10.0.0.0/8"), request(peer, "CF-Connecting-IP", "2001:db8::7")},
	}
}

func BenchmarkAddr(b *testing.B) {
	for _, c := range cases(b) {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				c.r.Addr(c.req)
			}
		})
	}
}

func BenchmarkKey(b *testing.B) {
	r := resolver(b, "")
	for _, s := range []string{"203.0.113.9", "2001:db8:1:2::7"} {
		a := netip.MustParseAddr(s)
		b.Run(s, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				sink = r.Key(a)
			}
		})
	}
}

package clientip_test

import (
	"fmt"
	"net/http"
	"net/netip"

	"github.com/jatah-io/jatah/httpapi/clientip"
)

// A service behind a load balancer in 10.0.0.0/8. The visitor wrote a line of its own; the balancer appended to it.
func Example() {
	proxies, err := clientip.ParseProxies([]string{"10.0.0.0/8", "loopback"})
	if err != nil {
		fmt.Println(err)
		return
	}
	clients, err := clientip.New(clientip.Config{TrustedProxies: proxies})
	if err != nil {
		fmt.Println(err)
		return
	}
	r := &http.Request{RemoteAddr: "10.0.0.5:4000", Header: http.Header{}}
	r.Header.Add("X-Forwarded-For", "192.0.2.77, 2001:db8:1:2::7")
	addr := clients.Addr(r)
	fmt.Println(addr)
	fmt.Println(clients.Key(addr))

	// The same visitor, had it come straight to the service.
	r.RemoteAddr = "[2001:db8:1:2::7]:50000"
	fmt.Println(clients.Addr(r), clients.Trusted(r))
	// Output:
	// 2001:db8:1:2::7
	// 2001:db8:1:2::/64
	// 2001:db8:1:2::7 false
}

// Behind a CDN's tunnel, which runs on the same machine and writes the visitor's address into a header of its own.
func ExampleConfig() {
	clients, err := clientip.New(clientip.Config{
		TrustedProxies: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")},
		Header:         "CF-Connecting-IP",
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	h := http.Header{}
	h.Add("CF-Connecting-IP", "203.0.113.9")
	fmt.Println(clients.Key(clients.AddrOf("127.0.0.1:4000", h)))
	fmt.Println(clients.Key(clients.AddrOf("192.0.2.1:4000", h)))
	// Output:
	// 203.0.113.9
	// 192.0.2.1
}

func ExampleParseProxies() {
	_, err := clientip.ParseProxies([]string{"10.0.0.5/8"})
	fmt.Println(err)
	// Output:
	// clientip: bad configuration: trusted proxy 10.0.0.5/8: write 10.0.0.0/8 for the network or 10.0.0.5 for the address
}

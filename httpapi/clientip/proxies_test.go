package clientip

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"
)

func TestParseProxies(t *testing.T) {
	for _, c := range []struct {
		in   []string
		want string
	}{
		{nil, "[]"},
		{[]string{"10.0.0.0/8", " 192.0.2.1 ", "2001:db8::/32", "2001:db8::1"}, "[10.0.0.0/8 192.0.2.1/32 2001:db8::/32 2001:db8::1/128]"},
		{[]string{"::ffff:192.0.2.1", "::ffff:10.0.0.0/104"}, "[192.0.2.1/32 10.0.0.0/8]"},
		{[]string{"loopback"}, "[127.0.0.0/8 ::1/128]"},
		{[]string{"private", "loopback"}, "[10.0.0.0/8 172.16.0.0/12 192.168.0.0/16 fc00::/7 127.0.0.0/8 ::1/128]"},
		{[]string{"0.0.0.0/0", "::/0"}, "[0.0.0.0/0 ::/0]"},
	} {
		got, err := ParseProxies(c.in)
		if err != nil || fmt.Sprint(got) != c.want {
			t.Errorf("%q: %v, %v; want %s", c.in, got, err, c.want)
		}
		if _, err := New(Config{TrustedProxies: got, Logger: quiet}); err != nil {
			t.Errorf("%q: %v", c.in, err)
		}
	}
}

func TestParseProxiesSaysWhatToDo(t *testing.T) {
	for _, c := range []struct{ in, says string }{
		{"", "want an address"},
		{"proxy.internal", "want an address"},
		{"10.0.0.0/33", "want an address"},
		{"10.0.0.0/8 192.0.2.1", "want an address"},
		{"10.0.0.5:80", "want an address"},
		{"localhost", "loopback or private"},
		{"10.0.0.5/8", "write 10.0.0.0/8 for the network or 10.0.0.5 for the address"},
		{"2001:db8::1/64", "write 2001:db8::/64 for the network or 2001:db8::1 for the address"},
		{"::ffff:10.0.0.5/104", "write 10.0.0.0/8"},
		{"::ffff:0.0.0.0/90", "name the networks of each apart"},
		{"fe80::1%eth0", "leave out the zone"},
		{"fe80::%eth0/64", "leave out the zone"},
	} {
		got, err := ParseProxies([]string{"192.0.2.1", c.in})
		if got != nil || !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), c.says) ||
			!strings.Contains(err.Error(), "trusted proxy") {
			t.Errorf("%q: %v, %v; want %q", c.in, got, err, c.says)
		}
	}
}

// The set finds what a look at each network finds, with networks inside others, doubled ones and neighbours.
func TestProxySetHoldsWhatItsNetworksHold(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	// Few different bits, so that networks and addresses meet often.
	addr := func() netip.Addr {
		if rnd.IntN(2) == 0 {
			return netip.AddrFrom4([4]byte{10, byte(rnd.IntN(2)), byte(rnd.IntN(4)), byte(rnd.IntN(4))})
		}
		return netip.AddrFrom16([16]byte{0x20, 1, 0, byte(rnd.IntN(4)), 15: byte(rnd.IntN(4))})
	}
	found := 0
	for range 500 {
		list := make([]netip.Prefix, rnd.IntN(12))
		for i := range list {
			a := addr()
			list[i] = netip.PrefixFrom(a, a.BitLen()-rnd.IntN(min(a.BitLen(), 112)/4)).Masked()
		}
		set, err := newProxySet(list)
		if err != nil {
			t.Fatal(err)
		}
		for range 50 {
			a, want := addr(), false
			for _, p := range list {
				want = want || p.Contains(a)
			}
			if want {
				found++
			}
			if set.has(a) != want {
				t.Fatalf("%v in %v: %v, want %v", a, list, set.has(a), want)
			}
		}
	}
	if found < 1000 {
		t.Errorf("only %d addresses were in a set: the test looks at too little", found)
	}
}

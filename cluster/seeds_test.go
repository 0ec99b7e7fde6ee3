package cluster

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
)

func TestParseSeed(t *testing.T) {
	for in, want := range map[string]string{
		"127.0.0.1:7946":             "127.0.0.1:7946",
		"127.0.0.1":                  "127.0.0.1:7946",
		" 127.0.0.1:1 ":              "127.0.0.1:1",
		"[::1]:7946":                 "[::1]:7946",
		"[::1]":                      "[::1]:7946",
		"[::ffff:10.0.0.1]:5":        "10.0.0.1:5",
		"nodes.example:80":           "nodes.example 80",
		"nodes":                      "nodes 7946",
		"dns+srv://_jatah._tcp.zone": "srv _jatah._tcp.zone",
	} {
		s, err := parseSeed(in)
		got := s.addr.String()
		switch {
		case err != nil:
			t.Errorf("%q: %v", in, err)
			continue
		case s.srv != "":
			got = "srv " + s.srv
		case s.host != "":
			got = s.host + " " + strings.TrimPrefix(netip.AddrPortFrom(netip.IPv4Unspecified(), s.port).String(), "0.0.0.0:")
		}
		if got != want {
			t.Errorf("%q: got %s, want %s", in, got, want)
		}
	}
	for in, want := range map[string]string{
		"::1:7946":              "in brackets",
		"fe80::1":               "in brackets",
		"":                      "want a host",
		":7946":                 "want a host",
		"a:0":                   "other than 0",
		"a:99999":               "0 to 65535",
		"a:":                    "0 to 65535",
		"a b:1":                 "not a host name",
		"[::1":                  "want [address]:port",
		"[::1]7946":             "want [address]:port",
		"[name]:1":              "want [address]:port",
		"http://a:1":            "unknown scheme",
		"dns+srv://":            "want dns+srv://",
		"dns+srv://a.example:1": "want dns+srv://",
	} {
		if _, err := parseSeed(in); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want one with %q", in, err, want)
		}
	}
}

func FuzzParseSeed(f *testing.F) {
	for _, s := range []string{"a:1", "[::1]:2", "::1:7946", "dns+srv://_a._b.c", "[", "[]:", ":", "]:1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, in string) {
		s, err := parseSeed(in)
		if err != nil {
			if !errors.Is(err, ErrConfig) {
				t.Errorf("%q: %v", in, err)
			}
			return
		}
		kinds := btoi(s.addr.IsValid()) + btoi(s.host != "") + btoi(s.srv != "")
		if kinds != 1 || s.srv == "" && !s.addr.IsValid() && s.port == 0 {
			t.Errorf("%q: %+v", in, s)
		}
	})
}

func interfaces(prefixes ...string) func() ([]net.Addr, error) {
	return func() ([]net.Addr, error) {
		var addrs []net.Addr
		for _, s := range prefixes {
			ip, n, err := net.ParseCIDR(s)
			if err != nil {
				return nil, err
			}
			addrs = append(addrs, &net.IPNet{IP: ip, Mask: n.Mask})
		}
		return addrs, nil
	}
}

func TestWhatIsAdvertised(t *testing.T) {
	dns := &fakeDNS{hosts: map[string][]string{"localhost": {"::1", "127.0.0.1"}, "me.example": {"10.1.1.1"}}}
	many := interfaces("127.0.0.1/8", "203.0.113.5/24", "fd00::5/64", "fe80::1/64", "10.0.0.5/8")
	public := interfaces("127.0.0.1/8", "::1/128", "203.0.113.5/24", "fe80::1/64")
	for _, tt := range []struct {
		bind, advertise string
		local           func() ([]net.Addr, error)
		want            string // "bind advertise", or a part of the error
	}{
		{"127.0.0.1:0", "", many, "127.0.0.1:0 127.0.0.1:0"},
		{"localhost:7", "", many, "127.0.0.1:7 127.0.0.1:0"},
		{"[::1]:0", "", many, "[::1]:0 [::1]:0"},
		{"10.0.0.5:7", "", many, "10.0.0.5:7 10.0.0.5:0"},
		{"0.0.0.0:7", "", many, "0.0.0.0:7 10.0.0.5:0"},
		{":7", "", many, "0.0.0.0:7 10.0.0.5:0"},
		{"[::]:7", "", many, "[::]:7 10.0.0.5:0"},
		{"[::]:7", "", interfaces("fd00::5/64", "203.0.113.5/24"), "[::]:7 [fd00::5]:0"},
		{"0.0.0.0:7", "", interfaces("fd00::5/64"), "set advertise"},
		{"0.0.0.0:7", "", public, "set advertise"},
		{"[::]:7", "", public, "set advertise"},
		{"0.0.0.0:7", "203.0.113.5", public, "0.0.0.0:7 203.0.113.5:0"},
		{"0.0.0.0:7", "203.0.113.5:9", public, "0.0.0.0:7 203.0.113.5:9"},
		{"0.0.0.0:7", "fd00::5", public, "0.0.0.0:7 [fd00::5]:0"},
		{"0.0.0.0:7", "[fd00::5]:9", public, "0.0.0.0:7 [fd00::5]:9"},
		{"0.0.0.0:7", "me.example", public, "0.0.0.0:7 10.1.1.1:0"},
		{"0.0.0.0:7", "0.0.0.0", many, "set advertise"},
		{"0.0.0.0:7", "[::]:7", many, "set advertise"},
		{"0.0.0.0:7", "127.0.0.1", many, "set advertise"},
		{"10.0.0.5:7", "localhost:7", many, "set advertise"},
		{"10.0.0.5:7", "::1:7946:x", many, "ambiguous"},
		{"nowhere:7", "", many, "bind"},
		{"::1:7946", "", many, "ambiguous"},
	} {
		a, err := findAddresses(context.Background(), Config{Bind: tt.bind, Advertise: tt.advertise, Insecure: true, Resolver: dns}, tt.local)
		got := a.bind.String() + " " + a.advertise.String()
		if err != nil {
			if !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("bind %s, advertise %s: %v, want %q", tt.bind, tt.advertise, err, tt.want)
			}
		} else if got != tt.want {
			t.Errorf("bind %s, advertise %s: got %s, want %s", tt.bind, tt.advertise, got, tt.want)
		}
	}
}

func TestSecretIsNeededBeyondLoopback(t *testing.T) {
	local := interfaces("10.0.0.5/8")
	for _, c := range []Config{{Bind: "10.0.0.5:7"}, {Bind: "0.0.0.0:7"}, {Bind: "127.0.0.1:7", Advertise: "10.0.0.5"}} {
		_, err := findAddresses(context.Background(), c, local)
		if !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), "set a secret") || !strings.Contains(err.Error(), "insecure") {
			t.Errorf("%s without a secret: %v", c.Bind, err)
		}
		c.Secrets = [][]byte{make([]byte, 16)}
		if _, err := findAddresses(context.Background(), c, local); err != nil {
			t.Errorf("%s with a secret: %v", c.Bind, err)
		}
	}
}

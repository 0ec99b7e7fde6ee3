package cluster

import (
	"bytes"
	"context"
	"errors"
	"math"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestConstantsMustAgree(t *testing.T) {
	for field, change := range map[string]func(*Config){
		"partitions is 101 here and 271 there":       func(c *Config) { c.Ring.Partitions = 101 },
		"hash seed is another here and there":        func(c *Config) { c.Ring.Seed = 7 },
		"sync interval is 50ms here and 100ms there": func(c *Config) { c.SyncInterval = 50 * time.Millisecond },
		"load is 2 here and 1.25 there":              func(c *Config) { c.Ring.Load = 2 },
	} {
		t.Run(field, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				n1, n2, n3 := w.three()
				cfg := w.config("n4")
				change(&cfg)
				_, err := w.try(4, cfg)
				if !errors.Is(err, ErrMismatch) || !strings.Contains(err.Error(), field) {
					t.Errorf("start: %v", err)
				}
				time.Sleep(20 * time.Second)
				if !alive("n1 n2 n3", n1, n2, n3) || lostNames(n1.View()) != "" {
					t.Errorf("disturbed: %s, lost %s", names(n1.View()), lostNames(n1.View()))
				}
			})
		})
	}
}

func TestLongestSettleAndGraceCount(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.config("n1"), w.config("n2")
		a.Settle, b.Grace = 5*time.Second, Never
		n1, n2 := w.start(1, a), w.start(2, b)
		w.within(time.Minute, "two members", func() bool { return alive("n1 n2", n1, n2) })
		for _, n := range []*node{n1, n2} {
			if v := n.View(); v.Settle != 5*time.Second || v.Grace != math.MaxInt64 {
				t.Errorf("%s: settle %v, grace %v", v.Self, v.Settle, v.Grace)
			}
		}
	})
}

func TestOtherClustersAreIgnored(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		n1 := w.start(1, w.config("n1"))
		cfg := w.config("n2")
		cfg.ClusterName = "another"
		n2 := w.start(2, cfg)
		time.Sleep(30 * time.Second)
		if !alive("n1", n1) || !alive("n2", n2) {
			t.Errorf("%s and %s", names(n1.View()), names(n2.View()))
		}
	})
}

func TestSecretsMustAgree(t *testing.T) {
	key := func(b byte) []byte { return bytes.Repeat([]byte{b}, 32) }
	inBubble(t, func(t *testing.T, w *world) {
		cfg := w.config("n1")
		cfg.Secrets = [][]byte{key(1)}
		n1 := w.start(1, cfg)
		for _, wrong := range [][][]byte{nil, {key(2)}} {
			cfg := w.config("n2")
			cfg.Secrets = wrong
			if _, err := w.try(2, cfg); !errors.Is(err, ErrSecret) {
				t.Errorf("with %d other secrets: %v", len(wrong), err)
			}
		}
		// A rolling change of keys: the new one comes second first.
		cfg = w.config("n3")
		cfg.Secrets = [][]byte{key(1), key(2)}
		n3 := w.start(3, cfg)
		w.within(time.Minute, "two members", func() bool { return alive("n1 n3", n1, n3) })
		if got, err := n1.Call(t.Context(), "n3", []byte("x")); string(got) != "re x" {
			t.Errorf("call: %q, %v", got, err)
		}
	})
}

// names of DNS, in memory.
type fakeDNS struct {
	mu    sync.Mutex
	hosts map[string][]string
	srv   map[string][]*net.SRV
}

func (d *fakeDNS) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var ips []netip.Addr
	for _, s := range d.hosts[host] {
		ips = append(ips, netip.MustParseAddr(s))
	}
	if ips == nil {
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	return ips, nil
}

func (d *fakeDNS) LookupSRV(_ context.Context, service, proto, name string) (string, []*net.SRV, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if r := d.srv[name]; r != nil && service == "" && proto == "" {
		return name, r, nil
	}
	return "", nil, &net.DNSError{Err: "no such host", Name: name, IsNotFound: true}
}

func TestSeedsFromDNS(t *testing.T) {
	for _, join := range []string{"nodes.example:7946", "dns+srv://_jatah._tcp.example"} {
		t.Run(join, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *world) {
				dns := &fakeDNS{
					hosts: map[string][]string{"nodes.example": {"10.0.0.1", "10.0.0.2", "::ffff:10.0.0.2"}, "a.example": {"10.0.0.1"}, "b.example": {"10.0.0.2"}},
					srv:   map[string][]*net.SRV{"_jatah._tcp.example": {{Target: "a.example.", Port: 7946}, {Target: "b.example.", Port: 7946}}},
				}
				config := func(name string) Config {
					cfg := w.config(name)
					cfg.Join, cfg.Resolver = []string{join}, dns
					return cfg
				}
				n1, n2 := w.start(1, config("n1")), w.start(2, config("n2"))
				w.within(time.Minute, "two members", func() bool { return alive("n1 n2", n1, n2) })
				if n1.View().Expect != 2 || n2.View().Expect != 2 {
					t.Errorf("expect %d and %d", n1.View().Expect, n2.View().Expect)
				}
				// A third address appears in DNS, then the name server goes away.
				dns.mu.Lock()
				dns.hosts["nodes.example"] = append(dns.hosts["nodes.example"], "10.0.0.3")
				dns.hosts["b.example"] = append(dns.hosts["b.example"], "10.0.0.3")
				dns.mu.Unlock()
				w.within(time.Minute, "a third is expected", func() bool { return n1.View().Expect == 3 })
				dns.mu.Lock()
				dns.hosts, dns.srv = nil, nil
				dns.mu.Unlock()
				time.Sleep(2 * time.Minute)
				if n1.View().Expect != 3 || !alive("n1 n2", n1, n2) {
					t.Errorf("without DNS: expect %d, members %s", n1.View().Expect, names(n1.View()))
				}
			})
		})
	}
}

package jatah_test

import (
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/jatah-io/jatah"
	"github.com/jatah-io/jatah/cluster/simnet"
)

// packetSieve is a transport that loses the packets that drop says, and no stream: a firewall between two nodes.
type packetSieve struct {
	*simnet.Transport
	drop atomic.Pointer[func(to string, size int) bool] // nil: none
}

func (s *packetSieve) WriteTo(b []byte, to string) (time.Time, error) {
	if drop := s.drop.Load(); drop != nil && (*drop)(to, len(b)) {
		return time.Now(), nil
	}
	return s.Transport.WriteTo(b, to)
}

func (s *packetSieve) WriteToAddress(b []byte, to memberlist.Address) (time.Time, error) {
	return s.WriteTo(b, to.Addr)
}

// sieves puts one between each node and its network.
func (b *bubble) sieves() map[string]*packetSieve {
	all := map[string]*packetSieve{}
	b.tune = func(c *jatah.Config) {
		s := &packetSieve{Transport: c.Transport.(*simnet.Transport)}
		all[c.Node], c.Transport = s, s
	}
	return all
}

// doctor is what a host's node finds, without what depends on the machine that the test runs on.
func (h *host) doctor() jatah.Diagnosis {
	h.b.t.Helper()
	d, err := h.node().Doctor(h.b.t.Context())
	if err != nil {
		h.b.t.Fatal(err)
	}
	d.Findings = slices.DeleteFunc(d.Findings, func(f jatah.Finding) bool { return f.Check == "memory" || f.Check == "files" })
	return d
}

// found fails the test unless the findings are of these checks, in this order, and each says its words.
func (b *bubble) found(d jatah.Diagnosis, want ...[2]string) {
	b.t.Helper()
	if len(d.Findings) != len(want) {
		b.t.Errorf("asked by %s, answered by %v: %d findings, want %d:\n%+v", d.Node, d.Answered, len(d.Findings), len(want), d.Findings)
		return
	}
	for i, f := range d.Findings {
		if f.Check != want[i][0] || !strings.Contains(f.Problem+" "+f.Advice, want[i][1]) || f.Advice == "" {
			b.t.Errorf("finding %d is %+v; want %q", i, f, want[i])
		}
	}
}

var doctorLimit = jatah.Limit{Name: "api", Rate: jatah.PerMinute(60), Burst: 10}

func TestDoctorOfAWholeCluster(t *testing.T) {
	inBubble(t, 1, doctorLimit, 1, func(b *bubble) {
		b.start(4)
		begin := time.Now()
		d := b.hosts[2].doctor()
		if took := time.Since(begin); took > 50*time.Millisecond {
			t.Errorf("it took %v where all is well", took)
		}
		b.found(d)
		if want := []string{"n1", "n2", "n3", "n4"}; d.Node != "n3" || !slices.Equal(d.Answered, want) || d.Missing != nil {
			t.Errorf("%+v", d)
		}
	})
}

func TestDoctorAlone(t *testing.T) {
	n, _ := lone(t, doctorLimit)
	d, err := n.Doctor(t.Context())
	if err != nil || len(d.Answered) != 1 || slices.ContainsFunc(d.Findings, func(f jatah.Finding) bool { return !f.Note }) {
		t.Errorf("%+v, %v", d, err)
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := n.Doctor(t.Context()); err != jatah.ErrClosed {
		t.Errorf("closed: %v", err)
	}
}

// TestDoctorNamesTheWayThatIsClosed, whoever is asked: one of the two, or another.
func TestDoctorNamesTheWayThatIsClosed(t *testing.T) {
	for _, c := range []struct {
		name  string
		fault func(b *bubble, sieves map[string]*packetSieve)
		want  [2]string
	}{
		{"UDP from n1 to n2", func(b *bubble, s map[string]*packetSieve) {
			drop := func(to string, _ int) bool { return to == b.hosts[1].addr }
			s["n1"].drop.Store(&drop)
		}, [2]string{"packets", "UDP packets from n1 do not arrive at n2; TCP does. Open UDP from 10.0.0.1:7946 to 10.0.0.2:7946"}},
		{"large packets from n2 to n1", func(b *bubble, s map[string]*packetSieve) {
			drop := func(to string, size int) bool { return to == b.hosts[0].addr && size > 1372 }
			s["n2"].drop.Store(&drop)
		}, [2]string{"full_packets", "UDP packets of 1400 bytes from n2 do not arrive at n1; small ones do. The way has a smaller MTU and does not say so: give its tunnel or interface an MTU of 1448"}},
		{"all from n1 to n2", func(b *bubble, _ map[string]*packetSieve) { b.net.Cut(b.hosts[0].addr, b.hosts[1].addr) },
			[2]string{"packets", "Nothing from n1 arrives at n2; the other way it does. Open UDP and TCP from 10.0.0.1:7946 to 10.0.0.2:7946"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, 2, doctorLimit, 1, func(b *bubble) {
				sieves := b.sieves()
				b.start(3)
				c.fault(b, sieves)
				for _, h := range []*host{b.hosts[2], b.hosts[1], b.hosts[0]} {
					time.Sleep(1100 * time.Millisecond) // an examination of its own for each
					d := h.doctor()
					if len(d.Missing) > 0 { // who cannot be asked by this one
						d.Findings = slices.DeleteFunc(d.Findings, func(f jatah.Finding) bool { return f.Check == "members" })
						if len(d.Findings) != 1 || d.Findings[0].Check != c.want[0] || !slices.Equal(d.Findings[0].Nodes, []string{"n1", "n2"}) {
							t.Errorf("asked %s: %+v", h.name, d)
						}
						continue
					}
					b.found(d, c.want)
				}
			})
		})
	}
}

// TestDoctorNamesWhoIsGoneOrDiffers: a crashed member, a limit that two files define differently, one that is not everywhere, settings.
func TestDoctorNamesWhoIsGoneOrDiffers(t *testing.T) {
	inBubble(t, 3, doctorLimit, 1, func(b *bubble) {
		b.tune = func(c *jatah.Config) {
			c.Expect = 4
			if c.Node == "n2" {
				c.Expect = 0
			}
		}
		b.add(4)
		for _, h := range b.hosts {
			h.open()
		}
		b.together(30*time.Second, 4)
		time.Sleep(3 * time.Second)
		other := doctorLimit
		other.Burst++
		for i, l := range []jatah.Limit{other, {Name: "login", Rate: jatah.PerMinute(5)}} {
			if _, err := b.hosts[i].node().Limit(l); err != nil {
				t.Fatal(err)
			}
		}
		b.hosts[3].crash()
		b.within(20*time.Second, "n4 failed", func() bool { return b.hosts[0].alive() == 3 })
		time.Sleep(2 * time.Second)
		b.found(b.hosts[1].doctor(),
			[2]string{"limits", "The limit api is not defined the same on all nodes: one way on n1, another on n2 and n3."},
			[2]string{"limits", "The limit login is defined on n2 and not on n1 and n3."},
			[2]string{"members", "n4 failed at"},
			[2]string{"settings", "cluster.expect is not the same on all nodes: n1 and n3: 4; n2: 0."})
		time.Sleep(30 * time.Second) // longer than grace
		d := b.hosts[0].doctor()
		if !slices.ContainsFunc(d.Findings, func(f jatah.Finding) bool {
			return strings.Contains(f.Problem, "divided among 4 members and 3 are there, so that 1 of 4 parts")
		}) {
			t.Errorf("after grace: %+v", d.Findings)
		}
	})
}

package cluster

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/jatah-io/jatah/cluster/simnet"
)

// tap is a transport that keeps a copy of every datagram that it sends, as somebody on the network can.
type tap struct {
	*simnet.Transport
	mu   sync.Mutex
	sent []sentDatagram
}

type sentDatagram struct {
	b  []byte
	to string
}

func (t *tap) keep(b []byte, to string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sent = append(t.sent, sentDatagram{bytes.Clone(b), to})
}

func (t *tap) WriteTo(b []byte, to string) (time.Time, error) {
	t.keep(b, to)
	return t.Transport.WriteTo(b, to)
}

func (t *tap) WriteToAddress(b []byte, to memberlist.Address) (time.Time, error) {
	t.keep(b, to.Addr)
	return t.Transport.WriteToAddress(b, to)
}

// recorded are those kept so far, ours or memberlist's, at most so many, spread over all.
func (t *tap) recorded(own bool, most int) []sentDatagram {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := slices.DeleteFunc(slices.Clone(t.sent), func(d sentDatagram) bool { return ours(d.b) != own })
	var some []sentDatagram
	for i := 0; i < len(all); i += 1 + len(all)/most {
		some = append(some, all[i])
	}
	return some
}

// hostileWorld is three nodes with a secret and a register, whose datagrams are on record, and a stranger at the network.
type hostileWorld struct {
	*world
	nodes    []*node
	taps     []*tap
	stranger *simnet.Transport
}

func newHostileWorld(w *world) *hostileWorld {
	h := &hostileWorld{world: w}
	for i := range 3 {
		h.boot(i)
	}
	h.settle()
	var err error
	if h.stranger, err = w.net.Transport(at(9)); err != nil {
		w.t.Fatal(err)
	}
	return h
}

// boot starts the node of a place, again if there was one.
func (h *hostileWorld) boot(i int) {
	h.t.Helper()
	tr, err := h.net.Transport(at(i + 1))
	if err != nil {
		h.t.Fatal(err)
	}
	t := &tap{Transport: tr}
	n := &node{addr: at(i + 1), executed: make(map[string]int)}
	cfg := h.seeded(fmt.Sprint("n", i+1), secret('a', 16))
	cfg.Register, cfg.Transport = NewRegister(func([]string) {}), t
	n.Cluster, err = Start(h.t.Context(), cfg, Events{
		Packet: func(from string, msg []byte) {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.packets = append(n.packets, from+" "+string(msg))
		},
		Call: func(_ context.Context, from string, req []byte) ([]byte, error) {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.executed[string(req)]++
			return req, nil
		},
		Down: func(err error) { h.t.Errorf("n%d goes down: %v", i+1, err) },
	})
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { _ = n.Close() })
	if i < len(h.nodes) {
		h.nodes[i], h.taps[i] = n, t
		return
	}
	h.nodes, h.taps = append(h.nodes, n), append(h.taps, t)
}

func (h *hostileWorld) settle() {
	h.t.Helper()
	h.within(time.Minute, "three members", func() bool { return alive("n1 n2 n3", h.nodes...) })
	time.Sleep(5 * time.Second)
}

// talk makes every node send every other one a packet and a call, and write to the register.
func (h *hostileWorld) talk(round int) {
	h.t.Helper()
	for _, from := range h.nodes {
		put(h.t, from.cfg.Register, fmt.Sprint(from.cfg.Name, round), "v")
		if err := from.Announce(h.t.Context(), fmt.Sprint(from.cfg.Name, round)); err != nil {
			h.t.Error(err)
		}
		for _, to := range h.nodes {
			if to == from {
				continue
			}
			if err := from.Send(to.cfg.Name, fmt.Appendf(nil, "%d", round)); err != nil {
				h.t.Error(err)
			}
			if _, err := from.Call(h.t.Context(), to.cfg.Name, fmt.Appendf(nil, "%s %d", from.cfg.Name, round)); err != nil {
				h.t.Error(err)
			}
		}
	}
	time.Sleep(time.Second)
}

// state is all that must not change: members, who is lost, the register, and which calls were executed how often.
func (h *hostileWorld) state() string {
	var b bytes.Buffer
	for _, n := range h.nodes {
		v := n.View()
		fmt.Fprint(&b, v.Members, v.Lost, content(n.cfg.Register))
		n.mu.Lock()
		fmt.Fprintln(&b, n.executed)
		n.mu.Unlock()
	}
	return b.String()
}

func (h *hostileWorld) dropped() (foreign, all int64) {
	for _, n := range h.nodes {
		s := n.Stats()
		foreign += s.DropForeign
		all += s.DropForeign + s.DropMalformed + s.DropStale + s.DropUnknown + s.Duplicates
	}
	return foreign, all
}

func (h *hostileWorld) inject(b []byte, to string) {
	h.t.Helper()
	if _, err := h.stranger.WriteTo(b, to); err != nil {
		h.t.Fatal(err)
	}
}

// Datagrams that were changed or cut on the way, in every part and at every length, change nothing, and are counted. So are those that were made with
// another secret, or for a cluster of another name.
func TestForgedAndDamagedTrafficChangesNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		h := newHostileWorld(w)
		h.talk(1)
		before := h.state()
		was, _ := h.dropped()
		sent := int64(0)
		for _, tap := range h.taps {
			for _, d := range tap.recorded(true, 4) {
				for i := range d.b { // each bit of the head, one of each byte after it
					for bit := range 8 {
						if i >= sealedHead && bit != i%8 {
							continue
						}
						c := bytes.Clone(d.b)
						if c[i] ^= 1 << bit; ours(c) {
							h.inject(c, d.to)
							sent++
						}
					}
					if i > 0 {
						h.inject(d.b[:i], d.to)
						sent++
					}
				}
				time.Sleep(10 * time.Millisecond)
			}
			for _, d := range tap.recorded(false, 10) { // memberlist's: its label, version, nonce and what it encrypted
				for i := range d.b {
					c := bytes.Clone(d.b)
					if c[i] ^= 1 << (i % 8); !ours(c) {
						h.inject(c, d.to)
					}
					h.inject(d.b[:i], d.to)
				}
				time.Sleep(10 * time.Millisecond)
			}
		}
		head := header{from: "n1", sender: h.nodes[0].Incarnation(), receiver: h.nodes[1].Incarnation()}
		leave, err := marshal(&control{Op: opLeave})
		if err != nil {
			t.Fatal(err)
		}
		packet := appendPacket(nil, &head, 1, appendFrame(nil, kindControl, 1<<40, leave))
		for _, s := range []*sealing{newSealingFor(t, "jatah"), newSealingFor(t, "jatah", secret('b', 16)), newSealingFor(t, "other", secret('a', 16))} {
			h.inject(s.sealed(packet), at(2))
			sent++
		}
		time.Sleep(20 * time.Second)
		if after := h.state(); after != before {
			t.Errorf("before: %s\nafter: %s", before, after)
		}
		if now, _ := h.dropped(); now-was != sent {
			t.Errorf("%d of %d were counted as foreign", now-was, sent)
		}
		h.talk(2)
	})
}

// Datagrams that were recorded are sent again: at once, later, to another node, when the receiver has another incarnation, and when the
// sender was started again. Calls are not executed again, and neither members nor the register change, in all but what a node of the same incarnation
// hears once more as a message, which has to be bearable twice.
func TestReplayedTrafficChangesNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		h := newHostileWorld(w)
		h.talk(1)
		// A removal, which a replay of the write must not undo.
		h.nodes[0].cfg.Register.Delete("n11")
		if err := h.nodes[0].Announce(t.Context(), "n11"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		var record []sentDatagram
		for _, tap := range h.taps {
			record = append(record, tap.recorded(true, 300)...)
			record = append(record, tap.recorded(false, 300)...)
		}
		replay := func(what string, to func(sentDatagram) string) {
			t.Helper()
			before := h.state()
			_, was := h.dropped()
			for i, d := range record {
				if h.inject(d.b, to(d)); i%20 == 0 {
					time.Sleep(time.Millisecond)
				}
			}
			time.Sleep(15 * time.Second)
			if after := h.state(); after != before {
				t.Errorf("%s: before: %s\nafter: %s", what, before, after)
			}
			if _, now := h.dropped(); now == was {
				t.Errorf("%s: nothing was counted", what)
			}
		}
		same := func(d sentDatagram) string { return d.to }
		another := func(d sentDatagram) string {
			if d.to == at(3) {
				return at(1)
			}
			return at(3)
		}
		replay("at once", same)
		replay("to another node", another)
		time.Sleep(2 * time.Minute) // what was executed is forgotten
		replay("later", same)
		for _, n := range h.nodes {
			n.Renew()
		}
		time.Sleep(10 * time.Second)
		was := len(h.nodes[1].packets)
		replay("to later incarnations", same)
		if now := len(h.nodes[1].packets); now != was {
			t.Errorf("%d messages for an earlier incarnation were taken", now-was)
		}
		_ = h.nodes[0].Leave(t.Context())
		_ = h.nodes[0].Close()
		time.Sleep(5 * time.Second)
		h.boot(0)
		h.settle()
		replay("after a restart", same)
		h.talk(2)
	})
}

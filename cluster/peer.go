package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/hashicorp/memberlist"
)

// peer is another process that memberlist sees alive, member or not.
type peer struct {
	name string
	proc uint64
	wire string
	addr netip.AddrPort
	node memberlist.Node // a copy: memberlist changes its own under its lock
	dest memberlist.Address

	meta meta // guarded by Cluster.mu
	left bool // said that it leaves; guarded by Cluster.mu

	inc         atomic.Uint64 // the newest incarnation heard of, by gossip or from a packet
	rtt         atomic.Int64  // nanoseconds, 0: none yet
	firstResend time.Duration
	heard       atomic.Uint64 // packets taken in, without streams
	out         *batcher
	datagram    []byte // the one that is being sent; of the goroutine in out.write
	seen        seen
}

func (c *Cluster) newPeer(n *memberlist.Node, name string, m meta) *peer {
	ip, _ := netip.AddrFromSlice(n.Addr)
	p := &peer{
		name: name, proc: process(m.Incarnation), wire: n.Name, meta: m, node: *n,
		addr: netip.AddrPortFrom(ip.Unmap(), n.Port), dest: n.FullAddress(),
	}
	p.node.Addr = slices.Clone(n.Addr)
	p.node.Meta = nil
	p.inc.Store(m.Incarnation)
	switch c.cfg.Profile {
	case Local:
		p.firstResend = 10 * time.Millisecond
	case WAN:
		p.firstResend = 300 * time.Millisecond
	default:
		p.firstResend = 20 * time.Millisecond
	}
	p.out = &batcher{
		space: c.space,
		write: func(frames int, encoded []byte) { c.sendPacket(p, frames, encoded) },
		spawn: func(f func()) {
			if !c.spawn(f) {
				f() // closing: what is left is sent into a closed transport
			}
		},
		drop: func(n int) { c.n.dropBusy.Add(int64(n)) },
	}
	return p
}

// fits says whether a frame with this body has room in a packet.
func (p *peer) fits(body []byte) bool { return len(body)+frameOverhead <= p.out.space }

func (c *Cluster) headerTo(p *peer) header {
	return header{from: c.cfg.Name, sender: c.inc.Load(), receiver: p.inc.Load()}
}

// sendPacket makes a datagram of frames and writes it to the socket. It is called by one goroutine at a time.
func (c *Cluster) sendPacket(p *peer, frames int, encoded []byte) {
	h := c.headerTo(p)
	head := c.sealing.head()
	b := slices.Grow(p.datagram[:0], head+h.size()+len(encoded)+c.sealing.tail())
	b = appendPacket(b[:head], &h, frames, encoded)
	size := len(b) - head
	b = c.sealing.seal(b)
	err := c.tr.post(b, p.addr, p.dest)
	if p.datagram = nil; !c.tr.keeps() {
		p.datagram = keep(b)
	}
	if err != nil {
		c.n.sendErrors.Add(1)
		return
	}
	c.n.packetsOut.Add(1)
	c.n.bytesOut.Add(int64(size))
}

// datagram takes one of our datagrams, which it may change. It does not block.
func (c *Cluster) datagram(b []byte) {
	b, ok := c.sealing.open(b)
	if !ok {
		c.n.dropForeign.Add(1)
		return
	}
	if from := c.receive(b); from != nil {
		from.heard.Add(1)
	}
}

// streamPacket is a packet of one frame of any size. The body is copied.
func (c *Cluster) streamPacket(p *peer, k kind, id uint64, body []byte) []byte {
	h := c.headerTo(p)
	f := appendFrame(make([]byte, 0, len(body)+frameOverhead), k, id, body)
	return appendPacket(make([]byte, 0, h.size()+len(f)), &h, 1, f)
}

// stream sends a packet over a stream of its own. It may take as long as a dial and a write do.
func (c *Cluster) stream(p *peer, b []byte) error {
	if err := c.ml.SendReliable(&p.node, b); err != nil {
		c.n.sendErrors.Add(1)
		return fmt.Errorf("cluster: stream to %s: %w", p.name, err)
	}
	c.n.streamsOut.Add(1)
	c.n.bytesOut.Add(int64(len(b)))
	return nil
}

// receive takes a packet or the one of a stream, and says of whom, if it was taken. It does not block, and keeps nothing of b.
func (c *Cluster) receive(b []byte) *peer {
	c.n.packetsIn.Add(1)
	c.n.bytesIn.Add(int64(len(b)))
	p, err := parsePacket(b)
	if err != nil {
		c.n.dropMalformed.Add(1)
		return nil
	}
	s := c.snap.Load()
	from := s.byProc[process(p.sender)]
	if from == nil || from.name != string(p.from) {
		c.n.dropUnknown.Add(1)
		c.stranger(string(p.from), process(p.sender))
		return nil
	}
	if p.receiver != 0 && p.receiver != c.inc.Load() || !c.heardFrom(from, p.sender) {
		c.n.dropStale.Add(1)
		return nil
	}
	member := s.byName[from.name] == from && c.ready.Load()
	for range p.frames {
		c.dispatch(from, member, p.next())
	}
	return from
}

// heardFrom takes note of the sender's incarnation, which may be newer than what gossip brought.
// It is false for an older one.
func (c *Cluster) heardFrom(p *peer, inc Incarnation) bool {
	for {
		known := p.inc.Load()
		if inc <= known {
			return inc == known
		}
		if p.inc.CompareAndSwap(known, inc) {
			c.poke()
			return true
		}
	}
}

func (c *Cluster) dispatch(from *peer, member bool, f frame) {
	switch f.kind {
	case kindAnswer, kindError:
		c.waiting.answer(f.id, from, answer{body: slices.Clone(f.body), remote: f.kind == kindError})
		return
	case kindControl:
		c.request(from, f)
		return
	}
	if f.kind >= kindEnd {
		c.n.dropNewer.Add(1)
		return
	}
	if !member {
		c.n.dropUnknown.Add(1)
		return
	}
	if f.kind != kindMsg {
		c.request(from, f)
	} else if c.ev.Packet != nil {
		c.ev.Packet(from.name, f.body)
	}
}

// delegate is how memberlist reaches a Cluster. All but NotifyMsg run under its lock.
type delegate struct{ c *Cluster }

func (d *delegate) NotifyMsg(b []byte)              { d.c.receive(b) }
func (d *delegate) GetBroadcasts(int, int) [][]byte { return nil }

func (d *delegate) NodeMeta(int) []byte {
	d.c.mu.Lock()
	defer d.c.mu.Unlock()
	return d.c.metaBytes
}

// NotifyAlive keeps out processes that cannot be members with us.
func (d *delegate) NotifyAlive(n *memberlist.Node) error {
	if n.Name == d.c.wire {
		return nil
	}
	name, m, err := decodeMeta(n.Name, n.Meta)
	if err != nil {
		return err
	}
	return d.c.compatible(name, n, &m)
}

// NotifyMerge refuses to join, or to be joined by, a cluster with other constants.
func (d *delegate) NotifyMerge(nodes []*memberlist.Node) error {
	for _, n := range nodes {
		if n.Name == d.c.wire || n.State == memberlist.StateDead || n.State == memberlist.StateLeft {
			continue
		}
		name, m, err := decodeMeta(n.Name, n.Meta)
		if err != nil {
			continue // NotifyAlive keeps it out
		}
		if err := d.c.compatible(name, n, &m); err != nil {
			return err
		}
	}
	return nil
}

// compatible compares the constants that must agree.
func (c *Cluster) compatible(name string, n *memberlist.Node, theirs *meta) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	err := c.meta.differs(theirs)
	if err == nil {
		err = c.sameSeed(name, n.Address(), theirs)
	}
	if err != nil {
		err = fmt.Errorf("%w (node %q at %s)", err, name, n.Address())
		c.warn(n.Name, "cluster: a node is kept out", "error", err)
		return err
	}
	return nil
}

// warn logs at most once a minute per key. Called with mu held.
func (c *Cluster) warn(key, text string, args ...any) {
	now := time.Now()
	if at, ok := c.warned[key]; ok && now.Sub(at) < quietFor {
		return
	}
	if len(c.warned) >= 1024 {
		clear(c.warned)
	}
	c.warned[key] = now
	c.log.Log(context.Background(), slog.LevelWarn, text, args...)
}

func (d *delegate) NotifyJoin(n *memberlist.Node)   { d.c.alive(n) }
func (d *delegate) NotifyUpdate(n *memberlist.Node) { d.c.alive(n) }

func (d *delegate) NotifyLeave(n *memberlist.Node) {
	c := d.c
	c.mu.Lock()
	if p := c.peers[n.Name]; p != nil {
		delete(c.peers, n.Name)
		c.keepGone(p)
	}
	c.mu.Unlock()
	c.poke()
}

// update takes metadata that may be older than what is known: what changes in it only grows.
// Called with Cluster.mu held.
func (p *peer) update(m meta) {
	m.State, m.Claim = max(m.State, p.meta.State), max(m.Claim, p.meta.Claim)
	m.Incarnation, m.Sure = max(m.Incarnation, p.meta.Incarnation), m.Sure || p.meta.Sure
	p.meta = m
	p.left = p.left || m.State == leaving
	for inc := p.inc.Load(); m.Incarnation > inc && !p.inc.CompareAndSwap(inc, m.Incarnation); inc = p.inc.Load() {
	}
}

// keepGone keeps a process that memberlist took off its list: it may be back when a split heals, and
// a request that it repeats then must not run a second time. Called with mu held.
func (c *Cluster) keepGone(p *peer) {
	for wire := range c.gone {
		if len(c.gone) < maxLost {
			break
		}
		delete(c.gone, wire)
	}
	if !p.left {
		c.gone[p.wire] = p
	}
}

// alive takes what memberlist says about a living process.
func (c *Cluster) alive(n *memberlist.Node) {
	if n.Name == c.wire {
		return
	}
	name, m, err := decodeMeta(n.Name, n.Meta)
	if err != nil {
		return // NotifyAlive has refused it
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.peers[n.Name]
	if p == nil {
		if p = c.gone[n.Name]; p == nil || !p.node.Addr.Equal(n.Addr) || p.node.Port != n.Port {
			p = c.newPeer(n, name, m)
		}
		delete(c.gone, n.Name)
		c.peers[n.Name] = p
		if c.forgotten[name].proc == p.proc {
			delete(c.forgotten, name) // it lives after all
		}
	}
	p.update(m)
	c.older(&m)
	c.poke()
}

func (d *delegate) LocalState(bool) []byte            { return d.c.localState() }
func (d *delegate) MergeRemoteState(b []byte, _ bool) { d.c.mergeState(b) }
